import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { describe, expect, it } from "vitest";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";
import { deferred } from "../../harness/promises.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`slots of tenants on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  it("are counted for each tenant, over all processes", async () => {
    const pool = newPool(18, { max: 8 });
    const schema = newSchema();
    const atWork = new Map<string, number>();
    const most = new Map<string, number>();
    const together = deferred();
    const open = async () => {
      const store = await openPostgresStore({ pool, schema });
      const runtime = new AgentRuntime({ store });
      const concurrency = { max: 1, per: "tenant" } as const;
      runtime.register("limited", { durable: true, concurrency }, (input, { step }) =>
        step("work", async () => {
          const tenant = String(input[0]?.parts[0]?.content);
          const now = (atWork.get(tenant) ?? 0) + 1;
          atWork.set(tenant, now);
          most.set(tenant, Math.max(most.get(tenant) ?? 0, now));
          // The first run of each tenant ends when those of all tenants are at work.
          if (atWork.size === 3) together.resolve();
          await together.promise;
          atWork.set(tenant, (atWork.get(tenant) ?? 0) - 1);
        }),
      );
      return { runtime, store };
    };
    const processes = [await open(), await open()];
    const runs = await Promise.all(
      Array.from({ length: 12 }, (_, index) => {
        const tenant = ["red", "blue", "green"][index % 3] ?? "";
        const scope = processes[index % 2]?.runtime.scope({ tenant });
        return scope?.createRun({ agent_name: "limited", input: tenant });
      }),
    );
    expect(runs.map((run) => run?.status)).toEqual(runs.map(() => "completed"));
    expect([...most.values()]).toEqual([1, 1, 1]);
    for (const { runtime, store } of processes) {
      await runtime.close();
      await store.close();
    }
    await pool.end();
  });
});
