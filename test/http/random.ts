/** A small generator of random numbers, which are the same for the same seed (mulberry32). */
export class Random {
  readonly seed: number;
  #state: number;

  constructor(seed = seedOfToday()) {
    this.seed = seed;
    this.#state = seed >>> 0;
  }

  /** A number from 0 up to, but without, `below`. */
  below(below: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below);
  }

  /** Prints the seed that repeats the test: CADENZA_SEED=… */
  tell(): void {
    process.stdout.write(`CADENZA_SEED=${this.seed}\n`);
  }

  chance(share: number): boolean {
    return this.below(1_000) < share * 1_000;
  }

  pick<T>(list: readonly [T, ...T[]]): T {
    return list[this.below(list.length)] ?? list[0];
  }
}

/** The size of a long test: `all` with CADENZA_FUZZ=full, else `share`. */
export function amount(all: number, share: number): number {
  return process.env["CADENZA_FUZZ"] === "full" ? all : share;
}

/** Whether the long tests have their full size. */
const isFull = process.env["CADENZA_FUZZ"] === "full";

/** How long one of the long tests may take, in milliseconds. */
export const LONG_MS = isFull ? 3_600_000 : 60_000;

function seedOfToday(): number {
  return Number(process.env["CADENZA_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
}
