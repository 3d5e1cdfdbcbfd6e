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

/** Which runs a store passes over: those behind `from`, not beyond `to`, the ones that ended first, and at most `most`. */
export interface Passing<Id> {
  readonly from: EndedPlace<Id>;
  readonly to: EndedPlace<Id>;
  readonly most: number;
}

/** How many runs are passed over at once. So many kept runs are counted each time. */
const SEGMENT = 10_000;
/** So large a part more of many runs is kept before all are counted, which is then paid by what is deleted. */
const ALSO_KEPT = 1 / 64;
/** After so long the kept runs are counted anew, in milliseconds. */
const RECOUNT_MS = 3_600_000;
/** Within this time other processes may still add ended runs, in milliseconds. */
const LATE_MS = 60_000;

/** What is known of the kept runs: those behind `floor`, in segments, the oldest first. */
interface Known<Id> {
  readonly maxRuns: number;
  readonly since: number;
  floor: EndedPlace<Id>;
  segments: Passed<Id>[];
}

/**
 * Finds the newest of the ended runs that are deleted. To know which are too many, a count of all that are kept would cost the more the more these
 * are. So their number is remembered in segments, and a call counts what has ended since the last one, and the oldest
 * segments, from which all processes delete. What other processes delete by its keys is not known: so all are counted anew
 * before a run is found to be too many, and of more than {@link SEGMENT} a part more is kept until then. Few kept runs are
 * counted each time.
 */
export class KeptRuns<Id> {
  readonly #start: EndedPlace<Id>;
  readonly #end: EndedPlace<Id>;
  readonly #pass: (passing: Passing<Id>) => Promise<Passed<Id> | undefined>;
  readonly #now: () => number;
  #known: Known<Id> | undefined;

  /** `start` and `end` are before and behind all runs, also those that ended at one time. `pass` answers undefined where no run is passed over. */
  constructor(
    [start, end]: readonly [EndedPlace<Id>, EndedPlace<Id>],
    pass: (passing: Passing<Id>) => Promise<Passed<Id> | undefined>,
    now: () => number,
  ) {
    this.#start = start;
    this.#end = end;
    this.#pass = pass;
    this.#now = now;
  }

  /** Up to where ended runs are deleted: the newest beyond the number, or the last that ended before the time. */
  async lastToDelete({ maxRuns, endedBefore }: Retention): Promise<EndedPlace<Id>> {
    const beyond = await this.#lastBeyond(maxRuns);
    // Before all runs that ended at the time itself.
    return beyond !== undefined && beyond.at >= endedBefore ? beyond : { at: endedBefore, id: this.#start.id };
  }

  /** The newest of the runs beyond the number; undefined if there are not so many. */
  async #lastBeyond(most: number): Promise<EndedPlace<Id> | undefined> {
    if (!Number.isFinite(most)) return undefined;
    const now = this.#now();
    const maxRuns = Math.max(0, Math.floor(most));
    const allowed = maxRuns > SEGMENT ? maxRuns * (1 + ALSO_KEPT) : maxRuns;
    let known = this.#knownOf(maxRuns, now);
    if (known === undefined || (await this.#count(known, now)) > allowed) {
      known = { maxRuns, since: now, floor: this.#start, segments: [] };
      const runs = await this.#count(known, now);
      if (runs > allowed) await this.#dropFirst(known, runs - maxRuns);
    }
    this.#known = known;
    return known.floor === this.#start ? undefined : known.floor;
  }

  #knownOf(maxRuns: number, now: number): Known<Id> | undefined {
    const known = this.#known;
    // With a higher number what is behind the floor, and is not deleted yet, may be kept.
    const isOfUse = known !== undefined && maxRuns <= known.maxRuns && Math.abs(now - known.since) < RECOUNT_MS;
    return isOfUse && maxRuns > SEGMENT ? { ...known, maxRuns } : undefined;
  }

  /** How many runs are kept, as far as is known. */
  async #count(known: Known<Id>, now: number): Promise<number> {
    known.segments = known.segments.filter(({ last }) => last.at < now - LATE_MS);
    await this.#countOldest(known.floor, known.segments);
    await this.#countNew(known.floor, known.segments);
    return known.segments.reduce((sum, { runs }) => sum + runs, 0);
  }

  /** Moves the floor behind so many runs, the oldest ones. */
  async #dropFirst(known: Known<Id>, excess: number): Promise<void> {
    const { segments } = known;
    let left = excess;
    for (let first = segments[0]; first !== undefined && left > 0; first = segments[0]) {
      const isWhole = first.runs <= left;
      const passed = isWhole ? first : await this.#pass({ from: known.floor, to: first.last, most: left });
      if (isWhole) segments.shift();
      else if (passed !== undefined) segments[0] = { ...first, runs: first.runs - passed.runs };
      known.floor = passed?.last ?? known.floor;
      left -= passed?.runs ?? left;
    }
  }

  /** Counts the oldest segments again, up to the first one of which no run is gone. */
  async #countOldest(floor: EndedPlace<Id>, segments: Passed<Id>[]): Promise<void> {
    for (let from = floor, index = 0; index < segments.length; index++) {
      const segment = segments[index] as Passed<Id>;
      const passed = await this.#pass({ from, to: segment.last, most: segment.runs });
      segments[index] = { ...segment, runs: passed?.runs ?? 0 };
      if (passed?.runs === segment.runs) return;
      from = segment.last;
    }
  }

  /** Adds segments of the runs behind the last one. A short segment grows. */
  async #countNew(floor: EndedPlace<Id>, segments: Passed<Id>[]): Promise<void> {
    for (;;) {
      const last = segments.at(-1);
      const passed = await this.#pass({ from: last?.last ?? floor, to: this.#end, most: SEGMENT });
      if (passed === undefined) return;
      if (last !== undefined && last.runs + passed.runs <= SEGMENT)
        segments[segments.length - 1] = { runs: last.runs + passed.runs, last: passed.last };
      else segments.push(passed);
      if (passed.runs < SEGMENT) return;
    }
  }
}
