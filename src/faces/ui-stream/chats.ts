import { CadenzaError } from "../../core/errors.ts";
import type { RunSummary } from "../../core/record.ts";
import { readJson } from "../../http/body.ts";
import { checkMayWrite } from "../../http/caller.ts";
import { createRunFor, resumeFor } from "../../http/claims.ts";
import { unfitAt, WireError } from "../../http/errors.ts";
import { lastEventId, streamHeaders } from "../../http/event-stream.ts";
import { idempotencyKey, takeBody } from "../../http/service.ts";
import { checkAgent, checkSession, findVisibleSession } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonInput } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { CreateRunOptions } from "../../runtime/runs/requests.ts";
import {
  admitTalk,
  cancelRuns,
  checkChat,
  detailsIn,
  forEachEvent,
  inChat,
  keyOf,
  noContentHeaders,
  openRuns,
} from "../chat/chat.ts";
import { ItemFormat, itemText } from "../chat/item-format.ts";
import type { Reply } from "../chat/questions.ts";
import { giveAll, isShownAs } from "../chat/questions.ts";
import type { RunResponse } from "../chat/run-response.ts";
import { respond } from "../chat/run-response.ts";
import type { Said } from "../chat/said.ts";
import { answeredBy, findSaid, hasBegun, heldBefore, pastQuestions, saysTheSame } from "../chat/said.ts";
import type { RepliedCall } from "./answers.ts";
import { repliedCalls, replyIn } from "./answers.ts";
import { userMessage } from "./chat-message.ts";
import type { ChatMessage, ChatRequest } from "./chat-request.ts";
import { readChatRequest } from "./chat-request.ts";
import { chatMessages } from "./messages.ts";
import type { ChatCall } from "./options.ts";
import type { LeftOut, ResponseStart } from "./response.ts";
import { messageIdAfter, nextMessageId, Response } from "./response.ts";

/** `POST /{name}`: a message of the user begins a run or answers one, and replies in an assistant message answer it. */
export async function postChat(given: ChatCall): Promise<WireResponse> {
  const { caller, parameter: name, service } = given;
  const { limits } = service.settings;
  checkAgent(caller, name);
  const request = readChatRequest(readJson(await takeBody(given), limits), limits);
  const session_id = caller.scope.sessionId(request.id);
  await checkSession(caller, session_id);
  const call = inChat(given, request.id, session_id);
  const last = request.messages.at(-1) as ChatMessage;
  if (last.role === "system") throw unfitAt(["messages"], "expected a message of the user, or a reply to a question");
  return respond(call, async () => {
    const begun =
      last.role === "assistant" ? await reply(call, session_id, last) : await say(call, session_id, request, last);
    if ("refused" in begun) return { status: 200, headers: { ...streamHeaders, ...version }, body: begun.refused };
    return responseOf(call, begun, true);
  });
}

/**
 * `GET /{name}/{chat_id}/stream`: the response of the chat's run, if one is open. It is the last message of the run, from
 * its start and without what is torn, or what follows an event.
 */
export async function followChat(call: ChatCall): Promise<WireResponse> {
  const session_id = await checkChat(call, call.second);
  const run = (await namedRun(call, session_id)) ?? (await openRuns(call, session_id))[0];
  if (run === undefined) return { status: 204, headers: noContentHeaders, body: "" };
  const { run_id } = run;
  return respond(call, async () => {
    const known = lastEventId(call.request.header("last-event-id"));
    const leftOut = known === 0 ? await leftOutOf(call, run_id) : undefined;
    return responseOf(call, { run_id, messageId: run_id, after: 0, known, leftOut }, false);
  });
}

/** What a page that reads the response of a run from its start need not be told. */
async function leftOutOf(call: ChatCall, run_id: string): Promise<LeftOut> {
  let before = run_id;
  const torn: LeftOut["torn"][number][] = [];
  await forEachEvent(call, run_id, (event) => {
    before = nextMessageId(run_id, event) ?? before;
    if (event.type === "output.torn") torn.push(...event.events);
  });
  return { before, torn };
}

/** `DELETE /{name}/{chat_id}/stream`: stops the runs that are open in the chat, or one of them. */
export async function stopChat(call: ChatCall): Promise<WireResponse> {
  const session_id = await checkChat(call, call.second);
  checkMayWrite(call.caller);
  const open = await openRuns(call, session_id);
  const named = await namedRun(call, session_id);
  await cancelRuns(call, named === undefined ? open : open.filter(({ run_id }) => run_id === named.run_id));
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
  const format = new ItemFormat(new Response(begun, service.settings.approvals, questions), DONE, known, after);
  return { run_id, after, format, headers: version, isMine };
}

/**
 * A message of the user answers the run that waits in the chat. Without one it begins a run. A message that is sent again
 * does neither: what it began or answered is followed. With a `messageId` it begins a run on what the chat held before
 * that message, which the page has taken back, with all that followed it.
 */
async function say(call: ChatCall, session_id: string, request: ChatRequest, last: ChatMessage): Promise<Begun> {
  const { caller } = call;
  const message = userMessage(last, ["messages", request.messages.length - 1]);
  const isAgain = request.trigger === "regenerate-message";
  const isEdited = isAgain || request.messageId === last.id;
  const key = keyFor(call, request, isEdited ? undefined : last);
  const isKnown = key !== undefined && (await caller.scope.findRun({ idempotencyKey: key })) !== undefined;
  if (isKnown) return begin(call, request, message, { idempotencyKey: key });
  // What is open is read before the message is looked up: a run that is not open by then has all that it will ever have.
  const open = await openRuns(call, session_id);
  const said = isAgain || last.id === "" ? undefined : await findSaid(call, session_id, open, last.id);
  if (said !== undefined && (!isEdited || isStill(said, message))) return followSaid(call, said, message);
  const takenBack = isEdited ? last.id : request.messageId;
  if (takenBack === undefined) {
    const answered = await answerInWords(call, open[0], message, key);
    return answered ?? begin(call, request, message, { idempotencyKey: key });
  }
  const session = await sessionBefore(call, session_id, takenBack);
  if (session === undefined && !isEdited)
    throw unfitAt(["messageId"], "expected a message that the chat has, to take it back. Load the chat again");
  const begun = await begin(call, request, message, { idempotencyKey: key, session });
  const before = open.filter(({ run_id }) => run_id !== begun.run_id);
  await cancelRuns(call, before);
  return begun;
}

/**
 * The key of what the user does. A new message has its id. A message that is sent another time on purpose has the key of
 * the request or, where the page names the message of the assistant that it has taken back, the id of that.
 */
function keyFor(
  call: ChatCall,
  { id, messages, messageId = "" }: ChatRequest,
  said: ChatMessage | undefined,
): string | undefined {
  const own = said && keyOf(id, said.id);
  if (own !== undefined) return own;
  const sent = idempotencyKey(call);
  if (sent !== undefined) return keyOf(id, "sent", sent);
  return messages.some((message) => message.id === messageId) ? undefined : keyOf(id, "again", messageId);
}

async function begin(
  call: ChatCall,
  { id: sessionKey, extra }: ChatRequest,
  message: Message,
  options: CreateRunOptions,
): Promise<Begun> {
  const { caller, parameter: agent_name } = await admitTalk(call);
  const request = { agent_name, input: [message], mode: "async" } as const;
  const { run_id } = await createRunFor(caller, request, { ...options, sessionKey, metadata: extra as JsonInput });
  return { run_id, messageId: run_id, after: 0 };
}

/** Undefined: the run asks nothing. */
async function answerInWords(
  { caller }: ChatCall,
  open: RunSummary | undefined,
  message: Message,
  idempotencyKey: string | undefined,
): Promise<Begun | undefined> {
  if (open?.status !== "awaiting") return undefined;
  const { run_id } = open;
  const { await_requests, last_event_id } = await caller.scope.details(run_id);
  const [question] = await_requests;
  if (question === undefined) return undefined;
  const { await_id } = question;
  const await_resume = { type: "message", message } as const;
  await resumeFor(caller, { run_id, await_id, await_resume, mode: "async" }, { idempotencyKey });
  return { run_id, messageId: messageIdAfter(run_id, await_id), after: last_event_id, questions: await_requests };
}

/** Whether a message that the page sends another time says what it said, and its run need not be begun another time. */
function isStill(said: Said, message: Message): boolean {
  return saysTheSame(said, message) && said.run.status !== "failed" && said.run.status !== "cancelled";
}

/** The response to a message that was said before. */
async function followSaid(call: ChatCall, said: Said, message: Message): Promise<Begun> {
  const { run_id } = said.run;
  if (!saysTheSame(said, message))
    throw new WireError(409, "idempotency_conflict", "Another message was sent under this id before.");
  const past = hasBegun(said) ? undefined : await answeredBy(call, said);
  if (past === undefined) return { run_id, messageId: run_id, after: 0 };
  const { after, questions, question } = past;
  return { run_id, messageId: messageIdAfter(run_id, question.await_id), after, questions };
}

/** The session before the message that the user has taken back. Undefined: the chat never had the message. */
async function sessionBefore(
  call: ChatCall,
  session_id: string,
  messageId: string,
): Promise<CreateRunOptions["session"]> {
  const { history = [], state = null } = (await findVisibleSession(call.caller, session_id)) ?? {};
  const before = await heldBefore(call, session_id, history, messageId);
  return before && { history: before, state };
}

/** The replies in an assistant message answer the questions of its run that are still open. */
async function reply(call: ChatCall, session_id: string, last: ChatMessage): Promise<Begun | Refused> {
  const calls = repliedCalls(last);
  const run_id = calls.at(-1)?.run_id;
  if (run_id === undefined) throw unfitAt(["messages"], "expected a message of the user, or a reply to a question");
  const { await_requests, last_event_id } = await detailsIn(call, session_id, run_id);
  const replies = repliesTo(await_requests, calls, run_id);
  if (replies.length === 0) return replyAgain(call, run_id, last);
  await checkAnswered(call, run_id, last, await_requests);
  let [{ question: asked }] = replies as readonly [Given];
  try {
    await giveAll(replies, ({ question, ...answer }) => {
      asked = question;
      return resumeFor(call.caller, { ...answer, mode: "async" });
    });
  } catch (error) {
    if (!CadenzaError.is(error) || error.code !== "answer_rejected") throw error;
    const response = new Response({ run_id, messageId: last.id }, call.service.settings.approvals);
    return { refused: itemText(response.refuse(asked, error.message)) + DONE };
  }
  return { run_id, messageId: last.id, after: last_event_id, questions: await_requests, shown: callsIn(last) };
}

/**
 * The replies in the last step of an assistant message, whose questions are not open any more. They were sent before: what
 * followed them then is the response. Other replies are refused.
 */
async function replyAgain(call: ChatCall, run_id: string, last: ChatMessage): Promise<Begun> {
  const past = await pastQuestions(call, run_id);
  const questions = past.map(({ question }) => question);
  const replies = repliesTo(questions, repliedCalls(lastStep(last)), run_id);
  const first = past.find(({ question }) => replies.some(({ await_id }) => await_id === question.await_id));
  if (first === undefined)
    throw new WireError(409, "not_awaiting", "The question has been answered already, or does not wait any more.");
  await giveAll(replies, ({ question: _, ...answer }) => resumeFor(call.caller, { ...answer, mode: "async" }));
  return { run_id, messageId: last.id, after: first.after, questions: first.questions, shown: callsIn(last) };
}

/** Refuses an answer to a question that has another one already, in a message that answers open questions too. */
async function checkAnswered(
  call: ChatCall,
  run_id: string,
  last: ChatMessage,
  open: readonly OpenQuestionDetails[],
): Promise<void> {
  const isOpen = ({ await_id }: RepliedCall): boolean => open.some((question) => question.await_id === await_id);
  const answered = repliedCalls(lastStep(last)).filter(
    (one) => one.part["state"] === "output-available" && !isOpen(one),
  );
  if (answered.length === 0) return;
  for (const { question, settled } of await pastQuestions(call, run_id)) {
    const one = answered.find(({ await_id }) => await_id === question.await_id);
    // The page shows an answer that came from elsewhere as the output, too.
    if (one === undefined || settled.how !== "answer" || isShownAs(settled.answer, one.part["output"])) continue;
    throw new WireError(409, "answer_conflict", `The question ${question.await_id} has another answer already.`);
  }
}

/** A reply to a question. */
type Given = Reply & { readonly question: OpenQuestionDetails; readonly run_id: string; readonly await_id: string };

/** The replies to these questions, one for each that the page has replied to. */
function repliesTo(
  questions: readonly OpenQuestionDetails[],
  calls: readonly RepliedCall[],
  run_id: string,
): readonly Given[] {
  return calls.flatMap((replied) => {
    const question = questions.find(({ await_id }) => await_id === replied.await_id && replied.run_id === run_id);
    return question === undefined
      ? []
      : [{ ...replyIn(replied, question), question, run_id, await_id: question.await_id }];
  });
}

/** The last step of a message: what the page has shown since it last sent an answer. */
function lastStep({ parts, ...message }: ChatMessage): ChatMessage {
  return { ...message, parts: parts.slice(parts.findLastIndex(({ type }) => type === "step-start") + 1) };
}

/** The ids of the calls that a message shows. */
function callsIn({ parts }: ChatMessage): ReadonlySet<string> {
  return new Set(parts.flatMap(({ toolCallId }) => (typeof toolCallId === "string" ? [toolCallId] : [])));
}

/** The run whose response the page has begun to read, and that may have ended since. */
async function namedRun(call: ChatCall, session_id: string): Promise<{ readonly run_id: string } | undefined> {
  const run_id = new URLSearchParams(call.query).get("run_id");
  return run_id === null ? undefined : detailsIn(call, session_id, run_id);
}
