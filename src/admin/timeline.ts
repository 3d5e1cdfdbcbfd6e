import type { Issue } from "../core/errors.ts";
import type { StepFailure } from "../core/failure.ts";
import type { EndedEntry, QuestionRef } from "../core/log.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitResume, Run } from "../protocol/run.ts";

/** What each item of a timeline has. Times are ISO 8601. */
export interface Placed {
  /** The position in the log of the entry with which it begins. It is unique, and never changes. */
  readonly position: number;
  /** The position of the last entry that has changed the item. */
  last_position: number;
  readonly at: string;
}

/** What has a begin and an end. */
export interface Lasting extends Placed {
  readonly key: string;
  /** Null: it has not ended. */
  ended_at: string | null;
  /**
   * How long the run stood in queues before it, for its slot or for a limit of the step, in milliseconds: just before
   * `at`, and of a step also before further attempts. Left out for not at all.
   */
  queued_ms?: number | undefined;
}

/** One attempt at a step. */
export interface StepAttempt {
  readonly attempt: number;
  readonly started_at: string;
  /** Null: it is at work, its process has died, or another attempt followed it: when it failed is not recorded. */
  ended_at: string | null;
  /** Why it failed; null if it did not, or was interrupted. */
  error: StepFailure | null;
  /** How long the run stood in queues just before it began, in milliseconds. Left out for not at all. */
  readonly queued_ms?: number | undefined;
}

/** A step: a call of a model, a call of a tool that a model has asked for, or another one. */
export interface StepItem extends Lasting {
  readonly type: "step";
  readonly name: string;
  /** What `aiSdk(context)` has recorded is told apart. */
  of: "model" | "tool" | "agent";
  status: "running" | "completed" | "failed";
  readonly attempts: StepAttempt[];
  /** The recorded value; absent for none. Of a model's step: the model, what was new in its prompt, and its answer. */
  result?: JsonValue | undefined;
  /** Why it failed; null if it did not. */
  error: StepFailure | null;
  usage: Usage | null;
  /** What it waits for; null once it has ended. */
  waits_for: string | null;
  /** When its next attempt begins, while it pauses after one that has failed; null otherwise. */
  retry_at: string | null;
}

/** A timer. */
export interface SleepItem extends Lasting {
  readonly type: "sleep";
  readonly until: string | null;
  how: "elapsed" | "withdrawn" | null;
}

/** A wait for a message. */
export interface ReceiveItem extends Lasting {
  readonly type: "receive";
  readonly name: string;
  readonly until: string | null;
  how: "message" | "rejected" | "expired" | "withdrawn" | null;
  /** The position of the item of the message that was taken; null for none. */
  message: number | null;
  issues: readonly Issue[] | null;
}

/** A sub-run. */
export interface SubRunItem extends Lasting {
  readonly type: "sub_run";
  readonly agent_name: string;
  readonly run_id: string;
  /** How it ended; null while it has not, or if it could not be started. */
  status: Run["status"] | null;
  error: ProtocolError | StepFailure | null;
  usage: Usage | null;
}

/** A question of the run, or one that it shows for a sub-run. */
export interface QuestionItem extends Lasting {
  readonly type: "question";
  readonly name: string | null;
  readonly kind: "input" | "approval" | "auth";
  readonly parts: readonly MessagePart[];
  /** The JSON Schema of the answer; null for none. */
  readonly schema: JsonValue;
  readonly expires_at: string | null;
  readonly of: QuestionRef | null;
  how: "answer" | "declined" | "default" | "expired" | "withdrawn" | "settled" | null;
  answer: AwaitResume | null;
  reason: string | null;
  by: JsonValue;
}

/** A message from outside. */
export interface MessageItem extends Placed {
  readonly type: "message";
  readonly name: string;
  readonly data: JsonValue;
  readonly by: JsonValue;
}

/** Consecutive output of the agent. */
export interface OutputItem extends Placed {
  readonly type: "output";
  /** The text of its parts, up to 10,000 characters. */
  text: string;
  /** How many parts, messages and objects it consists of. */
  count: number;
  /** The objects among them. */
  readonly objects: JsonValue[];
  /** The sub-run or step that it came from; null for the agent itself. */
  readonly source: JsonValue;
}

/** What else the log says. */
export type MarkItem = Placed &
  (
    | { readonly type: "created"; readonly input: readonly Message[] }
    | { readonly type: "started" | "timed_out" | "budget_exceeded" }
    /** `by`: who has made the fork, or asked for the cancel; null if the application named none. */
    | { readonly type: "forked" | "cancel_requested"; readonly by: JsonValue }
    /** A generation begins. `carry`: what the one before has given it; null for nothing. */
    | { readonly type: "continued"; readonly generation: number; readonly carry: JsonValue }
    | { readonly type: "offered"; readonly await_id: string; readonly by: JsonValue }
    | { readonly type: "refused"; readonly code: string; readonly issues: readonly Issue[] | null }
    | EndedMark
  );

interface EndedMark {
  readonly type: "ended";
  readonly outcome: EndedEntry["outcome"];
  readonly error: ProtocolError | null;
  /** The operation whose error the agent did not handle; null for none. */
  readonly key: string | null;
  /** The error that the agent threw, or of that operation, in full; null if `error` says it all. */
  readonly cause: StepFailure | null;
}

/** What happened in a run, in the order in which it began. */
export type TimelineItem =
  | StepItem
  | SleepItem
  | ReceiveItem
  | SubRunItem
  | QuestionItem
  | MessageItem
  | OutputItem
  | MarkItem;
