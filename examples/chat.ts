/** A conversation: the session remembers what was said. `npx tsx examples/chat.ts` */
import { randomUUID } from "node:crypto";
import type { LanguageModel, ModelMessage } from "ai";
import { streamText } from "ai";
import type { Message } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { pretendModel } from "./model.ts";

export function chat(model: LanguageModel) {
  // Runs of one session take turns, so that each sees what was said before.
  return defineAgent("chat", { concurrency: { max: 1, per: "session" } }, async function* (input, context) {
    const messages = toModelMessages([...(await context.session.history()), ...input]);
    const answer = streamText({ model, messages, abortSignal: context.signal });
    yield* answer.textStream;
    context.usage.add(await answer.totalUsage);
  });
}

/** Messages as models take them: the text of each, by the user or by an assistant. */
export function toModelMessages(messages: readonly Message[]): ModelMessage[] {
  return messages.map(({ role, parts }) => ({
    role: role === "user" ? "user" : "assistant",
    content: parts.map(({ content, content_url }) => content ?? content_url ?? "").join(""),
  }));
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
  for (const { role, content } of toModelMessages(history)) console.log(`${role}: ${content}`);
}
