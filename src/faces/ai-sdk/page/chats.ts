import { CadenzaError } from "../../../core/errors.ts";
import { readJson } from "../../../http/body.ts";
import type { Leave } from "../../../http/disconnects.ts";
import { unfitAt, WireError } from "../../../http/errors.ts";
import { lastEventId, streamHeaders, textOptions, visibleEvents } from "../../../http/event-stream.ts";
import { EventText } from "../../../http/event-text.ts";
import type { Reader } from "../../../http/readers.ts";
import { takeBody } from "../../../http/service.ts";
import { checkAgent, checkSession, findVisibleSession } from "../../../http/visibility.ts";
import type { WireResponse } from "../../../http/wire.ts";
import { json } from "../../../http/wire.ts";
import type { OpenQuestionDetails } from "../../../protocol/extensions.ts";
import type { JsonInput } from "../../../protocol/json.ts";
import type { EventStream } from "../../../runtime/events.ts";
import type { CreateRunOptions, RunDetails } from "../../../runtime/requests.ts";
import { repliedCalls, replyIn } from "./answers.ts";
import { historyOf, userMessage } from "./chat-message.ts";
import type { ChatMessage, ChatRequest } from "./chat-request.ts";
import { readChatRequest } from "./chat-request.ts";
import { chatMessages } from "./messages.ts";
import type { ChatCall } from "./options.ts";
import type { ResponseStart } from "./response.ts";
import { messageIdAfter, Response } from "./response.ts";
import { ResponseFormat, responseText } from "./response-format.ts";

/** `POST /{name}`: a message of the user begins a run or answers one, and replies in an assistant message answer it. */
export async function postChat(call: ChatCall): Promise<WireResponse> {
  const { caller, parameter: name, service } = call;
  const { limits } = service.settings;
  checkAgent(caller, name);
  const request = readChatRequest(readJson(await takeBody(call), limits), limits);
  const session_id = caller.scope.sessionId(request.id);
  await checkSession(caller, session_id);
  const last = request.messages.at(-1) as ChatMessage;
  const reader = service.readers.enter();
  try {
    const begun =
      last.role === "assistant" ? await reply(call, session_id, last) : await say(call, session_id, request, last);
    if ("refused" in begun) {
      reader.leave();
      return { status: 200, headers: responseHeaders, body: begun.refused };
    }
    const leave = service.disconnects.enter(caller.scope, begun.run_id);
    return respond(call, reader, leave, begun);
  } catch (error) {
    reader.leave();
    throw error;
  }
}

/** `GET /{name}/{chat_id}/stream`: the response of the chat's run from its start, if one is open. */
export async function followChat(call: ChatCall): Promise<WireResponse> {
  const { caller, service } = call;
  const session_id = await checkChat(call);
  const run = (await namedRun(call, session_id)) ?? (await openRun(call, session_id));
  if (run === undefined) return { status: 204, headers: noContentHeaders, body: "" };
  const reader = service.readers.enter();
  try {
    const leave = service.disconnects.follow(caller.scope, run.run_id);
    const known = lastEventId(call.request.header("last-event-id"));
    return respond(call, reader, leave, { run_id: run.run_id, messageId: run.run_id, after: 0, known });
  } catch (error) {
    reader.leave();
    throw error;
  }
}

/** `DELETE /{name}/{chat_id}/stream`: stops the chat's run. */
export async function stopChat(call: ChatCall): Promise<WireResponse> {
  await cancelOpenRuns(call, await checkChat(call));
  return { status: 204, headers: noContentHeaders, body: "" };
}

/** `GET /{name}/{chat_id}/messages`: what has been said in the chat, and the run that is open. */
export async function getMessages(call: ChatCall): Promise<WireResponse> {
  return json(200, await chatMessages(call, await checkChat(call)));
}

const noContentHeaders = { "cache-control": "no-store", "x-content-type-options": "nosniff" };

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

const responseHeaders = { ...streamHeaders, "x-vercel-ai-ui-message-stream": "v1" };

function respond(call: ChatCall, reader: Reader, leave: Leave, begun: Begun): WireResponse {
  const { service, caller } = call;
  const { run_id, after, known, questions } = begun;
  reader.join(run_id);
  const options = { after, until: "rest", detail: true } as const;
  const events = visibleEvents(caller, caller.scope.events(run_id, options) as EventStream);
  const format = new ResponseFormat(new Response(begun, service.settings.approvals, questions), known);
  return {
    status: 200,
    headers: { ...responseHeaders, "run-id": run_id, ...(after > 0 && { "last-event-id": `${after}` }) },
    body: new EventText(events, format, textOptions(service, reader, run_id, leave)),
  };
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
      const idempotencyKey = keyOf(request, last);
      const await_resume = { type: "message", message } as const;
      await caller.scope.resume({ run_id, await_id, await_resume, mode: "async" }, { idempotencyKey });
      const messageId = messageIdAfter(run_id, await_id);
      return { run_id, messageId, after: last_event_id, questions: await_requests };
    }
  }
  const options: CreateRunOptions = {
    sessionKey: request.id,
    metadata: request.extra as JsonInput,
    ...(isEdited
      ? { session: await editedSession(call, session_id, request) }
      : { idempotencyKey: keyOf(request, last) }),
  };
  if (isEdited) await cancelOpenRuns(call, session_id);
  const { run_id } = await caller.scope.createRun({ agent_name, input: [message], mode: "async" }, options);
  return { run_id, messageId: run_id, after: 0 };
}

/** A page may send a message twice. */
function keyOf({ id }: ChatRequest, last: ChatMessage): string | undefined {
  const key = `${id}/${last.id}`;
  return last.id === "" || key.length > MAX_KEY_LENGTH ? undefined : key;
}

const MAX_KEY_LENGTH = 255;

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
  const { scope } = call.caller;
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
      await scope.resume({ ...answer, mode: "async" });
    } catch (error) {
      if (CadenzaError.is(error) && error.code === "answer_rejected") {
        const response = new Response({ run_id, messageId: last.id }, call.service.settings.approvals);
        return { refused: responseText(response.refuse(question, error.message)) };
      }
      throw error;
    }
  }
  const shown = new Set(last.parts.flatMap(({ toolCallId }) => (typeof toolCallId === "string" ? [toolCallId] : [])));
  return { run_id, messageId: last.id, after: last_event_id, questions: await_requests, shown };
}

/** The details of a run of this chat. Any other run does not exist here. */
async function detailsIn(call: ChatCall, session_id: string, run_id: string): Promise<RunDetails> {
  const details = await call.caller.scope.details(run_id);
  if (details.session_id === session_id && details.agent_name === call.parameter) return details;
  throw new WireError(404, "run_not_found", `There is no run ${run_id}.`);
}

/** Refuses a chat that does not exist for the caller. Gives the id of its session. */
async function checkChat(call: ChatCall): Promise<string> {
  const { caller, parameter: name, second: chatId } = call;
  checkAgent(caller, name);
  await caller.scope.getAgent(name);
  const session_id = caller.scope.sessionId(chatId);
  await checkSession(caller, session_id);
  return session_id;
}

const OPEN = ["created", "in-progress", "awaiting", "cancelling"] as const;

/** The newest run of the chat that has not ended. */
async function openRun({ caller, parameter: agent_name }: ChatCall, session_id: string) {
  const [run] = await caller.scope.listRuns({ session_id, agent_name, roots: true, status: OPEN, limit: 1 });
  return run;
}

/** The run whose response the page has begun to read, and that may have ended since. */
async function namedRun(call: ChatCall, session_id: string): Promise<{ readonly run_id: string } | undefined> {
  const run_id = new URLSearchParams(call.query).get("run_id");
  return run_id === null ? undefined : detailsIn(call, session_id, run_id);
}

async function cancelOpenRuns({ caller, parameter: agent_name }: ChatCall, session_id: string): Promise<void> {
  for (const { run_id } of await caller.scope.listRuns({ session_id, agent_name, roots: true, status: OPEN })) {
    try {
      await caller.scope.cancel(run_id);
    } catch (error) {
      // It has ended meanwhile.
      if (!CadenzaError.is(error) || error.code !== "run_finished") throw error;
    }
  }
}
