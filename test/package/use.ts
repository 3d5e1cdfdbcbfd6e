// What a user's TypeScript sees, compiled once as an ES module and once as CommonJS.
import { AgentError, AgentRuntime, CadenzaError } from "cadenza";

const runtime = new AgentRuntime();

runtime.register("echo", async function* (input, context) {
  if (context.signal.aborted) throw new AgentError("invalid_input", "too late");
  yield* input;
});

export async function text(input: string): Promise<string> {
  const run = await runtime.createRun({ agent_name: "echo", input });
  // @ts-expect-error runs are read-only
  run.status = "completed";
  return run.output.flatMap((message) => message.parts.map((part) => part.content ?? "")).join("");
}

export async function code(name: string): Promise<string> {
  try {
    const manifest = await runtime.getAgent(name);
    return manifest.name;
  } catch (error) {
    return CadenzaError.is(error) ? error.code : "unknown";
  }
}
