import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { CadenzaError } from "./errors.ts";
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

/** Where the library reports what no caller waits for. `console` is one; the default says nothing. */
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

/** An agent's code: its name, and the version that it was registered with; null for none. */
export interface AgentVersion {
  readonly agent_name: string;
  readonly version: string | null;
}

/** What a store knows of a run beside its log. A write replaces it whole; a post changes it as the post says. */
export interface RunHead {
  readonly status: RunStatus;
  /** Raised whenever the run changes hands, and when it ends. */
  readonly epoch: number;
  /** Who executes the run; null for a run that waits, has ended or was given back. */
  readonly owner: string | null;
  /**
   * From when on a run without an owner needs work, in milliseconds since the epoch, by the store's clock. Null: only an outside
   * event makes it due. With an owner: since when that owner has it, as far as the owner leaves it so; the runs of a dead owner are taken in this order.
   */
  readonly due_at: number | null;
  /** How the registered code differed from the history when the run was replayed last. Null for a run that is not blocked. */
  readonly blocked: Mismatch | null;
  /** Whether the run takes up one of the permits of its slot. Says nothing for a run without a slot. */
  readonly holds_slot: boolean;
  /** When the run ended, in milliseconds since the epoch; null before. */
  readonly finished_at: number | null;
  /** How often the run was taken from a dead owner since it last got on. */
  readonly takeovers: number;
}

/** Where a run's code and its history disagree. */
export interface Mismatch {
  /** How many entries of the log match. */
  readonly position: number;
  /** What the history holds next. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

/** A limit on runs at work, over all processes: of the runs with one key at most `max` hold the slot at a time. */
export interface Slot {
  readonly key: string;
  readonly max: number;
}

/** A run as a store lists it. */
export interface StoredRun {
  readonly key: RunKey;
  readonly created: CreatedEntry;
  readonly head: RunHead;
  /** How many entries the log holds. */
  readonly position: number;
}

/** A run whose first entry the store cannot read any more. Its key and its head can be told. */
export interface DamagedRun {
  readonly key: RunKey;
  readonly created: null;
  readonly head: RunHead;
  readonly position: number;
  /** A `store_failed` with the run's id, and with what went wrong as its cause. */
  readonly error: CadenzaError;
}

/** A run that a store found by itself. That one of them is damaged does not keep the others back. */
export type FoundRun = StoredRun | DamagedRun;

/** How far a run has come. */
export interface RunPosition {
  readonly key: RunKey;
  readonly epoch: number;
  /** How many entries the log holds; 0 for a run that is not in the store. */
  readonly position: number;
}

/** What a write builds on: a store accepts it only if the run's epoch and length are these. */
export interface Expected {
  readonly epoch: number;
  readonly position: number;
  /**
   * How many wake-ups under its present owner the writer has looked into; left out: none. Compared only if the write takes the
   * owner away from a run that goes on: see `RunWrite.wake`.
   */
  readonly wakes?: number | undefined;
}

/** One write: all of it or nothing. */
export interface RunWrite {
  readonly entries: readonly Entry[];
  readonly head: RunHead;
  readonly session?: SessionChange | undefined;
  /** With the `ended` entry: what the run adds to the counters of its agent. */
  readonly counters?: Counters | undefined;
  /** With the `created` entry: the limit over all processes that the run comes under. */
  readonly slot?: Slot | undefined;
  /**
   * A run of the same store that has something to do once this is written, such as the parent of a sub-run that ends. Without an
   * owner, and unless it is blocked, it is due from the store's now on, or already was. With an owner its head stays, since the
   * owner writes it; the wake-up is counted, and a write that takes the owner away without knowing of it is refused as `woken`:
   * the owner looks at what the run waits for, and writes again. A claim, a take and any change of owner begin the count anew,
   * since a new owner looks at everything. A run that has ended, or is not there, is left alone.
   */
  readonly wake?: RunKey | undefined;
}

/**
 * Entries whose decision needs no state: they go to the end of the log, wherever that is. Owner, epoch, slot and `takeovers` stay.
 * Since the log is longer, whatever the owner has under way is refused as `changed`: it never overwrites what a post did to the head.
 */
export interface RunPost {
  readonly entries: readonly Entry[];
  /** The run's status from now on, where the entries decide it by themselves: `cancelling`. Left out: it stays. */
  readonly status?: RunStatus | undefined;
  /** The run is not blocked any more. */
  readonly unblocks?: boolean | undefined;
  /**
   * A run without an owner that is not blocked is due from the store's now on, or already was. With `look` it may be taken although
   * its slot is full, until it has an owner: an answer is validated, and a cancelled run unwinds, without a permit. Left out: `due_at` stays.
   */
  readonly due?: "work" | "look" | undefined;
}

/** What a process asks of `take`. */
export interface TakeRequest {
  /** Who gets the runs. */
  readonly owner: string;
  /** The code that it has: no other run is taken. */
  readonly agents: readonly AgentVersion[];
  /** How many runs at most. */
  readonly limit: number;
  /** Of the runs with at least so many `takeovers`, at most `limit`: each of them may bring its process down. Left out: they are as others. */
  readonly suspects?: { readonly takeovers: number; readonly limit: number } | undefined;
  /**
   * Also runs of any other agent that are `cancelling` and have been due, or had a dead owner, for at least so long, in
   * milliseconds: no process has their code. Left out: none.
   */
  readonly cancelledForMs?: number | undefined;
}

/** The runs of one agent and version that have not ended and have no living owner. Each is counted once. */
export interface Backlog extends AgentVersion {
  /** How many need work now, whether or not a slot is free for them. */
  readonly due: number;
  /** Since when the first of these has needed it, in milliseconds since the epoch; null if there is none, or it is not known. */
  readonly since: number | null;
  /** How many wait for a time or an outside event. */
  readonly waiting: number;
  /** How many of the waiting ones wait for matching code. */
  readonly blocked: number;
}

/** Which blocked runs to look for. */
export interface BlockedQuery {
  /** Of which agents; left out: of all. */
  readonly agents?: readonly AgentVersion[] | undefined;
  readonly limit: number;
  /** Only those created after this one; from the beginning if it is not there. */
  readonly after?: RunKey | undefined;
}

/** That something may have changed. A hint may be late, come twice or never come. */
export interface StoreHint {
  /** Runs that have more entries or another epoch. */
  readonly moved?: readonly RunKey[] | undefined;
  /** A run is due. */
  readonly due?: boolean | undefined;
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
  /** Null until a run or the caller sets it. */
  readonly state: JsonValue;
}

/**
 * Why a store did not write.
 * - `exists`: a run with this id is there already.
 * - `key_used`: the idempotency key belongs to the run `run_id`.
 * - `missing`: there is no such run for this tenant.
 * - `changed`: the run's epoch or length is another; both are given as they are.
 * - `owned`: a claim met an owner whose lease has not expired.
 * - `ended`: a post or a claim met a run that has ended.
 * - `full`: the run would hold its slot, and as many runs as the slot allows hold it already.
 * - `woken`: the write takes the owner away, and the run was woken more often than the writer knows: `wakes` times.
 */
export type StoreConflict =
  | { readonly conflict: "exists" | "missing" | "owned" | "ended" | "full" }
  | { readonly conflict: "key_used"; readonly run_id: string }
  | { readonly conflict: "changed"; readonly epoch: number; readonly position: number }
  | { readonly conflict: "woken"; readonly wakes: number };

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
  /** Sessions that no live run uses and that were last changed before this time, in milliseconds since the epoch. */
  readonly sessionsBefore: number;
}

/**
 * Where runs are kept. A store holds no rules: it compares, writes whole transactions and reads. Every method may answer
 * now or with a promise; what is written without waiting for the answer before is written in that order. A refused write is
 * an answer, not an error, and changes nothing; what is thrown means that the store itself failed, or that the run asked for is
 * damaged. A store has a clock of its own, the same for all its processes: leases and `due_at` are measured by it.
 */
export interface Store {
  /** Whether what is written outlives the process. */
  readonly persistent: boolean;
  /**
   * Adds a run; the first entry is `created`. Undefined when written, else `exists`, `key_used` or, if its head holds the slot,
   * `full`. The idempotency key is the tenant's, and goes with the run.
   */
  create(key: RunKey, write: RunWrite, idempotencyKey: string | null): MaybePromise<StoreConflict | undefined>;
  /** Adds entries and replaces the head. Undefined when written, else `missing`, `changed`, `woken` or, if the run did not hold its slot and would, `full`. */
  append(key: RunKey, expected: Expected, write: RunWrite): MaybePromise<StoreConflict | undefined>;
  /** Adds entries at the end, whatever the run's epoch and length, and changes no more of the head than the post says. Undefined when written, else `missing` or `ended`. */
  post(key: RunKey, post: RunPost): MaybePromise<StoreConflict | undefined>;
  /**
   * Replaces the head alone, if the run has no owner or its owner's lease has expired. Undefined when done, else `missing`, `ended`,
   * `changed`, `owned` or, if the run did not hold its slot and would, `full`: then see to it that the run is due, and `take` finds it when a permit is free.
   */
  claim(key: RunKey, expected: Expected, head: RunHead): MaybePromise<StoreConflict | undefined>;
  /**
   * Gives runs that need work to an owner, of all tenants: runs without an owner that are due, and those whose owner's lease has
   * expired or was never there. Not those that need a permit of their slot while none is free: of one slot the first of this order
   * goes first, and while it has to wait, the others of the slot do. Those with the lowest `due_at` come first (null is lowest), then those
   * created first. Each taken run has the new owner, a higher epoch, `due_at` now, `blocked` null and holds its slot, unless
   * it was posted to for a look; `takeovers` is raised if it had an owner. All in one transaction: of several callers each gets others.
   * An empty list: nothing needs work. What is written and not yet acknowledged may be missed. Renew the lease first.
   */
  take(request: TakeRequest): MaybePromise<readonly FoundRun[]>;
  /**
   * Says that the owner lives for `forMs` milliseconds from the store's now on; then its lease has expired. A lease never lasts
   * longer than that from the moment on at which another process meets it, also if the clock was set back in between.
   */
  renew(owner: string, forMs: number): MaybePromise<void>;
  /** Says that the owner is gone: its lease has expired. Nothing for an owner without one. */
  release(owner: string): MaybePromise<void>;
  /** The run; undefined if it is not there. Fails for a damaged one. */
  find(key: RunKey): MaybePromise<StoredRun | undefined>;
  /** At most `limit` entries from position `from` on (0 for the first); undefined if there is no such run. Fails if one of them is damaged. */
  read(key: RunKey, from: number, limit: number): MaybePromise<readonly Entry[] | undefined>;
  /** The run that an idempotency key made; undefined if there is none. Fails for a damaged one. */
  findByIdempotencyKey(tenant: string, idempotencyKey: string): MaybePromise<StoredRun | undefined>;
  /** A page of runs. */
  list(query: RunQuery): MaybePromise<readonly FoundRun[]>;
  /** Those of the given runs whose epoch or length is another, as they are now; position and epoch 0 for one that is not there. In no particular order. */
  moved(known: readonly RunPosition[]): MaybePromise<readonly RunPosition[]>;
  /** At most `limit` runs of an owner that have not ended, those created first. None for an owner without runs. */
  owned(owner: string, limit: number): MaybePromise<readonly RunKey[]>;
  /** At most `limit` blocked runs of all tenants, those created first. Only looks: `claim` takes one. */
  blocked(query: BlockedQuery): MaybePromise<readonly FoundRun[]>;
  /** What has no living owner, by agent and version, in no particular order; agents without such runs are left out. */
  backlog(): MaybePromise<readonly Backlog[]>;
  /** The session; undefined if it is not there. */
  session(key: SessionKey): MaybePromise<StoredSession | undefined>;
  /** Makes the session, unless it is there: then nothing changes. Says whether it made it. */
  makeSession(key: SessionKey, session: StoredSession, at: number): MaybePromise<boolean>;
  /** Makes the session or replaces it whole. */
  putSession(key: SessionKey, session: StoredSession, at: number): MaybePromise<void>;
  /** The counters of an agent; undefined before its first run ended. */
  counters(agentName: string): MaybePromise<Counters | undefined>;
  /** Forgets what may be forgotten, and says how many runs that were. */
  prune(retention: Retention): MaybePromise<number>;
  /**
   * Calls back with hints, until the function that it answers is called. A store without it is polled; one with it is, too, only
   * less often. What the callback throws is lost.
   */
  watch?(callback: (hint: StoreHint) => void): () => void;
  /** Nothing is called after it. */
  close(): MaybePromise<void>;
}
