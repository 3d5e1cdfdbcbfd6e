import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CadenzaError } from "cadenza";
import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import type { FoundRun } from "cadenza/store";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  create,
  message,
  parts,
  runId,
  runKey,
  TENANT,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { drivers, temporaryFolder } from "../../harness/sqlite-files.ts";

const PAGE = 4_096;
/** Longer than half a page, so that no page holds two of them. */
const LONG = 2_500;
const agents = [{ agent_name: "echo", version: null }];

let folder: ReturnType<typeof temporaryFolder>;
let path: string;

beforeEach(() => {
  folder = temporaryFolder();
  path = join(folder.path, "runs.db");
});

afterEach(() => folder.remove());

describe.each(drivers)("a file that is damaged, with $name", ({ open }) => {
  it("at a page that holds the first entry of a run: that run is reported as damaged, the others are found", async () => {
    const before = opened();
    for (const n of [1, 2, 3, 4])
      await create(before, n, { head: waiting(1), created: { input: [message(`${n}`.repeat(LONG))] } });
    before.close();
    overwrite(open, "3".repeat(LONG / 2));
    const store = opened();

    expect(told(store.list({ tenant: TENANT, limit: 9, offset: 0 }))).toEqual(["4", "3 is damaged", "2", "1"]);
    expect(told(await store.take({ owner: "taker", agents, limit: 9 }))).toEqual(["1", "2", "3 is damaged", "4"]);
    expect(store.find(runKey(4))?.key).toEqual(runKey(4));
    expect(errorOf(() => store.find(runKey(3)))).toMatchObject({ code: "store_failed", run_id: runId(3) });
    expect(errorOf(() => store.read(runKey(3), 0, 9))).toMatchObject({ code: "store_failed", run_id: runId(3) });
    expect(store.read(runKey(2), 0, 9)).toHaveLength(1);
    expect(store.read(runKey(2), 1, 9)).toEqual([]);
    store.close();
  });

  it("at a page that holds a later entry: only reads of it fail", async () => {
    const before = opened();
    // The run of another tenant has the same id, and comes first.
    const other = await create(before, 1, { tenant: "aaa" });
    await append(before, other, 1, write(parts("not x")));
    const key = await create(before, 1);
    await append(before, key, 1, write(parts("x".repeat(LONG))));
    await append(before, key, 2, write(parts("y".repeat(LONG))));
    before.close();
    overwrite(open, "y".repeat(LONG / 2));
    const store = opened();

    expect(store.read(key, 0, 2)).toHaveLength(2);
    expect(store.read(key, 1, 1)).toEqual(parts("x".repeat(LONG)));
    expect(errorOf(() => store.read(key, 0, 3))).toMatchObject({ code: "store_failed", run_id: runId(1) });
    expect(told(store.list({ tenant: TENANT, limit: 9, offset: 0 }))).toEqual(["1"]);
    store.close();
  });

  it.each<[what: string, sql: string]>([
    ["holds no text", "UPDATE cadenza_entries SET lines = x'ff00ff' WHERE position = 2"],
    ["is missing", "DELETE FROM cadenza_entries WHERE position = 2"],
    ["has lost its last lines", "UPDATE cadenza_entries SET lines = '' WHERE position = 2"],
  ])("in a row that %s: reading it is an error, and no other entry is given instead", async (_what, sql) => {
    const store = opened();
    const key = await create(store, 1);
    for (const position of [1, 2, 3]) await append(store, key, position, write(parts(`${position}`)));
    const db = open(path);
    db.exec(sql);
    db.close();

    const error = errorOf(() => store.read(key, 0, 9));
    expect(error).toMatchObject({ code: "store_failed", run_id: runId(1) });
    expect(error?.message).toBe(`Run ${runId(1)} is damaged in the store: position 2 of its log cannot be read.`);
    expect(store.read(key, 0, 2)).toHaveLength(2);
    expect(store.read(key, 3, 9)).toEqual(parts("3"));
    store.close();
  });

  function opened(): SqliteStore {
    return new SqliteStore(open(path), { synchronous: "NORMAL", closeDatabase: true });
  }
});

describe.each(drivers)("a disk that is full, with $name", ({ open }) => {
  it("fails writes and no reads; when the disk has space again, nothing of the failed writes is stored", async () => {
    const db = open(path);
    const store = new SqliteStore(db, { synchronous: "NORMAL", closeDatabase: true });
    for (const n of [1, 2]) await create(store, n, { head: waiting(1) });
    limitPages(db, 0);
    const big = write(parts("x".repeat(20 * PAGE)));
    const failed = await store.append(runKey(1), { epoch: 1, position: 1 }, big).catch((error: unknown) => error);

    expect(String(failed)).toMatch(/full/);
    expect(store.find(runKey(1))?.position).toBe(1);
    expect(store.read(runKey(1), 0, 9)).toHaveLength(1);
    expect(told(store.list({ tenant: TENANT, limit: 9, offset: 0 }))).toEqual(["2", "1"]);
    expect(store.moved([{ key: runKey(2), epoch: 1, position: 1 }])).toEqual([]);
    expect(store.backlog()).toHaveLength(1);
    limitPages(db, 1_000);
    await append(store, runKey(1), 1, big);
    expect(store.read(runKey(1), 0, 9)).toHaveLength(2);
    store.close();
  });
});

/** Overwrites the page of the file that holds a text. */
function overwrite(open: (path: string) => SqliteDatabase, text: string): void {
  const db = open(path);
  db.prepare("PRAGMA wal_checkpoint(TRUNCATE)").get();
  db.close();
  const file = readFileSync(path);
  const at = file.indexOf(text);
  if (at === -1) throw new Error("The text is not in the file.");
  const page = at - (at % PAGE);
  writeFileSync(path, file.fill(0xff, page, page + PAGE));
}

/** Lets the file grow by `more` pages. */
function limitPages(db: SqliteDatabase, more: number): void {
  const { page_count } = db.prepare("PRAGMA page_count").get() as { page_count: number };
  db.prepare(`PRAGMA max_page_count = ${Number(page_count) + more}`).get();
}

function told(runs: readonly FoundRun[]): readonly string[] {
  return runs.map(({ key, created }) => `${Number(key.run_id.slice(-12))}${created === null ? " is damaged" : ""}`);
}

function errorOf(call: () => unknown): CadenzaError | undefined {
  try {
    call();
  } catch (error) {
    if (CadenzaError.is(error)) return error;
    throw error;
  }
  return undefined;
}
