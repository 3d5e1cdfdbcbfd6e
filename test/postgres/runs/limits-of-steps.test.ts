import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { describe, expect, it, vi } from "vitest";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`limits of steps on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  it("hold over all processes, which learn of their permits by hints, and ask nothing while they wait", async () => {
    const pool = newPool(18, { max: 8 });
    const schema = newSchema();
    const asked: string[] = [];
    const begun: string[] = [];
    const ends = new Map<string, () => void>();
    let atWork = 0;
    let most = 0;
    const open = async (name: string) => {
      const hooked = new HookedPool(pool);
      hooked.hook = (run, sql) => {
        if (sql.includes("permit_steps")) asked.push(name);
        return run();
      };
      // Without heartbeats in the time of this test only a hint tells of a permit.
      const durability = { leaseMs: 600_000, heartbeatMs: 300_000 };
      const store = await openPostgresStore({ pool: hooked, schema, durability });
      const runtime = new AgentRuntime({ store, stepLimits: { api: { max: 2 } } });
      runtime.register(name, { durable: true }, ([message], { step }) => {
        const input = message?.parts[0]?.content ?? "";
        const body = async () => {
          begun.push(input);
          atWork += 1;
          most = Math.max(most, atWork);
          await new Promise<void>((resolve) => ends.set(input, resolve));
          atWork -= 1;
        };
        return step("work", body, { limit: "api" }).then(() => input);
      });
      const create = (input: string) => runtime.createRun({ agent_name: name, input, mode: "async" });
      return { store, runtime, create };
    };
    const [one, two] = [await open("one"), await open("two")];
    for (const input of ["a", "b", "c"]) await one.create(input);
    await vi.waitFor(() => expect(begun).toHaveLength(2), 20_000);
    await two.create("d");
    await vi.waitFor(() => expect(asked).toContain("two"), 20_000);
    for (let ended = 0; ended < 4; ended++) {
      await vi.waitFor(() => expect(begun).toHaveLength(Math.min(4, ended + 2)), 20_000);
      const name = begun[ended] ?? "";
      await vi.waitFor(() => expect(ends.has(name)).toBe(true), 20_000);
      ends.get(name)?.();
    }
    await vi.waitFor(() => expect(atWork).toBe(0), 20_000);
    expect([begun.length, most]).toEqual([4, 2]);
    for (const { runtime, store } of [one, two]) {
      await runtime.close();
      await store.close();
    }
    await pool.end();
  });
});
