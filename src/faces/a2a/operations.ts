import { newController } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { checkMayWrite } from "../../http/caller.ts";
import { createRunFor, resumeFor } from "../../http/claims.ts";
import { WireError } from "../../http/errors.ts";
import { lastEventId } from "../../http/event-stream.ts";
import type { Action } from "../../http/options.ts";
import { markRefused } from "../../http/refusals.ts";
import type { Route } from "../../http/service.ts";
import { askAbout, idempotencyKey } from "../../http/service.ts";
import { checkSession } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { JsonObject } from "../../protocol/json.ts";
import type { Run } from "../../protocol/run.ts";
import type { ListRunsQuery, RunDetails } from "../../runtime/runs/requests.ts";
import { inChat, keyOf } from "../chat/chat.ts";
import { ItemFormat } from "../chat/item-format.ts";
import { respond } from "../chat/run-response.ts";
import { refusal } from "./errors.ts";
import type { Task } from "./objects.ts";
import { stateOf, statuses } from "./objects.ts";
import type { A2aCall } from "./options.ts";
import { checkType } from "./parts.ts";
import type { ListRequest, Place, SendRequest } from "./requests.ts";
import { changeOf, historyLengthIn, readList, readSend, tokenOf } from "./requests.ts";
import { checkContext, checkKnown, findTask, foldOf, GIVEN, sessionOf, taskOf, unlessDeleted } from "./tasks.ts";
import type { Begin, Envelope } from "./teller.ts";
import { TaskTeller } from "./teller.ts";

/** How a binding answers. */
export interface Binding extends Envelope {
  result(value: object): WireResponse;
}

/** An operation of A2A, in any binding. */
export interface Operation {
  /** What the host is asked for at first. */
  readonly action: Action;
  /** Where it is in REST, below the path of an agent. */
  readonly path: string;
  readonly methods: readonly Route["method"][];
  /** Whether REST has its parameters in the body. Left out: in the path and the query. */
  readonly hasBody?: boolean;
  /** What its parameters say about the objects of the request. Left out: no more than the path. */
  readonly asks?: Route["asks"];
  run(call: A2aCall, params: JsonObject, binding: Binding): Promise<WireResponse>;
}

const TASK = "tasks/{run_id}";
const PUSH = `${TASK}/pushNotificationConfigs`;

/** The operations by the names that they have in JSON-RPC. */
export const operations: ReadonlyMap<string, Operation> = new Map<string, Operation>([
  // The body says whether it talks or answers.
  ["SendMessage", { action: "read", path: "message:send", methods: ["POST"], hasBody: true, run: send }],
  ["SendStreamingMessage", { action: "read", path: "message:stream", methods: ["POST"], hasBody: true, run: stream }],
  ["CancelTask", { action: "cancel", path: `${TASK}:cancel`, methods: ["POST"], run: cancelTask }],
  ["SubscribeToTask", { action: "read", path: `${TASK}:subscribe`, methods: ["POST", "GET"], run: subscribe }],
  ["GetTask", { action: "read", path: TASK, methods: ["GET"], run: getTask }],
  ["ListTasks", { action: "list", path: "tasks", methods: ["GET"], asks: { contextId: "chat_id" }, run: listTasks }],
  ["GetExtendedAgentCard", { action: "read", path: "extendedAgentCard", methods: ["GET"], run: noExtendedCard }],
  ["CreateTaskPushNotificationConfig", { action: "read", path: PUSH, methods: ["POST"], run: noPush }],
  ["ListTaskPushNotificationConfigs", { action: "read", path: PUSH, methods: ["GET"], run: noPush }],
  ["GetTaskPushNotificationConfig", { action: "read", path: `${PUSH}/{config}`, methods: ["GET"], run: noPush }],
  ["DeleteTaskPushNotificationConfig", { action: "read", path: `${PUSH}/{config}`, methods: ["DELETE"], run: noPush }],
]);

async function send(call: A2aCall, params: JsonObject, binding: Binding): Promise<WireResponse> {
  const request = readSend(params, call.service.settings.limits);
  const { details } = await take(call, request);
  return binding.result({ task: await taskOf(call, details, request, request.returnImmediately ? "now" : "rest") });
}

async function stream(call: A2aCall, params: JsonObject, binding: Binding): Promise<WireResponse> {
  const request = readSend(params, call.service.settings.limits);
  return follow(call, binding, true, async () => {
    const { details, isAnswered } = await take(call, request);
    const known = isAnswered === undefined ? 1 : details.last_event_id;
    return { details, begin: { ...request, known, isAnswered: isAnswered ?? false } };
  });
}

async function getTask(call: A2aCall, params: JsonObject, binding: Binding): Promise<WireResponse> {
  const historyLength = historyLengthIn(params);
  return binding.result(await taskOf(call, await findTask(call, params["id"]), { historyLength }));
}

async function subscribe(call: A2aCall, params: JsonObject, binding: Binding): Promise<WireResponse> {
  const header = call.request.header("last-event-id") ?? "";
  const last = header === "" ? undefined : lastEventId(header);
  const details = await findTask(call, params["id"]);
  const { finished_at, last_event_id } = details;
  // A stream that broke off is read to its end.
  if (finished_at !== null && (last === undefined || last >= last_event_id))
    throw refusal("UNSUPPORTED_OPERATION", "The task has ended.");
  const known = Math.max(1, Math.min(last ?? last_event_id, last_event_id));
  return follow(call, binding, false, async () => ({ details, begin: { known } }));
}

/** Answers with the stream of a task until it rests. */
function follow(
  call: A2aCall,
  binding: Binding,
  isMine: boolean,
  start: () => Promise<{ readonly details: RunDetails; readonly begin: Begin }>,
): Promise<WireResponse> {
  return respond(call, async () => {
    const { details, begin } = await start();
    const teller = new TaskTeller(await foldOf(call, details, begin), begin, binding);
    // Who follows a task that waits wants to see what comes of it.
    const until = !isMine && details.status === "awaiting" ? "end" : "rest";
    return { run_id: details.run_id, after: 0, format: new ItemFormat(teller, ""), headers: {}, isMine, until };
  });
}

/** What has come of a message. */
interface Taken {
  /** The run, as it was before an answer. */
  readonly details: RunDetails;
  /** Whether the run waited for the answer. Undefined: the message has begun it. */
  readonly isAnswered?: boolean;
}

/** Takes a message of the client: it begins a task, or answers one. */
async function take(call: A2aCall, request: SendRequest): Promise<Taken> {
  const readable = await checkKnown(call);
  const { wantsPush, taskId, said } = request;
  const { role, parts } = said;
  if (wantsPush) return noPush();
  if (role !== "user" && !call.caller.speaksAs(role)) {
    const message = "Expected ROLE_USER.";
    throw markRefused(new WireError(403, "role_not_allowed", message), { client: call.caller });
  }
  if (taskId !== "") return answer(call, request);
  for (const part of parts) checkType(part, readable);
  const { run_id } = await begin(call, request);
  return { details: await call.caller.scope.details(run_id) };
}

async function begin(given: A2aCall, request: SendRequest): Promise<Run> {
  const { contextId, handed, said } = request;
  const agent_name = given.parameter;
  const key = idempotencyKey(given);
  const session_id = sessionOf(given, contextId);
  const call = session_id === undefined ? given : inChat(given, contextId, session_id);
  const { caller } = await askAbout(call, { action: "create", agent_name });
  if (session_id !== undefined) await checkSession(caller, session_id);
  const kept = contextId === "" || contextId === session_id ? handed : { ...handed, contextId };
  const metadata = Object.keys(kept).length === 0 ? undefined : { [GIVEN]: kept };
  return createRunFor(
    caller,
    { agent_name, input: [said], session_id, mode: "async" },
    { idempotencyKey: key, metadata },
  );
}

async function answer(call: A2aCall, request: SendRequest): Promise<Taken> {
  const details = await findTask(call, request.taskId);
  const { run_id, status } = details;
  checkContext(call, request.contextId, details);
  const { messageId, reply } = request;
  // A message that is sent again is the same answer. Its id alone does not say so: clients use ids again.
  const key = idempotencyKey(call) ?? keyOf(run_id, "answer", JSON.stringify([messageId, reply]));
  await resumeFor(call.caller, { ...reply, run_id, mode: "async" }, { idempotencyKey: key });
  return { details, isAnswered: status === "awaiting" };
}

/** How long a request to cancel waits for the end of the task, in milliseconds. */
const CANCEL_WAIT_MS = 1_000;

async function cancelTask(call: A2aCall, params: JsonObject, binding: Binding): Promise<WireResponse> {
  const { caller, service } = call;
  const details = await findTask(call, params["id"]);
  checkMayWrite(caller);
  const controller = newController(service.logger);
  const stop = service.clock.setTimeout(() => controller.abort(), CANCEL_WAIT_MS);
  try {
    await caller.scope.cancel(details.run_id, { wait: true, signal: controller.signal });
  } catch (error) {
    const hasEnded = CadenzaError.is(error) && error.code === "run_finished";
    if (hasEnded && details.status !== "cancelled") throw refusal("TASK_NOT_CANCELABLE", "The task has ended.");
    if (!hasEnded && !controller.signal.aborted) throw error;
  } finally {
    stop();
  }
  return binding.result(await taskOf(call, details, {}));
}

async function listTasks(call: A2aCall, params: JsonObject, binding: Binding): Promise<WireResponse> {
  const request = readList(params);
  const { contextId, pageSize, after } = request;
  await checkKnown(call);
  const all = await placesOf(call, request);
  const from = after === undefined ? 0 : indexBehind(after, all);
  const page = all.slice(from, from + pageSize);
  const tasks: Task[] = [];
  for (const { run_id } of page) {
    const task = await unlessDeleted(async () => taskOf(call, await call.caller.scope.details(run_id), request));
    // The client knows the context by this name.
    if (task !== undefined) tasks.push(contextId === "" ? task : { ...task, contextId });
  }
  const last = page.at(-1);
  const isEnd = last === undefined || from + page.length >= all.length;
  return binding.result({ tasks, nextPageToken: isEnd ? "" : tokenOf(last), pageSize, totalSize: all.length });
}

const RUNS_A_PAGE = 1_000;

/** The tasks that a client lists, those first that have changed last. */
async function placesOf(call: A2aCall, request: ListRequest): Promise<readonly Place[]> {
  const { scope } = call.caller;
  const { contextId, state, since } = request;
  const session_id = sessionOf(call, contextId);
  const query: ListRunsQuery = {
    agent_name: call.parameter,
    session_id,
    status: state && statuses[state],
    roots: true,
  };
  const places: Place[] = [];
  for (let after: string | undefined; ; ) {
    const runs = await scope.listRuns({ ...query, limit: RUNS_A_PAGE, after });
    for (const run of runs) {
      const changed = changeOf(run);
      if (changed >= since && (await isIn(call, run, state))) places.push({ changed, run_id: run.run_id });
    }
    if (runs.length < RUNS_A_PAGE) break;
    after = runs.at(-1)?.run_id;
  }
  // Equal ones stay in the order in which they were created: two at work have no difference.
  return places.sort((a, b) => b.changed - a.changed || 0);
}

/** Whether a run with one of the statuses of a state has the state. */
async function isIn({ caller }: A2aCall, run: Omit<Run, "output">, state: ListRequest["state"]): Promise<boolean> {
  if (state === undefined) return true;
  const { run_id, status } = run;
  const details = status === "awaiting" ? await unlessDeleted(() => caller.scope.details(run_id)) : undefined;
  return stateOf(run, details?.await_requests[0]?.kind) === state;
}

/** Where the tasks begin that come behind the last one of the page before, which may have changed since. */
function indexBehind({ changed, run_id }: Place, all: readonly Place[]): number {
  const last = all.findIndex((one) => one.run_id === run_id && one.changed === changed);
  if (last !== -1) return last + 1;
  const next = all.findIndex((one) => one.changed < changed);
  return next === -1 ? all.length : next;
}

async function noExtendedCard(): Promise<never> {
  throw refusal("UNSUPPORTED_OPERATION", "No extended card.");
}

async function noPush(): Promise<never> {
  throw refusal("PUSH_NOTIFICATION_NOT_SUPPORTED", "No push notifications.");
}
