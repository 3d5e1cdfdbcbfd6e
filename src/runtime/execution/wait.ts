import { onceAborted } from "../../core/background.ts";
import type { Command } from "../../core/commands.ts";
import { isRefusal } from "../../core/decide.ts";
import type { CadenzaError } from "../../core/errors.ts";
import { takenAt } from "../../core/head.ts";
import type { ResultEntry } from "../../core/log.ts";
import { badArgument, checkAmount, checkKeys, checkObject, checkSignal } from "../agent/check.ts";
import { isStandardSchema } from "../agent/standard-schema.ts";
import type { Committed, Operation } from "../log/operations.ts";
import type { Execution } from "./execution.ts";
import { onceInLog } from "./once-committed.ts";

/**
 * An operation that waits for an event outside the run: a question, a sleep or a receive. The log holds that it waits,
 * and until when. It ends with its result, at its deadline, when its signal aborts, or with its run.
 */
export abstract class Wait implements Operation {
  readonly key: string;
  protected readonly execution: Execution;
  readonly #signal: AbortSignal | undefined;
  #clearDeadline: (() => void) | undefined;
  #unfollow: (() => void) | undefined;
  #isEnded = false;

  constructor(execution: Execution, key: string, signal: AbortSignal | undefined) {
    this.execution = execution;
    this.key = key;
    this.#signal = signal;
  }

  start(): void {
    if (!this.isLogged && !this.begin()) return;
    this.watchDeadline();
    const signal = this.#signal;
    if (signal === undefined) return;
    const withdraw = (): void => this.finish({ type: "withdraw", at: this.execution.clock.now(), await_id: this.key });
    if (signal.aborted) withdraw();
    else this.#unfollow = onceAborted(this.execution.logger, signal, withdraw);
  }

  release(): void {
    this.#clearDeadline?.();
    this.#clearDeadline = undefined;
    this.#unfollow?.();
  }

  /** The time to the deadline may be another one: the clock was set, or the store has given the run to this process. */
  measureAgain(): void {
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
  protected onEnded(entry: Committed): void {
    this.execution.withSlot(() => this.execution.deliver(entry));
  }

  abstract settle(entry: ResultEntry, live: unknown): unknown;
  abstract resolve(value: unknown): void;
  abstract reject(error: unknown): void;

  /** Decides the end of the wait, commits it, and hands over what the log holds then. An end that the log does not have is dropped. */
  protected finish(command: Command): void {
    if (this.#isEnded) return;
    const { log } = this.execution;
    const decision = log.decide(command);
    const entry = isRefusal(decision) ? undefined : decision[0];
    if (entry === undefined) return;
    this.#isEnded = true;
    onceInLog(log, entry, (committed) => {
      if (committed !== undefined) this.onEnded(committed);
    });
  }

  /** The error of a wait that was withdrawn. */
  protected withdrawn(otherwise: () => CadenzaError): unknown {
    return this.#signal?.aborted === true ? this.#signal.reason : otherwise();
  }

  protected onDeadline(): void {
    this.finish(this.expiry(this.execution.clock.now()));
  }

  protected watchDeadline(): void {
    const { deadline } = this;
    this.#clearDeadline?.();
    if (deadline === undefined) return;
    const { clock } = this.execution;
    // This clock may be behind the store's clock, by which the deadline has passed.
    const left = (): number => (takenAt(this.execution.log.head) >= deadline ? 0 : deadline - clock.now());
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
