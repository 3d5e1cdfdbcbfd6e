/**
 * Prints as JSON how many bytes a run, and a run that is asked and answered, allocate, and how much heap a waiting run
 * keeps: the built package, in memory. It needs `--expose-gc` and a young generation that takes all of it, so that
 * nothing is collected in between: `npm run check -- bytes`.
 */
import { fileURLToPath } from "node:url";
import type * as Cadenza from "cadenza";

const COUNT = 20_000;

const path = fileURLToPath(new URL("../../dist/index.js", import.meta.url));
const { AgentRuntime } = (await import(path)) as typeof Cadenza;
const runtime = new AgentRuntime({ limits: { maxLiveRuns: 2 * COUNT } });
runtime.register("echo", function* (input) {
  yield input[0]?.parts[0]?.content ?? "";
});
runtime.register("asks", async (_input, { ask }) => {
  await ask("Well?");
  return "Thank you.";
});
const input = [{ role: "user", parts: [{ content_type: "text/plain", content: "Hello" }] }] as const;
const [answer] = input;

const run = () => runtime.createRun({ agent_name: "echo", input });
const asks = () => runtime.createRun({ agent_name: "asks", input });
const cycle = async () => {
  const { run_id } = await asks();
  return runtime.resume({ run_id, await_resume: { type: "message", message: answer } });
};

/** The bytes that are allocated, and not yet collected, for each call. */
async function bytesOf(call: () => Promise<unknown>): Promise<number> {
  globalThis.gc?.();
  const before = process.memoryUsage().heapUsed;
  for (let n = 0; n < COUNT; n++) await call();
  return (process.memoryUsage().heapUsed - before) / COUNT;
}

for (const call of [run, cycle]) {
  const { status } = await call();
  if (status !== "completed") throw new Error(`A run is ${status}.`);
  // Code that runs often is compiled again, and allocates less.
  await bytesOf(call);
}
const figures: Record<string, number> = { run: await bytesOf(run), cycle: await bytesOf(cycle) };
globalThis.gc?.();
const before = process.memoryUsage().heapUsed;
for (let n = 0; n < COUNT; n++) await asks();
globalThis.gc?.();
figures["waiting"] = (process.memoryUsage().heapUsed - before) / COUNT;
process.stdout.write(JSON.stringify(figures));
process.exit(0);
