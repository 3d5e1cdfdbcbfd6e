import { AsyncLocalStorage } from "node:async_hooks";
import { SeededRandom } from "../runtime/execution/random.ts";
import type { Tracer } from "./cast.ts";

/** The largest number below 1. */
const LARGEST = 1 - Number.EPSILON / 2;

/** The source of `Math.random()` for the agent that is called. */
const drawing = new AsyncLocalStorage<() => number>();

/** How many test runs replace `Math.random()`, and the original function. */
let users = 0;
let original = Math.random;

/** The numbers that a run has drawn, from the first way that reached them, and where more come from. */
interface Drawn {
  readonly numbers: number[];
  readonly source: SeededRandom;
}

/**
 * Draws the numbers that `Math.random()` returns to agents: the same ones in each run of an agent. A replay of an agent
 * within one run draws their mirror images, so that it takes the other side of a branch on them. With independent
 * numbers, half of such bugs would stay hidden.
 */
export class Chance {
  /** What all numbers follow from. */
  readonly seed: number;
  readonly #runs = new Map<string, Drawn>();

  constructor(seed: number = Math.floor(original() * 2 ** 32)) {
    this.seed = seed;
  }

  /** Whether an agent has drawn a number. */
  get isUsed(): boolean {
    return [...this.#runs.values()].some(({ numbers }) => numbers.length > 0);
  }

  /** Begins another way. Returns what calls the code of an agent that begins or is replayed. */
  begin(): (runId: string) => Tracer {
    const begun = new Set<string>();
    return (runId) => {
      const isAgain = begun.has(runId);
      begun.add(runId);
      const { numbers, source } = this.#drawnBy(runId);
      let next = 0;
      const draw = (): number => {
        const index = next++;
        const number = numbers[index] ?? source.number();
        numbers[index] = number;
        return isAgain ? Math.min(1 - number, LARGEST) : number;
      };
      return (callback) => drawing.run(draw, callback);
    };
  }

  #drawnBy(runId: string): Drawn {
    const drawn = this.#runs.get(runId) ?? { numbers: [], source: new SeededRandom(`${this.seed}/${runId}`) };
    this.#runs.set(runId, drawn);
    return drawn;
  }

  /** Calls back while the numbers of agents come from here. Other code keeps the original function. */
  static async during<T>(callback: () => Promise<T>): Promise<T> {
    // A test that has replaced `Math.random` keeps its replacement.
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
      if (users === 0) {
        Math.random = original;
        // Before Node 24 a storage that was used makes every promise of the process slower, until it is disabled.
        drawing.disable();
      }
    }
  }
}

function isNative(fn: () => number): boolean {
  return Function.prototype.toString.call(fn).includes("[native code]");
}
