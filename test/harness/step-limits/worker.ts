import { setTimeout as wait } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { openPlace } from "../crash/place.ts";
import { connect } from "../limits/task.ts";
import type { Task } from "./task.ts";

/** How many runs of each agent a process has at a time. */
const AT_ONCE = 20;

/* A process that executes runs whose steps have limits: many wait at any time. */
process.once("message", async ({ place, ms, count, max, work }: Task) => {
  const pool = connect(place);
  const stepLimits = { rated: { rate: { count, perMs: 1_000 } }, held: { max } };
  const runtime = new AgentRuntime({ store: await openPlace(place), stepLimits });
  runtime.register("rated", { durable: true }, (_input, { step }) =>
    // The server has the clock of this machine.
    step("call", () => pool.query("INSERT INTO begun VALUES ($1)", [Date.now()]).then(() => "done"), {
      limit: "rated",
    }),
  );
  runtime.register("held", { durable: true }, (_input, { step }) =>
    step(
      "work",
      async () => {
        const { rows } = await pool.query<{ ctid: string }>(
          "INSERT INTO work VALUES (clock_timestamp()) RETURNING ctid",
        );
        await wait(work);
        await pool.query("UPDATE work SET ended = clock_timestamp() WHERE ctid = $1", [rows[0]?.ctid]);
      },
      { limit: "held" },
    ),
  );
  let isOver = false;
  const lane = async (agent_name: string): Promise<void> => {
    while (!isOver) await runtime.createRun({ agent_name, input: "" });
  };
  const lanes = ["rated", "held"].flatMap((name) => Array.from({ length: AT_ONCE }, () => lane(name)));
  const ended = Promise.all(lanes);
  await wait(ms);
  isOver = true;
  await ended;
  await runtime.close();
  await pool.end();
  process.disconnect();
});
