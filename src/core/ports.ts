import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { CadenzaError } from "./errors.ts";
import type { WatchedEvent } from "./feed.ts";
import type { CreatedEntry, Entry, Labels, MovedEntry } from "./log.ts";
import type { NewPause, Pause, PausedRuns } from "./pauses.ts";
import type { MaybePromise } from "./promises.ts";
import type { RunQuery } from "./run-query.ts";
import type { Rate, Slot } from "./slots.ts";
import type { Snapshot } from "./snapshot.ts";
import type { Counters } from "./statistics.ts";
import type { Surveys } from "./survey.ts";

/** Where time comes from. */
export interface Clock {
  /** The time in milliseconds since the epoch. */
  now(): number;
  /**
   * Milliseconds since any fixed point, by a clock that is never set. It measures how long something took. Left out:
   * `now` measures it, and what the library measures is wrong by as much as `now` is set.
   */
  monotonic?(): number;
  /**
   * Calls back once after `delayMs` milliseconds, of any length. The returned function cancels it. Does not hold the
   * process open.
   */
  setTimeout(callback: () => void, delayMs: number): () => void;
  /** Resolves in a later turn of the event loop, after timers and sockets had theirs. */
  turn(): Promise<void>;
  /**
   * Holds the process open until the returned function is called. The runtime calls it while a caller waits or a run
   * executes. Left out: the runtime holds the machine's event loop. A fake clock holds nothing.
   */
  hold?(): () => void;
}

/** Where identifiers come from. */
export interface Ids {
  /** A random UUID, for runs and sessions. */
  uuid(): string;
  /** A random token, for the owners of runs. */
  token(): string;
}

/** Where the library reports what no caller waits for. `console` fits. The default is silent. */
export interface Logger {
  /** What helps to explain one run. */
  debug(message: string, fields?: object): void;
  /** What has happened and is in order. */
  info(message: string, fields?: object): void;
  /** What was handled, and may have a cause. */
  warn(message: string, fields?: object): void;
  /** What asks for a look. What was thrown is the field `error`. */
  error(message: string, fields?: object): void;
}

/** A run's identity in a store. For other tenants the run does not exist. */
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

/** What a store knows of a run besides its log. A write replaces it as a whole. A post changes what the post says. */
export interface RunHead {
  readonly status: RunStatus;
  /** Raised by each claim and take, and when the run ends. A store refuses a write with another epoch. */
  readonly epoch: number;
  /** The process that executes the run; null for a run that waits, has ended or was released. */
  readonly owner: string | null;
  /**
   * The time from which a run without an owner needs work, in milliseconds since the epoch, by the store's clock. Null:
   * only an outside event makes it due. For a run with an owner: when the owner took it, unless the owner writes
   * another value. The runs of a dead owner are taken in this order.
   */
  readonly due_at: number | null;
  /** Where the registered code and the history disagreed at the last replay. Null for a run that is not blocked. */
  readonly blocked: Mismatch | null;
  /** Whether the run holds a permit of its slot. Without meaning for a run without a slot. */
  readonly holds_slot: boolean;
  /** When the run ended, in milliseconds since the epoch; null before. */
  readonly finished_at: number | null;
  /** How often the run was taken from a dead owner since it last made progress. */
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
  /** A newer version of the library has written the entry, and the one that has read it does not know it. */
  readonly newer?: true;
}

/**
 * What a process has had of the permits of a limit of steps since it began, and wants. The numbers are totals: a call that
 * is repeated changes nothing more.
 */
export interface StepUse {
  /** Higher with each call of the process for the limit. A call that arrives behind a later one changes nothing. */
  readonly turn: number;
  /** How many permits it has used: with each of them a body has begun, or none was left that needs it. */
  readonly used: number;
  /** How many of these it has given back. */
  readonly over: number;
  /** How many it wants, at least `used`. It waits for what it has not been given. */
  readonly wanted: number;
}

/** A run as a store lists it. */
export interface StoredRun {
  readonly key: RunKey;
  readonly created: CreatedEntry;
  readonly head: RunHead;
  /** How many entries the log holds. */
  readonly position: number;
  /** What has arrived for its owner, in order. Left out for nothing, and where it was not asked for. */
  readonly inbox?: readonly Arrived[];
}

/** What has arrived for a run with an owner, and is not in its log so far. */
export interface Arrived {
  /** Tells it from the rest of the inbox. The write that takes it names it. */
  readonly id: number;
  /** At least one. */
  readonly entries: readonly Entry[];
}

/** A run whose first entry the store cannot read. Its key and its head are readable. */
export interface DamagedRun {
  readonly key: RunKey;
  readonly created: null;
  readonly head: RunHead;
  readonly position: number;
  /** A `store_failed` with the run's id and the cause. */
  readonly error: CadenzaError;
}

/** A run in a list that a store returns. A damaged run does not hide the others. */
export type FoundRun = StoredRun | DamagedRun;

/** How far a run has come. */
export interface RunPosition {
  readonly key: RunKey;
  readonly epoch: number;
  /** How many entries the log holds; 0 for a run that is not in the store. */
  readonly position: number;
  /** As in {@link StoredRun}, in what `moved` answers. */
  readonly inbox?: readonly Arrived[];
}

/** What a write builds on. A store accepts the write only if the run has this epoch, length and owner. */
export interface Expected {
  readonly epoch: number;
  readonly position: number;
  /**
   * Left out: the owner is not compared. After a store has lost its last commits, another process may have taken the
   * run under the same epoch.
   */
  readonly owner?: string | null | undefined;
  /**
   * How many wake-ups under its present owner the writer knows of; left out: none. Compared only if the write takes the
   * owner away from a run that has not ended: see `RunWrite.wake`.
   */
  readonly wakes?: number | undefined;
}

/** One write, made as a whole or not at all. */
export interface RunWrite {
  readonly entries: readonly Entry[];
  readonly head: RunHead;
  readonly session?: SessionChange | undefined;
  /** With the `ended` entry: what the run adds to the counters of its agent. */
  readonly counters?: Counters | undefined;
  /**
   * With the `created` entry: the limits over all processes that apply to the run, with distinct keys, in their order. The
   * run needs permits of all of them at once, and holds none while it waits. A rate counts a run once: with the first
   * permits that it gets. Left out: none.
   */
  readonly slots?: readonly Slot[] | undefined;
  /**
   * With the `created` entry: of the runs with one gate, few stand among the due ones and in lines at a time, so that a
   * customer with many runs does not hold up one with few. The others wait behind the gate, in order, and each `take` that
   * gives some of them lets others through. All runs of a gate have the same agent, version and priority. Left out: the run
   * passes none.
   */
  readonly gate?: string | undefined;
  /** With the `created` entry: a whole number from -10 to 10. Runs of a higher one go first. Left out: 0. */
  readonly priority?: number | undefined;
  /**
   * A run of the same store to wake, such as the parent of a sub-run that ends. Without an owner, and unless it is
   * blocked, it is due from the store's now on, or stays due, also after writes that leave it so. With an owner, its head stays, since the owner writes it,
   * and the wake-up is counted. A write that takes the owner away without knowing of all wake-ups is refused as
   * `woken`. The owner then checks what the run waits for, and writes again. A claim, a take and any change of owner
   * reset the count, since a new owner checks everything. A run that has ended or does not exist is left alone.
   */
  readonly wake?: RunKey | undefined;
  /** What the store adds to its feed, in this order: see `readFeed`. Left out: nothing. */
  readonly feed?: readonly WatchedEvent[] | undefined;
  /**
   * What the inbox holds no more after the write: the ids of what the entries hold, or were decided without. `all`, of a
   * write that takes the owner away from a run that has not ended: what is there goes into the log behind the entries,
   * since no owner takes it any more. Left out: nothing.
   */
  readonly takes?: readonly number[] | "all" | undefined;
  /**
   * Of a run with an owner whose head does not hold its slot: it waits for a permit. It joins the line of its slot, or
   * keeps its place there, or the permit that it has got by now: its stored head says so, which no conflict tells. Left out:
   * it waits for none, and gives back what it has got.
   */
  readonly asks?: boolean | undefined;
}

/**
 * Entries whose decision needs no state. Owner, epoch, slot and `takeovers` stay. For a run without an owner they go to
 * the end of the log, whatever its length. For a run with an owner they go into its inbox, and hinder none of its
 * writes: the owner reads them, and takes them into the log where it has decided them.
 */
export interface RunPost {
  /** At least one. */
  readonly entries: readonly Entry[];
  /**
   * The run's new status. It holds at once. `cancelling` is what the entries alone decide, and holds until the run ends. Another
   * status holds until the owner writes its own, because it was decided from what the run had before: a run without an owner
   * refuses it as `changed`. Left out: the status stays.
   */
  readonly status?: RunStatus | undefined;
  /** A run that is being cancelled refuses the post as `cancelling`. */
  readonly unlessCancelling?: boolean | undefined;
  /** The run is no longer blocked. */
  readonly unblocks?: boolean | undefined;
  /**
   * A run without an owner that is not blocked is due from the store's now on, or stays due. With `look` it may be
   * taken although its slot is full, until it has an owner: to validate an answer, or to unwind a cancelled run, takes
   * no permit. Left out: `due_at` stays.
   */
  readonly due?: "work" | "look" | undefined;
  /**
   * As in {@link RunWrite}. An owner that takes the entries writes its own events for them, and these are left out.
   */
  readonly feed?: readonly WatchedEvent[] | undefined;
}

/** What a process asks of `take`. */
export interface TakeRequest {
  /** The owner that gets the runs. */
  readonly owner: string;
  /**
   * The agents that the owner has registered. Of other agents only those runs are taken that need no code to end: runs that
   * are not durable, whose owner's lease has expired; and with `cancelledForMs` cancelled ones.
   */
  readonly agents: readonly AgentVersion[];
  /** How many runs at most. */
  readonly limit: number;
  /**
   * Of the runs with at least so many `takeovers`, at most `limit`: each of them may crash its process. Left out: no
   * such limit.
   */
  readonly suspects?: { readonly takeovers: number; readonly limit: number } | undefined;
  /**
   * Takes also `cancelling` runs of other agents, whose code no process may have. They must have been due, or had a
   * dead owner, for at least so long, in milliseconds. Left out: none.
   */
  readonly cancelledForMs?: number | undefined;
  /**
   * Frees slots first. A run of another agent or version gives its slots back if it was due, or had a dead owner, for at least
   * so long, in milliseconds, and if runs of others than its version wait for one of them. The run is due then. All runs of its
   * version leave these lines until `take` is asked for their version. Left out: no slot is freed but those of paused runs.
   */
  readonly unusedForMs?: number | undefined;
  /** Called with all pauses by a store that reads them together with the runs. Other stores need not call it. */
  readonly onPauses?: ((pauses: readonly Pause[]) => void) | undefined;
}

/**
 * The runs of one agent and version that have not ended and have no living owner. Each is counted once, and of each kind no
 * more than 1,001: what a count costs does not depend on how many there are.
 */
export interface Backlog extends AgentVersion {
  /** How many need work now, whether or not a slot is free for them. */
  readonly due: number;
  /**
   * Since when the first of these needs it, in milliseconds since the epoch; null if there is none, or it is unknown.
   */
  readonly since: number | null;
  /** How many wait for a time or an outside event. */
  readonly waiting: number;
  /** How many of the waiting ones wait for matching code. */
  readonly blocked: number;
}

/** How many posts in an inbox a store gives at once, but where it gives all of them. */
export const MOST_ARRIVED = 256;

/** How far a store counts live runs. This number stands for a thousand and more. */
export const COUNTED = 1_001;

/** Which lines of slots to give. */
export interface LinesQuery {
  /** Only those behind this key, the last one of the page before. Left out: from the first on. */
  readonly after?: string | undefined;
  /** At least 1. */
  readonly limit: number;
}

/** Which blocked runs to look for. */
export interface BlockedQuery {
  /** Of which agents; left out: of all. */
  readonly agents?: readonly AgentVersion[] | undefined;
  readonly limit: number;
  /** Only those created after this one; all of them if it does not exist. */
  readonly after?: RunKey | undefined;
}

/** Something may have changed. A hint may be late, come twice or never come. */
export interface StoreHint {
  /** Runs that have more entries or another epoch. */
  readonly moved?: readonly RunKey[] | undefined;
  /** The runs of `moved` are due, or one that is not named if there are none. */
  readonly due?: boolean | undefined;
  /** The feed has more events. */
  readonly fed?: boolean | undefined;
  /** Permits of limits of steps were given to owners that wait for them. */
  readonly permits?: boolean | undefined;
}

/** Which part of the feed to read. */
export interface FeedQuery {
  /**
   * Behind which position: that of an event or of a page. `start`: from the first event that is kept. `now`: nothing is
   * read, and the page has the position behind which all later events come.
   */
  readonly from: string;
  /** How many events to look at, at least 1. */
  readonly limit: number;
  /** Gives only the events of this tenant. Left out: the events of all tenants. */
  readonly tenant?: string | undefined;
  /** Gives only the events of these types. Left out: events of all types. */
  readonly types?: readonly WatchedEvent["type"][] | undefined;
}

/** An event in the feed of a store. */
export interface FeedItem {
  /** The place of the event. It is valid after a restart, names the feed, and is never `start` or `now`. */
  readonly position: string;
  readonly key: RunKey;
  readonly agent_name: string;
  /** When it was written, in milliseconds since the epoch, by the store's clock. */
  readonly at: number;
  readonly event: WatchedEvent;
}

/** A part of the feed. */
export interface FeedPage {
  readonly items: readonly FeedItem[];
  /** Behind the last event that was looked at. */
  readonly position: string;
  /**
   * What comes behind it. `now`: there may be more events. `soon`: there are events that come later in order, because a
   * write that began before them is not over. Null: none.
   */
  readonly more: "now" | "soon" | null;
}

/** What a write does to the run's session. */
export interface SessionChange {
  readonly session_id: string;
  /** Whether to make a session that does not exist. With false, the change of a missing session is ignored. */
  readonly create: boolean;
  /** The session's generation, if the change makes or replaces it: see {@link StoredSession}. Left out: none. */
  readonly generation?: string | undefined;
  /** The session's creator, if the change makes it: see {@link StoredSession}. Left out: none. */
  readonly creator?: string | undefined;
  /** Of a new run: it is refused as `foreign` if the session exists, and another user than this one has created it. */
  readonly onlyOf?: string | undefined;
  /**
   * The messages to append to the session. Called only if the session exists or is made, and again if the write is
   * tried again.
   */
  readonly messages?: (() => readonly Message[]) | undefined;
  /** The messages take the place of those that the session holds. Left out: they follow these. */
  readonly replaces?: true | undefined;
  /** The new state, if it changes. */
  readonly state?: { readonly value: JsonValue } | undefined;
  /** The time of the change, in milliseconds since the epoch. */
  readonly at: number;
}

/** Which messages of a session are read, by their numbers from 0 on: not those from `to` on. */
export interface MessageRange {
  readonly from: number;
  readonly to: number;
}

/** A session without its messages. */
export interface SessionHead {
  /** How many messages it holds. */
  readonly length: number;
  /** Null until a run or the caller sets it. */
  readonly state: JsonValue;
  /** As in {@link StoredSession}. */
  readonly generation?: string;
  /** As in {@link StoredSession}. */
  readonly creator?: string;
}

/** A session as it is stored. */
export interface StoredSession {
  readonly history: readonly Message[];
  /** Null until a run or the caller sets it. */
  readonly state: JsonValue;
  /**
   * Tells the messages of a session from those of a later one with the same id. The write that makes the session, or
   * replaces it as a whole, gives it a new one, and other writes keep it. Left out: none, as in sessions of earlier versions.
   */
  readonly generation?: string;
  /** The user who has created it. Other writes keep it. Left out: none. */
  readonly creator?: string;
}

/**
 * Why a store did not write.
 * - `exists`: a run with this id exists already.
 * - `key_used`: the idempotency key belongs to the run `run_id`.
 * - `missing`: there is no such run for this tenant.
 * - `changed`: the run has another epoch, length or owner; epoch and length are given as they are.
 * - `owned`: a claim met an owner whose lease has not expired.
 * - `ended`: a post or a claim met a run that has ended.
 * - `cancelling`: a post met a run that is being cancelled, and is not for such a run.
 * - `full`: the run would hold its slot, and `max` runs hold it already, or others wait for it.
 * - `foreign`: the session of a new run was created by another user.
 * - `unwritable`: the store can never hold the write, because of its size or of what it contains; `reason` says why.
 * - `woken`: the write takes the owner away, and the run was woken more often than the writer knows: `wakes` times.
 * - `arrived`: the write takes the owner away, and the inbox holds more than it takes; or it ends the run, and a cancel is
 *   among this.
 */
export type StoreConflict =
  | { readonly conflict: "exists" | "missing" | "owned" | "ended" | "cancelling" | "foreign" | "arrived" }
  /** `key`: the first slot that refuses, in the order of the keys. Left out: the store does not say. */
  | { readonly conflict: "full"; readonly key?: string | undefined }
  | { readonly conflict: "key_used"; readonly run_id: string }
  | { readonly conflict: "unwritable"; readonly reason: string }
  | { readonly conflict: "changed"; readonly epoch: number; readonly position: number }
  | { readonly conflict: "woken"; readonly wakes: number };

/** That a write was made, and what has arrived for its writer meanwhile: see {@link StoredRun}. */
export interface WrittenWithInbox {
  readonly conflict?: undefined;
  readonly inbox: readonly Arrived[];
}

/** What a store may delete of some tenants, beside what it may delete of all. */
export interface TenantRetention {
  /** The tenants to look at. */
  readonly tenants: readonly string[];
  /** Ended runs of each of them beyond this number, those that ended first. */
  readonly maxRuns: number;
  /** Sessions of each of them beyond this number, those that were changed first. One that a live run uses stays. */
  readonly maxSessions: number;
}

/** Which runs a rule of the retention matches: those that have all that is given. With nothing given all runs. */
export interface RunsOfRule {
  readonly agent_name?: string | undefined;
  readonly tenant?: string | undefined;
  /** Labels that the run has, each with this value. */
  readonly labels?: Labels | undefined;
}

/** What a store may delete of the ended runs for which a rule counts. */
export interface RuleRetention extends RunsOfRule {
  /** Runs that ended before this time, in milliseconds since the epoch. */
  readonly endedBefore: number;
  /**
   * Runs after which so many others ended for which the same rule counts. Whether others that were deleted by their keys
   * count is for the store to choose.
   */
  readonly maxRuns: number;
}

/**
 * What a store may delete. It never deletes a run that has not ended, nor a sub-run whose durable parent has not ended,
 * because the parent may read it again. It may keep the sub-runs of every parent that has not ended. Such sub-runs count
 * towards `maxRuns`.
 */
export interface Retention {
  /**
   * Ended runs beyond this number, those that ended first. A store may take them from the tenants that have the most
   * ended runs, so that no tenant makes it delete the runs of another.
   */
  readonly maxRuns: number;
  /** Runs that ended before this time, in milliseconds since the epoch. */
  readonly endedBefore: number;
  /** Sessions that no live run uses and that were last changed before this time, in milliseconds since the epoch. */
  readonly sessionsBefore: number;
  /** What is limited for each tenant. Left out: nothing. */
  readonly perTenant?: TenantRetention | undefined;
  /**
   * Rules for some of the runs. The first that matches a run counts for it: its `endedBefore` takes the place of that of the
   * retention, and its `maxRuns` holds beside that. Left out: none.
   */
  readonly rules?: readonly RuleRetention[] | undefined;
}

/**
 * Where runs are kept. A store has no rules of its own: it compares, writes whole transactions and reads. Every method
 * may answer at once or with a promise. Writes that do not wait for each other are made in the order of the calls. A
 * refused write is an answer, not an error, and changes nothing. A method throws if the store itself fails, or if the
 * requested run is damaged. All processes of a store share its clock: leases and `due_at` are measured by it.
 */
export interface Store extends Surveys<FoundRun, RunKey> {
  /** Whether written data outlives the process. */
  readonly persistent: boolean;
  /**
   * Adds a run; the first entry is `created`. Undefined when written, else `foreign`, `exists`, `key_used`, `unwritable` or, if
   * its head holds the slot, `full`. The idempotency key is unique within the tenant, and is deleted with the run.
   */
  create(key: RunKey, write: RunWrite, idempotencyKey: string | null): MaybePromise<StoreConflict | undefined>;
  /**
   * Adds entries and replaces the head; a run that is cancelling stays so until it ends. Undefined when written, else
   * `missing`, `changed`, `woken`, `arrived`, `unwritable` or, if the run did not hold its slot and would, `full`. What is
   * left in the inbox of a run that ends stays there, and is deleted with the run. For a run that has an owner then, the
   * answer to a write that was made has the inbox, if something is left in it: all of it, or the first part.
   */
  append(key: RunKey, expected: Expected, write: RunWrite): MaybePromise<StoreConflict | WrittenWithInbox | undefined>;
  /**
   * Adds entries to the log, or to the inbox of a run with an owner, whatever the run's epoch and length, and changes only
   * what the post says of the head. What is written one after the other keeps its order. Undefined when written, else
   * `missing`, `ended`, `cancelling` or, for a status that a run without an owner refuses, `changed`. Throws `limit_reached` for
   * entries that the store can never hold.
   */
  post(key: RunKey, post: RunPost): MaybePromise<StoreConflict | undefined>;
  /**
   * Replaces the head alone, if the run has no owner or its owner's lease has expired. Undefined when done, else
   * `missing`, `ended`, `changed`, `owned` or, if the run did not hold its slot and would, `full`. After `full`, make
   * the run due: `take` finds it when a permit is free. The inbox of the former owner goes to the end of the log.
   */
  claim(key: RunKey, expected: Expected, head: RunHead): MaybePromise<StoreConflict | undefined>;
  /**
   * Moves a run without an owner to another version of its agent: adds the entry, and raises the epoch. The run is not blocked
   * any more, and is due if it was. From then on `find`, the lists and `take` have it with that version: their `created` says
   * so, and that it was `moved`. Its log keeps its first entry. Undefined when done, else `missing`, `ended`, `changed` or,
   * if it has an owner, `owned`. Left out: runs cannot be moved.
   */
  changeVersion?(
    key: RunKey,
    expected: Pick<Expected, "epoch" | "position">,
    moved: MovedEntry,
  ): MaybePromise<StoreConflict | undefined>;
  /**
   * Gives runs that need work to an owner, of all tenants: due runs without an owner, and runs whose owner's lease has
   * expired or never existed. A run that needs a permit of its slot waits for it from the time at which it is due, or at
   * which a `take` meets it, and a permit goes to the run that has waited longest: with the write that frees it, or asks
   * for it. The run then holds its slot, and is given like others. One that is looked at in between keeps its place. A run
   * of a dead owner that has to wait has no owner from then on. The order: highest priority first, then lowest `due_at`
   * (null is lowest; a run with a gate is due from the time at which it was let through, or got its permits), then oldest
   * first. Each taken run has the new owner, a higher epoch, `due_at` now, `blocked` null and holds its slot, unless
   * it was posted to with `look`, or is one of a dead owner that is only taken to end it: one that is `cancelling`, or not durable.
   * Such a run leaves the line of its slot. `takeovers` is raised if it had an owner. The inbox of an owner that is dead goes to the
   * end of the log. All in one
   * transaction: two callers never get the same run. An empty list: nothing needs work. Unacknowledged writes may be
   * missed. Renew the lease first.
   */
  take(request: TakeRequest): MaybePromise<readonly FoundRun[]>;
  /**
   * Lets the owner's lease last `forMs` milliseconds from the store's now on. Once another process meets the lease, it
   * lasts at most that long, also if the clock was set back in between. May answer a number, the store's time, by which it
   * measures the lease: the process then does not call `time` as well. Any other answer means nothing.
   */
  renew(owner: string, forMs: number): MaybePromise<unknown>;
  /** Ends the owner's lease. Changes nothing for an owner without one. */
  release(owner: string): MaybePromise<void>;
  /**
   * The run; undefined if it does not exist. `with inbox`: also what has arrived for it, at the same moment. Fails for a
   * damaged one.
   */
  find(key: RunKey, how?: "with inbox"): MaybePromise<StoredRun | undefined>;
  /**
   * At most `limit` entries from position `from` on (0 for the first); undefined if there is no such run. Where these are
   * large it may give fewer, but at least one if there is any. Fails if one of them is damaged.
   */
  read(key: RunKey, from: number, limit: number): MaybePromise<readonly Entry[] | undefined>;
  /**
   * Deletes entries of a log that lie before a position, where a `continued` entry lies, but not the first one: a bounded number
   * of them, those that came last first. Answers whether more are left. From then on `read` gives, behind the last entry in
   * front of those that are deleted, or from one of their positions on, what follows them: a `continued` entry, which says its
   * position. The length of the log stays, and a snapshot of what comes before goes. False for a run that does not exist.
   */
  trim(key: RunKey, before: number): MaybePromise<boolean>;
  /**
   * The snapshot of a run that was kept last. Undefined: there is none. Leave both methods out to keep none: a snapshot is a
   * cache, and readers of long logs only become faster. `maxLogBytes` does not count what is in one.
   */
  snapshot?(key: RunKey): MaybePromise<Snapshot | undefined>;
  /** Keeps a snapshot in place of an earlier one. It is dropped for a run that does not exist, and goes with its run. */
  keepSnapshot?(key: RunKey, snapshot: Snapshot): MaybePromise<void>;
  /** The run that was created with an idempotency key; undefined if there is none. Fails for a damaged one. */
  findByIdempotencyKey(tenant: string, idempotencyKey: string): MaybePromise<StoredRun | undefined>;
  /** A page of runs. */
  list(query: RunQuery): MaybePromise<readonly FoundRun[]>;
  /**
   * Those of the given runs whose epoch or length is another, or whose inbox holds something, as they are now; epoch and
   * length are 0 for a run that does not exist. In no particular order. Of a long inbox it may give the first part.
   */
  moved(known: readonly RunPosition[]): MaybePromise<readonly RunPosition[]>;
  /** At most `limit` runs of an owner that have not ended, oldest first. None for an owner without runs. */
  owned(owner: string, limit: number): MaybePromise<readonly RunKey[]>;
  /** At most `limit` blocked runs of all tenants, oldest first. Changes nothing: `claim` takes one. */
  blocked(query: BlockedQuery): MaybePromise<readonly FoundRun[]>;
  /**
   * The runs without a living owner, by agent and version, in no particular order. Agents without such runs are left
   * out.
   */
  backlog(): MaybePromise<readonly Backlog[]>;
  /**
   * The slots that runs of all tenants wait for, in the order of their keys. Few runs are looked at for each slot of the
   * page, however many wait.
   */
  lines(query: LinesQuery): MaybePromise<
    readonly {
      readonly key: string;
      /** How many runs may hold the slot at a time, as the first in line has it. Left out: any number. */
      readonly max?: number | undefined;
      /** How often it is given, as the first in line has it. Left out: at any time. */
      readonly rate?: { readonly count: number; readonly perMs: number } | undefined;
      /** When the rate gives the next permit, in milliseconds since the epoch, if it gives none now. */
      readonly next_at?: number | undefined;
      /** How many hold it. */
      readonly held: number;
      /** How many wait, at least one, counted up to 1,001. */
      readonly waiting: number;
      /** The one that has waited longest: it gets the next permit. */
      readonly first: {
        readonly key: RunKey;
        readonly agent_name: string;
        readonly version: string | null;
        /** Since when it is due, in milliseconds since the epoch. */
        readonly due_at: number;
      };
    }[]
  >;
  /**
   * All pauses, the oldest first. The caller leaves out of `take` what those without a tenant cover, and each `take` frees the
   * slots of such runs without an owner or with a dead one, as with `unusedForMs`, but without delay. Due runs that one with a
   * tenant covers are not given by `take` but set aside, if they have no slot, no priority and no owner, and are not being cancelled: `ASIDE_MS` is
   * added to their `due_at`. The caller sets aside what it has taken all the same.
   */
  pauses(): MaybePromise<readonly Pause[]>;
  /**
   * Adds a pause from the store's now on. One of the same runs becomes one with `now`, if that is asked for, and stays as it
   * is otherwise. False: nothing changes.
   */
  pause(pause: NewPause, by: JsonValue): MaybePromise<boolean>;
  /** Removes the pause of these same runs. False: the store has no such pause. */
  resume(runs: PausedRuns): MaybePromise<boolean>;
  /**
   * Makes runs due that were set aside, if no pause of their tenant covers them any more: runs without an owner whose
   * `due_at` is `ASIDE_MS` or later. Their `due_at` is then less by as much, and not later than the store's now. Of
   * each tenant, agent and version the run that is due first comes first. At most `limit` runs; answers how many.
   */
  comeBack(limit: number): MaybePromise<number>;
  /**
   * Grants steps under a rate: all of those wanted whose time has come, or else one in the future. Gives for each how many
   * milliseconds from the store's now on it is granted, in order. What is granted is counted, whether or not a step begins:
   * of the grants under a key, any `count + 1` in a row take at least `perMs`. After the clock was set back, the times of the
   * grants are as long ago as before. Under several rates of one key each grant keeps to the rate that asks for it.
   */
  grantSteps(key: string, rate: Rate, wanted: number): MaybePromise<readonly number[]>;
  /**
   * Tells the permits of a limit of steps that an owner has used and wants, and answers how many it was given in all. Permits
   * go to the owners that wait, one to each in turn, in the order in which they began to wait, while fewer than the `max` of
   * the next one are held: used or given, and not given back. The permits of owners whose lease has ended are free. An owner that the
   * store does not know holds what it has used and not given back.
   */
  permitSteps(owner: string, key: string, max: number, use: StepUse): MaybePromise<number>;
  /**
   * The session; undefined if it does not exist. `range`: its history has these messages only, as far as they are there, and no
   * others are read.
   */
  session(key: SessionKey, range?: MessageRange): MaybePromise<StoredSession | undefined>;
  /** The session without its messages, none of which is read; undefined if it does not exist. */
  sessionHead(key: SessionKey): MaybePromise<SessionHead | undefined>;
  /** Makes the session, unless it exists: then nothing changes. Answers whether it was made. */
  makeSession(key: SessionKey, session: StoredSession, at: number): MaybePromise<boolean>;
  /** Makes the session or replaces it as a whole. */
  putSession(key: SessionKey, session: StoredSession, at: number): MaybePromise<void>;
  /** The counters of an agent; undefined before its first run ended. */
  counters(agentName: string): MaybePromise<Counters | undefined>;
  /**
   * Deletes what the retention allows, and answers how many runs that were. The session with the id of a run goes with the
   * run that has made it, as its generation says, unless the store has another run of it. A store that keeps a feed also
   * deletes the events that are too old.
   */
  prune(retention: Retention): MaybePromise<number>;
  /**
   * Deletes those of the runs that have ended, as `prune` does, and answers how many those were. The others stay, also
   * those that do not exist.
   */
  delete(runs: readonly RunKey[]): MaybePromise<number>;
  /**
   * Deletes a session, unless a live run uses it: then nothing changes. Answers whether there is no such session any
   * more.
   */
  deleteSession(key: SessionKey): MaybePromise<boolean>;
  /**
   * The events that writes have added to the feed, of all runs in one order. The events of a run have the order of its
   * writes. Nothing is ever added in front of a position that was read. Events stay when their run is deleted. Undefined:
   * events behind `from` were deleted, or `from` is no position of this feed. Left out if the store keeps no feed: then no write has `feed`.
   */
  readFeed?(query: FeedQuery): MaybePromise<FeedPage | undefined>;
  /**
   * Calls back with hints until the returned function is called. A store without `watch` is polled; one with it is
   * polled less often. What the callback throws is lost.
   */
  watch?(callback: (hint: StoreHint) => void): () => void;
  /**
   * The time by the clock that measures leases and `due_at`, in milliseconds since the epoch, also with a fraction. The
   * processes then measure all waits by this clock. Leave it out if all processes have the clock of the store, because
   * they are on its machine.
   */
  time?(): MaybePromise<number>;
  /** Closes the store. No other method may be called after it. A second call does nothing. */
  close(): MaybePromise<void>;
}

/** The runs that wait for a permit of a slot. */
export type SlotLine = Awaited<ReturnType<Store["lines"]>>[number];

/** The key of a durable store's engine: a symbol, so that no member of a store of your own is taken for one. */
export const engineKey: unique symbol = Symbol.for("cadenza.engine") as never;
