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
  /** By the keys of the slots. */
  readonly #lines = new Map<string, Line>();
  /** The keys of the slots of each run that waits. It stands in one line of them, which one is not known here. */
  readonly #keys = new Map<Residence, readonly string[]>();
  /** Stops the timer of the next look. Undefined: no run waits. */
  #clearTimer: (() => void) | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** A run joins a line. The permit may have been free by then. */
  add(keys: readonly string[], run: Residence): void {
    if (this.#keys.has(run)) return;
    this.#keys.set(run, keys);
    for (const key of keys) {
      let line = this.#lines.get(key);
      if (line === undefined) {
        const runs = new Set<Residence>();
        line = { runs, turn: runs.values() };
        this.#lines.set(key, line);
      }
      line.runs.add(run);
    }
    this.#askFor(run);
    this.#clearTimer ??= this.#lookLater();
  }

  /** Most runs wait for no slot: nothing is done for them. */
  remove(run: Residence): void {
    const keys = this.#keys.get(run);
    if (keys === undefined) return;
    this.#keys.delete(run);
    for (const key of keys) {
      const line = this.#lines.get(key);
      line?.runs.delete(run);
      if (line?.runs.size === 0) this.#lines.delete(key);
    }
    if (this.#keys.size > 0) return;
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }

  /** A permit of the slot may have been given to a run. */
  look(key: string): void {
    const line = this.#lines.get(key);
    const [first] = line?.runs ?? [];
    if (line === undefined || first === undefined) return;
    const asked = new Set([first]);
    for (let n = 0; n < line.runs.size && asked.size <= OTHERS_ASKED; n++) {
      let next = line.turn.next();
      if (next.done === true) {
        line.turn = line.runs.values();
        next = line.turn.next();
      }
      asked.add(next.value);
    }
    for (const run of asked) this.#askFor(run);
  }

  #askFor(run: Residence): void {
    const keys = this.#keys.get(run) ?? [];
    const asked = (run.sync("after writing") ?? Promise.resolve()).then(() => {
      // Several permits may have been given at once.
      if (!this.#keys.has(run)) for (const key of keys) this.look(key);
    });
    inBackground(this.#worker.logger, asked.catch(ignore));
  }

  #lookLater(): () => void {
    const { clock, settings } = this.#worker;
    return clock.setTimeout(() => {
      for (const key of [...this.#lines.keys()]) this.look(key);
      this.#clearTimer = this.#lines.size > 0 ? this.#lookLater() : undefined;
    }, settings.scanMs);
  }
}

/** The runs that wait for one slot. */
interface Line {
  /** In the order in which they joined. */
  readonly runs: Set<Residence>;
  /** Where the next turn begins. It meets the runs that join meanwhile, too. */
  turn: Iterator<Residence>;
}
