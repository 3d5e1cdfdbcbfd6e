import { AsyncLocalStorage } from "node:async_hooks";
import type { Tracer } from "./cast.ts";

/** The largest number below 1. */
const LARGEST = 1 - Number.EPSILON / 2;

/** What `Math.random()` gives to the agent that is called. */
const drawing = new AsyncLocalStorage<() => number>();

/** How many rehearsals need `Math.random()` to be theirs, and what it was before. */
let users = 0;
let original = Math.random;

/**
 * Draws the numbers that `Math.random()` gives to agents: the same ones in each way that an agent is tried. An agent that is run again in one way draws
 * other ones, the mirror images of the first: a branch on them is taken otherwise then. Left to chance, half of such bugs would not show.
 */
export class Chance {
  /** The numbers that each run has drawn, in whichever way came so far first. */
  readonly #drawn = new Map<string, number[]>();

  /** Begins another way. What is given calls the code of an agent that begins, for the first time or again. */
  begin(): (runId: string) => Tracer {
    const begun = new Set<string>();
    return (runId) => {
      const isAgain = begun.has(runId);
      begun.add(runId);
      const numbers = this.#numbersOf(runId);
      let next = 0;
      const draw = (): number => {
        const index = next++;
        const number = numbers[index] ?? original();
        numbers[index] = number;
        return isAgain ? Math.min(1 - number, LARGEST) : number;
      };
      return (callback) => drawing.run(draw, callback);
    };
  }

  #numbersOf(runId: string): number[] {
    const numbers = this.#drawn.get(runId) ?? [];
    this.#drawn.set(runId, numbers);
    return numbers;
  }

  /** Calls back while the numbers of agents are drawn here. Those of all other code are not. */
  static async during<T>(callback: () => Promise<T>): Promise<T> {
    // A test that has put something in its place knows what it is doing.
    if (users === 0 && !isNative(Math.random)) return callback();
    if (users === 0) {
      original = Math.random;
      Math.random = () => drawing.getStore()?.() ?? original();
    }
    users += 1;
    try {
      return await callback();
    } finally {
      users -= 1;
      if (users === 0) Math.random = original;
    }
  }
}

function isNative(fn: () => number): boolean {
  return Function.prototype.toString.call(fn).includes("[native code]");
}
