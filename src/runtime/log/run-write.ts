import type { CadenzaError } from "../../core/errors.ts";
import { feedOf } from "../../core/feed.ts";
import type { Entry, Growing } from "../../core/log.ts";
import type {
  Arrived,
  Expected,
  RunHead,
  RunKey,
  RunWrite,
  SessionChange,
  Store,
  StoreConflict,
} from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, latestTime } from "../../core/state.ts";
import { countRun } from "../../core/statistics.ts";
import { userOf } from "../../core/user.ts";
import type { Message } from "../../protocol/message.ts";
import { lostError, takenError } from "./refusals.ts";

/** A write that was handed to the store. */
export interface Attempt {
  readonly key: RunKey;
  readonly write: RunWrite;
  /** The session change that it writes, without what the end of the run adds. */
  readonly session: SessionChange | undefined;
  /** What was said in the generations that end with it. Undefined: none ends. */
  readonly said: readonly Message[] | undefined;
  /** What the write expects of the run in the store. Undefined: that the run is not there. */
  readonly expected: Expected | undefined;
  readonly idempotencyKey: string | null;
  /** The state after its entries, if more had been decided when it was handed over: they go with later writes. */
  readonly sealed: RunState | undefined;
}

/**
 * The outcome of a write that the store did not accept at once, or to which it has something to say. `written`: it has
 * accepted the write, and has `inbox` for its writer.
 * `recognised`: an earlier attempt was written, although the store had reported a failure. `again`: it is to be written
 * once more, after `before`. `arrived`: once more, with what the inbox holds. `behind`: the log in the store has entries
 * that are not known here. `lost`: nothing more can be written; `after` is called when the run is given up. `unwritable`:
 * the store can never hold it. `failed`: the store failed.
 */
export type Outcome =
  | { readonly is: "recognised"; readonly own: Attempt }
  | { readonly is: "again"; before(): void }
  | { readonly is: "arrived" }
  | { readonly is: "written"; readonly inbox: readonly Arrived[] }
  | { readonly is: "behind" }
  | { readonly is: "lost"; readonly error: CadenzaError; readonly after?: () => void }
  | { readonly is: "unwritable"; readonly error: CadenzaError }
  | { readonly is: "failed"; readonly failure: CadenzaError };

/** What a write expects of the run in a store of several processes, and what it leaves there. */
export interface WritePlan {
  /** The head after the write. The head before it: it does not change. */
  readonly head: RunHead;
  /** Undefined: that the run is not there. */
  readonly expected: Expected | undefined;
  /** The run to wake with the write: one that is due then. */
  readonly wake: RunKey | undefined;
  /** The run is left to other processes with whatever has arrived for it. */
  readonly leavesInbox?: true | undefined;
  /** Whether the run waits in the line of its slot: it joins with this write, which is made for that, or it is there. */
  readonly asks?: "joins" | "stays" | undefined;
  /** Of the first write: how the store queues the run. */
  readonly place?: Pick<RunWrite, "slots" | "gate" | "priority"> | undefined;
}

/**
 * `sought`: an earlier execution began the sub-run, and it is being found. `idle`: it waits, or another process executes
 * it. `unreadable`: only a newer version of the library can read it.
 */
export type SubRunActivity = "at work" | "sought" | "idle" | "unreadable";

/**
 * What happens to a run, for its residence. `written`: the store has accepted a write, and no reader or caller knows it.
 * `before`: the head that it has replaced. `committed`: they know it. `woken`: the write has made this run due, and everything
 * else that follows from it is done. `readers`: readers of the log begin or end to wait. `step ended`: the run may only wait
 * from now on. `gone`: it is not loaded here any more. `crowded`: it is evicted, if it can be. `subRun`: what a sub-run does; undefined: the agent has its result.
 * `redoes`: the agent of a fork is to be called, and first does again what these entries hold. `endNeeds`: why only a newer version
 * of the library can end the run: it has to cancel a sub-run that this version cannot read.
 */
export type ResidenceEvent =
  | { readonly written: Attempt; readonly before: RunHead | undefined }
  | "committed"
  | { readonly woken: RunKey }
  | "readers"
  | "step ended"
  | "gone"
  | "crowded"
  | "paused"
  | { readonly subRun: string; readonly activity: SubRunActivity | undefined }
  | { readonly redoes: readonly Entry[] }
  | { readonly endNeeds: unknown };

/** The residence of a run, as far as the log of the run needs it: see `Residence`. */
export interface LogResidence {
  /** What a write of these entries expects of the run in the store, and what it leaves there. */
  plan(state: RunState, entries: readonly Entry[], before: RunHead | undefined, committed: number): WritePlan;
  /** What it means that the store refused a write. `failed`: the attempts whose answer was lost. */
  onConflict(conflict: StoreConflict, attempt: Attempt, failed: Attempt[]): MaybePromise<Outcome>;
  /** Takes note of what happens to the run. */
  note(event: ResidenceEvent): void;
}

/** What a conflict means if no other process writes: it comes from an attempt of this one whose answer was lost. */
export function localOutcome(conflict: StoreConflict, attempt: Attempt, failed: readonly Attempt[]): Outcome {
  const { expected, key, write } = attempt;
  const position = expected?.position ?? 0;
  const own = failed.find(
    (one) => conflict.conflict === "changed" && conflict.position === position + one.write.entries.length,
  );
  if (own !== undefined) return { is: "recognised", own };
  return { is: "lost", error: takenError(conflict, write.session) ?? lostError(key.run_id) };
}

/** Makes the write for these entries. `state` is the state after the entries, `run` has the session change of its end. */
export function writeOf(
  state: RunState,
  entries: readonly Entry[],
  head: RunHead,
  wake: RunKey | undefined,
  session: SessionChange | undefined,
  run: { sessionAtEnd(): SessionChange | undefined },
): RunWrite {
  if (entries.at(-1)?.type === "ended")
    return { entries, head, session: bothChanges(session, run.sessionAtEnd()), counters: countRun(state), wake };
  if (session === undefined && wake === undefined) return { entries, head };
  return { entries, head, session, wake };
}

/**
 * The write with what it adds to the feed, if the store keeps one. `state` is the state after its entries, of which the
 * first has the position `from`, and `before` the head that it replaces. `others`: as in `feedOf`.
 */
export function fed(
  store: Store,
  write: RunWrite,
  state: RunState,
  from: number,
  before: RunHead | undefined,
  others: number,
): RunWrite {
  if (store.readFeed === undefined) return write;
  const { blocked } = write.head;
  const isBlocked = blocked !== null && blocked !== before?.blocked;
  const feed = feedOf(state, write.entries, from, isBlocked, others);
  return feed === undefined ? write : { ...write, feed };
}

/** What the end of a generation of a run changes in its session. */
export function sessionWith(state: RunState, messages: () => readonly Message[]): Growing<SessionChange> {
  const { session_id, principal } = createdEntry(state);
  const at = latestTime(state);
  const change: Growing<SessionChange> = { session_id, create: true, generation: state.run_id, messages, at };
  const creator = userOf(principal);
  if (creator !== undefined) change.creator = creator;
  return change;
}

/**
 * Two changes of a session as one. The session is created, and its content replaced, if either of them does that. The
 * messages follow each other, and the later state counts.
 */
export function bothChanges(
  before: SessionChange | undefined,
  after: SessionChange | undefined,
): SessionChange | undefined {
  if (before === undefined || after === undefined) return before ?? after;
  return {
    ...after,
    create: before.create || after.create,
    creator: before.creator ?? after.creator,
    onlyOf: before.onlyOf ?? after.onlyOf,
    replaces: before.replaces ?? after.replaces,
    state: after.state ?? before.state,
    messages: bothMessages(before.messages, after.messages),
  };
}

function bothMessages(first: SessionChange["messages"], second: SessionChange["messages"]): SessionChange["messages"] {
  return first && second ? () => [...first(), ...second()] : (first ?? second);
}
