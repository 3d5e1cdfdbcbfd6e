import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import { expect, it } from "vitest";
import { eventually } from "../../harness/eventually.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";
import { deferred } from "../../harness/promises.ts";
import { hookedStore } from "../../harness/store-proxy.ts";

const missing = missingServer(18);
const MANY = 60;
const MAX = 40;

it.skipIf(missing !== undefined)(
  `of ${MANY} runs of a dead owner, none of three workers takes more than 60 %, and none reads runs of agents that it lacks${missing ? `: ${missing}` : ""}`,
  async () => {
    const pool = newPool(18, { max: 16 });
    const schema = newSchema();
    const open = () => openPostgresStore({ pool, schema });
    const web = new AgentRuntime({ store: await open(), work: false });
    for (const name of ["task", "lacking"]) web.declare({ name, durable: true });
    const created = Array.from({ length: MANY + 50 }, (_, n) =>
      web.createRun({ agent_name: n < MANY ? "task" : "lacking", input: "", mode: "async" }),
    );
    const lacking = new Set((await Promise.all(created)).slice(MANY).map(({ run_id }) => run_id));

    const gate = deferred();
    const begun = [0, 0, 0];
    const own: string[] = [];
    const touched = new Set<string>();
    // Its lease expires when all workers wait for work.
    const asked = new Set<number>();
    const dying = await open();
    const agents = ["task", "lacking"].map((agent_name) => ({ agent_name, version: null }));
    await dying.renew("dying", 60_000);
    expect(await dying.take({ owner: "dying", agents, limit: MANY + 50 })).toHaveLength(MANY + 50);
    const workers = await Promise.all(
      begun.map(async (_, index) => {
        const store = hookedStore(
          (call, method, [key]) => {
            const { run_id } = (key ?? {}) as { readonly run_id?: string };
            if (method === "take") asked.add(index);
            if (run_id !== undefined && lacking.has(run_id)) touched.add(`${method} ${run_id}`);
            return call();
          },
          await open(),
        );
        const runtime = new AgentRuntime({ store, work: { max: MAX } });
        runtime.register("task", { durable: true }, (input, { step }) =>
          step("work", async () => {
            if (input[0]?.parts[0]?.content === "own") own.push(`${index}`);
            else begun[index] = (begun[index] ?? 0) + 1;
            await gate.promise;
          }),
        );
        return runtime;
      }),
    );
    await eventually(() => expect(asked.size).toBe(workers.length));
    await dying.renew("dying", 500);
    await eventually(() => expect(begun.reduce((sum, each) => sum + each)).toBe(MANY));
    // Each comes in time for a page at least.
    expect(Math.min(...begun)).toBeGreaterThanOrEqual(8);
    expect(Math.max(...begun)).toBeLessThanOrEqual(0.6 * MANY);
    const runs = await Promise.all(
      workers.map((worker) => worker.createRun({ agent_name: "task", input: "own", mode: "async" })),
    );
    await eventually(() => expect(own.sort()).toEqual(["0", "1", "2"]));
    gate.resolve();
    await Promise.all(
      runs.map(({ run_id }) => eventually(async () => expect((await web.getRun(run_id)).status).toBe("completed"))),
    );
    expect([...touched]).toEqual([]);
    await Promise.all([...workers, web].map((runtime) => runtime.close()));
    await dying.close();
    await pool.end();
  },
);
