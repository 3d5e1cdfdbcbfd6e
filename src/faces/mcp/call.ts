import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { createRunFor } from "../../http/claims.ts";
import { issuesText } from "../../http/errors.ts";
import { Interjected } from "../../http/interjected.ts";
import type { RpcRequest } from "../../http/json-rpc.ts";
import { answered, RpcError } from "../../http/json-rpc.ts";
import { askAbout } from "../../http/service.ts";
import { checkAgent } from "../../http/visibility.ts";
import type { WireResponse, WireStream } from "../../http/wire.ts";
import { beginningWith } from "../../http/wire.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { RunDetails } from "../../runtime/runs/requests.ts";
import { forEachEvent, keyOf } from "../chat/chat.ts";
import { respond } from "../chat/run-response.ts";
import { CallText } from "./call-text.ts";
import { failure, resultOf } from "./content.ts";
import { elicitationOf, refusedAnswer, responsesIn } from "./elicitation.ts";
import type { McpCall } from "./options.ts";
import type { Peer } from "./peer.ts";
import { checkArguments, holderOf, needsCapability, objectIn, tasksExtension } from "./peer.ts";
import { respondWith, resultFor, unfit } from "./responses.ts";
import { admitToRun, cancelRun, createdTask, taskModeOf } from "./tasks.ts";
import { inputOf, inputSchemaOf } from "./tools.ts";

/** `tools/call`: begins a run, or gives the answers to its questions, and answers with what comes of it. */
export async function callTool(given: McpCall, peer: Peer, request: RpcRequest): Promise<WireResponse> {
  const { params, id } = request;
  const { name } = params;
  if (typeof name !== "string") throw unfit("name: expected a string.");
  checkAgent(given.caller, name);
  const agent = await given.caller.scope.getAgent(name);
  const values = objectIn({ arguments: {}, ...params }, "arguments");
  if (peer.isModern) checkArguments(given, inputSchemaOf(agent), values);
  const { requestState, inputResponses } = peer.isModern ? params : {};
  if (requestState !== undefined) return goOn(given, peer, request, name);
  const call = await askAbout(given, { action: "create", agent_name: name });
  checkAgent(call.caller, name);
  const failed = (text: string): WireResponse => respondWith(call, peer, request, failure(text));
  if (!peer.hasTasks && taskModeOf(call, name) === "required") {
    if (peer.isModern) throw needsCapability(tasksExtension);
    return failed("The tool can only be called as a task.");
  }
  const options = { idempotencyKey: callKey(peer, id) };
  let run_id: string;
  try {
    const input = inputOf(agent, values);
    ({ run_id } = await createRunFor(call.caller, { agent_name: name, input, mode: "async" }, options));
  } catch (error) {
    if (!CadenzaError.is(error) || error.code !== "invalid_input") throw error;
    // A model that reads why may call again with others.
    return failed(`${error.message} ${issuesText(error.issues ?? [])}`.trim());
  }
  const task = await createdTask(call, peer, request, run_id, false);
  if (task !== undefined) return task;
  if (inputResponses === undefined) return follow(call, peer, request, run_id, 0);
  // The client has kept no state: its answers are to what the run asks first.
  await forEachEvent(call, run_id, () => undefined, "rest");
  return giveAnswers(call, peer, request, run_id);
}

/** Under which key a client from before `2026-07-28` finds the run of its call again, to cancel it. */
export function callKey({ session }: Peer, id: unknown): string | undefined {
  return session === undefined ? undefined : keyOf(session, "call", JSON.stringify(id));
}

/** Gives the answers of a repeated call to the run of the first one. */
async function goOn(given: McpCall, peer: Peer, request: RpcRequest, tool: string): Promise<WireResponse> {
  const { run_id, questions } = await readState(given, tool, request.params["requestState"]);
  const call = await admitToRun(given, { action: "read", run_id, agent_name: tool });
  return giveAnswers(call, peer, request, run_id, Object.entries(questions));
}

/**
 * Gives the answers of a call to the questions of a run, and answers with what comes of it. `asked`: the ids of the questions
 * that the client was asked, with their keys. Default: the open ones.
 */
async function giveAnswers(
  call: McpCall,
  peer: Peer,
  request: RpcRequest,
  run_id: string,
  asked?: readonly Keyed[],
): Promise<WireResponse> {
  const { scope } = call.caller;
  const { await_requests, last_event_id } = await scope.details(run_id);
  const responses = responsesIn(request.params);
  /** The questions that stay open, and why their answers were refused. */
  const open = new Map<string, string | undefined>();
  for (const [key, await_id] of asked ?? withKeys(await_requests)) {
    const question = await_requests.find((one) => one.await_id === await_id);
    if (question === undefined) continue;
    const isGiven = Object.hasOwn(responses, key);
    const reason = isGiven ? await refusedAnswer(call, run_id, question, responses[key]) : undefined;
    if (!isGiven || reason !== undefined) open.set(question.await_id, reason);
  }
  const details = await scope.details(run_id);
  if (open.size > 0 && details.status === "awaiting")
    return answered(request, await inputRequired(call, peer, details, open));
  const task = await createdTask(call, peer, request, run_id, true);
  return task ?? follow(call, peer, request, run_id, last_event_id);
}

/** What a client from `2026-07-28` on keeps of a call that waits for answers. */
interface CallState {
  readonly run_id: string;
  /** The ids of the questions, by the keys under which the client was asked. */
  readonly questions: JsonObject;
}

async function readState(call: McpCall, tool: string, token: JsonValue | undefined): Promise<CallState> {
  const { seal } = call.service.settings;
  const state = await seal.open("state", [holderOf(call), tool], typeof token === "string" ? token : "");
  const { run_id, questions, expires } = state ?? {};
  if (typeof run_id === "string" && isJsonObject(questions) && Number(expires) > call.service.clock.now())
    return { run_id, questions };
  throw unfit("requestState: expected the state of a call of this tool.", { reason: "invalid_request_state" });
}

/** The result of a call whose run waits for answers. `reasons`: why the last answers were refused. */
async function inputRequired(
  call: McpCall,
  peer: Peer,
  { run_id, agent_name, await_requests }: RunDetails,
  reasons?: ReadonlyMap<string, string | undefined>,
): Promise<JsonObject> {
  const { seal, stateTtlMs } = call.service.settings;
  const asked = withKeys(await_requests);
  const questions = Object.fromEntries(asked);
  const expires = Math.min(call.service.clock.now() + stateTtlMs, Number.MAX_SAFE_INTEGER);
  return resultFor(call, peer, {
    resultType: "input_required",
    inputRequests: Object.fromEntries(
      await_requests.map((question, at) => [asked[at]?.[0], elicitationOf(question, reasons?.get(question.await_id))]),
    ),
    requestState: await seal.seal("state", [holderOf(call), agent_name], { run_id, questions, expires }),
  });
}

/** The key under which a client is asked, and the id of the question. */
type Keyed = readonly [key: string, await_id: JsonValue];

/** The ids of questions with their keys: the name that the agent gave it, if no other open one has that, else the id. */
function withKeys(questions: readonly OpenQuestionDetails[]): readonly Keyed[] {
  const names = questions.map(({ name }) => name);
  return questions.map(({ name, await_id }) => {
    return [name !== null && names.indexOf(name) === names.lastIndexOf(name) ? name : await_id, await_id];
  });
}

/** Answers with what happens in a run after an event, and with the result of the call. */
async function follow(
  call: McpCall,
  peer: Peer,
  request: RpcRequest,
  run_id: string,
  after: number,
): Promise<WireResponse> {
  const { service, caller } = call;
  const { asking, frame } = service.settings;
  const cancel = (): void => inBackground(service.logger, giveUp(call, run_id));
  const asks = peer.isModern ? undefined : peer.elicits;
  const text = new CallText(frame, request, await caller.scope.details(run_id), asks, cancel);
  const key = callOf(call, run_id);
  const response = await respond(call, async () => ({
    ...{ run_id, after, format: text, headers: {}, isMine: true, until: peer.isModern ? "rest" : "end" },
    tell: (events) => {
      const source = new Interjected(service.logger, events, async () => {
        text.result = await resultNow(call, peer, run_id, text);
      });
      asking.set(key, (question, reason) => source.add(text.again(question, reason)));
      return source;
    },
    enter: () => {
      const left = peer.isModern ? undefined : service.disconnects.enter(caller, run_id);
      return (done) => {
        asking.delete(key);
        if (left !== undefined) left(done);
        // Until the client has the response, its leaving is a cancel.
        else if (!text.isAnswered) cancel();
      };
    },
  }));
  const body = response.body as WireStream;
  // The response begins with its first message, or after a while: an error that comes alone has a status of its own.
  const stopListening = call.request.onLeave(() => body.return());
  const first = await body.next();
  stopListening();
  if (!peer.isModern || !text.isAlone || !(text.result instanceof RpcError))
    return { ...response, body: beginningWith(first, body) };
  body.return();
  throw text.result;
}

/** The name of the stream of a call, among those that are open in this process. */
export function callOf({ caller }: McpCall, run_id: string): string {
  return `${caller.tenant}/${run_id}`;
}

/** The result of a call whose run rests. */
async function resultNow(call: McpCall, peer: Peer, run_id: string, text: CallText): Promise<JsonObject | RpcError> {
  const { scope } = call.caller;
  const details = await scope.details(run_id);
  if (details.status !== "awaiting") {
    const run = await scope.getRun(run_id);
    const result = text.unasked === undefined ? resultOf(run, peer) : failure(text.unasked);
    return resultFor(call, peer, result);
  }
  if (peer.elicits) return inputRequired(call, peer, details);
  await giveUp(call, run_id);
  return needsCapability({ elicitation: {} });
}

/** Cancels a run that its client has given up. One that may only answer cancels nothing by leaving. */
async function giveUp(call: McpCall, run_id: string): Promise<void> {
  if (!call.caller.isReader) await cancelRun(call, run_id);
}
