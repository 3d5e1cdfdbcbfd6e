import { Random } from "./random.ts";

/* The size and the seed of the long tests. `CADENZA_FUZZ=full` gives them their full size. */

const isFull = process.env["CADENZA_FUZZ"] === "full";

/** How long one of the long tests may take, in milliseconds. */
export const LONG_MS = isFull ? 3_600_000 : 60_000;

/** How much a long test does: `all` at its full size, else `share`. */
export function amount(all: number, share: number): number {
  return isFull ? all : share;
}

/** Random numbers from the seed `CADENZA_SEED`, or from a new one. Prints the seed, which repeats the test. */
export function seededRandom(): Random {
  const seed = Number(process.env["CADENZA_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
  process.stdout.write(`CADENZA_SEED=${seed}\n`);
  return new Random(seed);
}
