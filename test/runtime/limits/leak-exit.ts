import { AgentRuntime } from "cadenza";

/*
 * A process that uses runtimes in every way that does not hold the process open, and closes none of them.
 * It prints for how long it lives on, in milliseconds.
 */
async function runAnAgent(): Promise<void> {
  const runtime = new AgentRuntime().register("echo", (input) => input);
  await runtime.createRun({ agent_name: "echo", input: "Hello." });
}

async function listenAndReadOn(): Promise<void> {
  const runtime = new AgentRuntime({ retention: { maxAgeMs: 60_000 } }).register("asks", (_input, { ask }) =>
    ask("Well?"),
  );
  runtime.on("run.awaiting", () => {});
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "Hello." });
  const events = runtime.events(run_id, { until: "end" });
  // The reader stops in the middle, and awaits nothing more.
  for (let count = 0; count < 3; count++) await events.next();
}

async function awaitAnAnswerWithDeadline(): Promise<void> {
  const runtime = new AgentRuntime({ timeoutMs: 60_000 });
  runtime.register("asks", (_input, { ask }) => ask("Well?", { timeoutMs: 60_000 }));
  await runtime.createRun({ agent_name: "asks", input: "Hello." });
}

async function closeWithAnAgentAtWork(): Promise<void> {
  const runtime = new AgentRuntime({ cancelGraceMs: 60_000 });
  runtime.register("works", (_input, { step }) =>
    step("call", () => Promise.reject(new Error("No.")), { retry: { attempts: 9, backoffMs: 60_000 } }),
  );
  runtime.register("stubborn", () => new Promise(() => {}));
  for (const agent_name of ["works", "stubborn"])
    await runtime.createRun({ agent_name, input: "Hello.", mode: "async" });
  await runtime.close({ drainMs: 0 });
}

await runAnAgent();
await listenAndReadOn();
await awaitAnAnswerWithDeadline();
await closeWithAnAgentAtWork();
const done = performance.now();
process.once("exit", () => process.stdout.write(String(performance.now() - done)));
