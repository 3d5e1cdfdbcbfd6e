import type { JsonObject, JsonValue } from "../../protocol/json.ts";

/* The objects of A2A 1.0 that clients get. */

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
