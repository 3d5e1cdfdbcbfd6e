import { setTimeout as wait } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { openPlace } from "../crash/place.ts";
import type { Task } from "./task.ts";
import { connect } from "./task.ts";

/** How many runs a process creates at a time. */
const AT_ONCE = 50;

/* A process that creates its share of the runs, and executes those that it takes until all have been executed. */
process.once("message", async ({ place, runs, total, max, work }: Task) => {
  const pool = connect(place);
  const runtime = new AgentRuntime({ store: await openPlace(place) });
  runtime.register("limited", { durable: true, concurrency: { max } }, (_input, { step }) =>
    step("work", async () => {
      const { rows } = await pool.query<{ ctid: string }>("INSERT INTO work VALUES (clock_timestamp()) RETURNING ctid");
      await wait(work);
      await pool.query("UPDATE work SET ended = clock_timestamp() WHERE ctid = $1", [rows[0]?.ctid]);
    }),
  );
  for (let left = runs; left > 0; left -= AT_ONCE) {
    const some = Array.from({ length: Math.min(left, AT_ONCE) });
    await Promise.all(some.map(() => runtime.createRun({ agent_name: "limited", input: "", mode: "async" })));
  }
  for (let done = 0; done < total; ) {
    await wait(50);
    const { rows } = await pool.query<{ done: number }>("SELECT count(ended)::int AS done FROM work");
    done = rows[0]?.done ?? 0;
  }
  await runtime.close();
  await pool.end();
  process.disconnect();
});
