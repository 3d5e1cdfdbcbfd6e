import type { ProtocolError } from "../protocol/error.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { CopySource, EmissionSource } from "./emission-source.ts";
import type { CadenzaErrorCode, Issue } from "./errors.ts";
import type { StepFailure } from "./failure.ts";
import type { Queued } from "./slots.ts";

/**
 * The vocabulary of a run's log. A run is an append-only list of these entries, and everything that can be
 * asked about a run is computed from it. `at` is the time of the entry in milliseconds since the epoch.
 */
export type Entry =
  | CreatedEntry
  | ForkedEntry
  | StartedEntry
  | EmittedEntry
  | TornEntry
  | IntentEntry
  | AttemptFailedEntry
  | StepEntry
  | AwaitedEntry
  | ResumedEntry
  | DeclinedEntry
  | WithdrawnEntry
  | TimedOutEntry
  | ExceededEntry
  | SettledEntry
  | OfferedEntry
  | RefusedEntry
  | ReceivedEntry
  | TakenEntry
  | PatchedEntry
  | MovedEntry
  | CancelRequestedEntry
  | ContinuedEntry
  | EndedEntry;

/** A writable entry while it is built. Rare properties are assigned, because spreading them in is much slower. */
export type Growing<T> = { -readonly [Key in keyof T]: T[Key] };

/** The run was accepted. Always the first entry. Rare properties are left out, since waiting runs stay in memory. */
export interface CreatedEntry {
  readonly type: "created";
  readonly at: number;
  /** The format of the version of the library that has created the run. Left out: 1. */
  readonly format?: number;
  readonly agent_name: string;
  /** The agent's version, if it was registered with one. */
  readonly version?: string;
  /** In states and in what stores list, in no log: the run was moved to this version. */
  readonly moved?: true;
  readonly durable?: true;
  /** The run's own id where the caller named no session. */
  readonly session_id: string;
  /** How many messages the session held when the run was created, if it held any; `history()` shows exactly these. */
  readonly history_length?: number;
  /** The generation that the session had then, if it held messages. Empty: it had none. Logs of earlier versions lack it. */
  readonly history_generation?: string;
  readonly input: readonly Message[];
  /** When the agent may begin, in milliseconds since the epoch, where its creator asked for a later start. */
  readonly start_at?: number;
  /**
   * How long the run may be active, in milliseconds, where its creator set a limit of its own; null for no limit. Of a
   * sub-run: how much was left above it, if anything limits the runs above.
   */
  readonly timeout_ms?: number | null;
  /** How many tokens the run and all runs below it may use, where there is a limit. */
  readonly budget?: Budget;
  /** Who asked for the run, as the embedding application names them; absent if it was not given. */
  readonly principal?: JsonValue;
  /** What the run's creator gave it to keep, if anything. */
  readonly metadata?: JsonValue;
  /** What the interceptors of its creator gave it to carry, if anything. */
  readonly carrier?: Carrier;
  /** The labels by which the run is found, if it has any. They never change. */
  readonly labels?: Labels;
  /** How the run is queued, where its agent or its creator said so. */
  readonly queue?: Queued;
  /** The run and the operation that started this one, if it is a sub-run. */
  readonly parent?: ParentRun;
  /** The run that this one is a fork of, if it is one. */
  readonly origin?: ForkOrigin;
  /** Of a fork: what its random numbers and idempotency keys are made of, so that they are those of its origin. */
  readonly seed?: string;
  /** Of a fork with new idempotency keys, and of its forks: what the keys are made of in place of `seed`. */
  readonly key_seed?: string;
}

/** Where a fork comes from. */
export interface ForkOrigin {
  readonly run_id: string;
  /** How many entries of that run's log the fork begins with, before those of them that it does not take. */
  readonly position: number;
  /** The principal who has made the fork; left out if the application named none. */
  readonly by?: JsonValue;
}

/** A limit on what a run and all runs below it may use. */
export interface Budget {
  readonly total_tokens: number;
}

/** Texts by name, such as `traceparent`, that a run carries from the process that has created it to those that execute it. */
export interface Carrier {
  readonly [name: string]: string;
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
  /** What the idempotency keys of the parent are made of; left out for its id. Those of the sub-run are made of it too. */
  readonly seed?: string;
}

/**
 * A fork begins here. The entries before are those of its origin, with their times. What the origin has used, and how
 * long it was active, does not count for the fork.
 */
export interface ForkedEntry {
  readonly type: "forked";
  readonly at: number;
}

/** The agent function was called. */
export interface StartedEntry {
  readonly type: "started";
  readonly at: number;
  /** The time that the agent saw, if it is not `at`: the entry was decided again behind entries of another process. */
  readonly now?: number;
}

/** The agent emitted something, or a copy of what a sub-run has emitted. */
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
  /** Where it came from; left out for the agent itself. */
  readonly source?: EmissionSource;
}

/** A whole message. */
export interface EmittedMessage {
  readonly type: "emitted";
  readonly kind: "message";
  readonly at: number;
  readonly message: Message;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /** Where it came from; left out for the agent itself. */
  readonly source?: EmissionSource;
}

/** A free-form object. */
export interface EmittedGeneric {
  readonly type: "emitted";
  readonly kind: "generic";
  readonly at: number;
  readonly generic: { readonly [key: string]: JsonValue };
  /** Where it came from; left out for the agent itself. */
  readonly source?: EmissionSource;
}

/** The open message is completed. */
export interface EmittedClose {
  readonly type: "emitted";
  readonly kind: "close";
  readonly at: number;
  /** What completed it; left out for the agent itself. */
  readonly source?: EmissionSource;
}

/** A sub-run that is shown begins another attempt at a step. What earlier attempts emitted is left out. */
export interface TornEntry {
  readonly type: "torn";
  readonly at: number;
  readonly source: CopySource;
}

/** An entry that records how long the run was active: of an operation of its agent, or the last one. */
export interface MeasuredEntry {
  /**
   * How long the run was active until then, in milliseconds; in the second entry of a sub-run, until the sub-run was
   * started. Left out for a run without a limit on its active time, and before its first millisecond.
   */
  readonly active_ms?: number;
  /**
   * How long the run stood in line for its slot before it went on, since the last entry that says so, in milliseconds. Left
   * out for a run that did not.
   */
  readonly queued_ms?: number;
}

/** A recorded operation is about to begin, and with it its side effects. */
export interface IntentEntry extends MeasuredEntry {
  readonly type: "intent";
  readonly at: number;
  readonly key: string;
  /** 1 for the first try. */
  readonly attempt: number;
  /** The id of the sub-run that the operation starts; null for a step. */
  readonly run_id: string | null;
  /**
   * Of a sub-run, in a second entry: the store holds it. If it is missing later, it was deleted, and is never created
   * again.
   */
  readonly stored?: true;
  /**
   * For an operation that only waits, a sleep or a receive: when it waits no longer, in milliseconds since the epoch.
   * Null: it waits for ever. Left out for the others.
   */
  readonly until?: number | null;
}

/** An attempt at a step has failed, and there will be another one. An attempt that ends with its process has none. */
export interface AttemptFailedEntry extends MeasuredEntry {
  readonly type: "attempt-failed";
  readonly at: number;
  readonly key: string;
  readonly attempt: number;
  readonly failure: StepFailure;
  /** When the next attempt begins, in milliseconds since the epoch, if there is a pause before it. */
  readonly until?: number;
}

/** How far the log has come with an operation that has no result: its last attempt has begun, or has failed. */
export type AttemptEntry = IntentEntry | AttemptFailedEntry;

/** A recorded operation ended, with a result or an error: a step, a sub-run or a sleep. */
export interface StepEntry extends MeasuredEntry {
  readonly type: "step";
  readonly at: number;
  readonly key: string;
  readonly result: JsonValue | undefined;
  readonly error: StepFailure | null;
  /** What was reported with `usage.add` since the last entry that carried usage. Of a sub-run also what that has used. */
  readonly usage: Usage | null;
  /** Of a sub-run: which part of the usage its parent itself has reported, if it has. */
  readonly own_usage?: Usage | undefined;
}

/** The run asks a question. It is open until an entry with its `await_id` settles it, or the run ends. */
export interface AwaitedEntry extends MeasuredEntry {
  readonly type: "awaited";
  readonly at: number;
  /** The key of the operation. For the question of a sub-run: the sub-run's key and the question's id in it. */
  readonly await_id: string;
  /** The name that the agent gave the question, if it gave one. */
  readonly name?: string;
  /** What is asked for; left out for an input. */
  readonly kind?: QuestionKind;
  /** The run that asks, and the question's id in it, where it is a sub-run that asks. */
  readonly of?: QuestionRef;
  /** The question. */
  readonly parts: readonly MessagePart[];
  /** When the question expires, if it does. The run that asks enforces it. */
  readonly deadline?: number;
  /** How many parts, messages and generic events the agent had emitted when it asked; 0 for a sub-run's question. */
  readonly emitted: number;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /** What was reported with `usage.add` since the last entry that carried usage, if anything was. */
  readonly usage?: Usage;
}

/** What is asked for. */
export type QuestionKind = "input" | "approval" | "auth";

/** A question of a run. */
export interface QuestionRef {
  readonly run_id: string;
  readonly await_id: string;
}

/** An open question has its answer. */
export interface ResumedEntry extends Reply {
  readonly type: "resumed";
  readonly at: number;
  readonly await_id: string;
  /** The answer as it came, before it is validated. */
  readonly answer: AwaitResume;
}

/** The answer to an open question was declined. */
export interface DeclinedEntry extends Reply {
  readonly type: "declined";
  readonly at: number;
  readonly await_id: string;
  readonly decline: Decline;
}

/** Who replied to a question, and how. */
export interface Reply {
  readonly idempotency_key: string | null;
  /** The principal who replied; left out if the application named none. */
  readonly by?: JsonValue;
  /** The offer that was accepted, if the reply came through another process. */
  readonly offer_id?: string;
}

/** A refusal to answer. */
export interface Decline {
  readonly reason?: string;
}

/** An operation that waits is given up: a question, a sleep or a receive. */
export interface WithdrawnEntry {
  readonly type: "withdrawn";
  readonly at: number;
  /** The key of the operation. */
  readonly await_id: string;
}

/**
 * A sub-run's question is not open any more. A post: the run that asks decides it, and it counts also if the run does
 * not show the question yet.
 */
export interface SettledEntry {
  readonly type: "settled";
  readonly at: number;
  readonly await_id: string;
  readonly of: QuestionRef;
  /** What was replied; left out for a question that expired or was withdrawn. */
  readonly answer?: AwaitResume;
  readonly decline?: Decline;
  readonly idempotency_key?: string;
  readonly by?: JsonValue;
}

/**
 * A process that cannot validate a reply hands it to the process that can. A post. It is neither an answer nor an
 * event. The verdict is a `resumed`, `declined` or `refused` entry with the same `offer_id`.
 */
export interface OfferedEntry {
  readonly type: "offered";
  readonly at: number;
  readonly offer_id: string;
  readonly await_id: string;
  /** Exactly one of `answer` and `decline` is there. */
  readonly answer?: AwaitResume;
  readonly decline?: Decline;
  readonly idempotency_key: string | null;
  readonly by?: JsonValue;
}

/** An offered reply was refused, and the question stays as it is. */
export interface RefusedEntry {
  readonly type: "refused";
  readonly at: number;
  readonly offer_id: string;
  readonly code: Extract<CadenzaErrorCode, "answer_rejected" | "answer_conflict" | "not_awaiting">;
  /** What was wrong with the answer, for `answer_rejected`. */
  readonly issues?: readonly Issue[];
}

/** A message from outside has arrived. A post. */
export interface ReceivedEntry {
  readonly type: "received";
  readonly at: number;
  readonly name: string;
  readonly data: JsonValue;
  /** That of its sender, or a new one. A message that arrives twice counts once. */
  readonly idempotency_key: string;
  /** The principal who sent it; left out if the application named none. */
  readonly by?: JsonValue;
  /** How many bytes of UTF-8 the data has as JSON. Left out by older versions of the library. */
  readonly bytes?: number;
}

/** A receive has ended. */
export interface TakenEntry extends MeasuredEntry {
  readonly type: "taken";
  readonly at: number;
  readonly key: string;
  /** The position of the message that it takes. Null: none came before its deadline. */
  readonly position: number | null;
  /** What is wrong with the message, by the schema of the receive. Left out for a schema that answers with a promise. */
  readonly issues?: readonly Issue[];
}

/** The agent has asked for a patch where its history was at its end: it has the patch from here on. */
export interface PatchedEntry {
  readonly type: "patched";
  readonly at: number;
  /** The id of the patch, which the agent has given it. */
  readonly id: string;
}

/** The run was moved: from here on the code of another version of its agent executes it, which matches its history so far. */
export interface MovedEntry {
  readonly type: "moved";
  readonly at: number;
  /** Null: the agent without a version. */
  readonly version: string | null;
  /** The principal who asked for it; left out if the application named none. */
  readonly by?: JsonValue;
}

/** A deadline passed: of the question with this id, or, with null, of the run's active time. */
export interface TimedOutEntry {
  readonly type: "timed-out";
  readonly at: number;
  readonly await_id: string | null;
  /** Whether the question had a default, which is its answer now. Otherwise the run is going to fail. */
  readonly defaulted: boolean;
}

/** The run and the runs below it have used more than its budget. The run is going to fail. */
export interface ExceededEntry {
  readonly type: "exceeded";
  readonly at: number;
  /** What was reported with `usage.add` since the last entry that carried usage, if anything was. */
  readonly usage?: Usage;
}

/** The cancellation of the run was requested. */
export interface CancelRequestedEntry {
  readonly type: "cancel-requested";
  readonly at: number;
  /** The principal who asked for it; left out if the application named none, and for a sub-run that ends with its parent. */
  readonly by?: JsonValue;
}

/**
 * The agent begins again from the top: a new generation of the run. The entry holds all that a fold needs of the entries
 * before it, except `created`, so that it may begin here.
 */
export interface ContinuedEntry extends MeasuredEntry {
  readonly type: "continued";
  readonly at: number;
  /** The number of the generation that begins: 2 for the first entry of this kind. */
  readonly generation: number;
  /** What the agent has given itself; left out for nothing. */
  readonly carry?: JsonValue;
  /** The version to which the run was moved; left out for one that was not. */
  readonly version?: string | null;
  /** How many entries come before it, and how many events these stand for. */
  readonly position: number;
  readonly events: number;
  /** The position of the entry with which the generation before began; left out for the first. */
  readonly previous?: number;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /** When the agent function was first called, and how long the run has waited since. */
  readonly started_at: number;
  readonly waiting_ms?: number;
  /** What was reported with `usage.add` since the last entry that carried usage, if anything was. */
  readonly usage?: Usage;
  /** What the run has used in all, if anything. */
  readonly total?: Usage;
  /** The messages that no receive has taken, with their positions; left out for none. */
  readonly messages?: readonly { readonly entry: ReceivedEntry; readonly position: number }[];
  /** The idempotency keys of the last messages before, the newest last; left out for none. */
  readonly message_keys?: readonly string[];
  /**
   * The entries that have settled the last questions, the newest last, each with the number of the event after which its events
   * begin, and with the length of the log after it; left out for none.
   */
  readonly replies?: readonly {
    readonly entry: ResumedEntry | DeclinedEntry | SettledEntry;
    readonly event: number;
    readonly position: number;
  }[];
}

/** The run is over. Always the last entry. */
export interface EndedEntry extends MeasuredEntry {
  readonly type: "ended";
  readonly at: number;
  readonly outcome: Outcome;
  /** Why the run failed, if it did. */
  readonly error?: ProtocolError;
  /** The operation whose error the agent of a durable run has not handled, if that is why it failed. */
  readonly key?: string;
  /** The error that the agent threw, if its client sees another one. For operators alone. */
  readonly cause?: StepFailure;
  /** A message was open and is completed first. */
  readonly closes?: true;
  /** The position of the entry with which the generation began that was at work; left out for the first. */
  readonly generation_at?: number;
  /** What was reported with `usage.add` since the last entry that carried usage, if anything was. */
  readonly usage?: Usage;
}

/** How a run can end. */
export type Outcome = "completed" | "failed" | "cancelled";

/** The entries that hold the result of a recorded operation. */
export type ResultEntry = StepEntry | ResumedEntry | DeclinedEntry | TimedOutEntry | WithdrawnEntry | TakenEntry;
