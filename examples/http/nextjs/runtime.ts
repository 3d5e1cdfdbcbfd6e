import { AgentRuntime } from "cadenza";

const kept: { cadenza?: AgentRuntime } & typeof globalThis = globalThis;

/** One runtime for all routes. While Next.js reloads code in development, the runs stay where they are. */
kept.cadenza ??= new AgentRuntime();
export const runtime = kept.cadenza;

// Code that was edited takes the place of what was registered before.
runtime.register("echo", { replace: true }, async function* (input) {
  for (const word of (input.at(-1)?.parts[0]?.content ?? "").split(/(?<= )/)) yield word;
});
