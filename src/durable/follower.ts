import type { Clock, Logger, RunPosition, Store } from "../core/ports.ts";

/** A reader of a run that other processes may write to. */
export interface Followed {
  /** The position of the run that the reader knows. */
  readonly known: RunPosition;
  /** The run has another epoch or position. */
  onMoved(position: RunPosition): void;
}

/**
 * The interval at which the store is polled, in milliseconds. It is the longest delay of an event from another process.
 */
const POLL_MS = 200;
/** The number of runs in one request to the store. */
const MAX_RUNS = 500;

/** Polls the store for the followed runs that have moved, with one request for all readers of this process. */
export class Follower {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #followed = new Map<string, Set<Followed>>();
  #clearTimer: (() => void) | undefined;
  #isAsking = false;

  constructor(store: Store, clock: Clock, logger: Logger) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** Calls a reader whenever its run has moved. The returned function ends that. */
  follow(one: Followed): () => void {
    const name = nameOf(one.known);
    const readers = this.#followed.get(name);
    if (readers === undefined) this.#followed.set(name, new Set([one]));
    else readers.add(one);
    this.#askLater();
    return () => this.#unfollow(name, one);
  }

  #unfollow(name: string, one: Followed): void {
    const readers = this.#followed.get(name);
    readers?.delete(one);
    if (readers?.size === 0) this.#followed.delete(name);
    if (this.#followed.size > 0) return;
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }

  #askLater(): void {
    if (this.#clearTimer !== undefined || this.#isAsking || this.#followed.size === 0) return;
    this.#clearTimer = this.#clock.setTimeout(() => {
      this.#clearTimer = undefined;
      void this.#ask();
    }, POLL_MS);
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    try {
      const known = [...this.#followed.values()].map(furthestBehind);
      for (let from = 0; from < known.length; from += MAX_RUNS) {
        if (from > 0) await this.#clock.turn();
        for (const position of await this.#store.moved(known.slice(from, from + MAX_RUNS))) this.#tell(position);
      }
    } catch (error) {
      this.#logger.warn("The store failed to read the positions of followed runs. They are read again.", { error });
    }
    this.#isAsking = false;
    this.#askLater();
  }

  #tell(position: RunPosition): void {
    for (const one of [...(this.#followed.get(nameOf(position)) ?? [])]) {
      if (isMoved(one.known, position)) one.onMoved(position);
    }
  }
}

/** Whether a run has moved from one position to another. */
function isMoved(from: RunPosition, to: RunPosition): boolean {
  return from.epoch !== to.epoch || from.position !== to.position;
}

/** The least position that the readers of one run know. */
function furthestBehind(readers: ReadonlySet<Followed>): RunPosition {
  const known = [...readers].map((reader) => reader.known);
  return known.reduce((least, one) => (one.position < least.position ? one : least));
}

function nameOf({ key: { tenant, run_id } }: RunPosition): string {
  return `${run_id}/${tenant}`;
}
