/** A conversation: the session remembers what was said. `npx tsx examples/chat.ts` */
import { randomUUID } from "node:crypto";
import { streamText } from "ai";
import { AgentRuntime, defineAgent, textOf } from "cadenza";
import { aiSdk } from "cadenza/ai-sdk";
import type { Model } from "./model.ts";
import { pretendModel } from "./model.ts";

export function chat(model: Model) {
  // Runs of one session take turns, so that each has the messages of those before.
  return defineAgent("chat", { concurrency: { max: 1, per: "session" } }, async (input, context) => {
    const sdk = aiSdk(context);
    const messages = [...sdk.messages(await context.session.history()), ...sdk.messages(input)];
    await sdk.consume(streamText({ model: sdk.model(model), messages, onError: () => undefined }));
  });
}

if (process.argv[1] === import.meta.filename) {
  const model = pretendModel((prompt) => {
    const said = prompt.filter(({ role }) => role === "user").length;
    return said === 1 ? "Pleased to meet you." : `That was your message number ${said}.`;
  });
  const runtime = new AgentRuntime().register(chat(model));
  const session_id = randomUUID();
  for (const input of ["I am Ada.", "Do you remember me?"]) {
    await runtime.createRun({ agent_name: "chat", session_id, input });
  }
  const { history } = await runtime.getSession(session_id);
  for (const message of history) console.log(`${message.role}: ${textOf(message)}`);
}
