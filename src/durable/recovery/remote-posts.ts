import type { Command } from "../../core/commands.ts";
import { copyState } from "../../core/copy-state.ts";
import { decide, hasCancel, isRefusal } from "../../core/decide.ts";
import { CadenzaError, notFound } from "../../core/errors.ts";
import { evolve, foldEntries } from "../../core/evolve.ts";
import { feedOf } from "../../core/feed.ts";
import type { Entry, ReceivedEntry } from "../../core/log.ts";
import type { Arrived, RunHead, RunKey, RunPost, Store, StoreConflict, StoredRun } from "../../core/ports.ts";
import { behind } from "../../core/positions.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore } from "../../core/promises.ts";
import { RunMap } from "../../core/run-map.ts";
import type { RunState } from "../../core/state.ts";
import { generationLength, initialState, isFinal } from "../../core/state.ts";
import { verdict } from "../../core/transitions.ts";
import type { RunStatus } from "../../protocol/run.ts";
import {
  eachOfGeneration,
  findStored,
  foldAll,
  foldInbox,
  foldOn,
  READ_CHUNK,
  snapshotOf,
} from "../../runtime/log/fold-log.ts";
import type { MessageLimits } from "../../runtime/log/part-size.ts";
import { checkLogLength, checkWaiting } from "../../runtime/log/part-size.ts";
import { refusalError, takenError } from "../../runtime/log/refusals.ts";
import { fullError, placeOf, rejects } from "../../runtime/runs/admission.ts";
import { refuseLate } from "../../runtime/runs/message-router.ts";
import type { AddedRun, KeyGiver } from "../../runtime/runs/remote-runs.ts";

/** Adds runs that this process does not execute, reads the whole logs of those that are not loaded, and posts to them. */
export class RemotePosts {
  readonly #store: Store;
  readonly #unreceived: Unreceived;

  constructor(store: Store) {
    this.#store = store;
    this.#unreceived = new Unreceived(store);
  }

  /**
   * Adds a run without an owner. It is due at once, or when it is to start. Throws `idempotency_conflict` if the key has
   * made another run, `session_not_found` if another user has made the session, and `limit_reached` if the run must not wait
   * for a slot and none is free.
   */
  async create({ key, log, session, idempotencyKey, agent }: AddedRun): Promise<void> {
    const [created] = log;
    const { status } = foldEntries(key.run_id, log);
    const due_at = created.start_at ?? null;
    const place = placeOf(agent, key.tenant, created);
    const holds_slot = place.slots !== undefined && rejects(agent.options) && due_at === null;
    const head: RunHead = { ...unowned, status, due_at, holds_slot };
    // The run wakes itself: "at once" is a time by the store's clock.
    const wake = due_at === null ? key : undefined;
    const write = { entries: log, head, session, wake, ...place };
    let conflict: StoreConflict | undefined;
    try {
      conflict = await this.#store.create(key, write, idempotencyKey ?? null);
    } catch (cause) {
      const message = `The store failed to write run ${key.run_id}.`;
      throw new CadenzaError("store_failed", message, { run_id: key.run_id, cause });
    }
    // A run that exists was written by an earlier attempt, whose answer was lost.
    const taken = conflict && takenError(conflict, session);
    if (taken !== undefined) throw taken;
    if (conflict?.conflict === "full") throw fullError(agent, conflict.key);
  }

  /** See {@link eachOfGeneration}. */
  each(key: RunKey, length: number, callback: (entry: Entry) => void): Promise<number | undefined> {
    return eachOfGeneration(this.#store, key, length, callback);
  }

  /**
   * Adds a message to the log of a run. `keyBy`: the log is read for a message with a key of its sender. Any other
   * message is decided by the store alone, and the run is read only to limit what waits to be received, or if it refuses. Resolves with
   * whether the run did not have the message before. Throws `run_not_found`, `run_finished`, `run_cancelling`, `idempotency_conflict` or `limit_reached`.
   */
  async send(key: RunKey, message: ReceivedEntry, keyBy: KeyGiver, limits: MessageLimits): Promise<boolean> {
    const isKeyed = keyBy === "sender";
    const { bytes = 0 } = message;
    let log: RunState | undefined;
    const hasIt = async (stored: StoredRun): Promise<boolean> => {
      log ??= (await snapshotOf(this.#store, key, stored.position)) ?? initialState(key.run_id);
      return hasArrived(await this.#seenBy(stored, log), key, message);
    };
    const post = (): MaybePromise<StoreConflict | undefined> =>
      this.#store.post(key, { entries: [message], due: "work", unlessCancelling: true });
    let needs = isKeyed ? "inbox" : this.#unreceived.needs(key, bytes);
    for (;;) {
      let stored: StoredRun | undefined;
      if (needs !== "nothing") {
        stored = await this.#store.find(key, needs === "inbox" ? "with inbox" : undefined);
        if (stored === undefined) throw notFound(key.run_id);
        const said = verdict("receive", stored.head.status);
        if (said === "run_finished" || said === "run_cancelling") {
          await refuseLate(this.#store, key, message);
          return false;
        }
        if (isKeyed && (await hasIt(stored))) return false;
      }
      const first = needs === "inbox" ? stored : undefined;
      const posting = this.#unreceived.post({ key, first, length: stored?.position ?? 0, bytes, limits }, post);
      if ((await posting) === undefined) break;
      needs = "inbox";
    }
    // Another process may have sent another message under the key meanwhile. The first one counts.
    if (isKeyed) await hasIt(await findStored(this.#store, key));
    return true;
  }

  /** The state of a run with what lies in its inbox. `log` has a part of its log, and is read on. */
  async #seenBy(stored: StoredRun, log: RunState): Promise<RunState> {
    if (stored.position > log.position) await foldOn(this.#store, stored.key, log, stored.position);
    if (stored.inbox === undefined) return log;
    return foldInbox(copyState(log), stored.inbox);
  }

  /**
   * Decides commands on a run that any process may execute, and writes the entries. Resolves with the state after
   * that. Throws the refusal of a command, and `run_not_found`.
   */
  async change(key: RunKey, commands: readonly Command[]): Promise<RunState> {
    for (;;) {
      const { stored, state } = await foldAll(this.#store, key);
      const entries: Entry[] = [];
      for (const command of commands) {
        const decision = decide(state, command);
        if (isRefusal(decision)) throw refusalError(decision, key.run_id);
        for (const entry of decision) {
          evolve(state, entry);
          entries.push(entry);
        }
      }
      if (entries.length === 0) return state;
      if ((await this.#write(stored, state, entries)) === undefined) return state;
    }
  }

  /**
   * The head of a run without an owner is written with the entries, if the run is as it was read. An owner writes the head
   * itself, when it has read them. If it leaves the run before the entries arrive, they are refused: what it wrote last may
   * have changed what they mean for the status.
   */
  async #write({ key, head, position }: StoredRun, state: RunState, entries: readonly Entry[]): Promise<unknown> {
    const feed = this.#store.readFeed && feedOf(state, entries, position, false);
    const post = { ...postOf(entries), feed };
    if (post.due !== undefined) return this.#store.post(key, { ...post, status: statusAfter(head, state) });
    if (head.owner !== null) return this.#store.post(key, { ...post, status: state.status });
    return this.#store.append(
      key,
      { epoch: head.epoch, position },
      { entries, head: { ...head, status: state.status }, feed },
    );
  }

  /** Whether a run has ended, or is not in the store. */
  async isOver(key: RunKey): Promise<boolean> {
    const stored = await this.#store.find(key);
    return stored === undefined || isFinal(stored.head.status);
  }
}

/** Whether the run has the message. Throws `idempotency_conflict` if another message has arrived under the key. */
function hasArrived(state: RunState, key: RunKey, entry: ReceivedEntry): boolean {
  const decision = decide(state, { type: "receive", entry });
  if (isRefusal(decision) && decision.refused === "idempotency_conflict") throw refusalError(decision, key.run_id);
  return !isRefusal(decision) && decision.length === 0;
}

const unowned: RunHead = {
  status: "created",
  epoch: 0,
  owner: null,
  due_at: null,
  blocked: null,
  holds_slot: false,
  finished_at: null,
  takeovers: 0,
};

/** A cancelled run needs its agent. For what is shown of a sub-run it does not. */
function postOf(entries: readonly Entry[]): RunPost {
  if (hasCancel(entries)) {
    // For the time of a lease only a process that has the code takes the run, because it can run the `finally` blocks.
    return { entries, unblocks: true, due: "look" };
  }
  return { entries };
}

function statusAfter(head: RunHead, state: RunState): RunStatus | undefined {
  return head.status === state.status ? undefined : state.status;
}

/** How many runs are remembered. */
const MAX_RUNS = 10_000;
/** Of how many entries of a log, from its end, a first look is. */
const MAX_ENTRIES = 20_000;
/** A log of so few entries is not read for a first message: each of them counts as a message that waits. */
const FEW_ENTRIES = 16;
/** Which part of the room that is left a process uses before it looks again: the others use it too. */
const SHARE = 1 / 16;

/** What a process knows of the messages of a run that no receive has taken. */
interface Seen {
  /** How many entries of the log it has read. Undefined: it has not looked. */
  position: number | undefined;
  /** How many bytes each of the messages has, by their positions in the log. */
  readonly waiting: Map<number, number>;
  /** What it may send before it looks again. */
  messagesLeft: number;
  bytesLeft: number;
  /** The messages that it is sending, and how many bytes each has. A look may not see them. */
  readonly underWay: Map<Promise<unknown>, number>;
  /** While it looks: nothing is sent meanwhile. Does not reject. */
  looking: Promise<unknown> | undefined;
}

/** A message to send. */
interface NewMessage {
  readonly key: RunKey;
  /** The run with its inbox, if that was read for the message. */
  readonly first: StoredRun | undefined;
  /** How long its log is at least. */
  readonly length: number;
  readonly bytes: number;
  readonly limits: MessageLimits;
}

/**
 * Limits the messages that wait to be received by runs that are not loaded here, and the lengths of their logs. Only a look
 * tells how many wait, so a process looks before its first message, and when it has sent a part of what is allowed. It reads
 * only what is new since its last look. Several processes that send to one run at once may exceed a limit by that part each.
 */
export class Unreceived {
  readonly #store: Store;
  readonly #runs = new RunMap<Seen>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** What of a run is to be read before a message is sent to it. A message that needs no look needs nothing of it. */
  needs(key: RunKey, bytes: number): "inbox" | "head" | "nothing" {
    const seen = this.#runs.get(key);
    if (seen?.position === undefined) return "inbox";
    return seen.looking === undefined && holds(seen, bytes) ? "nothing" : "head";
  }

  /** Posts a message. Throws `limit_reached` if it is too much for the run. */
  async post<T>(message: NewMessage, post: () => MaybePromise<T>): Promise<T> {
    const { key, length, bytes, limits } = message;
    const seen = this.#seen(key);
    // The last generation of such a log may be short.
    if (length >= limits.maxLogEntries) seen.messagesLeft = 0;
    for (;;) {
      while (seen.looking !== undefined) await seen.looking;
      if (holds(seen, bytes)) break;
      await this.#look(seen, message);
    }
    // Nothing comes in between: the next look knows of it.
    seen.messagesLeft -= 1;
    seen.bytesLeft -= bytes;
    const posted = (async () => post())();
    seen.underWay.set(posted, bytes);
    try {
      return await posted;
    } finally {
      seen.underWay.delete(posted);
    }
  }

  #seen(key: RunKey): Seen {
    let seen = this.#runs.get(key);
    if (seen === undefined) {
      if (this.#runs.size >= MAX_RUNS) this.#runs.clear();
      const nothing = { position: undefined, waiting: new Map(), messagesLeft: 0, bytesLeft: 0 };
      seen = { ...nothing, underWay: new Map(), looking: undefined };
      this.#runs.set(key, seen);
    }
    return seen;
  }

  /** One look at a time. */
  async #look(seen: Seen, message: NewMessage): Promise<void> {
    const look = this.#measure(seen, message);
    seen.looking = look.catch(ignore);
    try {
      await look;
    } finally {
      seen.looking = undefined;
    }
  }

  async #measure(seen: Seen, { key, first, bytes, limits }: NewMessage): Promise<void> {
    for (let found = seen.position === undefined ? first : undefined; ; found = undefined) {
      const underWay = [...seen.underWay];
      const run = found ?? (await findStored(this.#store, key));
      if (found !== undefined && run.position <= Math.min(FEW_ENTRIES, limits.maxWaitingMessages - 1))
        seen.position = 0;
      else await this.#read(seen, key, run.position);
      const sizes = underWay.map(([, size]) => size);
      const waiting = [...seen.waiting.values(), ...sizesIn(run.inbox), ...sizes];
      const messages = run.position - (seen.position ?? 0) + waiting.length;
      const most = { messages, bytes: waiting.reduce((sum, size) => sum + size, 0) };
      const length = sizes.length + (await this.#lengthOf(run, sizes.length, limits));
      try {
        checkLogLength(length, limits.maxLogEntries);
        checkWaiting(key.run_id, most, bytes, limits);
      } catch (error) {
        if (sizes.length === 0) throw error;
        // The look may have counted twice what was under way.
        await Promise.allSettled(underWay.map(([posted]) => posted));
        continue;
      }
      const room = Math.min(limits.maxWaitingMessages - messages, limits.maxLogEntries - length);
      seen.messagesLeft = Math.ceil(room * SHARE);
      seen.bytesLeft = Math.max(bytes, (limits.maxWaitingBytes - most.bytes) * SHARE);
      return;
    }
  }

  /** How many entries the last generation of a log has, with what lies in the inbox, or more. */
  async #lengthOf({ key, position, inbox = [] }: StoredRun, more: number, limits: MessageLimits): Promise<number> {
    const most = position + inbox.reduce((sum, { entries }) => sum + entries.length, 0);
    if (most + more < limits.maxLogEntries) return most;
    return generationLength((await foldAll(this.#store, key)).state);
  }

  /** Reads what is new in a log. Of a long one that is not known, what a snapshot does not have. */
  async #read(seen: Seen, key: RunKey, until: number): Promise<void> {
    if (seen.position === undefined) {
      const state = await snapshotOf(this.#store, key, until);
      for (const { position, entry } of state?.mail?.inbox ?? []) seen.waiting.set(position, entry.bytes ?? 0);
      seen.position = Math.max(state?.position ?? 0, until - MAX_ENTRIES);
    }
    while (seen.position < until) {
      const entries = await this.#store.read(key, seen.position, Math.min(READ_CHUNK, until - seen.position));
      if (entries === undefined || entries.length === 0) return;
      for (const entry of entries) {
        seen.position = behind(seen.position, entry);
        note(seen.waiting, seen.position - 1, entry);
      }
    }
  }
}

/** Whether a message of so many bytes may be sent before the next look. */
function holds({ messagesLeft, bytesLeft }: Seen, bytes: number): boolean {
  return messagesLeft >= 1 && bytesLeft >= bytes;
}

/** How many bytes each message has that lies in an inbox. */
function sizesIn(inbox: readonly Arrived[] = []): readonly number[] {
  return inbox.flatMap(({ entries }) =>
    entries.flatMap((entry) => (entry.type === "received" ? (entry.bytes ?? 0) : [])),
  );
}

function note(waiting: Map<number, number>, position: number, entry: Entry): void {
  if (entry.type === "continued") {
    waiting.clear();
    for (const message of entry.messages ?? []) waiting.set(message.position, message.entry.bytes ?? 0);
  } else if (entry.type === "received") waiting.set(position, entry.bytes ?? 0);
  else if (entry.type === "taken" && entry.position !== null) waiting.delete(entry.position);
}
