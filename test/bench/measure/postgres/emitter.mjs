/**
 * A process with runs that others follow: `emitter.mjs <schema> <hints | no hints> <agent> <count>`. It says their ids.
 */
import { openRuntime } from "./cadenza.mjs";

process.once("disconnect", () => process.exit());

const [schema, hints, agent_name, count] = process.argv.slice(2);
const MEAN_PAUSE_MS = 100;

const runtime = await openRuntime(schema, { hints: hints === "hints" });
/** Emits the time, again and again. */
runtime.register("talks", async function* () {
  for (;;) {
    yield String(performance.timeOrigin + performance.now());
    await new Promise((resolve) => setTimeout(resolve, 2 * MEAN_PAUSE_MS * Math.random()));
  }
});
runtime.register("waits", () => new Promise(() => undefined));
const runs = await Promise.all(
  Array.from({ length: Number(count) }, () => runtime.createRun({ agent_name, input: "", mode: "async" })),
);
process.send(runs.map(({ run_id }) => run_id));
