import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";
import { Random } from "../../harness/random.ts";
import { refusal } from "../../harness/runtimes.ts";

const missing = missingServer(18);

/** A text of so many UTF-16 units that does not compress. */
function textOf(kind: string, units: number, random: Random): string {
  const [from, count] = kind === "three bytes a unit" ? [0x4e00, 20_000] : [0xd800, 1_024];
  return Array.from({ length: units }, () => String.fromCharCode(from + random.below(count))).join("");
}

describe.skipIf(missing !== undefined)(`the longest keys on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;

  beforeAll(() => {
    pool = newPool(18);
  });
  afterAll(() => pool.end());

  it.each(["three bytes a unit", "lone high surrogates"])("fit into every index: %s", async (kind) => {
    const random = new Random(7);
    const [tenant, version, idempotencyKey] = [128, 128, 255].map((units) => textOf(kind, units, random)) as [
      string,
      string,
      string,
    ];
    const label = textOf("three bytes a unit", 64, random);
    const store = await openPostgresStore({ pool, schema: newSchema(), hints: false, ...PATIENT });
    const runtime = new AgentRuntime({ store });
    const concurrency = { max: 1, per: "session" } as const;
    runtime.register("a".repeat(63), { durable: true, version, concurrency }, async (_input, { ask }) => {
      await ask("Well?");
    });
    const scope = runtime.scope({ tenant });
    const session_id = "11111111-1111-4111-8111-111111111111";
    const request = { agent_name: "a".repeat(63), input: "", session_id };
    const labels = { [label]: label };
    const run = await scope.createRun(request, { idempotencyKey, labels });
    expect(run.status).toBe("awaiting");
    // It waits for the slot, and so is in the index of the runs that are due.
    const second = await scope.createRun({ ...request, mode: "async" }, { labels });
    expect((await scope.findRun({ idempotencyKey }))?.run_id).toBe(run.run_id);
    expect((await scope.listRuns({ labels })).map(({ run_id }) => run_id)).toContain(second.run_id);
    await scope.cancel(second.run_id);
    await scope.cancel(run.run_id);
    await runtime.close();
  });

  it("and longer ones are refused by name, by every store", async () => {
    const runtime = new AgentRuntime().register("agent", () => "ok");
    const idempotencyKey = "k".repeat(256);
    const { code, message } = await refusal(runtime.createRun({ agent_name: "agent", input: "" }, { idempotencyKey }));
    expect([code, message]).toEqual(["invalid_argument", expect.stringContaining("a string of 1 to 255 characters")]);
    expect((await refusal(runtime.findRun({ idempotencyKey }))).code).toBe("invalid_argument");
    expect(() => runtime.scope({ tenant: "t".repeat(129) })).toThrow("a string of 1 to 128 characters");
    expect(() => runtime.register("other", { version: "v".repeat(129) }, () => "ok")).toThrow("1 to 128 characters");
    await runtime.close();
  });
});
