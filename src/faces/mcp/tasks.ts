import type { About } from "../../http/caller.ts";
import { isLibraryCode } from "../../http/errors.ts";
import { INTERNAL_ERROR } from "../../http/json-rpc.ts";
import { askAbout } from "../../http/service.ts";
import { checkChange, checkRun, runIdIn } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { JsonObject } from "../../protocol/json.ts";
import type { RunDetails } from "../../runtime/runs/requests.ts";
import { cancelRuns } from "../chat/chat.ts";
import { resultOf } from "./content.ts";
import { elicitationOf, reply, responsesIn } from "./elicitation.ts";
import type { McpCall, RpcCall } from "./options.ts";
import { needsCapability, tasksExtension } from "./peer.ts";
import { respondWith, resultFor } from "./responses.ts";

/* A run is a task: any process of its store knows it by its id. */

/** The response to a call that becomes a task. `isAnswered`: whether it has asked its first questions. */
export async function createdTask(
  call: RpcCall,
  run_id: string,
  isAnswered: boolean,
): Promise<WireResponse | undefined> {
  if (!call.peer.hasTasks) return undefined;
  const details = await call.caller.scope.details(run_id);
  const mode = taskModeOf(call, details.agent_name) ?? details.durable;
  if (!mode || (mode === "answered" && !isAnswered)) return undefined;
  return respondWith(call, { resultType: "task", ...taskFields(call, details) });
}

/** How calls of an agent become tasks, as far as the options say. */
export function taskModeOf({ service }: McpCall, name: string) {
  const { tasks } = service.settings;
  return typeof tasks === "object" ? (tasks.get(name) ?? false) : tasks;
}

/** `tasks/get`: a task as it is now. */
export async function getTask(given: RpcCall): Promise<WireResponse> {
  const { call, run_id } = await admitTask(given, "read");
  return respondWith(call, await taskNow(call, run_id));
}

/** `tasks/update`: answers questions of a task. Ids of no open question are left out. */
export async function updateTask(given: RpcCall): Promise<WireResponse> {
  const { call, run_id } = await admitTask(given, "read");
  const responses = responsesIn(call.message.params);
  const { await_requests } = await call.caller.scope.details(run_id);
  for (const question of await_requests) {
    const { await_id } = question;
    if (Object.hasOwn(responses, await_id)) await reply(call, run_id, question, responses[await_id]);
  }
  return respondWith(call, {});
}

/** `tasks/cancel`: cancels a task. One that has ended stays as it is. */
export async function cancelTask(given: RpcCall): Promise<WireResponse> {
  const { call, run_id } = await admitTask(given, "cancel");
  await cancelRun(call, run_id);
  return respondWith(call, {});
}

/** Cancels a run for a client that may do so, unless it has ended. */
export async function cancelRun(call: McpCall, run_id: string): Promise<void> {
  await checkChange(call.caller, run_id);
  await cancelRuns(call, [{ run_id }]);
}

/**
 * Asks the host about a task. Refuses a client that has not declared the extension, and a task that does not exist for it,
 * whatever its id is.
 */
export async function admitTask(
  given: RpcCall,
  action: "read" | "cancel",
  taskId = given.message.params["taskId"],
): Promise<{ readonly call: RpcCall; readonly run_id: string }> {
  if (!given.peer.hasTasks) throw needsCapability(tasksExtension);
  const run_id = runIdIn(taskId);
  return { call: await admitToRun(given, { action, run_id }), run_id };
}

/** The call with the rights for a run. Refuses a run that does not exist for the client. */
export async function admitToRun<Asking extends McpCall>(
  given: Asking,
  about: About & { readonly run_id: string },
): Promise<Asking> {
  const call = await askAbout(given, about);
  await checkRun(call.caller, about.run_id);
  return call;
}

/** A task with what it asks for, and what has come of it. */
export async function taskNow(call: RpcCall, run_id: string): Promise<JsonObject> {
  const { peer, caller } = call;
  const { scope } = caller;
  const details = await scope.details(run_id);
  const fields = taskFields(call, details);
  if (details.status === "awaiting") {
    // A client that shows no forms leaves the questions to others.
    const shown = peer.elicits ? details.await_requests : [];
    return {
      ...fields,
      inputRequests: Object.fromEntries(shown.map((question) => [question.await_id, elicitationOf(question)])),
    };
  }
  if (details.finished_at === null || details.status === "cancelled") return fields;
  const run = await scope.getRun(run_id);
  const { message = "", data } = run.error ?? {};
  const reason = data?.["reason"];
  // An error that the agent has declared is the result of the call.
  if (isLibraryCode(reason))
    return {
      ...fields,
      statusMessage: message,
      error: { code: INTERNAL_ERROR, message, data: { reason: String(reason) } },
    };
  return { ...fields, status: "completed", result: resultFor(call, resultOf(run, peer)) };
}

/** What every task says. */
function taskFields(call: McpCall, details: RunDetails): JsonObject {
  const { run_id, status, created_at, finished_at, await_requests } = details;
  const { clock, settings } = call.service;
  return {
    taskId: run_id,
    status: status === "awaiting" ? "input_required" : finished_at === null ? "working" : status,
    createdAt: created_at,
    // A run at work changes at any time.
    lastUpdatedAt: finished_at ?? await_requests.at(-1)?.message.created_at ?? new Date(clock.now()).toISOString(),
    ttlMs: null,
    pollIntervalMs: settings.pollIntervalMs,
    ...(status === "cancelling" && { statusMessage: "The run is being cancelled." }),
  };
}
