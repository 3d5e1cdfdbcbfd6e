import { unfitAt, WireError } from "../../../http/errors.ts";
import type { OpenQuestionDetails } from "../../../protocol/extensions.ts";
import { isJsonObject } from "../../../protocol/json.ts";
import { SCHEMA_TYPE } from "../../../protocol/run.ts";
import type { ResumeRequest } from "../../../runtime/requests.ts";
import { isQuestion } from "./chat-message.ts";
import type { ChatMessage, ChatPart } from "./chat-request.ts";
import { questionOfCall } from "./chunks.ts";

/** What a page replies to a question. */
export type Reply = Pick<ResumeRequest, "await_resume" | "decline">;

/** A call that stands for a question, and to which the page has replied. */
export interface RepliedCall {
  readonly run_id: string;
  readonly await_id: string;
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
  if (typeof output === "string") {
    const content = { content_type: "text/plain", content: output, content_encoding: "plain" } as const;
    return { await_resume: { type: "message", message: { role: "user", parts: [content] } } };
  }
  if (isJsonObject(output)) return { await_resume: output };
  throw unfitAt([await_id], "expected an object or a text as the answer");
}

/** A refusal is an answer too, if the question has a field for it. */
function approvalOf(approval: unknown, { message }: OpenQuestionDetails): Reply {
  const { approved, reason } = isJsonObject(approval) ? approval : {};
  if (typeof approved !== "boolean")
    throw new WireError(422, "invalid_argument", "The approval says neither yes nor no.");
  const fields = fieldsOf(message.parts.find(({ content_type }) => content_type === SCHEMA_TYPE)?.content);
  const said = { ...(typeof reason === "string" && reason !== "" && fields.has("reason") && { reason }) };
  return approved || fields.has("approved") ? { await_resume: { approved, ...said } } : declined(reason);
}

function fieldsOf(schema = "{}"): ReadonlySet<string> {
  const { properties } = JSON.parse(schema) as { readonly properties?: object };
  return new Set(Object.keys(properties ?? {}));
}

function declined(reason: unknown): Reply {
  return { decline: typeof reason === "string" && reason !== "" ? { reason } : {} };
}
