import { AgentRuntime } from "cadenza";
import { describe, expect, it } from "vitest";
import { eventually } from "../../harness/eventually.ts";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { missingServer, newPool, newSchema, openHinted } from "../../harness/postgres-stores.ts";

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
      const store = await openHinted({ pool: hooked, schema, durability });
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
    await eventually(() => expect(begun).toHaveLength(2));
    await two.create("d");
    await eventually(() => expect(asked).toContain("two"));
    for (let ended = 0; ended < 4; ended++) {
      await eventually(() => expect(begun).toHaveLength(Math.min(4, ended + 2)));
      const name = begun[ended] ?? "";
      await eventually(() => expect(ends.has(name)).toBe(true));
      ends.get(name)?.();
    }
    await eventually(() => expect(atWork).toBe(0));
    expect([begun.length, most]).toEqual([4, 2]);
    for (const { runtime, store } of [one, two]) {
      await runtime.close();
      await store.close();
    }
    await pool.end();
  });
});
