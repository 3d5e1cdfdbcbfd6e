// What a user's TypeScript sees, compiled once as an ES module and once as CommonJS.
import { AgentError, AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import type { RunHead, Store } from "cadenza/store";
import type { OpenStores } from "cadenza/testing";

const store: Store = new MemoryStore();
const runtime = new AgentRuntime({ store });

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

export const openTwice: OpenStores = ({ clock }) => {
  const both = new MemoryStore({ clock });
  return { first: both, second: both, close: () => both.close() };
};

export function isWaiting({ owner, status }: RunHead): boolean {
  return owner === null && status === "awaiting";
}
