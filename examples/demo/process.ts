/**
 * One of the processes of the demo. It begins a run, or goes on with the one whose id it gets. It prints what it does, and
 * sends it to the process that has started it.
 */
import { AgentRuntime } from "cadenza";
import { realModel } from "../chat/model.ts";
import { openStore } from "../durable-approval/store.ts";
import { refundDesk } from "./agent.ts";
import { beginning, print } from "./print.ts";

/** What a process of the demo sends: a step that it runs, that the run waits for an answer, how the run has ended. */
export type Said =
  | { readonly what: "step"; readonly name: string; readonly key: string }
  | { readonly what: "asks"; readonly run_id: string }
  | { readonly what: "ended"; readonly error: string | undefined };

const [file = "", given] = process.argv.slice(2);
const own = `pid ${process.pid}`;
const say = (said: Said): void => void process.send?.(said);

const { model, line } = await realModel(process.env);
const runtime = new AgentRuntime({
  // A short lease: another process takes a run over a second after a kill.
  store: await openStore(file, { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 }),
  agents: [refundDesk(model)],
  exposeErrors: true,
  interceptors: [
    {
      // Around the steps that this process runs. A step whose result is in the log is not run.
      step: ({ name, key }, next) => {
        if (name !== "model") print(own, "step", name);
        say({ what: "step", name, key });
        return next();
      },
    },
  ],
});
const run_id = given ?? (await begin());
if (given === undefined) for (const sentence of line.split(/(?<=\.) /)) print(own, "starts", sentence);
print(
  own,
  given === undefined ? "begins" : "starts",
  given === undefined ? `run ${run_id}` : `and goes on with run ${run_id}`,
);

// The process that has started this one sends the answer, and is not outlived.
process.on("message", (approved: boolean) => {
  void runtime.resume({ run_id, await_resume: { approved }, mode: "async" });
});
process.once("disconnect", () => process.exit(1));

let isWriting = false;
for await (const event of runtime.events(run_id, { after: given === undefined ? 0 : await seen(), until: "end" })) {
  if (event.type === "message.part") {
    process.stdout.write(`${isWriting ? "" : beginning(own, "model")}${event.part.content ?? ""}`);
    isWriting = true;
  } else if (isWriting) {
    process.stdout.write("\n");
    isWriting = false;
  }
  if (event.type === "run.awaiting") {
    const question = event.run.await_request?.message.parts[0]?.content;
    print(own, "asks", `${question} ${given === undefined ? "The run waits" : "The run still waits"} for a person.`);
    say({ what: "asks", run_id });
  }
  if (event.type === "run.completed") print(own, "ends", "The run is completed.");
  if (event.type === "run.completed" || event.type === "run.failed")
    say({ what: "ended", error: event.run.error?.message });
}
await runtime.close();
process.exit(0);

async function begin(): Promise<string> {
  return (await runtime.createRun({ agent_name: "refund-desk", input: "I want a refund.", mode: "async" })).run_id;
}

/** The last event that the process before this one has printed. Its open question is printed again. */
async function seen(): Promise<number> {
  let last = 0;
  for await (const { id, type } of runtime.events(run_id, { until: "now" })) if (type !== "run.awaiting") last = id;
  return last;
}
