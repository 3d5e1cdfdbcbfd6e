import type { Clock, Logger, RunPosition, Store } from "../core/ports.ts";

/** A reader of a run that other processes may write to. */
export interface Followed {
  /** How far the reader knows the run to have come. */
  readonly known: RunPosition;
  /** The run has another epoch or another length. */
  onMoved(position: RunPosition): void;
}

/** How often the store is asked for what is followed, in milliseconds: the longest delay with which an event of another process is seen here. */
const POLL_MS = 200;
/** How many runs one question to the store is about. */
const MAX_RUNS = 500;

/** Asks the store which of the followed runs have moved: one question for all readers of this process, however many there are. */
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

  /** Reports to a reader whenever its run has moved, until the function that is answered is called. */
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
      this.#logger.warn("The store failed to say which runs have moved. It is asked again.", { error });
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

/** Of several readers of one run the store is asked for the one that knows least. */
function furthestBehind(readers: ReadonlySet<Followed>): RunPosition {
  const known = [...readers].map((reader) => reader.known);
  return known.reduce((least, one) => (one.position < least.position ? one : least));
}

function nameOf({ key: { tenant, run_id } }: RunPosition): string {
  return `${run_id}/${tenant}`;
}
