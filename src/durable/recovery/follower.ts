import { inBackground } from "../../core/background.ts";
import type { Clock, Logger, RunKey, RunPosition, Store } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import { pollMs } from "../../runtime/log/store-failures.ts";

/** A reader of a run that other processes may write to. */
export interface Followed {
  /** The position of the run that the reader knows. */
  readonly known: RunPosition;
  /** The run has another epoch or position. */
  onMoved(position: RunPosition): void;
}

/** The number of runs in one request to the store. */
const MAX_RUNS = 1_000;

/**
 * Polls the store for the followed runs that have moved, with one request for all readers of this process. Hints of the
 * store make it ask earlier. It watches the store only while a run is followed.
 */
export class Follower {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #followed = new RunMap<Set<Followed>>();
  /** The followed runs of which the store has told since it was last asked. */
  readonly #hinted = new RunMap<true>();
  #clearTimer: (() => void) | undefined;
  #unwatch: (() => void) | undefined;
  #isAsking = false;
  /** The time to ask for all has come while the store was asked for some. */
  #isAllDue = false;

  constructor(store: Store, clock: Clock, logger: Logger) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
  }

  /**
   * Calls a reader whenever its run has moved. The returned function ends that. A hint of the store that came while the
   * reader was reading has reached no reader, so a store with hints is asked once.
   */
  follow(one: Followed): () => void {
    const { key } = one.known;
    const readers = this.#followed.get(key);
    if (readers === undefined) this.#followed.set(key, new Set([one]));
    else readers.add(one);
    this.#unwatch ??= this.#store.watch?.(({ moved }) => this.#onHint(moved));
    if (this.#unwatch !== undefined) this.#askSoon(key);
    this.#askLater();
    return () => this.#unfollow(key, one);
  }

  #unfollow(key: RunKey, one: Followed): void {
    const readers = this.#followed.get(key);
    readers?.delete(one);
    if (readers?.size === 0) this.#followed.delete(key);
    if (this.#followed.size > 0) return;
    this.#clearTimer?.();
    this.#clearTimer = undefined;
    this.#unwatch?.();
    this.#unwatch = undefined;
  }

  /** A run was loaded in this process, where its readers learn of events at once. */
  onLoaded(key: RunKey): void {
    for (const one of [...(this.#followed.get(key) ?? [])]) one.onMoved(one.known);
  }

  /** Asks for all that are followed from this turn on. */
  #askSoon(key: RunKey): void {
    this.#hinted.set(key, true);
    inBackground(
      this.#logger,
      this.#clock.turn().then(() => this.#onHint(undefined)),
    );
  }

  #onHint(moved: readonly RunKey[] | undefined): void {
    for (const key of moved ?? []) {
      if (this.#followed.has(key)) this.#hinted.set(key, true);
    }
    if (this.#hinted.size > 0 && !this.#isAsking) inBackground(this.#logger, this.#askForHinted());
  }

  async #askForHinted(): Promise<void> {
    const hinted = [...this.#hinted.entries()].flatMap(([key]) => this.#followed.get(key) ?? []);
    this.#hinted.clear();
    await this.#ask(hinted);
  }

  #askLater(): void {
    if (this.#clearTimer !== undefined || this.#followed.size === 0) return;
    this.#clearTimer = this.#clock.setTimeout(() => {
      this.#clearTimer = undefined;
      if (this.#isAsking) this.#isAllDue = true;
      else this.#askForAll();
    }, pollMs(this.#store));
  }

  #askForAll(): void {
    this.#isAllDue = false;
    inBackground(this.#logger, this.#ask([...this.#followed.values()]));
  }

  async #ask(runs: readonly ReadonlySet<Followed>[]): Promise<void> {
    this.#isAsking = true;
    try {
      const known = runs.map(furthestBehind);
      for (let from = 0; from < known.length; from += MAX_RUNS) {
        if (from > 0) await this.#clock.turn();
        for (const position of await this.#store.moved(known.slice(from, from + MAX_RUNS))) this.#tell(position);
      }
    } catch (error) {
      this.#logger.warn("The store failed to read the positions of followed runs. They are read again.", { error });
    }
    this.#isAsking = false;
    // However many hints come: what no hint has told of is asked for in its time.
    if (this.#isAllDue) this.#askForAll();
    else if (this.#hinted.size > 0) inBackground(this.#logger, this.#askForHinted());
    this.#askLater();
  }

  #tell(position: RunPosition): void {
    for (const one of [...(this.#followed.get(position.key) ?? [])]) {
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
