import type { Random } from "../random.ts";
import type { Fleet } from "./fleet.ts";

/* The faults: at random times, one or two of the processes are killed, frozen or closed. */

export interface FaultsOptions {
  readonly fleet: Fleet;
  readonly random: Random;
  readonly leaseMs: number;
  /** How much time passes between two faults, on average. */
  readonly everyMs: number;
  /** How many there are. */
  readonly count: number;
  onFault(count: number): void;
}

/** How long it waits when there is no process for a fault. */
const AGAIN_MS = 100;

/** Injects faults until there have been `count`. */
export class Faults {
  readonly #options: FaultsOptions;
  readonly counts: Record<string, number> = {};
  #done = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: FaultsOptions) {
    this.#options = options;
  }

  get done(): number {
    return this.#done;
  }

  get isOver(): boolean {
    return this.#done >= this.#options.count;
  }

  start(): void {
    const { everyMs, random } = this.#options;
    this.#startIn(everyMs * (0.5 + random.number()));
  }

  #startIn(ms: number): void {
    this.#timer = setTimeout(() => {
      if (!this.#next()) this.#startIn(AGAIN_MS);
      else if (!this.isOver) this.start();
    }, ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Injects a fault, unless too few processes are working. */
  #next(): boolean {
    const { fleet, random, leaseMs } = this.#options;
    const ready = [...fleet.ready];
    const victim = ready.splice(random.below(ready.length), 1)[0];
    const other = ready.splice(random.below(ready.length), 1)[0];
    // At least one working process is left.
    if (victim === undefined || other === undefined) return false;
    const [name, act] = random.weighted<readonly [string, () => void]>([
      [8, ["kill", () => fleet.kill(victim)]],
      [7, ["freeze", () => this.#freeze(victim, leaseMs * (1.1 + 1.5 * random.number()))]],
      [2, ["short freeze", () => this.#freeze(victim, leaseMs * 0.7 * random.number())]],
      [6, ["close", () => fleet.terminate(victim)]],
      [1, ["freeze and close", () => this.#freezeAnd(victim, () => fleet.terminate(victim))]],
      [1, ["freeze and kill", () => this.#freezeAnd(victim, () => fleet.kill(victim))]],
      [ready.length === 0 ? 0 : 1.5, ["kill two", () => this.#killTwo(victim, other)]],
    ]);
    act();
    this.#done += 1;
    this.counts[name] = (this.counts[name] ?? 0) + 1;
    this.#options.onFault(this.#done);
    return true;
  }

  #freeze(name: string, ms: number): void {
    const { fleet } = this.#options;
    fleet.freeze(name);
    setTimeout(() => fleet.thaw(name), ms);
  }

  #freezeAnd(name: string, act: () => void): void {
    const { random, leaseMs } = this.#options;
    this.#freeze(name, leaseMs * (1.1 + random.number()));
    setTimeout(act, leaseMs * (0.5 + 2 * random.number()));
  }

  #killTwo(one: string, other: string): void {
    const { fleet } = this.#options;
    fleet.kill(one);
    fleet.kill(other);
  }
}
