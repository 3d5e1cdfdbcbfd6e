import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { CreatedEntry, Entry } from "./log.ts";
import type { MaybePromise } from "./promises.ts";
import type { Counters } from "./statistics.ts";

/** Where time comes from. */
export interface Clock {
  /** The time in milliseconds since the epoch. */
  now(): number;
  /** Calls back once after `delayMs` milliseconds, of any length; the answer takes the call back. Does not hold the process open. */
  setTimeout(callback: () => void, delayMs: number): () => void;
  /** Resolves in another turn of the event loop, after timers and sockets had theirs. */
  turn(): Promise<void>;
  /**
   * Keeps the process from ending until the answer is called; the runtime asks for it while a caller waits or a run is at work.
   * Default: holds the machine's event loop. A clock that moves only when it is told to holds nothing.
   */
  hold?(): () => void;
}

/** Where identifiers come from. */
export interface Ids {
  /** A random UUID in lower case, for runs and sessions. */
  uuid(): string;
  /** A random token, for the owners of runs. */
  token(): string;
}

/** Where the library says what nobody else can be told. `console` is one; the default says nothing. */
export interface Logger {
  debug(message: string, fields?: object): void;
  info(message: string, fields?: object): void;
  warn(message: string, fields?: object): void;
  error(message: string, fields?: object): void;
}

/** A run's identity in a store: the run of another tenant does not exist, whatever its id. */
export interface RunKey {
  readonly tenant: string;
  readonly run_id: string;
}

/** A session's identity in a store. */
export interface SessionKey {
  readonly tenant: string;
  readonly session_id: string;
}

/** What a store knows of a run beside its log. It is replaced whole with each write. */
export interface RunHead {
  readonly status: RunStatus;
  /** Raised whenever the run changes hands, and when it ends. */
  readonly epoch: number;
  /** Who executes the run; null for a run that waits, has ended or was given back. */
  readonly owner: string | null;
  /**
   * When somebody has to look after a run that waits, in milliseconds since the epoch: the question that it shows expires then, or
   * its sub-run has gone on. Null for never.
   */
  readonly deadline: number | null;
  /** When the run ended, in milliseconds since the epoch; null before. */
  readonly finished_at: number | null;
  /** How often the run was taken from a dead owner since it last got on. */
  readonly takeovers: number;
}

/** A run as a store lists it. */
export interface StoredRun {
  readonly key: RunKey;
  readonly created: CreatedEntry;
  readonly head: RunHead;
  /** How many entries the log holds. */
  readonly position: number;
}

/** What a write builds on: a store accepts it only if the run's epoch and length are these. */
export interface Expected {
  readonly epoch: number;
  readonly position: number;
}

/** One write: all of it or nothing. */
export interface RunWrite {
  readonly entries: readonly Entry[];
  readonly head: RunHead;
  readonly session?: SessionChange | undefined;
  /** With the `ended` entry: what the run adds to the counters of its agent. */
  readonly counters?: Counters | undefined;
}

/** What a write does to the run's session. */
export interface SessionChange {
  readonly session_id: string;
  /** Whether a session that does not exist is made; otherwise the change is nothing then. */
  readonly create: boolean;
  /** The messages that join the history; asked for only when the session exists or is made, and again if the write is tried again. */
  readonly messages?: (() => readonly Message[]) | undefined;
  /** The new state, where it changes. */
  readonly state?: { readonly value: JsonValue } | undefined;
  /** The time of the change, in milliseconds since the epoch. */
  readonly at: number;
}

/** A session as it is stored. */
export interface StoredSession {
  readonly history: readonly Message[];
  /** Null until somebody sets it. */
  readonly state: JsonValue;
}

/**
 * Why a store did not write.
 * - `exists`: a run with this id is there already.
 * - `key_used`: the idempotency key belongs to the run `run_id`.
 * - `missing`: there is no such run for this tenant.
 * - `changed`: the run's epoch or length is another; both are given as they are.
 * - `owned`: a claim met an owner whose lease has not expired.
 */
export type StoreConflict =
  | { readonly conflict: "exists" | "missing" | "owned" }
  | { readonly conflict: "key_used"; readonly run_id: string }
  | { readonly conflict: "changed"; readonly epoch: number; readonly position: number };

/** Which runs to list; those that were created last come first. */
export interface RunQuery {
  readonly tenant: string;
  readonly agent_name?: string | undefined;
  readonly session_id?: string | undefined;
  readonly status?: RunStatus | undefined;
  /** With true only runs that no other run has started: sub-runs are left out before the page is taken. */
  readonly roots?: boolean | undefined;
  readonly limit: number;
  readonly offset: number;
}

/** What a store may forget: never a run that has not ended. */
export interface Retention {
  /** Ended runs beyond this number, the ones that ended first. */
  readonly maxRuns: number;
  /** Runs that ended before this time, in milliseconds since the epoch. */
  readonly endedBefore: number;
  /** Sessions that no live run uses and nobody has changed since this time, in milliseconds since the epoch. */
  readonly sessionsBefore: number;
}

/**
 * Where runs are kept. A store holds no rules: it compares, writes whole transactions and reads. Every method may answer
 * now or with a promise; what is written without waiting for the answer before is written in that order. A refused write is
 * an answer, not an error; what is thrown means that the store itself failed.
 */
export interface Store {
  /** Whether what is written outlives the process. */
  readonly persistent: boolean;
  /** Adds a run; the first entry is `created`. Undefined when written, else `exists` or `key_used`. The idempotency key is the tenant's, and goes with the run. */
  create(key: RunKey, write: RunWrite, idempotencyKey: string | null): MaybePromise<StoreConflict | undefined>;
  /** Adds entries and replaces the head. Undefined when written, else `missing` or `changed`. */
  append(key: RunKey, expected: Expected, write: RunWrite): MaybePromise<StoreConflict | undefined>;
  /**
   * Replaces the head alone, if the run has no owner or its owner's lease has expired at `now` (a store shared by several
   * machines uses its own clock instead). Undefined when done, else `missing`, `changed` or `owned`.
   */
  claim(key: RunKey, expected: Expected, head: RunHead, now: number): MaybePromise<StoreConflict | undefined>;
  /** Says that the owner lives until `until`, in milliseconds since the epoch; then its lease has expired. */
  renew(owner: string, until: number): MaybePromise<void>;
  /** Says that the owner is gone: its lease has expired. */
  release(owner: string): MaybePromise<void>;
  /** The run, or undefined. */
  find(key: RunKey): MaybePromise<StoredRun | undefined>;
  /** At most `limit` entries from position `from` on (0 for the first); undefined if there is no such run. */
  read(key: RunKey, from: number, limit: number): MaybePromise<readonly Entry[] | undefined>;
  /** The run that an idempotency key made, or undefined. */
  findByIdempotencyKey(tenant: string, idempotencyKey: string): MaybePromise<StoredRun | undefined>;
  /** A page of runs. */
  list(query: RunQuery): MaybePromise<readonly StoredRun[]>;
  /**
   * At most `limit` runs of all tenants that have not ended and need somebody: they wait and their deadline is not after
   * `now`, or their owner's lease has expired at `now`, or they have no owner and do not wait. The oldest come first.
   */
  due(now: number, limit: number): MaybePromise<readonly StoredRun[]>;
  /** The session, or undefined. */
  session(key: SessionKey): MaybePromise<StoredSession | undefined>;
  /** Makes the session or replaces it whole. */
  putSession(key: SessionKey, session: StoredSession, at: number): MaybePromise<void>;
  /** The counters of an agent; undefined before its first run ended. */
  counters(agentName: string): MaybePromise<Counters | undefined>;
  /** Forgets what may be forgotten, and says how many runs that were. */
  prune(retention: Retention): MaybePromise<number>;
  /** Nothing is called after it. */
  close(): MaybePromise<void>;
}
