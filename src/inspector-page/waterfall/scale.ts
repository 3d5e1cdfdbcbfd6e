/** The part of the time that is shown, in milliseconds since 1970. */
export interface Frame {
  readonly from: number;
  readonly to: number;
}

/** The shortest time that can be shown, in milliseconds. */
const LEAST_MS = 5;

/** Where a time is in a frame: 0 at its begin, 100 at its end. */
export function placeIn({ from, to }: Frame, at: number): number {
  return ((at - from) / Math.max(1, to - from)) * 100;
}

/** A frame that shows less (a factor below 1) or more around a place from 0 to 1, and lies within another one. */
export function zoomed(frame: Frame, by: number, around: number, all: Frame): Frame {
  const whole = Math.max(LEAST_MS, all.to - all.from);
  const length = Math.min(whole, Math.max(LEAST_MS, (frame.to - frame.from) * by));
  const middle = frame.from + (frame.to - frame.from) * around;
  return within({ from: middle - length * around, to: middle + length * (1 - around) }, all);
}

/** A frame that is moved by a share of its length. */
export function moved({ from, to }: Frame, share: number, all: Frame): Frame {
  const by = (to - from) * share;
  return within({ from: from + by, to: to + by }, all);
}

function within({ from, to }: Frame, all: Frame): Frame {
  const begin = Math.max(all.from, Math.min(from, all.to - (to - from)));
  return { from: begin, to: begin + (to - from) };
}

const steps = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60_000),
  ...[1, 2, 3, 6, 12, 24, 48, 168, 720].map((hours) => hours * 3_600_000),
];

/** Times at which a line helps to read a frame: at most so many, at round distances from a begin. */
export function ticksIn({ from, to }: Frame, begin: number, most: number): readonly number[] {
  const step =
    steps.find((one) => (to - from) / one <= most) ?? 2_592_000_000 * Math.ceil((to - from) / most / 2_592_000_000);
  const ticks: number[] = [];
  for (let at = begin + Math.ceil((from - begin) / step) * step; at <= to; at += step) ticks.push(at);
  return ticks;
}
