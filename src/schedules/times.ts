import { LAST_TIME } from "../core/time.ts";
import { Zone } from "./zone.ts";

/**
 * What schedules need of the class `Cron` of the package `croner`. It is asked in UTC alone: what clocks skip and show twice
 * is the business of {@link Zone}.
 */
export type CronClass = new (
  expression: string,
  options: { readonly mode: "5-part"; readonly utcOffset: 0 },
) => { nextRun(after: Date): Date | null };

/** At which times a schedule creates runs. Of `cron` and `every_ms` one is not null. Times are in milliseconds since 1970. */
export interface Timing {
  readonly cron: string | null;
  readonly every_ms: number | null;
  readonly time_zone: string;
  readonly start_at: number | null;
  readonly end_at: number | null;
}

/** The times of a schedule, as a function: the first one after a moment; null for none. */
export type NextTime = (after: number) => number | null;

/** Tells the times of timings. */
export class Calendar {
  /** Undefined: it cannot tell the times of a cron expression. */
  cron: CronClass | undefined;
  readonly #zones = new Map<string, Zone>();

  /** Whether it can tell the times of a timing. */
  tells({ cron }: Timing): boolean {
    return cron === null || this.cron !== undefined;
  }

  /** None where it cannot tell them. Throws what the class throws for an expression that it cannot read. */
  timesOf(timing: Timing): NextTime {
    return within(timing, this.#readTimes(timing));
  }

  #readTimes({ cron, every_ms, time_zone, start_at }: Timing): NextTime {
    if (every_ms !== null) return everyMs(every_ms, start_at ?? 0);
    if (cron === null || this.cron === undefined) return () => null;
    const zone = this.#zones.get(time_zone) ?? new Zone(time_zone);
    this.#zones.set(time_zone, zone);
    return cronTimes(new this.cron(cron, { mode: "5-part", utcOffset: 0 }), zone);
  }
}

const MINUTE_MS = 60_000;

function everyMs(every: number, from: number): NextTime {
  return (after) => from + (Math.floor((after - from) / every) + 1) * every;
}

/**
 * The clocks of the zone show each wall time of the expression first at one moment, in the order of the wall times. Several
 * skipped ones have the same moment.
 */
function cronTimes(cron: InstanceType<CronClass>, zone: Zone): NextTime {
  return (after) => {
    for (let wall: Date | null = new Date(zone.wallAt(after)); ; ) {
      wall = cron.nextRun(wall);
      if (wall === null) return null;
      const at = zone.firstAt(wall.getTime());
      // Clocks that were put back show wall times again whose moment has passed.
      if (at > after) return at;
    }
  };
}

function within({ start_at, end_at }: Timing, next: NextTime): NextTime {
  return (after) => {
    const time = next(start_at === null ? after : Math.max(after, start_at - 1));
    return time === null || time > (end_at ?? LAST_TIME) ? null : time;
  };
}

/** The last time that is later than `after` and not later than `until`; null for none. */
export function lastTime(next: NextTime, after: number, until: number): number | null {
  for (let span = MINUTE_MS; ; span *= 2) {
    const from = Math.max(after, until - span);
    let last: number | null = null;
    for (let time = next(from); time !== null && time <= until; time = next(time)) last = time;
    if (last !== null || from === after) return last;
  }
}
