/** A model's answer, streamed with the AI SDK. `npx tsx examples/ai-sdk.ts` */
import type { LanguageModel, ModelMessage } from "ai";
import { streamText } from "ai";
import type { AgentContext } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { pretendModel } from "./model.ts";
import { textOf } from "./text.ts";

export function poet(model: LanguageModel) {
  return defineAgent("poet", async function* (input, context) {
    yield* answerOf(model, [{ role: "user", content: textOf(input) }], context);
  });
}

/** A model's answer, text by text, and its tokens. */
export async function* answerOf(model: LanguageModel, messages: ModelMessage[], { signal, usage }: AgentContext) {
  // A cancel also stops the model. Errors are thrown below, so they are not printed here.
  const answer = streamText({ model, messages, abortSignal: signal, onError: () => undefined });
  // `textStream` omits errors: with it the run would complete with half an answer.
  for await (const part of answer.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") yield part.text;
  }
  usage.add(await answer.totalUsage);
}

if (process.argv[1] === import.meta.filename) {
  const model = pretendModel(() => "Soft the soloist plays, the orchestra waits; a cue brings it back in.");
  const runtime = new AgentRuntime().register(poet(model));
  for await (const event of runtime.createRun({ agent_name: "poet", input: "Write a line.", mode: "stream" })) {
    if (event.type === "message.part") process.stdout.write(event.part.content ?? "");
    if (event.type === "run.failed") console.error(event.run.error?.message);
  }
  const { status } = await runtime.getAgent("poet");
  console.log(`\n${status?.avg_run_tokens} tokens`);
}
