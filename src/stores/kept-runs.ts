import type { Retention } from "../core/ports.ts";

/** A place in the order in which runs ended. */
export interface EndedPlace<Id> {
  readonly at: number;
  readonly id: Id;
}

/** The ended runs behind one place and up to another one. */
export interface Passed<Id> {
  readonly runs: number;
  /** The place of the last of them. */
  readonly last: EndedPlace<Id>;
}

/** What a store has written about its ended runs under a key, and its time. */
export interface Progress {
  readonly text: string | null;
  readonly now: number;
}

/** Which runs a store passes over: those behind `from`, not beyond `to`, the ones that ended first, and at most `most`. */
export interface Passing<Id> {
  readonly from: EndedPlace<Id>;
  readonly to: EndedPlace<Id>;
  readonly most: number;
}

/** The last `count` of the runs behind `from` and not beyond `to`. */
export interface Kept<Id> extends Omit<Passing<Id>, "most"> {
  readonly count: number;
}

/** What a store does in one statement or transaction, to find which of its ended runs are too many. */
export interface PassedRuns<Id> {
  /** In front of all runs, and behind them. */
  readonly ends: readonly [EndedPlace<Id>, EndedPlace<Id>];
  /** Passes over runs. Undefined: there are none. */
  pass(passing: Passing<Id>): Promise<Passed<Id> | undefined>;
  /** The newest run behind `from` that is not one of the kept ones. Undefined: there is none. */
  before(kept: Kept<Id>): Promise<EndedPlace<Id> | undefined>;
  /** What was written under a key, and the store's time. */
  load(key: string): Promise<Progress>;
  /** Writes under a key if `before` is written there. Answers whether it was. */
  save(key: string, before: string | null, after: string): Promise<boolean>;
}

/** How many runs are passed over at once, at least. So many kept runs are counted each time. */
const SEGMENT = 10_000;
/** Of many runs a segment has more, so that there are about so many segments. */
const SEGMENTS = 256;
/** So large a part more of many runs is kept before all are counted, which is then paid by what is deleted. */
const ALSO_KEPT = 1 / 64;
/** After so long the kept runs are counted anew, in milliseconds. */
const RECOUNT_MS = 3_600_000;
/** Within this time other processes may still add ended runs, in milliseconds. */
const LATE_MS = 60_000;
/** Under this key the store has what is known. */
const KEY = "kept runs";

/** What is known of the kept runs: those behind `floor`, in segments, the oldest first. */
interface Known<Id> {
  readonly maxRuns: number;
  /** When all were counted, by the store's clock. */
  readonly since: number;
  /** Undefined: none is to be deleted. */
  floor?: EndedPlace<Id>;
  segments: Passed<Id>[];
}

/**
 * Finds the newest of the ended runs that are deleted. To know which are too many, a count of all that are kept would cost
 * the more the more these are. So their number is remembered in segments, in the store: a process that lives for a moment
 * need not count them. A call counts what has ended since the last one, and the oldest segments, from which all processes
 * delete. What other processes delete by its keys is not known: so all are counted anew before a run is found to be too
 * many, and of more than {@link SEGMENT} a part more is kept until then. Few kept runs are counted each time.
 */
export class KeptRuns<Id> {
  readonly #runs: PassedRuns<Id>;

  constructor(runs: PassedRuns<Id>) {
    this.#runs = runs;
  }

  /** Up to where ended runs are deleted: the newest beyond the number, or the last that ended before the time. */
  async lastToDelete({ maxRuns, endedBefore }: Retention): Promise<EndedPlace<Id>> {
    const beyond = Number.isFinite(maxRuns) ? await this.#lastBeyond(Math.max(0, Math.floor(maxRuns))) : undefined;
    // Before all runs that ended at the time itself.
    return beyond !== undefined && beyond.at >= endedBefore ? beyond : { at: endedBefore, id: this.#runs.ends[0].id };
  }

  /** The newest of the runs beyond the number; undefined if there are not so many. */
  async #lastBeyond(maxRuns: number): Promise<EndedPlace<Id> | undefined> {
    const { text, now } = await this.#runs.load(KEY);
    const isRemembered = maxRuns > SEGMENT;
    const allowed = isRemembered ? maxRuns * (1 + ALSO_KEPT) : maxRuns;
    let known = isRemembered ? knownIn<Id>(text, maxRuns, now) : undefined;
    if (known === undefined || (await this.#count(known, now)) > allowed) {
      known = { maxRuns, since: now, segments: [] };
      const runs = await this.#count(known, now);
      if (runs > allowed) await this.#dropFirst(known, runs - maxRuns);
    }
    const after = JSON.stringify(known);
    // What another process has written meanwhile is as good.
    if (isRemembered && after !== text) await this.#runs.save(KEY, text, after);
    return known.floor;
  }

  /** How many runs are kept, as far as is known. */
  async #count(known: Known<Id>, now: number): Promise<number> {
    known.segments = known.segments.filter(({ last }) => last.at < now - LATE_MS);
    await this.#countOldest(known);
    await this.#countNew(known);
    return known.segments.reduce((sum, { runs }) => sum + runs, 0);
  }

  /**
   * Moves the floor behind so many runs, the oldest ones. Others may have deleted some of these since they were counted: so
   * the place is found from the runs that stay.
   */
  async #dropFirst(known: Known<Id>, excess: number): Promise<void> {
    const { segments } = known;
    let left = excess;
    for (let first = segments[0]; first !== undefined && left > 0; first = segments[0]) {
      const count = first.runs - left;
      if (count > 0) {
        segments[0] = { ...first, runs: count };
        const from = known.floor ?? this.#runs.ends[0];
        const place = await this.#runs.before({ from, to: first.last, count });
        if (place !== undefined) known.floor = place;
        return;
      }
      segments.shift();
      known.floor = first.last;
      left -= first.runs;
    }
  }

  /** Counts the oldest segments again, up to the first one of which no run is gone. */
  async #countOldest({ floor = this.#runs.ends[0], segments }: Known<Id>): Promise<void> {
    for (let from = floor, index = 0; index < segments.length; index++) {
      const segment = segments[index] as Passed<Id>;
      const passed = await this.#runs.pass({ from, to: segment.last, most: segment.runs });
      segments[index] = { ...segment, runs: passed?.runs ?? 0 };
      if (passed?.runs === segment.runs) return;
      from = segment.last;
    }
  }

  /** Adds segments of the runs behind the last one. A short segment grows. */
  async #countNew({ floor = this.#runs.ends[0], maxRuns, segments }: Known<Id>): Promise<void> {
    const most = Math.max(SEGMENT, Math.ceil(maxRuns / SEGMENTS));
    for (;;) {
      const last = segments.at(-1);
      const passed = await this.#runs.pass({ from: last?.last ?? floor, to: this.#runs.ends[1], most });
      if (passed === undefined) return;
      if (last !== undefined && last.runs + passed.runs <= most)
        segments[segments.length - 1] = { runs: last.runs + passed.runs, last: passed.last };
      else segments.push(passed);
      if (passed.runs < most) return;
    }
  }
}

/**
 * What was written before, unless it is of no use: with a higher number what is behind the floor, and is not deleted yet,
 * may be kept.
 */
function knownIn<Id>(text: string | null, maxRuns: number, now: number): Known<Id> | undefined {
  const known = text === null ? undefined : (JSON.parse(text) as Known<Id>);
  const isOfUse = known !== undefined && maxRuns <= known.maxRuns && Math.abs(now - known.since) < RECOUNT_MS;
  return isOfUse ? known : undefined;
}
