import type { Command } from "../../core/commands.ts";
import { copyState } from "../../core/copy-state.ts";
import { decide, isRefusal } from "../../core/decide.ts";
import { CadenzaError, notFound } from "../../core/errors.ts";
import { evolve, foldEntries } from "../../core/evolve.ts";
import { feedOf } from "../../core/feed.ts";
import type { Entry, ReceivedEntry } from "../../core/log.ts";
import type { Arrived, RunHead, RunKey, RunPost, Store, StoreConflict, StoredRun } from "../../core/ports.ts";
import { behind } from "../../core/positions.ts";
import { RunMap } from "../../core/run-map.ts";
import type { RunState, WaitingMessages } from "../../core/state.ts";
import { generationLength, initialState, isFinal, waitingMessages } from "../../core/state.ts";
import { verdict } from "../../core/transitions.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { eachOfGeneration, findStored, foldAll, foldInbox, foldOn, READ_CHUNK } from "../../runtime/log/fold-log.ts";
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
   * message is decided by the status of the run, and the log is read only to limit what waits to be received. Resolves with
   * whether the run did not have the message before. Throws `run_not_found`, `run_finished`, `run_cancelling`, `idempotency_conflict` or `limit_reached`.
   */
  async send(key: RunKey, message: ReceivedEntry, keyBy: KeyGiver, limits: MessageLimits): Promise<boolean> {
    const log = keyBy === "sender" ? initialState(key.run_id) : undefined;
    for (;;) {
      const stored = await (log === undefined ? this.#store.find(key) : findStored(this.#store, key));
      if (stored === undefined) throw notFound(key.run_id);
      const said = verdict("receive", stored.head.status);
      if (said === "run_finished" || said === "run_cancelling") {
        await refuseLate(this.#store, key, message);
        return false;
      }
      const state = log && (await this.#seenBy(stored, log));
      if (state !== undefined && hasArrived(state, key, message)) return false;
      if (stored.position >= limits.maxLogEntries) {
        const { state: now } = await foldAll(this.#store, key);
        checkLogLength(generationLength(now), limits.maxLogEntries);
      }
      const { bytes = 0 } = message;
      if (state === undefined) await this.#unreceived.check(stored, bytes, limits);
      else checkWaiting(key.run_id, waitingMessages(state), bytes, limits);
      if ((await this.#store.post(key, { entries: [message], due: "work" })) === undefined) break;
    }
    // Another process may have sent another message under the key meanwhile. The first one counts.
    if (log !== undefined) hasArrived(await this.#seenBy(await findStored(this.#store, key), log), key, message);
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
  if (entries.some(({ type }) => type === "cancel-requested")) {
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
/** Which part of the room that is left a process uses before it looks again: the others use it too. */
const SHARE = 1 / 16;

/** What a process knows of the messages of a run that no receive has taken. */
interface Seen {
  /** How many entries of the log it has read. Undefined: it has not looked. */
  position: number | undefined;
  /** How many bytes each of the messages has, by their positions in the log. */
  readonly waiting: Map<number, number>;
  bytes: number;
  /** What it may send before it looks again. */
  messagesLeft: number;
  bytesLeft: number;
}

/**
 * Limits the messages that wait to be received by runs that are not loaded here. Only a look at the log tells how many
 * do, so a process looks when it has sent a part of what is allowed, and reads only what is new since its last look.
 * Several processes that send to one run at once may exceed a limit by that part each.
 */
export class Unreceived {
  readonly #store: Store;
  readonly #runs = new RunMap<Seen>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Throws `limit_reached` if a message of so many bytes is too much for the run. Otherwise it is counted as sent. */
  async check({ key }: StoredRun, bytes: number, limits: MessageLimits): Promise<void> {
    const seen = this.#seen(key, limits);
    if (seen.messagesLeft < 1 || seen.bytesLeft < bytes) {
      const { position, inbox } = await findStored(this.#store, key);
      await this.#look(seen, key, position);
      const waiting = withInbox(seen, inbox);
      checkWaiting(key.run_id, waiting, bytes, limits);
      allow(seen, waiting, limits);
      seen.bytesLeft = Math.max(bytes, seen.bytesLeft);
    }
    seen.messagesLeft -= 1;
    seen.bytesLeft -= bytes;
  }

  #seen(key: RunKey, limits: MessageLimits): Seen {
    let seen = this.#runs.get(key);
    if (seen === undefined) {
      if (this.#runs.size >= MAX_RUNS) this.#runs.clear();
      seen = { position: undefined, waiting: new Map(), bytes: 0, messagesLeft: 0, bytesLeft: 0 };
      allow(seen, withInbox(seen, undefined), limits);
      this.#runs.set(key, seen);
    }
    return seen;
  }

  async #look(seen: Seen, key: RunKey, until: number): Promise<void> {
    let from = seen.position ?? Math.max(0, until - MAX_ENTRIES);
    while (from < until) {
      const entries = await this.#store.read(key, from, Math.min(READ_CHUNK, until - from));
      if (entries === undefined || entries.length === 0) return;
      // Another message may have been checked meanwhile, and may have looked further.
      const known = seen.position ?? from;
      for (const entry of entries) {
        const next = behind(from, entry);
        if (next > known) note(seen, next - 1, entry);
        from = next;
      }
      seen.position = Math.max(known, from);
    }
  }
}

/** What waits in the log, and in the inbox of the owner. */
function withInbox({ waiting, bytes }: Seen, inbox: readonly Arrived[] | undefined): WaitingMessages {
  const all = { messages: waiting.size, bytes };
  for (const { entries } of inbox ?? []) {
    for (const entry of entries) {
      if (entry.type !== "received") continue;
      all.messages += 1;
      all.bytes += entry.bytes ?? 0;
    }
  }
  return all;
}

function allow(seen: Seen, waiting: WaitingMessages, { maxWaitingMessages, maxWaitingBytes }: MessageLimits): void {
  seen.messagesLeft = Math.ceil((maxWaitingMessages - waiting.messages) * SHARE);
  seen.bytesLeft = (maxWaitingBytes - waiting.bytes) * SHARE;
}

function note(seen: Seen, position: number, entry: Entry | undefined): void {
  if (entry?.type === "received") {
    seen.waiting.set(position, entry.bytes ?? 0);
    seen.bytes += entry.bytes ?? 0;
  } else if (entry?.type === "taken" && entry.position !== null) {
    seen.bytes -= seen.waiting.get(entry.position) ?? 0;
    seen.waiting.delete(entry.position);
  }
}
