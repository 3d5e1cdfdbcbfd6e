import { CadenzaError } from "../../core/errors.ts";
import { sameJson } from "../../core/json.ts";
import { CALL_ID } from "../../http/claims.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import { jsonPart } from "../../protocol/message.ts";
import { SCHEMA_TYPE } from "../../protocol/run.ts";
import type { ResumeRequest } from "../../runtime/runs/requests.ts";
import { isJsonPart, jsonOf, shownText, textPart } from "./parts.ts";

/** What a page replies to a question. */
export type Reply = Pick<ResumeRequest, "await_resume" | "decline">;

/** The codes of errors for an answer to a question that does not wait any more, and has no other answer. */
export const goneCodes: ReadonlySet<unknown> = new Set(["not_awaiting", "run_cancelling", "run_finished"]);

/** Whether an answer was refused because its question is not open any more. */
export function isTooLate(error: unknown): boolean {
  return CadenzaError.is(error) && (goneCodes.has(error.code) || error.code === "answer_conflict");
}

/**
 * Gives the replies of one request, in order. An agent that has one of them may need no other: it withdraws their questions, or
 * ends. These are left out. Throws why a reply is not accepted, and why none was needed if none was given.
 */
export async function giveAll<Given>(
  replies: readonly Given[],
  give: (reply: Given) => Promise<unknown>,
): Promise<void> {
  let late: unknown;
  let count = 0;
  for (const reply of replies) {
    try {
      await give(reply);
      count += 1;
    } catch (error) {
      if (!CadenzaError.is(error) || !goneCodes.has(error.code)) throw error;
      late ??= error;
    }
  }
  if (count === 0 && late !== undefined) throw late;
}

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

/** The call of a tool that a question is about. */
export interface AskedTool {
  readonly id: string;
  readonly name: string;
  readonly input: JsonValue;
}

/**
 * The call that a question asks to approve, or whose result it asks for. Undefined: the question is about no tool. The
 * agent says so in the first part of its question: `tool_call_id`, `tool_name` and `tool_input`.
 */
export function toolOf({ message }: OpenQuestionDetails): AskedTool | undefined {
  const [part] = message.parts;
  const [id, name, input = {}] = [part?.[CALL_ID], part?.["tool_name"], part?.["tool_input"]];
  return typeof id === "string" && typeof name === "string" ? { id, name, input: input as JsonValue } : undefined;
}

/** A reply in words, or a JSON value as the answer. */
export function replyOf(answer: JsonValue): Reply {
  if (isJsonObject(answer)) return { await_resume: answer };
  const part = typeof answer === "string" ? textPart(answer) : jsonPart(answer);
  return { await_resume: { type: "message", message: { role: "user", parts: [part] } } };
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

/** Whether pages show an answer as this output of a tool call. */
export function isShownAs(answer: unknown, output: unknown): boolean {
  return sameJson(outputOf(answer), output);
}

/** An answer, as the output of a tool call: the answer itself, the JSON value of a message, or its words. */
export function outputOf(answer: unknown): unknown {
  const message = messageOf(answer);
  if (message === undefined) return answer;
  const json = message.parts.find((part) => isJsonPart(part) && part.content !== undefined);
  return json?.content === undefined ? wordsOf(message) : jsonOf(json.content);
}
