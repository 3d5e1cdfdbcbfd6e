import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { describe, expect, it } from "vitest";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
const RUNS = 40;

describe.skipIf(missing !== undefined)(`durable runs on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  it.each([0, 2, 3, 7])(
    "end, each step once, also where every n-th answer to a write is lost, with n = %i (0: none)",
    async (n) => {
      const pool = newPool(18, { max: 8 });
      const schema = newSchema();
      const steps = new Map<string, number>();
      const open = async () => {
        const hooked = new HookedPool(pool);
        const store = await openPostgresStore({ pool: hooked, schema });
        let writes = 0;
        hooked.hook = async (run, sql) => {
          const result = await run();
          if (sql.includes("write_v1") && n > 0 && ++writes % n === 0)
            throw Object.assign(new Error("planted"), { code: "ECONNRESET" });
          return result;
        };
        const runtime = new AgentRuntime({ store });
        runtime.register("counter", { durable: true, version: "1" }, async function* (input, context) {
          const key = String(input[0]?.parts[0]?.content);
          for (const name of ["one", "two"]) {
            await context.step(
              name,
              () => steps.set(`${key} ${name}`, (steps.get(`${key} ${name}`) ?? 0) + 1).size > 0,
            );
          }
          yield `counted ${key}`;
        });
        return { runtime, store };
      };
      const processes = [await open(), await open()];
      const runs = await Promise.all(
        Array.from({ length: RUNS }, (_, index) => {
          const call = { agent_name: "counter", input: `${index}`, idempotency_key: `key ${index}` };
          return processes[index % 2]?.runtime.createRun(call);
        }),
      );

      expect(runs.map((run) => run?.status)).toEqual(runs.map(() => "completed"));
      expect([...steps.values()]).toEqual(Array.from({ length: 2 * RUNS }, () => 1));
      for (const { runtime, store } of processes) {
        await runtime.close();
        await store.close();
      }
      await pool.end();
    },
  );
});
