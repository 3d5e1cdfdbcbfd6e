/** A model's answer, streamed with the AI SDK. `npx tsx examples/ai-sdk.ts` */
import type { LanguageModel } from "ai";
import { streamText } from "ai";
import { AgentRuntime, defineAgent } from "cadenza";
import { pretendModel } from "./model.ts";

export function poet(model: LanguageModel) {
  return defineAgent("poet", async function* (input, context) {
    const prompt = input.flatMap(({ parts }) => parts.map(({ content }) => content)).join("\n");
    // Whoever cancels the run stops the model, too.
    const answer = streamText({ model, prompt, abortSignal: context.signal });
    yield* answer.textStream;
    context.usage.add(await answer.totalUsage);
  });
}

if (process.argv[1] === import.meta.filename) {
  const model = pretendModel(() => "Soft the soloist plays, the orchestra waits; a cue brings it back in.");
  const runtime = new AgentRuntime().register(poet(model));
  for await (const event of runtime.createRun({ agent_name: "poet", input: "Write a line.", mode: "stream" })) {
    if (event.type === "message.part") process.stdout.write(event.part.content ?? "");
  }
  const { status } = await runtime.getAgent("poet");
  console.log(`\n${status?.avg_run_tokens} tokens`);
}
