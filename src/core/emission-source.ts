import type { Role } from "../protocol/message.ts";

/** Where an emission came from, if not from the agent itself: a step body, or a sub-run. */
export type EmissionSource = PartSource | CopySource;

/** The step body that emitted something, and its attempt. They identify a message that a crash cut short. */
export interface PartSource {
  readonly key: string;
  readonly attempt: number;
}

/** What a copy was copied from. */
export interface CopySource {
  /** The sub-run. */
  readonly run_id: string;
  /** The number of the last of its events that the entry copies. */
  readonly event: number;
  /** The role of the message in the sub-run. */
  readonly role: Role;
  /** The step of the sub-run that emitted it, if a step did. */
  readonly step?: PartSource;
}

/** The step that emitted something, with a key that no other step has, also of a sub-run. Undefined: no step did. */
export function stepOf(source: EmissionSource | null | undefined): PartSource | undefined {
  if (source === null || source === undefined || !isCopy(source)) return source ?? undefined;
  return source.step && { key: `${source.run_id}/${source.step.key}`, attempt: source.step.attempt };
}

/** Whether something was copied from a sub-run. */
export function isCopy(source: EmissionSource | null | undefined): source is CopySource {
  return source !== null && source !== undefined && "run_id" in source;
}
