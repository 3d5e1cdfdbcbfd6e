import { setTimeout as wait } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { openPlace } from "../crash/place.ts";
import type { QueueTask } from "./task.ts";
import { AGENTS, connectTo } from "./task.ts";

/** How many runs a process creates at a time. */
const AT_ONCE = 100;

/** A process that creates runs, and ends, or executes those that it takes until it is killed. */
async function work({ place, worker, creates, limit, atWork, work }: QueueTask): Promise<void> {
  const pool = connectTo(place);
  const store = await openPlace(place, { durability: { leaseMs: 3_000, heartbeatMs: 900 } });
  const runtime = new AgentRuntime({ store, work: creates === undefined ? { max: atWork } : false });
  const limits =
    limit === undefined ? [] : [{ name: "customer", key: ({ tenant }: { tenant: string }) => tenant, ...limit }];
  for (const agent of AGENTS)
    runtime.register(agent, { durable: true, limits }, (input, { step, run_id }) =>
      step("work", async () => {
        const began =
          "INSERT INTO work (worker, tenant, run, began) VALUES ($1, $2, $3, clock_timestamp()) RETURNING n";
        const { rows } = await pool.query<{ n: string }>(began, [worker, input[0]?.parts[0]?.content, run_id]);
        await wait(work);
        await pool.query("UPDATE work SET ended = clock_timestamp() WHERE n = $1", [rows[0]?.n]);
      }),
    );
  if (creates === undefined) {
    process.send?.("ready");
    return;
  }
  for (let at = 0; at < creates.length; at += AT_ONCE) {
    const some = creates.slice(at, at + AT_ONCE).map((tenant, n) => {
      // Without limits all runs are of one agent: customers take turns within an agent.
      const agent_name = (limit && AGENTS[(at + n) % AGENTS.length]) ?? AGENTS[0];
      return runtime.scope({ tenant }).createRun({ agent_name, input: tenant, mode: "async" });
    });
    await Promise.all(some);
  }
  await runtime.close();
  await pool.end();
  process.disconnect();
}

process.once("message", (task: QueueTask) => void work(task));
