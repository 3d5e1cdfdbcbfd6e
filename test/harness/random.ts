/** A random sequence that is the same for the same seed, so that a failure can be repeated. */
export class Random {
  #state: number;

  constructor(seed: string) {
    this.#state = hashOf(seed);
  }

  /** A number from 0 up to, but not including, 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from 0 up to, but not including, `end`. */
  below(end: number): number {
    return Math.floor(this.next() * end);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(from: readonly [T, ...T[]]): T {
    return from[this.below(from.length)] ?? from[0];
  }

  /** One of several, each as likely as its weight says. */
  weighted<T>(choices: readonly (readonly [weight: number, choice: T])[]): T {
    const total = choices.reduce((sum, [weight]) => sum + weight, 0);
    let left = this.next() * total;
    for (const [weight, choice] of choices) {
      left -= weight;
      if (left < 0) return choice;
    }
    throw new Error("there is nothing to choose from");
  }
}

/** A number that belongs to a text: the same every time, and hard to guess from a similar one. */
export function hashOf(text: string): number {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  hash = Math.imul(hash ^ (hash >>> 16), 0x21f0aaad);
  return (hash ^ (hash >>> 15)) >>> 0;
}
