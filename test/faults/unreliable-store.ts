import type { Store } from "cadenza";
import { Random } from "../crash/random.ts";
import { hookedStore, isRead } from "../helpers/stores.ts";

/* A store that is slow, and some of whose answers are lost: the write is carried out, and its caller does not learn of it. */

export interface Unreliability {
  /** How much longer each write takes. */
  readonly writeMs: number;
  /** Of how many writes the answer of one is lost; 0 for none. */
  readonly loseOneIn: number;
  /** Makes the choice of those. */
  readonly seed: string;
  onSwallowed(method: string, how: Loss): void;
}

/**
 * How an answer is lost: the write fails at once, or when the store has waited for its answer for as long as it does; or its caller is never told
 * anything.
 */
export type Loss = "fails at once" | "fails late" | "is left alone";

/** As long as a store waits for an answer before it gives up: less than half a lease. */
const LATE_MS = 400;
const never = new Promise<never>(() => {});

export function unreliableStore(store: Store, unreliability: Unreliability): Store {
  const { writeMs, loseOneIn, seed, onSwallowed } = unreliability;
  const random = new Random(seed);
  if (writeMs === 0 && loseOneIn === 0) return store;
  return hookedStore((call, method) => {
    if (isRead(method) || method === "close") return call();
    // Chosen now, so that the same seed chooses the same write.
    const isLost = loseOneIn > 0 && random.below(loseOneIn) === 0;
    const loss: Loss = random.weighted([
      [6, "fails at once"],
      [3, "fails late"],
      [1, "is left alone"],
    ]);
    const write = async (): Promise<unknown> => {
      if (writeMs > 0) await wait(writeMs);
      const answer = await call();
      if (!isLost) return answer;
      onSwallowed(method, loss);
      if (loss === "is left alone") return never;
      if (loss === "fails late") await wait(LATE_MS);
      throw new Error("the connection broke");
    };
    return isLost || writeMs > 0 ? write() : call();
  }, store);
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
