import type { Command } from "../core/decide.ts";
import { isRefusal } from "../core/decide.ts";
import type { CadenzaError } from "../core/errors.ts";
import type { Entry, ResultEntry } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";
import type { Usage } from "../protocol/extensions.ts";
import { badArgument, checkAmount, checkKeys, checkObject, checkSignal } from "./check.ts";
import type { Interceptors } from "./interceptors.ts";
import { onceCommitted } from "./once-committed.ts";
import type { Operation, Operations } from "./operations.ts";
import type { RunLog } from "./run-log.ts";
import { isStandardSchema } from "./standard-schema.ts";

/** What an operation that waits needs from the agent that began it. */
export interface WaitHost {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly operations: Operations;
  /** See {@link Ownership.takenAt}. */
  readonly takenAt: number;
  /** Of the runtime. `awaitTimeoutMs`: how long a question without a `timeoutMs` may be answered. */
  readonly settings: { readonly awaitTimeoutMs: number; readonly interceptors: Interceptors };
  takeUsage(): Usage | null;
  /** The agent begins to wait. */
  onWait(): void;
  /** Hands a result to its operation. */
  deliver(entry: Entry, live?: unknown): void;
  /** Calls back when the run has a slot. */
  withSlot(callback: () => void): void;
  /** A question without a default has expired. */
  onExpired(): void;
  /** The log holds an answer that fails the validation of the question as the code asks it now. */
  onUnfitAnswer(key: string): void;
  /** Continues an agent that has yielded an await request. `yield` returns `sent`, or throws the error. */
  goOn(sent: unknown): void;
  throwInto(error: unknown): void;
}

/**
 * An operation that waits for an event outside the run: a question, a sleep or a receive. The log holds that it waits,
 * and until when. It ends with its result, at its deadline, when its signal aborts, or with its run.
 */
export abstract class Wait implements Operation {
  readonly key: string;
  protected readonly host: WaitHost;
  readonly #signal: AbortSignal | undefined;
  #clearDeadline: (() => void) | undefined;
  #onAbort: (() => void) | undefined;
  #isEnded = false;

  constructor(host: WaitHost, key: string, signal: AbortSignal | undefined) {
    this.host = host;
    this.key = key;
    this.#signal = signal;
  }

  start(): void {
    if (!this.isLogged && !this.begin()) return;
    this.host.onWait();
    this.watchDeadline();
    const signal = this.#signal;
    if (signal === undefined) return;
    this.#onAbort = () => this.finish({ type: "withdraw", at: this.host.clock.now(), await_id: this.key });
    if (signal.aborted) this.#onAbort();
    else signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  release(): void {
    this.#clearDeadline?.();
    this.#clearDeadline = undefined;
    if (this.#onAbort !== undefined) this.#signal?.removeEventListener("abort", this.#onAbort);
  }

  /** The store has given the run to this process, perhaps because the deadline has passed by the store's clock. */
  onTaken(): void {
    if (this.#clearDeadline !== undefined) this.watchDeadline();
  }

  /** Whether its end is decided. It may not be handed over yet. */
  protected get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Whether the log holds that the operation waits: an earlier execution has begun it. */
  protected abstract get isLogged(): boolean;
  /** When it waits no longer, in milliseconds since 1970. Undefined: it waits for ever. */
  protected abstract get deadline(): number | undefined;
  /** Logs that it waits. False: it does not wait. */
  protected abstract begin(): boolean;
  /** What is decided at the deadline. */
  protected abstract expiry(at: number): Command;
  /** The entry that ends it is committed. */
  protected onEnded(entry: Entry): void {
    this.host.withSlot(() => this.host.deliver(entry));
  }

  abstract settle(entry: ResultEntry, live: unknown): unknown;
  abstract resolve(value: unknown): void;
  abstract reject(error: unknown): void;

  /** Decides the end of the wait, commits it, and hands it over. */
  protected finish(command: Command): void {
    if (this.#isEnded) return;
    const { log } = this.host;
    const decision = log.decide(command);
    const entry = isRefusal(decision) ? undefined : decision[0];
    if (entry === undefined) return;
    this.#isEnded = true;
    onceCommitted(log, () => this.onEnded(entry));
  }

  /** The error of a wait that was withdrawn. */
  protected withdrawn(otherwise: () => CadenzaError): unknown {
    return this.#signal?.aborted === true ? this.#signal.reason : otherwise();
  }

  protected onDeadline(): void {
    this.finish(this.expiry(this.host.clock.now()));
  }

  protected watchDeadline(): void {
    const { deadline } = this;
    this.#clearDeadline?.();
    if (deadline === undefined) return;
    const { clock } = this.host;
    // This clock may be behind the store's clock, by which the deadline has passed.
    const left = (): number => (this.host.takenAt >= deadline ? 0 : deadline - clock.now());
    this.#clearDeadline = clock.setTimeout(
      // Timers may fire a little early.
      () => (left() > 0 ? this.watchDeadline() : this.onDeadline()),
      Math.max(0, left()),
    );
  }
}

/**
 * Checks the options that questions and receives have in common. Throws `invalid_argument`, also for an option that is
 * not in `known`.
 */
export function checkWaitOptions(options: unknown, known: readonly string[]): { readonly [name: string]: unknown } {
  checkObject("options", options);
  checkKeys("options", options, known);
  const checked = options as { readonly [name: string]: unknown };
  const { schema, timeoutMs, signal, details } = checked;
  if (schema !== undefined && !isStandardSchema(schema))
    throw badArgument("options.schema", "a Standard Schema", schema);
  if (timeoutMs !== undefined) checkAmount("options.timeoutMs", timeoutMs);
  checkSignal("options.signal", signal);
  if (details !== undefined && typeof details !== "boolean")
    throw badArgument("options.details", "true or false", details);
  return checked;
}
