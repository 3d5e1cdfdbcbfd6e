const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;
/** A change of a zone's clocks that touches a time lies within so many milliseconds of that time read as UTC. */
const REACH_MS = 36 * HOUR_MS;

/**
 * The clocks of a time zone. A *wall time* is what they show, as the milliseconds that it would be in UTC: so it can be
 * calculated with.
 */
export class Zone {
  readonly #format: Intl.DateTimeFormat;

  /** Throws a `RangeError` for a name that Node does not know. */
  constructor(name: string) {
    const numeric = "numeric";
    this.#format = new Intl.DateTimeFormat("en-US", {
      ...{ timeZone: name, hourCycle: "h23" },
      ...{ year: numeric, month: numeric, day: numeric, hour: numeric, minute: numeric, second: numeric },
    });
  }

  /** The wall time at a moment. */
  wallAt(at: number): number {
    const second = Math.floor(at / SECOND_MS) * SECOND_MS;
    // As in 12/31/2029, 23:59:59.
    const [month = 1, day, year = 0, ...time] = this.#format.format(second).split(/\D+/).map(Number);
    return Date.UTC(year, month - 1, day, ...time) + at - second;
  }

  /** The first moment at which the clocks show a wall time; where they skip it, the first one after it. */
  firstAt(wall: number): number {
    const offsets = [this.#offsetAt(wall - REACH_MS), this.#offsetAt(wall + REACH_MS)];
    let early = wall - Math.max(...offsets);
    let late = wall - Math.min(...offsets);
    if (this.wallAt(early) === wall) return early;
    // The clocks show less early, and more or as much late.
    while (late - early > 1) {
      const middle = Math.floor((early + late) / 2);
      if (this.wallAt(middle) < wall) early = middle;
      else late = middle;
    }
    return late;
  }

  #offsetAt(at: number): number {
    return this.wallAt(at) - at;
  }
}
