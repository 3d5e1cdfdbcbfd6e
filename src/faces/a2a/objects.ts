import type { QuestionKind } from "../../core/log.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { Run, RunStatus } from "../../protocol/run.ts";

/* The objects of A2A 1.0 that clients get, and the states of runs as tasks. */

/** The states in which a task of a run may be. */
export type TaskState =
  | "TASK_STATE_SUBMITTED"
  | "TASK_STATE_WORKING"
  | "TASK_STATE_INPUT_REQUIRED"
  | "TASK_STATE_AUTH_REQUIRED"
  | "TASK_STATE_COMPLETED"
  | "TASK_STATE_FAILED"
  | "TASK_STATE_CANCELED"
  | "TASK_STATE_REJECTED";

/** The statuses of the runs whose tasks may be in each state. Tasks of runs are in the first one that names their status, by default. */
export const statuses: Readonly<Record<TaskState | "TASK_STATE_UNSPECIFIED", readonly RunStatus[]>> = {
  TASK_STATE_UNSPECIFIED: [],
  TASK_STATE_SUBMITTED: ["created"],
  TASK_STATE_WORKING: ["in-progress", "cancelling"],
  TASK_STATE_INPUT_REQUIRED: ["awaiting"],
  TASK_STATE_AUTH_REQUIRED: ["awaiting"],
  TASK_STATE_COMPLETED: ["completed"],
  TASK_STATE_FAILED: ["failed"],
  TASK_STATE_CANCELED: ["cancelled"],
  TASK_STATE_REJECTED: ["failed"],
};

/** The state of the task of a run. `kind`: the kind of the question that the run asks. */
export function stateOf({ status, error }: Pick<Run, "status" | "error">, kind?: QuestionKind): TaskState {
  if (kind === "auth") return "TASK_STATE_AUTH_REQUIRED";
  if (error?.data?.["reason"] === "rejected") return "TASK_STATE_REJECTED";
  const [state] = Object.entries(statuses).find(([, those]) => those.includes(status)) as [TaskState, unknown];
  return state;
}

/** A part has exactly one of `text`, `raw`, `url` and `data`. */
export interface A2aPart {
  readonly text?: string;
  /** Bytes in base64. */
  readonly raw?: string;
  readonly url?: string;
  readonly data?: JsonValue;
  readonly mediaType: string;
  readonly filename?: string;
  readonly metadata?: JsonObject;
}

export interface A2aMessage {
  readonly messageId: string;
  readonly role: "ROLE_USER" | "ROLE_AGENT";
  readonly parts: readonly A2aPart[];
  readonly contextId: string;
  readonly taskId: string;
  readonly metadata?: JsonObject;
}

export interface TaskStatus {
  readonly state: TaskState;
  /** A question, or why the task has failed. */
  readonly message?: A2aMessage;
  readonly timestamp: string;
}

export interface Artifact {
  readonly artifactId: string;
  readonly parts: readonly A2aPart[];
}

export interface Task {
  readonly id: string;
  readonly contextId: string;
  readonly status: TaskStatus;
  readonly artifacts?: readonly Artifact[];
  readonly history?: readonly A2aMessage[];
  readonly metadata?: JsonObject;
}

interface OfTask {
  readonly taskId: string;
  readonly contextId: string;
}

export interface StatusUpdate extends OfTask {
  readonly status: TaskStatus;
  readonly metadata?: JsonObject;
}

export interface ArtifactUpdate extends OfTask {
  readonly artifact: Artifact;
  /** Whether the parts follow those that the artifact has. Otherwise they replace them. */
  readonly append?: true;
}

export type StreamItem =
  | { readonly task: Task }
  | { readonly statusUpdate: StatusUpdate }
  | { readonly artifactUpdate: ArtifactUpdate };
