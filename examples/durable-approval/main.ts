/**
 * A booking that outlives its process. Start it, end it at any moment with `kill -9` or Ctrl-C, start it again, answer:
 * done. `npx tsx examples/durable-approval/main.ts booking.db`
 */
import { createInterface } from "node:readline";
import { AgentRuntime } from "cadenza";
import { booking } from "./agent.ts";
import { openStore } from "./store.ts";

const [path = "booking.db"] = process.argv.slice(2);
const runtime = new AgentRuntime({
  store: await openStore(path),
  // So that a new process takes over after a second, and not after ten.
  durability: { leaseMs: 1_000, renewMs: 300, sweepMs: 100 },
});
runtime.register(booking);

const [latest] = await runtime.listRuns({ agent_name: booking.name, limit: 1 });
const isOpen = latest !== undefined && latest.finished_at === null;
const { run_id } = isOpen
  ? latest
  : await runtime.createRun({ agent_name: booking.name, input: "London to Penzance", mode: "async" });
console.log(isOpen ? `Going on with run ${run_id}.` : `Run ${run_id} has begun.`);

// Reading from the terminal holds the process open.
const terminal = createInterface({ input: process.stdin });
terminal.on("line", (line) => {
  const await_resume = { approved: /^y/i.test(line) };
  runtime.resume({ run_id, await_resume, mode: "async" }).catch((error: Error) => console.log(error.message));
});

for await (const event of runtime.events(run_id, { until: "end" })) {
  if (event.type === "message.part") process.stdout.write(event.part.content ?? "");
  if (event.type === "run.awaiting") console.log(`${event.run.await_request?.message.parts[0]?.content} (y/n)`);
  if (event.type === "run.completed") console.log("Done.");
}
terminal.close();
await runtime.close();
