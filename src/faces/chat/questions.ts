import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import { SCHEMA_TYPE } from "../../protocol/run.ts";
import type { ResumeRequest } from "../../runtime/requests.ts";
import { jsonOf, shownText, textPart } from "./parts.ts";

/** What a page replies to a question. */
export type Reply = Pick<ResumeRequest, "await_resume" | "decline">;

/** The words of a message. */
export function wordsOf({ parts }: Pick<Message, "parts">): string {
  return parts.flatMap((part) => shownText(part) ?? []).join("");
}

/** The JSON Schema of the answer to a question. Undefined: it may be anything, or the agent has passed on no schema. */
export function schemaOf({ message }: OpenQuestionDetails): JsonObject | undefined {
  const schema = message.parts.find(({ content_type }) => content_type === SCHEMA_TYPE)?.content;
  const value = schema === undefined ? undefined : jsonOf(schema);
  return isJsonObject(value) ? value : undefined;
}

/** A reply in words, or an object as the answer. Undefined: it is neither. */
export function replyOf(answer: unknown): Reply | undefined {
  if (typeof answer === "string")
    return { await_resume: { type: "message", message: { role: "user", parts: [textPart(answer)] } } };
  return isJsonObject(answer) ? { await_resume: answer } : undefined;
}

/** The refusal to answer, with its reason if that is a text. */
export function declined(reason?: unknown): Reply {
  return { decline: typeof reason === "string" && reason !== "" ? { reason } : {} };
}

/** The message in an answer that was given as one. */
export function messageOf(answer: unknown): Message | undefined {
  return isJsonObject(answer) && answer["type"] === "message" && isJsonObject(answer["message"])
    ? (answer["message"] as unknown as Message)
    : undefined;
}
