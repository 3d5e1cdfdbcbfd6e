import { unfitAt, WireError } from "../../http/errors.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { QuestionId } from "../chat/call-ids.ts";
import { questionOfCall } from "../chat/call-ids.ts";
import type { Reply } from "../chat/questions.ts";
import { declined, replyOf, schemaOf } from "../chat/questions.ts";
import { isQuestion } from "./chat-message.ts";
import type { ChatMessage, ChatPart } from "./chat-request.ts";

/** A call that stands for a question, and to which the page has replied. */
export interface RepliedCall extends QuestionId {
  readonly part: ChatPart;
}

/** The calls in a message to which the page has replied, one for each question. */
export function repliedCalls({ parts }: ChatMessage): readonly RepliedCall[] {
  const calls = new Map<string, RepliedCall>();
  for (const part of parts) {
    if (!isQuestion(part) || !replied.has(part["state"])) continue;
    const toolCallId = part["toolCallId"] as string;
    const question = questionOfCall(toolCallId);
    if (question !== undefined) calls.set(toolCallId, { ...question, part });
  }
  return [...calls.values()];
}

const replied: ReadonlySet<unknown> = new Set(["output-available", "output-error", "approval-responded"]);

/** The reply in a call. Refuses one that can be no answer. */
export function replyIn({ part, await_id }: RepliedCall, question: OpenQuestionDetails): Reply {
  const { state, output, errorText } = part;
  if (state === "output-error") return declined(errorText);
  if (state === "approval-responded") return approvalOf(part["approval"], question);
  if (output === undefined) throw unfitAt([await_id], "expected the answer as output");
  return replyOf(output as JsonValue);
}

/** A refusal is an answer too, if the question has a field for it. */
function approvalOf(approval: unknown, question: OpenQuestionDetails): Reply {
  const { approved, reason } = isJsonObject(approval) ? approval : {};
  if (typeof approved !== "boolean")
    throw new WireError(422, "invalid_argument", "The approval says neither yes nor no.");
  const fields = new Set(Object.keys(schemaOf(question)?.["properties"] ?? {}));
  const said = { ...(typeof reason === "string" && reason !== "" && fields.has("reason") && { reason }) };
  return approved || fields.has("approved") ? { await_resume: { approved, ...said } } : declined(reason);
}
