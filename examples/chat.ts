/** A conversation: the session remembers what was said. `npx tsx examples/chat.ts` */
import { randomUUID } from "node:crypto";
import type { FilePart, LanguageModel, ModelMessage, TextPart } from "ai";
import type { Message, MessagePart } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { answerOf } from "./ai-sdk.ts";
import { pretendModel } from "./model.ts";
import { isReadable, textOf } from "./text.ts";

export function chat(model: LanguageModel) {
  // Runs of one session take turns, so that each has the messages of those before.
  return defineAgent("chat", { concurrency: { max: 1, per: "session" } }, async function* (input, context) {
    yield* answerOf(model, toModelMessages([...(await context.session.history()), ...input]), context);
  });
}

/** Converts messages to model input: text and the user's files, without schemas of questions and artifacts of agents. */
export function toModelMessages(messages: readonly Message[]): ModelMessage[] {
  return messages.flatMap((message): ModelMessage[] => {
    const text = textOf([message]);
    if (message.role !== "user") return text === "" ? [] : [{ role: "assistant", content: text }];
    const content = message.parts.flatMap(toModelPart);
    if (content.some(({ type }) => type === "file")) return [{ role: "user", content }];
    return [{ role: "user", content: text }];
  });
}

function toModelPart(part: MessagePart): (TextPart | FilePart)[] {
  const { content, content_url, content_type: mediaType } = part;
  if (content_url !== undefined) return [{ type: "file", mediaType, data: new URL(content_url) }];
  if (content === undefined) return [];
  return isReadable(part) ? [{ type: "text", text: content }] : [{ type: "file", mediaType, data: content }];
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
