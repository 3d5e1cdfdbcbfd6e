import { AgentRuntime } from "cadenza";

const kept: { cadenza?: AgentRuntime } & typeof globalThis = globalThis;

/** One runtime for all routes. It keeps its runs when Next.js reloads code in development. */
kept.cadenza ??= new AgentRuntime();
export const runtime = kept.cadenza;

// Edited code replaces the registered agent.
runtime.register("echo", { replace: true }, async function* (input) {
  for (const word of (input.at(-1)?.parts[0]?.content ?? "").split(/(?<= )/)) yield word;
});
