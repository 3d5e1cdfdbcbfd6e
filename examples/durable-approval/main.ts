/**
 * A booking that outlives its process. End the process at any moment with `kill -9` or Ctrl-C, and start it again: the
 * run continues. `npx tsx examples/durable-approval/main.ts booking.db`
 */
import { createInterface } from "node:readline";
import type { Run } from "cadenza";
import { AgentRuntime } from "cadenza";
import { durable } from "cadenza/store";
import { booking } from "./agent.ts";
import { openStore } from "./store.ts";

const [path = "booking.db"] = process.argv.slice(2);
const runtime = new AgentRuntime({
  // A new process takes the run over after a second, instead of ten.
  store: durable(await openStore(path), { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 }),
});
runtime.register(booking);

const [latest] = await runtime.listRuns({ agent_name: booking.name, limit: 1 });
const isOpen = latest !== undefined && latest.finished_at === null;
const { run_id } = isOpen
  ? latest
  : await runtime.createRun({ agent_name: booking.name, input: "London to Penzance", mode: "async" });
console.log(isOpen ? `Going on with run ${run_id}.` : `Run ${run_id} has begun.`);

const terminal = createInterface({ input: process.stdin });
const lines = terminal[Symbol.asyncIterator]();

for await (const event of runtime.events(run_id, { until: "end" })) {
  if (event.type === "message.part") process.stdout.write(event.part.content ?? "");
  if (event.type === "run.completed") console.log("Done.");
  if (event.type === "run.failed") console.log(`Failed: ${event.run.error?.message}`);
  if (event.type !== "run.awaiting" || !(await isOpenStill(event.run))) continue;
  console.log(`${event.run.await_request?.message.parts[0]?.content} (y/n)`);
  const line = await lines.next();
  // Without an answer the run goes on waiting. The same command continues it later.
  if (line.done === true) break;
  const { await_id } = event.run.await_request ?? {};
  await runtime.resume({ run_id, await_id, await_resume: { approved: /^y/i.test(line.value) }, mode: "async" });
}
terminal.close();
await runtime.close();

/** Whether a question is open. The stream also has questions that were answered before this process started. */
async function isOpenStill({ await_request }: Run): Promise<boolean> {
  const { await_request: now } = await runtime.getRun(run_id);
  return now !== null && now.await_id === await_request?.await_id;
}
