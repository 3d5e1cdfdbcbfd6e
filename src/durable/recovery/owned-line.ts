import { inBackground } from "../../core/background.ts";
import { ignore } from "../../core/promises.ts";
import type { Residence } from "../../runtime/execution/operations.ts";
import type { Worker } from "./worker.ts";

/**
 * The runs that wait in the lines of their slots while this process owns them: they are not durable, or a step is at work in
 * them. The store gives them their permits in turn, and tells so when it is asked: at once where a permit becomes free here,
 * and every `scanMs`. Of each line one run is asked for, the first.
 */
export class OwnedLine {
  readonly #worker: Worker;
  /** By the keys of the slots, in the order in which the runs joined. */
  readonly #waiting = new Map<string, Set<Residence>>();
  /** Stops the timer of the next look. Undefined: no run waits. */
  #clearTimer: (() => void) | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** A run joins a line. The permit may have been free by then. */
  add(key: string, run: Residence): void {
    let waiting = this.#waiting.get(key);
    if (waiting === undefined) {
      waiting = new Set();
      this.#waiting.set(key, waiting);
    }
    if (waiting.has(run)) return;
    waiting.add(run);
    this.#askFor(key, run);
    this.#clearTimer ??= this.#lookLater();
  }

  remove(key: string, run: Residence): void {
    const waiting = this.#waiting.get(key);
    if (waiting?.delete(run) !== true || waiting.size > 0) return;
    this.#waiting.delete(key);
    if (this.#waiting.size > 0) return;
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }

  /** A permit of the slot may have been given to a run. */
  look(key: string): void {
    const [first] = this.#waiting.get(key) ?? [];
    if (first !== undefined) this.#askFor(key, first);
  }

  #askFor(key: string, run: Residence): void {
    const asked = (run.sync("after writing") ?? Promise.resolve()).then(() => {
      // Several permits may have been given at once.
      if (this.#waiting.get(key)?.has(run) !== true) this.look(key);
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
