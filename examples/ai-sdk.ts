/** A model's answer, streamed with the AI SDK. `npx tsx examples/ai-sdk.ts` */
import { streamText } from "ai";
import { AgentRuntime, defineAgent } from "cadenza";
import { aiSdk } from "cadenza/ai-sdk";
import type { Model } from "./model.ts";
import { pretendModel } from "./model.ts";

export function poet(model: Model) {
  return defineAgent("poet", async (input, context) => {
    const sdk = aiSdk(context);
    // Its errors are thrown by `consume`, so they are not printed here.
    const answer = streamText({ model: sdk.model(model), messages: sdk.messages(input), onError: () => undefined });
    await sdk.consume(answer); // The text is emitted while it arrives.
  });
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
