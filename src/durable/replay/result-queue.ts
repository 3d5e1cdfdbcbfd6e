import { inBackground } from "../../core/background.ts";
import type { Mismatch } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { Delivery, JournaledAgent, Operation, Unfit } from "../../runtime/execution/operations.ts";
import { unfit } from "../../runtime/execution/operations.ts";
import type { RecordedResult } from "./history.ts";
import type { Missing, ReplayCheck } from "./replay-check.ts";

/**
 * What becomes of a durable agent apart from its results. `caught up`: it has done again what its history holds. `mismatch`: it
 * does not do that. `stall`: the same, but it may still go on; undefined: it has gone on. `difference`: it emitted another value
 * of the same kind. The one in the history counts.
 */
export type JournalEvent =
  | "caught up"
  | { readonly mismatch: Mismatch }
  | { readonly stall: Mismatch | undefined }
  | "difference";

export type JournalListener = (event: JournalEvent) => void;

/** A result to hand over: one of the history, or a new one. */
export type QueuedResult = Delivery & Partial<RecordedResult>;

/** The number of timers that measure the stall time. */
const STALL_TICKS = 5;

/**
 * Hands a durable agent its results one at a time, in log order, each in its own turn of the event loop. Results from
 * the history and new results are one queue. A replayed agent therefore receives them in the same order, and
 * `Promise.race` has the same winner. Until the agent has caught up with its history, no new work begins.
 */
export abstract class ResultQueue {
  protected readonly agent: JournaledAgent;
  protected readonly tell: JournalListener;
  /** Of an agent that is replayed. */
  protected readonly check: ReplayCheck | undefined;
  /** The time of the last result that was handed over, in milliseconds since 1970; undefined before the first. */
  protected time: number | undefined;
  /** The results to hand over. The results of the history come first. */
  #queue: QueuedResult[] | undefined;
  #next = 0;
  /** Hands over what is there. Undefined: nothing is being handed over. */
  #delivering: Promise<void> | undefined;
  /** While it is pending, nothing is handed over. */
  #held: Promise<void> | undefined;
  /** Called when there is nothing more to hand over. */
  #onIdle: (() => void)[] | undefined;
  #replaying: Replaying | undefined;

  /**
   * `stallMs`: how long a replayed agent may take for the next operation in its history, in milliseconds of the process's
   * running time, before a stall is reported.
   */
  constructor(agent: JournaledAgent, tell: JournalListener, check: ReplayCheck | undefined, stallMs: number) {
    this.agent = agent;
    this.tell = tell;
    this.check = check;
    if (check === undefined) return;
    const { results } = check.history;
    this.#queue = results.length === 0 ? undefined : results;
    this.#replaying = new Replaying(agent, tell, check, stallMs);
    this.#replaying.watch();
  }

  /** Begins the work of an operation. */
  protected abstract start(operation: Operation): void;

  /** See {@link JournaledAgent.handOver}. */
  protected abstract handOver(delivery: QueuedResult): undefined | Promise<Unfit | undefined>;

  /** The answer in the log does not fit the question of the code. The agent receives nothing any more. */
  protected abstract onUnfit(key: string): void;

  /** The agent has caught up, and new work begins. */
  protected abstract onCaughtUp(): void;

  get isCatchingUp(): boolean {
    return this.#replaying !== undefined;
  }

  /** Whether the agent has had its turn with all results, and no other result is ready. */
  get isIdle(): boolean {
    return (
      this.agent.isClosed ||
      (this.#delivering === undefined && this.#held === undefined && this.#replaying === undefined)
    );
  }

  /** Resolves after a turn of the event loop in which the agent has used the results that it received. */
  async settled(): Promise<void> {
    const { clock } = this.agent;
    await clock.turn();
    while (!this.isIdle) {
      await this.#idle();
      await clock.turn();
    }
  }

  #idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle ??= [];
      this.#onIdle.push(resolve);
    });
  }

  /** The first thing in the history that the agent has not done again. */
  protected get missing(): Missing | undefined {
    return this.#replaying?.missing;
  }

  /** The agent has done something again. If its history is at its end, the agent catches up in a later turn. */
  protected advance(): void {
    if (this.isCatchingUp) this.#deliverSoon();
  }

  #deliverSoon(): void {
    if (this.#delivering !== undefined) return;
    this.#delivering = this.#deliverAll();
    inBackground(this.agent.logger, this.#delivering);
  }

  /** Whether the operation begins now. During a replay new operations wait. */
  protected takesUp(operation: Operation): boolean {
    this.#replaying?.takeUp(operation);
    return this.#replaying === undefined;
  }

  deliver(delivery: Delivery): void {
    if (this.isCatchingUp && this.check?.history.find(delivery.key)?.endedAt !== undefined) return;
    this.#queue ??= [];
    this.#queue.push(delivery);
    this.#deliverSoon();
  }

  /**
   * Hands nothing over until the promise resolves, and until the turn after it. Branches that wait side by side go on in
   * the order in which they began to wait, each in its own turn, whichever promise resolves first.
   */
  hold(until: MaybePromise<void>): Promise<void> {
    const held = this.#turnAfter(this.#held, until);
    this.#held = held;
    this.#deliverSoon();
    return held;
  }

  /** Nothing is handed over any more. */
  protected stop(): void {
    this.#replaying?.stop();
    this.#queue = undefined;
    this.#next = 0;
    this.#tellIdle();
  }

  async #turnAfter(before: Promise<void> | undefined, until: MaybePromise<void>): Promise<void> {
    await before;
    await until;
    await this.agent.clock.turn();
  }

  async #release(held: Promise<void>): Promise<void> {
    await held;
    await this.agent.clock.turn();
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
    for (;;) {
      await this.agent.clock.turn();
      // An agent that keeps emitting new values may have caught up too.
      while (this.#held !== undefined && !this.isThrough) await this.#release(this.#held);
      if (this.agent.isClosed) return;
      const delivery = this.#deliverable();
      if (delivery === undefined) {
        if (!this.isThrough) break;
        this.#catchUp();
        continue;
      }
      this.#forgetDelivered();
      this.#replaying?.watch();
      this.time = delivery.entry.at;
      const settled = this.handOver(delivery);
      if (settled !== undefined && (await settled) === unfit) {
        this.onUnfit(delivery.key);
        return;
      }
    }
    this.#delivering = undefined;
    this.#tellIdle();
  }

  /** Whether a replayed agent has done everything in its history again. */
  protected get isThrough(): boolean {
    return this.#replaying !== undefined && this.#queue === undefined && this.#replaying.missing === undefined;
  }

  /** The next result, if its operation has begun. A new result whose operation does not wait any more is skipped. */
  #deliverable(): QueuedResult | undefined {
    for (;;) {
      const delivery = this.#queue?.[this.#next];
      if (delivery === undefined) return undefined;
      if (this.agent.find(delivery.key) !== undefined) return delivery;
      if (this.#replaying !== undefined) return undefined;
      this.#forgetDelivered();
    }
  }

  #forgetDelivered(): void {
    this.#next += 1;
    if (this.#queue !== undefined && this.#next < this.#queue.length) return;
    // The history keeps the list.
    this.#queue?.splice(0);
    this.#queue = undefined;
    this.#next = 0;
  }

  #catchUp(): void {
    const replaying = this.#replaying;
    this.#replaying = undefined;
    const held = replaying?.end();
    this.onCaughtUp();
    // Nothing begins if catching up has stopped the run, and nothing that has got its result meanwhile.
    for (const operation of held ?? []) if (this.agent.find(operation.key) === operation) this.start(operation);
  }
}

/** The replay of an agent, until it has caught up with its history. */
class Replaying {
  readonly #agent: JournaledAgent;
  readonly #tell: JournalListener;
  readonly #check: ReplayCheck;
  readonly #stallMs: number;
  /** The operations whose results the history does not hold. They begin after the replay. */
  #held: Operation[] = [];
  /** Stops the timer of the stall time. `reported`: that time is over, and the stall was reported. */
  #stall: (() => void) | "reported" | undefined;
  /** How many timers are left of the stall time. */
  #ticks = STALL_TICKS;

  constructor(agent: JournaledAgent, tell: JournalListener, check: ReplayCheck, stallMs: number) {
    this.#agent = agent;
    this.#tell = tell;
    this.#check = check;
    this.#stallMs = stallMs;
  }

  /** The first thing in the history that the agent has not done again. */
  get missing(): Missing | undefined {
    const { notEmitted, history } = this.#check;
    const { key, position, endedAt } = history.missing ?? {};
    if (key === undefined || position === undefined || Number(notEmitted?.position) < position) return notEmitted;
    return { what: endedAt !== undefined ? `the result of ${key}` : key, position };
  }

  /** Notes an operation. Results in the history need no start, and the others begin after the replay. */
  takeUp(operation: Operation): void {
    if (this.#check.history.beginAgain(operation.key)?.endedAt === undefined) this.#held.push(operation);
  }

  /** The replay makes progress. The stall time begins again. */
  watch(): void {
    this.#ticks = STALL_TICKS;
    if (this.#stall === "reported") this.#endStall();
    if (this.#stall === undefined) this.#watchTick();
  }

  #endStall(): void {
    const stall = this.#stall;
    this.#stall = undefined;
    if (stall === "reported") this.#tell({ stall: undefined });
    else stall?.();
  }

  /**
   * While the process is suspended, as on a sleeping laptop, at most one of the timers fires. The suspended time hardly
   * counts.
   */
  #watchTick(): void {
    this.#stall = this.#agent.clock.setTimeout(() => {
      const { missing } = this;
      if (missing === undefined) return;
      // While the store does not give the agent what it reads, the agent is not to blame.
      if (!this.#agent.log.isFailing) this.#ticks -= 1;
      if (this.#ticks > 0) {
        this.#watchTick();
        return;
      }
      this.#stall = "reported";
      const { open } = this.#agent;
      const asked = open.length === 0 ? "nothing" : open.join(", ");
      this.#tell({ stall: { expected: missing.what, asked, position: missing.position } });
    }, this.#stallMs / STALL_TICKS);
  }

  stop(): void {
    if (this.#stall !== "reported") this.#stall?.();
    this.#held = [];
  }

  /** The agent has caught up. Returns the new operations, which may begin. */
  end(): readonly Operation[] {
    this.#endStall();
    return this.#held;
  }
}
