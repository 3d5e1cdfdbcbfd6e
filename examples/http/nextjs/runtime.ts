import { AgentRuntime } from "cadenza";

/** One runtime for all routes. While Next.js reloads code in development, the runs stay where they are. */
export const runtime: AgentRuntime = keep("cadenza", () => {
  const made = new AgentRuntime();
  made.register("echo", async function* (input) {
    for (const word of (input.at(-1)?.parts[0]?.content ?? "").split(/(?<= )/)) yield word;
  });
  return made;
});

function keep<T>(name: string, make: () => T): T {
  const kept = globalThis as unknown as Record<string, T | undefined>;
  kept[name] ??= make();
  return kept[name];
}
