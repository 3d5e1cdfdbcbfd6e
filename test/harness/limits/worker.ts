import { setTimeout as wait } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { openPlace } from "../crash/place.ts";
import type { Task } from "./task.ts";
import { connect } from "./task.ts";

/* A process that creates its share of the runs, and executes those that it takes. */
process.once("message", async ({ place, runs, max, work }: Task) => {
  const pool = connect(place);
  const runtime = new AgentRuntime({ store: await openPlace(place) });
  runtime.register("limited", { durable: true, concurrency: { max } }, (_input, { step }) =>
    step("work", async () => {
      const { rows } = await pool.query<{ ctid: string }>("INSERT INTO work VALUES (clock_timestamp()) RETURNING ctid");
      await wait(work);
      await pool.query("UPDATE work SET ended = clock_timestamp() WHERE ctid = $1", [rows[0]?.ctid]);
    }),
  );
  await Promise.all(Array.from({ length: runs }, () => runtime.createRun({ agent_name: "limited", input: "" })));
  await runtime.close();
  await pool.end();
  process.disconnect();
});
