import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { createRunFor } from "../../http/claims.ts";
import { issuesText } from "../../http/errors.ts";
import { Interjected } from "../../http/interjected.ts";
import type { RpcRequest } from "../../http/json-rpc.ts";
import { answered, RpcError } from "../../http/json-rpc.ts";
import { askAbout } from "../../http/service.ts";
import { checkAgent, checkVisibleRun } from "../../http/visibility.ts";
import type { WireResponse, WireStream } from "../../http/wire.ts";
import { beginningWith } from "../../http/wire.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { RunDetails } from "../../runtime/runs/requests.ts";
import { keyOf } from "../chat/chat.ts";
import { respond } from "../chat/run-response.ts";
import { CallText } from "./call-text.ts";
import { failure, resultOf } from "./content.ts";
import { elicitationOf } from "./elicitation.ts";
import type { McpCall } from "./options.ts";
import type { Peer } from "./peer.ts";
import { checkArguments, holderOf, needsCapability, objectIn, textIn } from "./peer.ts";
import { refusedAnswer, responsesIn } from "./replies.ts";
import { complete, unfit } from "./responses.ts";
import { cancelRun, createdTask } from "./tasks.ts";
import { inputOf, inputSchemaOf } from "./tools.ts";

/** `tools/call`: begins a run, or gives the answers to its questions, and answers with what comes of it. */
export async function callTool(given: McpCall, peer: Peer, request: RpcRequest): Promise<WireResponse> {
  const { params, id } = request;
  const name = textIn(params, "name");
  checkAgent(given.caller, name);
  const agent = await given.caller.scope.getAgent(name);
  const values = objectIn({ arguments: {}, ...params }, "arguments");
  if (peer.isModern) checkArguments(given, inputSchemaOf(agent), values);
  const state = peer.isModern ? params["requestState"] : undefined;
  if (state !== undefined) return goOn(given, peer, request, typeof state === "string" ? state : "");
  const call = await askAbout(given, { action: "create", agent_name: name });
  checkAgent(call.caller, name);
  const options = { idempotencyKey: callKey(peer, id) };
  let run_id: string;
  try {
    const input = inputOf(agent, values);
    ({ run_id } = await createRunFor(call.caller, { agent_name: name, input, mode: "async" }, options));
  } catch (error) {
    if (!CadenzaError.is(error) || error.code !== "invalid_input") throw error;
    // A model that reads why may call again with others.
    return answered(
      request,
      resultFor(call, peer, failure(`${error.message} ${issuesText(error.issues ?? [])}`.trim())),
    );
  }
  const task = peer.hasTasks ? await createdTask(call, run_id) : undefined;
  return task === undefined ? follow(call, peer, request, run_id, 0) : answered(request, task);
}

/** A result, as the revision of the client has it. */
function resultFor(call: McpCall, { isModern }: Peer, result: JsonObject): JsonObject {
  return isModern ? complete(call, result) : result;
}

/** Under which key a client from before `2026-07-28` finds the run of its call again, to cancel it. */
export function callKey({ session }: Peer, id: unknown): string | undefined {
  return session === undefined ? undefined : keyOf(session, "call", JSON.stringify(id));
}

/** What a client from `2026-07-28` on keeps of a call that waits for answers. */
interface CallState {
  readonly run_id: string;
  /** The ids of the questions, by the keys under which the client was asked. */
  readonly questions: JsonObject;
}

/** Gives the answers of a repeated call to the run of the first one. */
async function goOn(given: McpCall, peer: Peer, request: RpcRequest, token: string): Promise<WireResponse> {
  const { params } = request;
  const tool = textIn(params, "name");
  const { run_id, questions } = await readState(given, tool, token);
  const call = await askAbout(given, { action: "read", run_id, agent_name: tool });
  const { caller } = call;
  const details = await caller.scope.details(run_id);
  checkVisibleRun(caller, await caller.scope.getRun(run_id));
  const responses = responsesIn(params);
  const reasons = new Map<string, string>();
  for (const [key, await_id] of Object.entries(questions)) {
    const question = details.await_requests.find((one) => one.await_id === await_id);
    if (question === undefined || !Object.hasOwn(responses, key)) continue;
    const reason = await refusedAnswer(call, run_id, question, responses[key]);
    if (reason !== undefined) reasons.set(question.await_id, reason);
  }
  if (reasons.size === 0) return follow(call, peer, request, run_id, details.last_event_id);
  const open = await caller.scope.details(run_id);
  return answered(request, await inputRequired(call, open, reasons));
}

async function readState(call: McpCall, tool: string, token: string): Promise<CallState> {
  const { seal } = call.service.settings;
  const state = await seal.open("state", [holderOf(call), tool], token);
  const { run_id, questions, expires } = state ?? {};
  if (typeof run_id === "string" && isJsonObject(questions) && Number(expires) > call.service.clock.now())
    return { run_id, questions };
  throw unfit("requestState: expected the state of a call of this tool.", { reason: "invalid_request_state" });
}

/** The result of a call whose run waits for answers. `reasons`: why the last answers were refused. */
async function inputRequired(
  call: McpCall,
  { run_id, agent_name, await_requests }: RunDetails,
  reasons: ReadonlyMap<string, string> = new Map(),
): Promise<JsonObject> {
  const { seal, stateTtlMs } = call.service.settings;
  const keys = keysOf(await_requests);
  const questions = Object.fromEntries(await_requests.map(({ await_id }, index) => [keys[index], await_id]));
  const expires = Math.min(call.service.clock.now() + stateTtlMs, Number.MAX_SAFE_INTEGER);
  return complete(call, {
    resultType: "input_required",
    inputRequests: Object.fromEntries(
      await_requests.map((question, index) => [keys[index], elicitationOf(question, reasons.get(question.await_id))]),
    ),
    requestState: await seal.seal("state", [holderOf(call), agent_name], { run_id, questions, expires }),
  });
}

/** The key of each question: the name that the agent gave it, if no other open one has that, else its id. */
function keysOf(questions: readonly OpenQuestionDetails[]): readonly string[] {
  const names = questions.map(({ name }) => name);
  return questions.map(({ name, await_id }) =>
    name !== null && names.indexOf(name) === names.lastIndexOf(name) ? name : await_id,
  );
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
  const text = new CallText(frame, request, run_id, asks, cancel);
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
  if (peer.elicits) return inputRequired(call, details);
  await giveUp(call, run_id);
  return needsCapability({ elicitation: {} });
}

/** Cancels a run that its client has given up. One that may only answer cancels nothing by leaving. */
async function giveUp(call: McpCall, run_id: string): Promise<void> {
  if (!call.caller.isReader) await cancelRun(call, run_id);
}
