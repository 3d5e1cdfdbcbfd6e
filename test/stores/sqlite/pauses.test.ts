import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CheckClock, NOW } from "../../../src/stores/contract/check.ts";
import { create, runId, take, waiting } from "../../../src/stores/contract/samples.ts";
import { ASIDE_MS } from "../../harness/internals.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

/** More than are passed over at once. */
const PAUSED = 3_000;

let raw: SqliteDatabase;
let store: SqliteStore;

beforeEach(() => {
  raw = openDatabase(":memory:");
  store = new SqliteStore(raw, { clock: new CheckClock(NOW), closeDatabase: true });
});

afterEach(() => store.close());

describe.each([
  { kind: "without gates", gateOf: () => undefined },
  { kind: "with gates", gateOf: (n: number) => `~gate ${n % 100}` },
])(`of due runs $kind of a paused tenant`, ({ gateOf }) => {
  /** Runs that are due one after the other. */
  const createDue = async (tenant: string, from: number, to: number): Promise<void> => {
    const numbers = Array.from({ length: to - from }, (_, index) => from + index);
    const of = (n: number) => ({ tenant, head: waiting(NOW - 10_000 + n), gate: gateOf(n) });
    await Promise.all(numbers.map((n) => create(store, n, of(n))));
  };
  const aside = () => {
    const row = raw.prepare(`SELECT count(*) AS runs FROM cadenza_runs WHERE due_at >= ${ASIDE_MS}`).get();
    return (row as { readonly runs: number }).runs;
  };

  it("few are set aside before a run between them and a run behind them are given", async () => {
    await createDue("acme", 0, 2_500);
    await createDue("other", 2_500, 2_501);
    await createDue("acme", 2_501, PAUSED);
    await createDue("other", PAUSED, PAUSED + 1);
    await store.pause({ tenant: "acme" }, null);
    expect(await take(store)).toEqual([runId(2_500)]);
    expect(await take(store)).toEqual([runId(PAUSED)]);
    expect(aside()).toBeLessThan(1_000);
    expect(await take(store)).toEqual([]);
    expect(aside()).toBe(PAUSED - 1);
  });

  it("runs of another paused tenant that were passed over are given once that tenant is resumed", async () => {
    await createDue("acme", 0, 600);
    await createDue("beta", 600, 601);
    await createDue("other", 601, 603);
    await store.pause({ tenant: "acme" }, null);
    await store.pause({ tenant: "beta" }, null);
    expect(await take(store, { limit: 1 })).toEqual([runId(601)]);
    await store.resume({ tenant: "beta" });
    expect(await take(store, { limit: 1 })).toEqual([runId(600)]);
    expect(await take(store, { limit: 1 })).toEqual([runId(602)]);
  });
});
