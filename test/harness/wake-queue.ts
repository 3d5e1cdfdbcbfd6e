import type { RunKey, Waker } from "cadenza/store";
import type { FakeClock } from "./clock.ts";

/** What a queue needs of a clock. */
type QueueClock = Pick<FakeClock, "now" | "setTimeout">;

/** What becomes of a wake-up. */
export type Fate = "once" | "lost" | "twice" | "late";

/** After so long the wake-ups of a dead worker are given to another one, in milliseconds. */
const HELD_MS = 1_000;
/** When a wake-up is offered again that no worker has room for, in milliseconds. */
const NO_ROOM_MS = 100;
const LATE_MS = 2_500;

type Look = (key: RunKey) => Promise<number | undefined>;

/** The waker of one process. */
export interface QueueWaker extends Waker {
  /** What the runtime has called, in order. */
  readonly calls: readonly ("wake" | "start" | "stop")[];
  /** How many wake-ups this process was given. */
  readonly given: number;
  /** The process has died. */
  kill(): void;
}

/** A queue of wake-ups with faults, for several processes with one clock. */
export class WakeQueue {
  readonly #clock: QueueClock;
  readonly #fate: (count: number) => Fate;
  readonly #workers: Connection[] = [];
  #count = 0;
  #next = 0;
  /** How many wake-ups there are. */
  size = 0;

  /** `fate`: what becomes of each wake-up, counted from 1. */
  constructor(clock: QueueClock, fate: (count: number) => Fate = () => "once") {
    this.#clock = clock;
    this.#fate = fate;
  }

  /** `aheadMs`: by how much the clock of the process is ahead of the queue's. */
  connect(aheadMs: () => number = () => 0): QueueWaker {
    return new Connection(this, aheadMs);
  }

  put(key: RunKey, at: number): void {
    const fate = this.#fate(++this.#count);
    for (let copies = fate === "lost" ? 0 : fate === "twice" ? 2 : 1; copies > 0; copies--) {
      this.size += 1;
      this.#giveAt(key, fate === "late" ? Math.max(at, this.#clock.now()) + LATE_MS : at);
    }
  }

  add(worker: Connection): void {
    this.#workers.push(worker);
  }

  #giveAt(key: RunKey, at: number): void {
    this.#clock.setTimeout(() => void this.#give(key), Math.max(0, at - this.#clock.now()));
  }

  async #give(key: RunKey): Promise<void> {
    const count = this.#workers.length;
    const turn = this.#next++;
    const order = this.#workers.map((_worker, index) => this.#workers[(turn + index) % count]);
    const worker = order.find((one) => one?.hasRoom === true);
    if (worker === undefined) {
      this.#giveAt(key, this.#clock.now() + NO_ROOM_MS);
      return;
    }
    const again = await worker.give(key);
    if (again === "dead") this.#giveAt(key, this.#clock.now() + HELD_MS);
    else if (again !== undefined) this.#giveAt(key, again);
    else this.size -= 1;
  }
}

class Connection implements QueueWaker {
  readonly calls: ("wake" | "start" | "stop")[] = [];
  given = 0;
  readonly #queue: WakeQueue;
  readonly #aheadMs: () => number;
  readonly #death: Promise<"dead">;
  #look: Look | undefined;
  #capacity: () => number = () => 0;
  #die: () => void = () => undefined;

  constructor(queue: WakeQueue, aheadMs: () => number) {
    this.#queue = queue;
    this.#aheadMs = aheadMs;
    this.#death = new Promise((resolve) => {
      this.#die = () => resolve("dead");
    });
  }

  get hasRoom(): boolean {
    return this.#look !== undefined && this.#capacity() > 0;
  }

  async give(key: RunKey): Promise<number | undefined | "dead"> {
    this.given += 1;
    const again = await Promise.race([this.#death, this.#look?.(key) ?? this.#death]);
    return typeof again === "number" ? again - this.#aheadMs() : again;
  }

  wake(key: RunKey, at: number): void {
    this.calls.push("wake");
    this.#queue.put(key, at - this.#aheadMs());
  }

  start(look: Look, capacity: () => number): void {
    this.calls.push("start");
    this.#look = look;
    this.#capacity = capacity;
    this.#queue.add(this);
  }

  stop(): void {
    this.calls.push("stop");
    this.#look = undefined;
  }

  kill(): void {
    this.#look = undefined;
    this.#die();
  }
}
