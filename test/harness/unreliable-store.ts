import type { Store } from "cadenza/store";
import { never } from "./promises.ts";
import { Random } from "./random.ts";
import { hookedStore, isRead } from "./store-proxy.ts";

/* A slow store that loses some answers: the write takes effect, and its caller does not learn of it. */

export interface Unreliability {
  /** The delay of each write. */
  readonly writeMs: number;
  /** The answer of one in so many writes is lost; 0 for none. */
  readonly loseOneIn: number;
  /** The seed that chooses these writes. */
  readonly seed: string;
  onSwallowed(method: string, how: Loss): void;
}

/**
 * How an answer is lost: the call fails at once, or after the time for which the store waits for an answer; or it never
 * settles.
 */
export type Loss = "fails at once" | "fails late" | "is left alone";

/** How long a store waits for an answer before it fails: less than half a lease. */
const LATE_MS = 400;

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
      if (loss === "is left alone") return never();
      if (loss === "fails late") await wait(LATE_MS);
      throw new Error("the connection broke");
    };
    return isLost || writeMs > 0 ? write() : call();
  }, store);
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
