import type { Entry } from "../../core/log.ts";
import type { RunKey, Store, StoredRun } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import { READ_CHUNK } from "../../runtime/log/fold-log.ts";
import type { MessageLimits } from "../../runtime/log/part-size.ts";
import { checkWaiting } from "../../runtime/log/part-size.ts";

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
  async check({ key, position }: StoredRun, bytes: number, limits: MessageLimits): Promise<void> {
    const seen = this.#seen(key, limits);
    if (seen.messagesLeft < 1 || seen.bytesLeft < bytes) {
      await this.#look(seen, key, position);
      checkWaiting(key.run_id, { messages: seen.waiting.size, bytes: seen.bytes }, bytes, limits);
      allow(seen, limits);
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
      allow(seen, limits);
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
      for (let index = Math.max(0, known - from); index < entries.length; index++)
        note(seen, from + index, entries[index]);
      from += entries.length;
      seen.position = Math.max(known, from);
    }
  }
}

function allow(seen: Seen, { maxWaitingMessages, maxWaitingBytes }: MessageLimits): void {
  seen.messagesLeft = Math.ceil((maxWaitingMessages - seen.waiting.size) * SHARE);
  seen.bytesLeft = (maxWaitingBytes - seen.bytes) * SHARE;
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
