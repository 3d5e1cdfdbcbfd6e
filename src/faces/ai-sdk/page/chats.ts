import { CadenzaError } from "../../../core/errors.ts";
import { readJson } from "../../../http/body.ts";
import { createRunFor, resumeFor } from "../../../http/claims.ts";
import { unfitAt, WireError } from "../../../http/errors.ts";
import { lastEventId, streamHeaders } from "../../../http/event-stream.ts";
import { takeBody } from "../../../http/service.ts";
import { checkAgent, checkSession, findVisibleSession } from "../../../http/visibility.ts";
import type { WireResponse } from "../../../http/wire.ts";
import { json } from "../../../http/wire.ts";
import type { OpenQuestionDetails } from "../../../protocol/extensions.ts";
import type { JsonInput } from "../../../protocol/json.ts";
import type { CreateRunOptions } from "../../../runtime/requests.ts";
import { cancelOpenRuns, checkChat, detailsIn, keyOf, noContentHeaders, openRun } from "../../chat/chat.ts";
import { ItemFormat, itemText } from "../../chat/item-format.ts";
import type { RunResponse } from "../../chat/run-response.ts";
import { respond } from "../../chat/run-response.ts";
import { repliedCalls, replyIn } from "./answers.ts";
import { historyOf, userMessage } from "./chat-message.ts";
import type { ChatMessage, ChatRequest } from "./chat-request.ts";
import { readChatRequest } from "./chat-request.ts";
import { chatMessages } from "./messages.ts";
import type { ChatCall } from "./options.ts";
import type { ResponseStart } from "./response.ts";
import { messageIdAfter, Response } from "./response.ts";

/** `POST /{name}`: a message of the user begins a run or answers one, and replies in an assistant message answer it. */
export async function postChat(call: ChatCall): Promise<WireResponse> {
  const { caller, parameter: name, service } = call;
  const { limits } = service.settings;
  checkAgent(caller, name);
  const request = readChatRequest(readJson(await takeBody(call), limits), limits);
  const session_id = caller.scope.sessionId(request.id);
  await checkSession(caller, session_id);
  const last = request.messages.at(-1) as ChatMessage;
  return respond(call, async () => {
    const begun =
      last.role === "assistant" ? await reply(call, session_id, last) : await say(call, session_id, request, last);
    if ("refused" in begun) return { status: 200, headers: { ...streamHeaders, ...version }, body: begun.refused };
    return responseOf(call, begun, true);
  });
}

/** `GET /{name}/{chat_id}/stream`: the response of the chat's run from its start, if one is open. */
export async function followChat(call: ChatCall): Promise<WireResponse> {
  const session_id = await checkChat(call, call.second);
  const run = (await namedRun(call, session_id)) ?? (await openRun(call, session_id));
  if (run === undefined) return { status: 204, headers: noContentHeaders, body: "" };
  const { run_id } = run;
  return respond(call, async () => {
    const known = lastEventId(call.request.header("last-event-id"));
    return responseOf(call, { run_id, messageId: run_id, after: 0, known }, false);
  });
}

/** `DELETE /{name}/{chat_id}/stream`: stops the chat's run. */
export async function stopChat(call: ChatCall): Promise<WireResponse> {
  await cancelOpenRuns(call, await checkChat(call, call.second));
  return { status: 204, headers: noContentHeaders, body: "" };
}

/** `GET /{name}/{chat_id}/messages`: what has been said in the chat, and the run that is open. */
export async function getMessages(call: ChatCall): Promise<WireResponse> {
  return json(200, await chatMessages(call, await checkChat(call, call.second)));
}

/** A run whose response begins, and the event after which it does. */
interface Begun extends ResponseStart {
  readonly after: number;
  /** The event up to which the page has the response. */
  readonly known?: number;
  /** Its open questions by then. */
  readonly questions?: readonly OpenQuestionDetails[];
}

/** The response to an answer that does not fit. */
interface Refused {
  readonly refused: string;
}

const version = { "x-vercel-ai-ui-message-stream": "v1" };
const DONE = "data: [DONE]\n\n";

function responseOf({ service }: ChatCall, begun: Begun, isMine: boolean): RunResponse {
  const { run_id, after, known, questions } = begun;
  const format = new ItemFormat(new Response(begun, service.settings.approvals, questions), DONE, known);
  return { run_id, after, format, headers: { ...version, ...(after > 0 && { "last-event-id": `${after}` }) }, isMine };
}

/** A message of the user answers the run that waits in the chat. Without one it begins a run. */
async function say(call: ChatCall, session_id: string, request: ChatRequest, last: ChatMessage): Promise<Begun> {
  const { caller, parameter: agent_name } = call;
  const message = userMessage(last, ["messages", request.messages.length - 1]);
  const isEdited = request.trigger === "regenerate-message" || request.messageId === last.id;
  const open = isEdited ? undefined : await openRun(call, session_id);
  if (open?.status === "awaiting") {
    const { run_id } = open;
    const { await_requests, last_event_id } = await caller.scope.details(run_id);
    const [question] = await_requests;
    if (question !== undefined) {
      const { await_id } = question;
      const idempotencyKey = keyOf(request.id, last.id);
      const await_resume = { type: "message", message } as const;
      await resumeFor(caller, { run_id, await_id, await_resume, mode: "async" }, { idempotencyKey });
      const messageId = messageIdAfter(run_id, await_id);
      return { run_id, messageId, after: last_event_id, questions: await_requests };
    }
  }
  const options: CreateRunOptions = {
    sessionKey: request.id,
    metadata: request.extra as JsonInput,
    ...(isEdited
      ? { session: await editedSession(call, session_id, request) }
      : { idempotencyKey: keyOf(request.id, last.id) }),
  };
  if (isEdited) await cancelOpenRuns(call, session_id);
  const { run_id } = await createRunFor(caller, { agent_name, input: [message], mode: "async" }, options);
  return { run_id, messageId: run_id, after: 0 };
}

/** The session as the page has it, without what the user has taken back. Its state stays. */
async function editedSession(
  { caller, parameter: agent_name }: ChatCall,
  session_id: string,
  { messages }: ChatRequest,
): Promise<NonNullable<CreateRunOptions["session"]>> {
  const state = (await findVisibleSession(caller, session_id))?.state ?? null;
  return { history: historyOf(messages.slice(0, -1), agent_name), state };
}

/** The replies in an assistant message answer the questions of its run that are still open. */
async function reply(call: ChatCall, session_id: string, last: ChatMessage): Promise<Begun | Refused> {
  const calls = repliedCalls(last);
  const run_id = calls.at(-1)?.run_id;
  if (run_id === undefined) throw unfitAt(["messages"], "expected a message of the user, or a reply to a question");
  const { await_requests, last_event_id } = await detailsIn(call, session_id, run_id);
  const replies = calls.flatMap((replied) => {
    const question = await_requests.find(({ await_id }) => await_id === replied.await_id && replied.run_id === run_id);
    return question === undefined
      ? []
      : [{ ...replyIn(replied, question), question, run_id, await_id: question.await_id }];
  });
  if (replies.length === 0)
    throw new WireError(409, "not_awaiting", "The question has been answered already, or does not wait any more.");
  for (const { question, ...answer } of replies) {
    try {
      await resumeFor(call.caller, { ...answer, mode: "async" });
    } catch (error) {
      if (CadenzaError.is(error) && error.code === "answer_rejected") {
        const response = new Response({ run_id, messageId: last.id }, call.service.settings.approvals);
        return { refused: itemText(response.refuse(question, error.message)) + DONE };
      }
      throw error;
    }
  }
  const shown = new Set(last.parts.flatMap(({ toolCallId }) => (typeof toolCallId === "string" ? [toolCallId] : [])));
  return { run_id, messageId: last.id, after: last_event_id, questions: await_requests, shown };
}

/** The run whose response the page has begun to read, and that may have ended since. */
async function namedRun(call: ChatCall, session_id: string): Promise<{ readonly run_id: string } | undefined> {
  const run_id = new URLSearchParams(call.query).get("run_id");
  return run_id === null ? undefined : detailsIn(call, session_id, run_id);
}
