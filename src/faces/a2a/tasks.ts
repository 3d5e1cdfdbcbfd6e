import { isNotFound } from "../../core/errors.ts";
import { notCounted } from "../../http/disconnects.ts";
import { unfitAt } from "../../http/errors.ts";
import { checkAgent, runIdIn } from "../../http/visibility.ts";
import { runIdSchema } from "../../protocol/identifier.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { RunDetails } from "../../runtime/runs/requests.ts";
import { forEachEvent, keyOf } from "../chat/chat.ts";
import { inputsOf } from "../chat/seen-runs.ts";
import { noTask } from "./errors.ts";
import type { Task } from "./objects.ts";
import type { A2aCall } from "./options.ts";
import type { TaskView } from "./task-fold.ts";
import { TaskFold } from "./task-fold.ts";

/* The runs of one agent as tasks. */

/** Refuses an agent that does not exist, or not for the client. */
export async function checkKnown({ caller, parameter: name }: A2aCall): Promise<readonly string[]> {
  checkAgent(caller, name);
  return (await caller.scope.getAgent(name)).input_content_types;
}

/** The run of a task. Refuses the run of another agent, and what is no id, as it refuses a task that does not exist. */
export async function findTask(call: A2aCall, id: unknown): Promise<RunDetails> {
  checkAgent(call.caller, call.parameter);
  const details = await call.caller.scope.details(runIdIn(id));
  if (details.agent_name !== call.parameter) throw noTask();
  return details;
}

/** The session that clients know by a context. One that has the form of a session's id is that session. Undefined: it has no name. */
export function sessionOf({ caller }: Pick<A2aCall, "caller">, contextId: string): string | undefined {
  if (contextId === "") return undefined;
  const read = runIdSchema.safeParse(contextId);
  if (read.success) return read.data;
  // A longer text than a key may be.
  return caller.scope.sessionId(contextId.length > MAX_KEY_LENGTH ? String(keyOf("context", contextId)) : contextId);
}

const MAX_KEY_LENGTH = 255;

/** The field of a run's metadata with what a client of A2A has given. */
export const GIVEN = "a2a";

/** The context of a run, as the client named it that began the run. Otherwise it is the id of the session. */
function contextOf(call: A2aCall, { metadata, session_id }: RunDetails): string {
  const given = isJsonObject(metadata) ? metadata[GIVEN] : undefined;
  const contextId = isJsonObject(given) ? given["contextId"] : undefined;
  return typeof contextId === "string" && sessionOf(call, contextId) === session_id ? contextId : session_id;
}

/** Refuses a context that is not the run's. */
export function checkContext(call: A2aCall, contextId: string, { session_id }: RunDetails): void {
  if ((sessionOf(call, contextId) ?? session_id) !== session_id)
    throw unfitAt(["message", "contextId"], "expected the context of the task");
}

/** The task of a run before its first event. */
export async function foldOf(call: A2aCall, details: RunDetails, { historyLength }: TaskView): Promise<TaskFold> {
  const { run_id } = details;
  const inputs = historyLength === 0 ? [] : inputsOf(await call.caller.scope.transcript(run_id));
  return new TaskFold({ run_id, contextId: contextOf(call, details), inputs });
}

/** The task of a run: as it is now, or when it rests. */
export async function taskOf(
  call: A2aCall,
  details: RunDetails,
  view: TaskView,
  until: "now" | "rest" = "now",
): Promise<Task> {
  const { caller, request, service } = call;
  const { run_id } = details;
  const fold = await foldOf(call, details, view);
  const leave = until === "rest" ? service.disconnects.enter(caller, run_id) : notCounted;
  const stopListening = request.onLeave(() => leave(false));
  try {
    await forEachEvent(call, run_id, (event) => fold.take(event), until);
  } finally {
    stopListening();
    leave(true);
  }
  return fold.task(view);
}

/** What comes of reading a run that may be deleted meanwhile. Undefined: it was. */
export async function unlessDeleted<Found>(read: () => Promise<Found>): Promise<Found | undefined> {
  try {
    return await read();
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}
