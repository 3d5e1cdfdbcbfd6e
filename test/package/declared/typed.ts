import { AgentRuntime, defineAgent } from "cadenza";
import { createClient } from "cadenza/client";
import { z } from "zod";

export const draft = defineAgent("draft", { input: z.string() });
export const triage = defineAgent("triage", {
  input: z.object({ text: z.string() }),
  output: z.object({ category: z.string() }),
  questions: { sure: z.boolean() },
}).run(async ({ text }, { ask }) => {
  const isSure = await ask("Sure?", { name: "sure" });
  return { category: isSure ? text : "other" };
});
export const agents = [triage];
export const runtime = new AgentRuntime({ agents });
export const call = (text: string) => runtime.call(triage, { text });
export const client = createClient<typeof agents>({ url: "http://localhost" });
export const begin = (text: string) => client.run("triage", { text });
export const result = (text: string) => client.call("triage", { text });
