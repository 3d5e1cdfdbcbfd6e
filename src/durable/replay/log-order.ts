import { inBackground } from "../../core/background.ts";
import { resultKey } from "../../core/operation-keys.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { Delivery, LiveOperations } from "../../runtime/execution/live-operations.ts";
import type { JournalHost } from "./journal-host.ts";
import type { Missing, ReplayCheck } from "./replay-check.ts";

/** Work that begins now or later. */
interface Work {
  readonly key: string;
  start(): void;
}

/** The number of timers that measure the stall time. */
const STALL_TICKS = 5;

/**
 * Hands a durable agent its results one at a time, in log order, each in its own turn of the event loop. Results from
 * the history and new results are one queue. A replayed agent therefore receives them in the same order, and
 * `Promise.race` has the same winner. Until the agent has caught up with its history, no new work begins.
 */
export class LogOrder {
  /** The time of the last result that was handed over, in milliseconds since 1970; undefined before the first. */
  time: number | undefined;
  readonly #operations: LiveOperations;
  readonly #clock: Clock;
  readonly #logger: Logger;
  /** The results to hand over. Those of the history come first. */
  #queue: Delivery[] | undefined;
  #next = 0;
  #delivering = false;
  /** While it is pending, nothing is handed over. */
  #held: Promise<void> | undefined;
  /** Called when there is nothing more to hand over. */
  #onIdle: (() => void)[] | undefined;
  #replaying: Replaying | undefined;

  /** `check`: of an agent that is replayed. `onCaughtUp`: it has caught up, and new work begins. */
  constructor(operations: LiveOperations, host: JournalHost, check: ReplayCheck | undefined, onCaughtUp: () => void) {
    this.#operations = operations;
    this.#clock = host.clock;
    this.#logger = host.logger;
    if (check === undefined) return;
    this.#queue = check.history.results.map((entry) => ({ key: resultKey(entry) ?? "", entry, live: undefined }));
    if (this.#queue.length === 0) this.#queue = undefined;
    const inHistory = new Set(this.#queue?.map(({ key }) => key));
    this.#replaying = new Replaying(operations, host, check, inHistory, onCaughtUp);
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
    if (!this.#delivering) inBackground(this.#logger, this.#deliverAll());
  }

  /** Whether the operation begins now. During a replay new operations wait. */
  takesUp(operation: Work): boolean {
    this.#replaying?.takeUp(operation);
    return this.#replaying === undefined;
  }

  deliver(delivery: Delivery): void {
    if (this.#replaying?.isInHistory(delivery.key) === true) return;
    this.#queue ??= [];
    this.#queue.push(delivery);
    this.advance();
  }

  /**
   * Hands nothing over until the promise resolves, and until the turn after it. Branches that wait side by side go on in
   * the order in which they began to wait, each in its own turn, whichever promise resolves first.
   */
  holdUntil(wait: MaybePromise<void>): Promise<void> {
    const held = this.#turnAfter(this.#held, wait);
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

  async #turnAfter(before: Promise<void> | undefined, wait: MaybePromise<void>): Promise<void> {
    await before;
    await wait;
    await this.#clock.turn();
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

  /**
   * Hands over results, one a turn. An agent has caught up if nothing of its history is missing in the turn after the
   * last result.
   */
  async #deliverAll(): Promise<void> {
    this.#delivering = true;
    for (;;) {
      await this.#clock.turn();
      // An agent that keeps emitting new values may have caught up too.
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

  /** Whether a replayed agent has done everything in its history again. */
  get #isThrough(): boolean {
    return this.#replaying !== undefined && this.#queue === undefined && this.#replaying.missing === undefined;
  }

  /** The next result, if its operation has begun. A new result whose operation does not wait any more is skipped. */
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
    // Nothing begins if catching up has stopped the run.
    for (const operation of replaying?.end() ?? []) if (!this.#operations.isClosed) operation.start();
  }
}

/** The replay of an agent, until it has caught up with its history. */
class Replaying {
  readonly #operations: LiveOperations;
  readonly #host: JournalHost;
  readonly #check: ReplayCheck;
  /** The operations with results in the history. */
  readonly #inHistory: ReadonlySet<string>;
  readonly #onCaughtUp: () => void;
  /** The operations in the history that the replayed agent has not begun again, in log order. */
  readonly #missing: Map<string, number>;
  /** The operations whose results the history does not hold. They begin after the replay. */
  #held: Work[] = [];
  #clearStall: (() => void) | undefined;
  #stalled = false;

  constructor(
    operations: LiveOperations,
    host: JournalHost,
    check: ReplayCheck,
    inHistory: ReadonlySet<string>,
    onCaughtUp: () => void,
  ) {
    this.#operations = operations;
    this.#host = host;
    this.#check = check;
    this.#inHistory = inHistory;
    this.#onCaughtUp = onCaughtUp;
    this.#missing = new Map(check.history.begun);
  }

  isInHistory(key: string): boolean {
    return this.#inHistory.has(key);
  }

  /** The first thing in the history that the agent has not done again. */
  get missing(): Missing | undefined {
    const { notEmitted } = this.#check;
    for (const [key, position] of this.#missing) {
      if (notEmitted !== undefined && notEmitted.position < position) return notEmitted;
      return { what: this.#inHistory.has(key) ? `the result of ${key}` : key, position };
    }
    return notEmitted;
  }

  /** Notes an operation. Results in the history need no start, and the others begin after the replay. */
  takeUp(operation: Work): void {
    this.#missing.delete(operation.key);
    if (!this.#inHistory.has(operation.key)) this.#held.push(operation);
  }

  /** The replay goes on. The stall time begins again. */
  watch(): void {
    this.#clearStall?.();
    if (this.#stalled) this.#host.onStall(undefined);
    this.#stalled = false;
    this.#stallAfter(STALL_TICKS);
  }

  /**
   * While the process is suspended, as on a sleeping laptop, at most one of the timers fires. The suspended time hardly
   * counts.
   */
  #stallAfter(ticks: number): void {
    this.#clearStall = this.#host.clock.setTimeout(() => {
      const { missing } = this;
      if (missing === undefined) return;
      // While the store does not give the agent what it reads, the agent is not to blame.
      const isWaiting = this.#host.log.isFailing;
      if (ticks > 1 || isWaiting) {
        this.#stallAfter(isWaiting ? ticks : ticks - 1);
        return;
      }
      this.#stalled = true;
      const { open } = this.#operations;
      const asked = open.length === 0 ? "nothing" : open.join(", ");
      this.#host.onStall({ expected: missing.what, asked, position: missing.position });
    }, this.#host.stallMs / STALL_TICKS);
  }

  stop(): void {
    this.#clearStall?.();
    this.#held = [];
  }

  /** The agent has caught up. Returns the new operations, which may begin. */
  end(): readonly Work[] {
    this.#clearStall?.();
    if (this.#stalled) this.#host.onStall(undefined);
    this.#onCaughtUp();
    return this.#held;
  }
}
