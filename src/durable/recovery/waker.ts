import type { RunKey } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";

/** What a waker may use to choose a worker. */
export interface WakeHint {
  readonly agent_name: string;
  /** The version of the agent that the run was created with; null for an agent without versions. */
  readonly version: string | null;
  readonly tenant: string;
}

/**
 * Brings runs to workers: a queue or an engine that you have already. It decides nothing. A wake-up may be late, come
 * twice or never come: the workers look at the store, and their scan finds what a lost wake-up has missed. Each process
 * has a waker of its own, on the same queue.
 */
export interface Waker {
  /**
   * Keeps a wake-up for a run, and gives it to one of the workers at a time or later. `at` is in milliseconds since 1970,
   * and may have passed. Called in every process. If it fails, the process scans the store at once.
   */
  wake(key: RunKey, at: number, hint: WakeHint): MaybePromise<void>;
  /**
   * Begins to give wake-ups to this process. Called once, in processes that execute runs, and again after it has failed.
   *
   * `look` works on the run of a wake-up. It never rejects, and may take as long as the run. It resolves with the time
   * at which this wake-up is to be given to a worker again, in milliseconds since 1970, or undefined when it is done
   * with. If the process dies meanwhile, give the wake-up to another worker.
   *
   * `capacity` says how many more runs this process may look at now.
   */
  start(look: (key: RunKey) => Promise<number | undefined>, capacity: () => number): MaybePromise<void>;
  /** Ends it: `look` is not called any more. Called when the runtime closes, in every process, after the last `look` has resolved. */
  stop(): MaybePromise<void>;
}
