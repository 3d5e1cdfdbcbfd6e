import { CALL_ID } from "../../http/claims.ts";
import type { MessagePart } from "../../protocol/message.ts";

/* The ids under which pages know questions and the use of tools. */

/** A question, among those of all runs. */
export interface QuestionId {
  readonly run_id: string;
  readonly await_id: string;
}

/** The id under which pages know a question. */
export function questionCallId(runId: string, awaitId: string): string {
  return `${runId}/${awaitId}`;
}

const RUN_ID_LENGTH = 36;

/** The question with this id. Undefined: it is the id of none. */
export function questionOfCall(id: string): QuestionId | undefined {
  if (id[RUN_ID_LENGTH] !== "/") return undefined;
  return { run_id: id.slice(0, RUN_ID_LENGTH), await_id: id.slice(RUN_ID_LENGTH + 1) };
}

type Trajectory = Extract<NonNullable<MessagePart["metadata"]>, { readonly kind: "trajectory" }>;

/**
 * The id of the use of a tool. `id` tells it from all others of the run where the agent gives it no id, or that of a
 * question: a reply to a message in a session must not answer a question of a run.
 */
export function toolCallId(trajectory: Trajectory, id: string): string {
  const known = trajectory[CALL_ID];
  return typeof known === "string" && known !== "" && questionOfCall(known) === undefined ? known : id;
}
