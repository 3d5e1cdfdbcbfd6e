import { inBackground } from "../../core/background.ts";
import type { Emission } from "../../core/commands.ts";
import type { CadenzaError } from "../../core/errors.ts";
import type { AttemptEntry, ReceivedEntry } from "../../core/log.ts";
import type { Mismatch } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore } from "../../core/promises.ts";
import { createdEntry } from "../../core/state.ts";
import { addUsage, left, usageWith } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { Delivery } from "../../runtime/execution/live-operations.ts";
import { LiveOperations } from "../../runtime/execution/live-operations.ts";
import type { Operation } from "../../runtime/log/operations.ts";
import type { History } from "./history.ts";
import type { JournalHost } from "./journal-host.ts";
import { LogOrder } from "./log-order.ts";
import { ReplayCheck } from "./replay-check.ts";

/** How many items a durable agent emits before it waits a turn. */
const EMITTED_AT_ONCE = 64;

/**
 * The operations of a durable agent. Results are handed over one at a time, in log order. With a history the agent is
 * replayed: its operations get the results in the history, and what it does is compared with the history.
 */
export class JournaledOperations extends LiveOperations {
  readonly #journal: JournalHost;
  readonly #order: LogOrder;
  readonly #check: ReplayCheck | undefined;
  /** The time that the agent saw when it was first called; undefined where it is called for the first time. */
  readonly #startedAt: number | undefined;
  #emitted = 0;
  /** What the results that the agent has received have used. */
  #usage: Usage | null = null;

  constructor(host: JournalHost, history: History | undefined) {
    super(host);
    this.#journal = host;
    this.#startedAt = history?.startedAt;
    this.#check = history && new ReplayCheck(history);
    this.#order = new LogOrder(this, host, this.#check, () => this.#onCaughtUp());
  }

  override get isCatchingUp(): boolean {
    return this.#order.isReplaying;
  }

  override get isPaced(): boolean {
    return !this.isCatchingUp;
  }

  /** Whether the agent has had its turn with all results, and no other result is ready. */
  get isIdle(): boolean {
    return this.isClosed || this.#order.isIdle;
  }

  override begin(): void {
    this.#advance();
  }

  /** The agent has done something again. If its history is at its end, the agent catches up in a later turn. */
  #advance(): void {
    if (this.isCatchingUp) this.#order.advance();
  }

  /** The time of the last result, so that a replay sees the same time. */
  override now(): number {
    const { started } = this.host.log.state;
    return this.#order.time ?? this.#startedAt ?? started?.now ?? started?.at ?? 0;
  }

  override perform(operation: Operation): void {
    if (operation.emitted !== undefined)
      this.#mayMismatch(this.#check?.askAgain(operation.key, operation.emitted, this.#order.missing));
    if (!this.accepts(operation)) return;
    if (this.#order.takesUp(operation)) operation.start();
    this.#advance();
  }

  override lastAttempt(key: string): AttemptEntry | undefined {
    return this.#check?.history.lastAttempt(key);
  }

  override received(position: number): ReceivedEntry | undefined {
    return this.#check?.history.received(position);
  }

  protected override take(delivery: Delivery): void {
    this.#order.deliver(delivery);
  }

  override handOver(delivery: Delivery): undefined | Promise<void> {
    this.#check?.history.passUsage(delivery.entry);
    this.#usage = addUsage(this.#usage, usageWith(delivery.entry, this.host.log.state));
    return super.handOver(delivery);
  }

  override onUnfitAnswer(key: string): void {
    this.#mayMismatch(this.#check?.unfitAnswer(key));
  }

  /**
   * A durable agent waits at the same points in each replay, whatever the time and the store, so that what it does side
   * by side goes on in the same order. It receives nothing meanwhile.
   */
  override emit(emission: Emission, at: number): undefined | Promise<void> {
    const { log, settings } = this.host;
    this.#emitted += 1;
    if (!this.#isEmittedAgain(emission)) log.decide({ type: "emit", at, item: emission });
    if (this.#emitted % Math.min(EMITTED_AT_ONCE, settings.maxBacklog) !== 0) return undefined;
    return this.#order.holdUntil(log.backlog >= settings.maxBacklog ? log.commit() : undefined);
  }

  /** Whether the history holds what the agent emits. */
  #isEmittedAgain(emission: Emission): boolean {
    const found = this.#check?.emitAgain(emission, this.isCatchingUp) ?? "new";
    if (found === "new") return false;
    if (typeof found === "object") this.#journal.onMismatch(found);
    else if (found !== "none") {
      if (found === "other") this.#journal.onDifference();
      this.#advance();
    }
    return true;
  }

  /**
   * A durable agent gets what it reads at the same point in each replay, whatever the store needs for it: when its other
   * branches wait. It receives nothing meanwhile.
   */
  override async read<Value>(value: MaybePromise<Value>): Promise<Value> {
    const reading = Promise.resolve(value);
    await this.#order.holdUntil(reading.then(ignore, ignore));
    return reading;
  }

  override holdsUsage(usage: Usage): boolean {
    return this.isCatchingUp && this.#check?.history.takeUsage(usage) === true;
  }

  /** So that a replay sees the same. The limit of a sub-run is what was left above it when it was created. */
  override get tokensLeft(): number {
    const { budget } = createdEntry(this.host.log.state);
    return budget === undefined ? Number.POSITIVE_INFINITY : left(budget, this.#usage);
  }

  /** A result takes its turn in the order of the log at once, and is handed over when the run has its slot. */
  override withSlot(take: (callback: () => void) => void, callback: () => void): void {
    let goOn: (() => void) | undefined = ignore;
    take(() => {
      goOn?.();
      goOn = undefined;
    });
    if (goOn !== undefined) {
      const held = this.#order.holdUntil(
        new Promise((resolve) => {
          goOn = resolve;
        }),
      );
      inBackground(this.host.logger, held);
    }
    callback();
  }

  /** Hands nothing over until the promise resolves. */
  holdUntil(wait: Promise<void>): Promise<void> {
    return this.#order.holdUntil(wait);
  }

  override async settled(): Promise<void> {
    const { clock } = this.host;
    await clock.turn();
    while (!this.isIdle) {
      await this.#order.idle();
      await clock.turn();
    }
  }

  override mayEnd(error: unknown, stopped: CadenzaError | undefined): boolean {
    if (stopped === undefined && this.#mayMismatch(this.#check?.endsEarly(error, this.#order.missing))) return false;
    this.#emitEarly();
    return true;
  }

  #onCaughtUp(): void {
    this.#emitEarly();
    this.#journal.onCaughtUp();
  }

  /** Logs what the agent emitted for the first time before it had caught up. */
  #emitEarly(): void {
    const { log, clock } = this.host;
    for (const item of this.#check?.takeEarly() ?? []) log.decide({ type: "emit", at: clock.now(), item });
  }

  /** Reports a mismatch, if there is one. What an agent does after it was left or stopped is not compared. */
  #mayMismatch(mismatch: Mismatch | undefined): boolean {
    if (mismatch === undefined || this.isClosed) return false;
    this.#journal.onMismatch(mismatch);
    return true;
  }

  protected override end(closed: (() => Error) | "dropped"): void {
    super.end(closed);
    this.#order.stop();
  }
}
