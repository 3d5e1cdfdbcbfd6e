import { inBackground } from "../../core/background.ts";
import { ignore } from "../../core/promises.ts";
import type { Residence } from "../../runtime/execution/operations.ts";
import type { Worker } from "./worker.ts";

/** For how many more runs of a line than the one that joined first the store is asked at a time. They take turns. */
const OTHERS_ASKED = 3;

/**
 * The runs that wait in the lines of their slots while this process owns them: they are not durable, or a step is at work in
 * them. The store gives them their permits in turn, and tells so when it is asked: at once where a permit becomes free here,
 * and every `scanMs`. Of each line it is asked for the run that joined first, and for some others: one that comes back to the
 * line has kept its place, and may be in front.
 */
export class OwnedLine {
  readonly #worker: Worker;
  /** By the keys of the slots, in the order in which the runs joined. */
  readonly #waiting = new Map<string, Set<Residence>>();
  /** The key of each run that waits. */
  readonly #keys = new Map<Residence, string>();
  /** Grows with each look. */
  #turn = 0;
  /** Stops the timer of the next look. Undefined: no run waits. */
  #clearTimer: (() => void) | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** A run joins a line. The permit may have been free by then. */
  add(key: string, run: Residence): void {
    if (this.#keys.has(run)) return;
    this.#keys.set(run, key);
    let waiting = this.#waiting.get(key);
    if (waiting === undefined) {
      waiting = new Set();
      this.#waiting.set(key, waiting);
    }
    waiting.add(run);
    this.#askFor(key, run);
    this.#clearTimer ??= this.#lookLater();
  }

  /** Most runs wait for no slot: nothing is done for them. */
  remove(run: Residence): void {
    const key = this.#keys.get(run);
    if (key === undefined) return;
    this.#keys.delete(run);
    const waiting = this.#waiting.get(key);
    waiting?.delete(run);
    if (waiting?.size === 0) this.#waiting.delete(key);
    if (this.#keys.size > 0) return;
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }

  /** A permit of the slot may have been given to a run. */
  look(key: string): void {
    const [first, ...others] = this.#waiting.get(key) ?? [];
    if (first === undefined) return;
    const from = others.length > OTHERS_ASKED ? (this.#turn++ * OTHERS_ASKED) % others.length : 0;
    const inTurn = [...others.slice(from), ...others.slice(0, from)].slice(0, OTHERS_ASKED);
    for (const run of [first, ...inTurn]) this.#askFor(key, run);
  }

  #askFor(key: string, run: Residence): void {
    const asked = (run.sync("after writing") ?? Promise.resolve()).then(() => {
      // Several permits may have been given at once.
      if (!this.#keys.has(run)) this.look(key);
    });
    inBackground(this.#worker.logger, asked.catch(ignore));
  }

  #lookLater(): () => void {
    const { clock, settings } = this.#worker;
    return clock.setTimeout(() => {
      for (const key of [...this.#waiting.keys()]) this.look(key);
      this.#clearTimer = this.#waiting.size > 0 ? this.#lookLater() : undefined;
    }, settings.scanMs);
  }
}
