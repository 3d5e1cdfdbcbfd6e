import type { RunKey, StoreHint } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import type { Worker } from "./worker.ts";

/** How long each worker leaves a run to the one before it, in milliseconds. A take and the hint of it arrive meanwhile. */
const STEP_MS = 100;
/** After so many steps all workers ask that are left. */
const MAX_STEPS = 4;
/** Of how many runs it is remembered that they are due. */
const MAX_RUNS = 10_000;
/** Stands for the due runs that a hint does not name. */
const unnamed: RunKey = { tenant: "", run_id: "" };

/**
 * The due runs of which the store has told. For each run all workers put themselves in the same order, which is another
 * one for each run. The first worker asks at once, and the others follow, until the store tells that the run was taken.
 */
export class DueHints {
  readonly #worker: Worker;
  /** When it is the turn of this worker to ask for each run. */
  readonly #later = new RunMap<number>();
  /** The runs of which it is this worker's turn. */
  readonly #due = new RunMap<true>();
  #clearTimer: (() => void) | undefined;
  #timerAt = Number.POSITIVE_INFINITY;

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /** Whether it is the turn of this worker to ask for a run. */
  get areDue(): boolean {
    return this.#due.size > 0;
  }

  hear({ due, moved = [] }: StoreHint): void {
    if (due !== true) {
      for (const key of moved) {
        this.#later.delete(key);
        this.#due.delete(key);
      }
      return;
    }
    const now = this.#worker.clock.monotonic();
    const isTooMuch = this.#later.size + moved.length > MAX_RUNS;
    if (isTooMuch) this.#later.clear();
    for (const key of moved.length === 0 || isTooMuch ? [unnamed] : moved)
      if (!this.#due.has(key)) this.#later.set(key, now + STEP_MS * this.#placeFor(key));
    this.#lookAt(now);
  }

  /** The store is being asked for all runs that are due. */
  clear(): void {
    this.#later.clear();
    this.#due.clear();
    this.#clearTimer?.();
    this.#timerAt = Number.POSITIVE_INFINITY;
  }

  /** Gathers the runs of which it is the turn by now, and looks again when it is the turn of the next one. */
  #lookAt(now: number): void {
    let next = Number.POSITIVE_INFINITY;
    for (const [key, at] of [...this.#later.entries()]) {
      if (at > now) next = Math.min(next, at);
      else {
        this.#later.delete(key);
        this.#due.set(key, true);
      }
    }
    if (next < this.#timerAt) {
      const { clock } = this.#worker;
      this.#clearTimer?.();
      this.#timerAt = next;
      this.#clearTimer = clock.setTimeout(() => {
        this.#timerAt = Number.POSITIVE_INFINITY;
        this.#lookAt(Math.max(next, clock.monotonic()));
      }, next - now);
    }
    if (this.areDue) this.#worker.onRoom();
  }

  /** How many workers come before this one. */
  #placeFor({ tenant, run_id }: RunKey): number {
    const { name, others } = this.#worker;
    const of = (owner: string): number => hashOf(`${tenant}/${run_id}/${owner}`);
    const own = of(name);
    let place = 0;
    for (const other of others) if (place < MAX_STEPS && of(other) < own) place += 1;
    return place;
  }
}

/** A number of 32 bits by which texts are put in an order that looks random (FNV-1a, and a last mix). */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 0;
}
