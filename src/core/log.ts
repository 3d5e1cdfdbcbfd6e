import type { ProtocolError } from "../protocol/error.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { Usage } from "./usage.ts";

/**
 * The vocabulary of a run's log. A run is an append-only list of these entries, and everything that can be
 * asked about a run is computed from it. `at` is the time of the entry in milliseconds since the epoch.
 */
export type Entry =
  | CreatedEntry
  | StartedEntry
  | EmittedEntry
  | IntentEntry
  | StepEntry
  | AwaitedEntry
  | ResumedEntry
  | WithdrawnEntry
  | TimedOutEntry
  | CancelRequestedEntry
  | EndedEntry;

/** A writable entry while it is built. Rare properties are assigned, because spreading them in is much slower. */
export type Growing<T> = { -readonly [Key in keyof T]: T[Key] };

/** The run was accepted. Always the first entry. Rare properties are left out, since waiting runs stay in memory. */
export interface CreatedEntry {
  readonly type: "created";
  readonly at: number;
  readonly agent_name: string;
  /** The agent's version, if it was registered with one. */
  readonly version?: string;
  readonly durable?: true;
  /** The run's own id where the caller named no session. */
  readonly session_id: string;
  /** How many messages the session held when the run was created, if it held any; `history()` shows exactly these. */
  readonly history_length?: number;
  readonly input: readonly Message[];
  /** How long the run may be active, in milliseconds, where its creator set a limit of its own. */
  readonly timeout_ms?: number;
  /** Who asked for the run, as the embedding application names them; absent if it was not given. */
  readonly principal?: JsonValue;
  /** What the run's creator gave it to keep, if anything. */
  readonly metadata?: JsonValue;
  /** The labels by which the run is found, if it has any. They never change. */
  readonly labels?: Labels;
  /** The run and the operation that started this one, if it is a sub-run. */
  readonly parent?: ParentRun;
}

/** Short texts by which runs are found: names with their values. */
export interface Labels {
  readonly [name: string]: string;
}

/** Where a sub-run comes from. */
export interface ParentRun {
  readonly run_id: string;
  readonly key: string;
  /** How many runs are above the sub-run: 1 for a sub-run of a root run. */
  readonly depth: number;
}

/** The agent function was called. */
export interface StartedEntry {
  readonly type: "started";
  readonly at: number;
}

/** The agent emitted something. */
export type EmittedEntry = EmittedPart | EmittedMessage | EmittedGeneric | EmittedClose;

/** A part that joins the open message, or opens one. */
export interface EmittedPart {
  readonly type: "emitted";
  readonly kind: "part";
  readonly at: number;
  readonly part: MessagePart;
  /** The part opens a message. */
  readonly opens?: true;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /**
   * The step body that emitted the part, and its attempt. They identify a message that a crash cut short. Left out for
   * the agent itself.
   */
  readonly source?: PartSource;
}

/** Where a part came from when a step body emitted it. */
export interface PartSource {
  readonly key: string;
  readonly attempt: number;
}

/** A whole message. */
export interface EmittedMessage {
  readonly type: "emitted";
  readonly kind: "message";
  readonly at: number;
  readonly message: Message;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /** The step body that emitted it; left out for the agent itself. */
  readonly source?: PartSource;
}

/** A free-form object. */
export interface EmittedGeneric {
  readonly type: "emitted";
  readonly kind: "generic";
  readonly at: number;
  readonly generic: { readonly [key: string]: JsonValue };
  /** The step body that emitted it; left out for the agent itself. */
  readonly source?: PartSource;
}

/** The open message is completed. */
export interface EmittedClose {
  readonly type: "emitted";
  readonly kind: "close";
  readonly at: number;
  /** The step body that completed it; left out for the agent itself. */
  readonly source?: PartSource;
}

/** A recorded operation is about to begin, and with it its side effects. */
export interface IntentEntry {
  readonly type: "intent";
  readonly at: number;
  readonly key: string;
  /** 1 for the first try. */
  readonly attempt: number;
  /** The id of the sub-run that the operation starts; null for a step. */
  readonly run_id: string | null;
}

/** A recorded operation ended, with a result or an error. */
export interface StepEntry {
  readonly type: "step";
  readonly at: number;
  readonly key: string;
  readonly result: JsonValue | undefined;
  readonly error: StepFailure | null;
  /** What was reported with `usage.add` since the last entry that carried usage. */
  readonly usage: Usage | null;
}

/** An error that a step threw, as it is recorded. */
export interface StepFailure {
  readonly name: string;
  readonly message: string;
  readonly code: string | null;
  readonly data: JsonValue | undefined;
}

/** The run shows a question and waits. */
export interface AwaitedEntry {
  readonly type: "awaited";
  readonly at: number;
  /** The key of the operation. */
  readonly await_id: string;
  /** The question. */
  readonly parts: readonly MessagePart[];
  /** When the question expires, if it does. */
  readonly deadline?: number;
  /** For the question of a sub-run: when it expires. The sub-run enforces it, not this run. */
  readonly expires_at?: string;
  /** How many parts, messages and generic events the agent had emitted when it asked. */
  readonly emitted: number;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /** What was reported with `usage.add` since the last entry that carried usage, if anything was. */
  readonly usage?: Usage;
}

/** The question that was shown has its answer. */
export interface ResumedEntry {
  readonly type: "resumed";
  readonly at: number;
  readonly await_id: string;
  /** The answer as it came, before it is validated. */
  readonly answer: AwaitResume;
  readonly idempotency_key: string | null;
}

/** The question that was shown is withdrawn. */
export interface WithdrawnEntry {
  readonly type: "withdrawn";
  readonly at: number;
  readonly await_id: string;
}

/** A deadline passed: of the question with this id, or, with null, of the run's active time. */
export interface TimedOutEntry {
  readonly type: "timed-out";
  readonly at: number;
  readonly await_id: string | null;
  /** Whether the question had a default, which is its answer now. Otherwise the run is going to fail. */
  readonly defaulted: boolean;
}

/** The cancellation of the run was requested. */
export interface CancelRequestedEntry {
  readonly type: "cancel-requested";
  readonly at: number;
}

/** The run is over. Always the last entry. */
export interface EndedEntry {
  readonly type: "ended";
  readonly at: number;
  readonly outcome: Outcome;
  /** Why the run failed, if it did. */
  readonly error?: ProtocolError;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /** What was reported with `usage.add` since the last entry that carried usage, if anything was. */
  readonly usage?: Usage;
}

/** How a run can end. */
export type Outcome = "completed" | "failed" | "cancelled";

/** The entries that hold the result of a recorded operation. */
export type ResultEntry = StepEntry | ResumedEntry | TimedOutEntry;

/** The operation whose result the entry is; undefined for every other entry. */
export function resultKey(entry: Entry): string | undefined {
  switch (entry.type) {
    case "step":
      return entry.key;
    case "resumed":
      return entry.await_id;
    case "timed-out":
      return entry.await_id ?? undefined;
    default:
      return undefined;
  }
}

/** Whether the question of a sub-run is passed on by its parent: `run:refund#1/ask#1`. */
export function isPassedOn(awaitId: string): boolean {
  return awaitId.startsWith("run:");
}
