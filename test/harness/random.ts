/** A sequence of numbers that is the same for the same seed, so that a failure can be repeated (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number | string) {
    this.#state = typeof seed === "string" ? hashOf(seed) : seed | 0;
  }

  /** A whole number from 0 up to, but not including, 2^32. */
  bits(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** A number from 0 up to, but not including, 1. */
  number(): number {
    return this.bits() / 2 ** 32;
  }

  /** A whole number from 0 up to, but not including, `end`. */
  below(end: number): number {
    return Math.floor(this.number() * end);
  }

  /** Whether something happens that has this probability. */
  chance(probability: number): boolean {
    return this.number() < probability;
  }

  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new Error("There is nothing to pick from.");
    return items[this.below(items.length)] as T;
  }

  /** One of several, each as likely as its weight says. */
  weighted<T>(choices: readonly (readonly [weight: number, choice: T])[]): T {
    const total = choices.reduce((sum, [weight]) => sum + weight, 0);
    let left = this.number() * total;
    for (const [weight, choice] of choices) {
      left -= weight;
      if (left < 0) return choice;
    }
    throw new Error("There is nothing to choose from.");
  }
}

/** A number from 0 up to 2^32 that belongs to a text, the same each time (FNV-1a). */
export function hashOf(text: string): number {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return hash >>> 0;
}

/** The seed that a text gives. A text that is no whole number would try nothing. */
export function wholeSeed(text: string): number {
  const seed = Number(text);
  if (!Number.isSafeInteger(seed)) throw new Error(`A seed has to be a whole number: ${text}`);
  return seed;
}

/** A seed for what is tried anew each time. */
export function anySeed(): string {
  return String(Math.floor(Math.random() * 2 ** 31));
}
