import type { ResultEntry } from "../core/log.ts";
import { resultKey } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";

/** An entry that holds a result, with the operation that it belongs to. `live`: what the log cannot hold, when the work was done here and now. */
export interface Delivery {
  readonly key: string;
  readonly entry: ResultEntry;
  readonly live: unknown;
}

/** The operations that wait for results. */
export interface OpenOperations {
  /** Their keys. */
  readonly open: readonly string[];
  readonly isClosed: boolean;
  isOpen(key: string): boolean;
  /** Gives an operation its result. A promise: the agent gets it when that resolves. */
  handOver(delivery: Delivery): undefined | Promise<void>;
}

/** Work that begins now or later. */
interface Work {
  readonly key: string;
  start(): void;
}

/** What an agent that is run again meets before it does anything new. */
export interface Replay {
  /** The recorded results, in log order. */
  readonly results: readonly ResultEntry[];
  /** The operations that were begun, each with the position of its first entry in the log: the agent has to ask for them again. */
  readonly begun: ReadonlyMap<string, number>;
  /** The question that is shown: asking it again takes it up. */
  readonly shown: string | undefined;
  /** How long the agent may take to ask for what the log holds next, in milliseconds of the process's running time, before that is reported. */
  readonly stallMs: number;
  /** What the agent has yet to show again before anything new begins. */
  notEmitted(): Missing | undefined;
  /** Everything that was recorded has happened again: what is new begins. */
  onCaughtUp(): void;
  /** Nothing has happened in a while although the log holds more; with undefined it has happened after all. */
  onStall(missing: Missing | undefined, asked: readonly string[]): void;
}

/** What the log holds and the agent has not done again. */
export interface Missing {
  /** In words. */
  readonly what: string;
  /** Of the entry that the agent has not come to. */
  readonly position: number;
}

/** In so many parts the time is measured that an agent has. */
const STALL_TICKS = 5;

/**
 * Hands a durable agent its results one at a time, in log order, each in a turn of the event loop of its own; those that
 * were recorded and those of live work are one queue. An agent that is run again then meets them in the same order, and
 * `Promise.race` has the same winner. Until it has caught up with the log, no new work begins.
 */
export class LogOrder {
  /** When the last result was recorded that was handed over, in milliseconds since the epoch; undefined before the first. */
  time: number | undefined;
  readonly #clock: Clock;
  readonly #operations: OpenOperations;
  /** What is to be handed over: first what was recorded. */
  #queue: Delivery[] | undefined;
  #next = 0;
  #delivering = false;
  /** What the agent itself waits for. */
  #held: Promise<void> | undefined;
  /** Called when there is nothing more to hand over. */
  #onIdle: (() => void)[] | undefined;
  #replaying: Replaying | undefined;

  constructor(clock: Clock, operations: OpenOperations, replay: Replay | undefined) {
    this.#clock = clock;
    this.#operations = operations;
    if (replay === undefined) return;
    this.#queue = replay.results.map((entry) => ({ key: resultKey(entry) ?? "", entry, live: undefined }));
    if (this.#queue.length === 0) this.#queue = undefined;
    const recorded = new Set(this.#queue?.map(({ key }) => key));
    this.#replaying = new Replaying(clock, replay, recorded, () => operations.open);
    this.#replaying.watch();
  }

  get isReplaying(): boolean {
    return this.#replaying !== undefined;
  }

  get missing(): Missing | undefined {
    return this.#replaying?.missing;
  }

  get isIdle(): boolean {
    return !this.#delivering && this.#held === undefined && this.#replaying === undefined;
  }

  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle ??= [];
      this.#onIdle.push(resolve);
    });
  }

  advance(): void {
    if (!this.#delivering) void this.#deliverAll();
  }

  /** Whether the operation begins now. */
  takesUp(operation: Work): boolean {
    return this.#replaying === undefined || this.#replaying.takesUp(operation);
  }

  deliver(delivery: Delivery): void {
    if (this.#replaying?.isRecorded(delivery.key) === true) return;
    this.#queue ??= [];
    this.#queue.push(delivery);
    this.advance();
  }

  holdUntil(wait: Promise<void>): Promise<void> {
    const held = this.#held === undefined ? wait : this.#held.then(() => wait);
    this.#held = held;
    this.advance();
    return held;
  }

  /** Nothing is handed over any more. */
  stop(): void {
    this.#replaying?.stop();
    this.#queue = undefined;
    this.#next = 0;
    this.#tellIdle();
  }

  async #release(held: Promise<void>): Promise<void> {
    await held;
    await this.#clock.turn();
    if (this.#held === held) this.#held = undefined;
  }

  #tellIdle(): void {
    const waiting = this.#onIdle;
    this.#onIdle = undefined;
    for (const resolve of waiting ?? []) resolve();
  }

  /** Hands over what can be handed over, a turn apart. An agent has caught up when, a turn after the last result, there is nothing that it has yet to do again. */
  async #deliverAll(): Promise<void> {
    this.#delivering = true;
    for (;;) {
      await this.#clock.turn();
      // One that goes on showing more and more has nothing left to do again either.
      while (this.#held !== undefined && !this.#isThrough) await this.#release(this.#held);
      if (this.#operations.isClosed) return;
      const delivery = this.#deliverable();
      if (delivery === undefined) {
        if (!this.#isThrough) break;
        this.#catchUp();
        continue;
      }
      this.#forgetDelivered();
      this.#replaying?.watch();
      this.time = delivery.entry.at;
      const settled = this.#operations.handOver(delivery);
      if (settled !== undefined) await settled;
    }
    this.#delivering = false;
    this.#tellIdle();
  }

  /** Whether an agent that is run again has nothing left to do again. */
  get #isThrough(): boolean {
    return this.#replaying !== undefined && this.#queue === undefined && this.#replaying.missing === undefined;
  }

  /** The next result, if it has been asked for. A live one that nobody waits for is passed over. */
  #deliverable(): Delivery | undefined {
    for (;;) {
      const delivery = this.#queue?.[this.#next];
      if (delivery === undefined) return undefined;
      if (this.#operations.isOpen(delivery.key)) return delivery;
      if (this.#replaying !== undefined) return undefined;
      this.#forgetDelivered();
    }
  }

  #forgetDelivered(): void {
    this.#next += 1;
    if (this.#queue !== undefined && this.#next < this.#queue.length) return;
    this.#queue = undefined;
    this.#next = 0;
  }

  #catchUp(): void {
    const replaying = this.#replaying;
    this.#replaying = undefined;
    // Nothing begins if the run is stopped now.
    for (const operation of replaying?.end() ?? []) if (!this.#operations.isClosed) operation.start();
  }
}

/** An agent on its way through its log, until it has caught up. */
class Replaying {
  readonly replay: Replay;
  readonly #clock: Clock;
  readonly #recorded: ReadonlySet<string>;
  /** What the agent has begun and not asked for again, in log order. */
  readonly #missing: Map<string, number>;
  /** Operations whose results the log does not hold. */
  #held: Work[] = [];
  /** The operations that the agent waits for. */
  readonly #open: () => readonly string[];
  #clearStall: (() => void) | undefined;
  #stalled = false;

  constructor(clock: Clock, replay: Replay, recorded: ReadonlySet<string>, open: () => readonly string[]) {
    this.#clock = clock;
    this.#open = open;
    this.replay = replay;
    this.#recorded = recorded;
    this.#missing = new Map(replay.begun);
  }

  isRecorded(key: string): boolean {
    return this.#recorded.has(key);
  }

  /** What comes first in the log of all that the agent has not done again. */
  get missing(): Missing | undefined {
    const notEmitted = this.replay.notEmitted();
    for (const [key, position] of this.#missing) {
      if (notEmitted !== undefined && notEmitted.position < position) return notEmitted;
      return { what: this.#recorded.has(key) ? `the result of ${key}` : key, position };
    }
    return notEmitted;
  }

  /** Whether the operation takes up what is shown. What is recorded needs no start, and what is new has to wait. */
  takesUp(operation: Work): boolean {
    this.#missing.delete(operation.key);
    if (this.#recorded.has(operation.key)) return false;
    if (operation.key === this.replay.shown) return true;
    this.#held.push(operation);
    return false;
  }

  /** The agent gets on: from now on it has its time again. */
  watch(): void {
    this.#clearStall?.();
    if (this.#stalled) this.replay.onStall(undefined, []);
    this.#stalled = false;
    this.#stallAfter(STALL_TICKS);
  }

  /** A process that stands still, as a laptop that sleeps, gives its agent no time: at most one tick passes meanwhile. */
  #stallAfter(ticks: number): void {
    this.#clearStall = this.#clock.setTimeout(() => {
      const { missing } = this;
      if (missing === undefined) return;
      if (ticks > 1) {
        this.#stallAfter(ticks - 1);
        return;
      }
      this.#stalled = true;
      this.replay.onStall(missing, this.#open());
    }, this.replay.stallMs / STALL_TICKS);
  }

  stop(): void {
    this.#clearStall?.();
    this.#held = [];
  }

  /** The agent has caught up. Gives what is new: it may begin. */
  end(): readonly Work[] {
    this.#clearStall?.();
    if (this.#stalled) this.replay.onStall(undefined, []);
    this.replay.onCaughtUp();
    return this.#held;
  }
}
