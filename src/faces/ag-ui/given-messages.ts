import { CadenzaError } from "../../core/errors.ts";
import { unfitAt, WireError } from "../../http/errors.ts";
import type { Call } from "../../http/service.ts";
import { findVisibleSession } from "../../http/visibility.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import { toolCallId } from "../chat/call-ids.ts";
import { detailsIn } from "../chat/chat.ts";
import { idOf } from "../chat/parts.ts";
import { eventOfPart } from "./part-events.ts";
import type { GivenMessage } from "./run-input.ts";

/**
 * The input of a new run: what the client sends that the thread does not have yet. The result of a tool that runs at the
 * client is said by its user, and belongs to a call that the thread has shown without a result: any other is left out.
 */
export async function newMessages(
  call: Call,
  session_id: string,
  given: readonly GivenMessage[],
): Promise<readonly Message[]> {
  const [first] = given;
  if (given.length === 1 && first?.callId === undefined) return given.map(({ message }) => message);
  const history = (await findVisibleSession(call.caller, session_id))?.history ?? [];
  const known = new Set(history.map((message) => (message.role === "user" ? idOf(message) : undefined)));
  const messages: Message[] = [];
  for (const { id, message, callId } of given) {
    if (id !== "" && known.has(id)) continue;
    const isShown =
      callId === undefined ||
      isPending(history, session_id, callId) ||
      (await isPendingInRun(call, session_id, callId));
    if (isShown) messages.push(message);
  }
  if (messages.length > 0) return messages;
  throw unfitAt(["messages"], "expected a message of the user, or the result of a tool that the thread has called");
}

/** Whether a session shows a call without a result under an id. */
function isPending(history: readonly Message[], session_id: string, callId: string): boolean {
  return history.some(
    ({ role, parts }, index) =>
      role !== "user" && parts.some((part, at) => pendingCall(part, `${session_id}-${index}.${at}`) === callId),
  );
}

/** Whether a run of the thread has shown a call without a result under an id that says which part it was. */
async function isPendingInRun(call: Call, session_id: string, callId: string): Promise<boolean> {
  const place = eventOfPart(callId);
  if (place === undefined) return false;
  const { run_id, event } = place;
  try {
    await detailsIn(call, session_id, run_id);
  } catch (error) {
    if (error instanceof WireError || CadenzaError.is(error)) return false;
    throw error;
  }
  for await (const shown of call.caller.scope.events(run_id, { after: event - 1, until: "now" }))
    return shown.type === "message.part" && pendingCall(shown.part, callId) === callId;
  return false;
}

/** The id of the call that a part shows without a result. `id`: the id for a call that has none. */
function pendingCall({ metadata }: MessagePart, id: string): string | undefined {
  if (metadata?.kind !== "trajectory" || typeof metadata.tool_name !== "string") return undefined;
  return metadata.tool_output === undefined ? toolCallId(metadata, id) : undefined;
}
