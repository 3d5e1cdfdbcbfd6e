import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { createRunFor } from "../../http/claims.ts";
import { issuesText } from "../../http/errors.ts";
import { Interjected } from "../../http/interjected.ts";
import { RpcError } from "../../http/json-rpc.ts";
import { askAbout } from "../../http/service.ts";
import { checkAgent } from "../../http/visibility.ts";
import type { WireResponse, WireStream } from "../../http/wire.ts";
import { beginningWith } from "../../http/wire.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { RunDetails } from "../../runtime/runs/requests.ts";
import { forEachEvent, keyOf } from "../chat/chat.ts";
import { respond } from "../chat/run-response.ts";
import { CallText } from "./call-text.ts";
import { failure, resultOf } from "./content.ts";
import { elicitationOf, refusedAnswer, responsesIn } from "./elicitation.ts";
import type { McpCall, RpcCall } from "./options.ts";
import { checkArguments, holderOf, needsCapability, objectIn, tasksExtension } from "./peer.ts";
import { respondWith, unfit } from "./responses.ts";
import { admitToRun, cancelRun, createdTask, taskModeOf } from "./tasks.ts";
import { inputOf, inputSchemaOf } from "./tools.ts";

/** `tools/call`: begins a run, or gives the answers to its questions, and answers with what comes of it. */
export async function callTool(given: RpcCall): Promise<WireResponse> {
  const { peer, message } = given;
  const { params, id } = message;
  const { name } = params;
  if (typeof name !== "string") throw unfit("name: expected a string.");
  checkAgent(given.caller, name);
  const agent = await given.caller.scope.getAgent(name);
  const values = objectIn({ arguments: {}, ...params }, "arguments");
  if (peer.isModern) checkArguments(given, inputSchemaOf(agent), values);
  const { requestState, inputResponses } = peer.isModern ? params : {};
  if (requestState !== undefined) return goOn(given, name);
  const call = await askAbout(given, { action: "create", agent_name: name });
  checkAgent(call.caller, name);
  const failed = (text: string): WireResponse => respondWith(call, failure(text));
  if (!peer.hasTasks && taskModeOf(call, name) === "required") {
    if (peer.isModern) throw needsCapability(tasksExtension);
    return failed("The tool can only be called as a task.");
  }
  const options = { idempotencyKey: callKey(call, id) };
  let run_id: string;
  try {
    const input = inputOf(agent, values);
    ({ run_id } = await createRunFor(call.caller, { agent_name: name, input, mode: "async" }, options));
  } catch (error) {
    if (!CadenzaError.is(error) || error.code !== "invalid_input") throw error;
    // A model that reads why may call again with others.
    return failed(`${error.message} ${issuesText(error.issues ?? [])}`.trim());
  }
  const task = await createdTask(call, run_id, false);
  if (task !== undefined) return task;
  if (inputResponses === undefined) return follow(call, run_id, 0);
  // The client has kept no state: its answers are to what the run asks first.
  await forEachEvent(call, run_id, () => undefined, "rest");
  return giveAnswers(call, run_id);
}

/** Under which key a client from before `2026-07-28` finds the run of its call again, to cancel it. */
export function callKey({ peer: { session } }: Pick<RpcCall, "peer">, id: unknown): string | undefined {
  return session === undefined ? undefined : keyOf(session, "call", JSON.stringify(id));
}

/** Gives the answers of a repeated call to the run of the first one. */
async function goOn(given: RpcCall, tool: string): Promise<WireResponse> {
  const { run_id, keys } = await readState(given, tool);
  const call = await admitToRun(given, { action: "read", run_id, agent_name: tool });
  return giveAnswers(call, run_id, keys);
}

/**
 * Gives the answers of a call to the questions of a run, and answers with what comes of it. `keys`: those of the questions
 * that the client was asked. Default: those of the open ones.
 */
async function giveAnswers(call: RpcCall, run_id: string, keys?: JsonObject): Promise<WireResponse> {
  const { scope } = call.caller;
  const { await_requests, last_event_id } = await scope.details(run_id);
  const responses = responsesIn(call.message.params);
  /** The questions that stay open, and why their answers were refused. */
  const open = new Map<string, string | undefined>();
  const asked = keys ?? keysOf(await_requests);
  for (const question of await_requests) {
    const key = asked[question.await_id];
    if (typeof key !== "string") continue;
    const isGiven = Object.hasOwn(responses, key);
    const reason = isGiven ? await refusedAnswer(call, run_id, question, responses[key]) : undefined;
    if (!isGiven || reason !== undefined) open.set(question.await_id, reason);
  }
  const details = await scope.details(run_id);
  if (open.size > 0 && details.status === "awaiting")
    return respondWith(call, await inputRequired(call, details, open));
  return (await createdTask(call, run_id, true)) ?? follow(call, run_id, last_event_id);
}

/** What a client from `2026-07-28` on keeps of a call that waits for answers. */
interface CallState {
  readonly run_id: string;
  /** The keys under which the client was asked, by the ids of the questions. */
  readonly keys: JsonObject;
}

async function readState(call: RpcCall, tool: string): Promise<CallState> {
  const { clock, settings } = call.service;
  const { requestState } = call.message.params;
  const { run_id, keys, at } = (await settings.seal.open("state", [holderOf(call), tool], requestState)) ?? {};
  if (typeof run_id === "string" && isJsonObject(keys) && Number(at) + settings.stateTtlMs > clock.now())
    return { run_id, keys };
  throw unfit("requestState: expected the state of a call of this tool.", { reason: "invalid_request_state" });
}

/** The result of a call whose run waits for answers. `reasons`: why the last answers were refused. */
async function inputRequired(
  call: RpcCall,
  { run_id, agent_name, await_requests }: RunDetails,
  reasons?: ReadonlyMap<string, string | undefined>,
): Promise<JsonObject> {
  const { clock, settings } = call.service;
  const keys = keysOf(await_requests);
  return {
    resultType: "input_required",
    inputRequests: Object.fromEntries(
      await_requests.map((question) => {
        const { await_id } = question;
        return [keys[await_id], elicitationOf(question, reasons?.get(await_id))];
      }),
    ),
    requestState: await settings.seal.seal("state", [holderOf(call), agent_name], { run_id, keys, at: clock.now() }),
  };
}

/** The keys of questions by their ids: the name that the agent gave it, if no other open one has that, else the id. */
function keysOf(questions: readonly OpenQuestionDetails[]): Readonly<Record<string, string>> {
  const names = questions.map(({ name }) => name);
  const keyed = questions.map(({ name, await_id }) => {
    return [await_id, name !== null && names.indexOf(name) === names.lastIndexOf(name) ? name : await_id] as const;
  });
  return Object.fromEntries(keyed);
}

/** Answers with what happens in a run after an event, and with the result of the call. */
async function follow(call: RpcCall, run_id: string, after: number): Promise<WireResponse> {
  const { service, caller, peer } = call;
  const { asking } = service.settings;
  const cancel = (): void => inBackground(service.logger, giveUp(call, run_id));
  const text = new CallText(call, await caller.scope.details(run_id), cancel);
  const key = callOf(call, run_id);
  const response = await respond(call, async () => ({
    ...{ run_id, after, format: text, headers: {}, isMine: true, until: peer.isModern ? "rest" : "end" },
    tell: (events) => {
      const source = new Interjected(service.logger, events, async () => {
        text.result = await resultNow(call, run_id, text);
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
async function resultNow(call: RpcCall, run_id: string, text: CallText): Promise<JsonObject | RpcError> {
  const { peer, caller } = call;
  const { scope } = caller;
  const details = await scope.details(run_id);
  if (details.status !== "awaiting") {
    const run = await scope.getRun(run_id);
    return text.unasked === undefined ? resultOf(run, peer) : failure(text.unasked);
  }
  if (peer.elicits) return inputRequired(call, details);
  await giveUp(call, run_id);
  return needsCapability({ elicitation: {} });
}

/** Cancels a run that its client has given up. One that may only answer cancels nothing by leaving. */
async function giveUp(call: McpCall, run_id: string): Promise<void> {
  if (!call.caller.isReader) await cancelRun(call, run_id);
}
