import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { clientLeft, readJson } from "../../http/body.ts";
import type { Caller } from "../../http/caller.ts";
import { checkMayWrite } from "../../http/caller.ts";
import { createRunFor, resumeFor } from "../../http/claims.ts";
import { askAbout, idempotencyKey, queryFlag, queryNumber, takeBody } from "../../http/service.ts";
import { checkAgent, checkChange, checkRun, checkSession, checkVisibleRun } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import { agentNameSchema } from "../../protocol/agent.ts";
import { sessionIdSchema } from "../../protocol/identifier.ts";
import type { Run, RunMode } from "../../protocol/run.ts";
import { runStatusSchema } from "../../protocol/run.ts";
import type { PostedSession } from "../../protocol/session.ts";
import type { EventStream } from "../../runtime/log/event-stream.ts";
import type { CreateRunOptions, ListRunsQuery, ResumeOptions } from "../../runtime/runs/requests.ts";
import type { AcpCall } from "./options.ts";
import type { Schema } from "./requests.ts";
import { checkCreateRequest, readCreateRequest, readReplyRequest, readWith } from "./requests.ts";
import { loadSession } from "./sessions.ts";
import { followRun, streamRun } from "./streams.ts";

/** `POST /runs`: starts a run. */
export async function createRun(given: AcpCall): Promise<WireResponse> {
  const { limits } = given.service.settings;
  const key = idempotencyKey(given);
  const body = readJson(await takeBody(given), limits);
  const request = readCreateRequest(body, limits);
  try {
    const { agent_name, input, mode = "sync", session } = request;
    const session_id = request.session_id ?? session?.id;
    const isAsked = given.caller.ask !== undefined;
    const call = isAsked ? await askAbout(given, { action: "create", agent_name, session_id }) : given;
    const { caller } = call;
    checkAgent(caller, agent_name);
    if (session_id !== undefined) await checkSession(caller, session_id);
    checkMayWrite(caller);
    const brought = session === undefined ? undefined : await broughtSession(call, session);
    const options: CreateRunOptions = { idempotencyKey: key, session: brought };
    return await answer(call, mode, (mode) => createRunFor(caller, { agent_name, input, session_id, mode }, options));
  } catch (error) {
    // The schema has not validated a plain body yet. Its error is more precise.
    if (CadenzaError.is(error) && (error.code === "invalid_argument" || error.code === "agent_not_found"))
      checkCreateRequest(body);
    throw error;
  }
}

/** `POST /runs/{run_id}`: answers what a run waits for. */
export async function resumeRun(call: AcpCall): Promise<WireResponse> {
  const { service, caller, parameter } = call;
  const { limits } = service.settings;
  const key = idempotencyKey(call);
  await checkRun(caller, parameter);
  const body = readJson(await takeBody(call), limits);
  const request = readReplyRequest(body, parameter, service.settings);
  const options: ResumeOptions = { idempotencyKey: key };
  return answer(call, request.mode ?? "sync", (mode) =>
    resumeFor(caller, { ...request, run_id: parameter, mode }, options),
  );
}

/** `POST /runs/{run_id}/cancel`: stops a run. A body is ignored. */
export async function cancelRun({ caller, parameter }: AcpCall): Promise<WireResponse> {
  await checkChange(caller, parameter);
  return runResponse(202, await caller.scope.cancel(parameter));
}

/** `GET /runs/{run_id}`: the run as it is now. */
export async function getRun({ caller, parameter }: AcpCall): Promise<WireResponse> {
  const run = await caller.scope.getRun(parameter);
  checkVisibleRun(caller, run);
  return runResponse(200, run);
}

/**
 * `GET /runs/{run_id}/events`: the events so far as JSON or, for a client that accepts an event stream, these and what
 * follows.
 */
export async function getEvents(call: AcpCall): Promise<WireResponse> {
  const { caller, parameter } = call;
  await checkRun(caller, parameter);
  return followRun(call);
}

/** `GET /runs`: a page of runs, the newest first. */
export async function listRuns({ caller, query }: AcpCall): Promise<WireResponse> {
  const search = new URLSearchParams(query);
  const limit = queryNumber(search, "limit", 1, 1_000) ?? 100;
  const offset = queryNumber(search, "offset", 0, Number.MAX_SAFE_INTEGER) ?? 0;
  const filter: ListRunsQuery = {
    agent_name: readQuery(search, "agent_name", agentNameSchema),
    session_id: readQuery(search, "session_id", sessionIdSchema),
    status: readQuery(search, "status", runStatusSchema),
    roots: queryFlag(search, "roots"),
  };
  return json(200, { runs: await visibleRuns(caller, { ...filter, limit, offset }) });
}

/** Starts or resumes a run, and answers in the mode that the request asks for. */
function answer(
  call: AcpCall,
  mode: RunMode,
  start: (mode: RunMode) => Promise<Run> | EventStream,
): Promise<WireResponse> {
  if (mode === "stream") return streamRun(call, () => start(mode) as EventStream);
  if (mode === "async") return (start(mode) as Promise<Run>).then((run) => runResponse(202, run));
  const { cancelAfterMs } = call.service.settings;
  return unlessLeft(
    call,
    cancelAfterMs < Number.POSITIVE_INFINITY
      ? waitOrCancel(call, start("stream") as EventStream)
      : (start(mode) as Promise<Run>),
  );
}

/**
 * Answers with a run at rest, unless the client disconnects first. The run goes on, and only a callback is left in it.
 */
function unlessLeft({ request, service }: AcpCall, rest: Promise<Run>): Promise<WireResponse> {
  return new Promise((resolve, reject) => {
    const stopListening = request.onLeave(() => reject(clientLeft()));
    const answer = (run: Run): void => {
      stopListening();
      try {
        resolve(runResponse(200, run));
      } catch (error) {
        reject(error);
      }
    };
    const refuse = (error: unknown): void => {
      stopListening();
      reject(error);
    };
    inBackground(service.logger, rest.then(answer, refuse));
  });
}

/** The run when it rests. If the client disconnects before that, the run is cancelled, at once or later. */
async function waitOrCancel({ service, request, caller }: AcpCall, events: EventStream): Promise<Run> {
  const first = await events.next();
  const id = first.done !== true && "run" in first.value ? first.value.run.run_id : "";
  const leave = service.disconnects.enter(caller, id);
  const stopListening = request.onLeave(() => {
    inBackground(service.logger, events.return());
    leave(false);
  });
  try {
    for await (const _ of events) {
      // Waits until the run rests.
    }
  } finally {
    stopListening();
    leave(true);
  }
  return caller.scope.getRun(id);
}

async function broughtSession(call: AcpCall, session: PostedSession): Promise<CreateRunOptions["session"]> {
  const isEmpty = session.id === undefined && session.history.length === 0 && session.state === undefined;
  return isEmpty ? undefined : loadSession(call, session);
}

const PAGE = 1_000;

/** A page of the runs whose agents exist for the caller. */
async function visibleRuns({ scope, sees }: Caller, query: ListRunsQuery & { limit: number; offset: number }) {
  if (sees === undefined) return scope.listRuns({ ...query, output: true });
  const visible: Run[] = [];
  for (let offset = 0; visible.length < query.offset + query.limit; offset += PAGE) {
    const page = await scope.listRuns({ ...query, limit: PAGE, offset, output: true });
    visible.push(...page.filter(({ agent_name }) => sees(agent_name)));
    if (page.length < PAGE) break;
  }
  return visible.slice(query.offset, query.offset + query.limit);
}

function runResponse(status: number, run: Run): WireResponse {
  return json(status, run, { "run-id": run.run_id });
}

/** A parameter of the query, read by a schema. */
function readQuery<T>(search: URLSearchParams, name: string, schema: Schema<T>): T | undefined {
  const value = search.get(name);
  return value === null ? undefined : readWith(schema, value, [name]);
}
