import { inBackground, onceAborted } from "../../core/background.ts";
import type { Command } from "../../core/commands.ts";
import { isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import { takenAt } from "../../core/head.ts";
import { copyJson } from "../../core/json.ts";
import type { Entry, Growing, IntentEntry, ReceivedEntry, ResultEntry, TakenEntry } from "../../core/log.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { InboxMessage } from "../../core/state.ts";
import { LAST_TIME } from "../../core/time.ts";
import type { MessageDetails, SleepOptions } from "../agent/agent-waits.ts";
import { badArgument, checkAmount, checkKeys, checkObject, checkSignal } from "../agent/check.ts";
import type { StandardSchema, Validated } from "../agent/standard-schema.ts";
import { isStandardSchema, validateAccepted } from "../agent/standard-schema.ts";
import { issuesText } from "../log/refusals.ts";
import { AgentPromise } from "./agent-promise.ts";
import type { Execution } from "./execution.ts";
import type { Committed, Operation } from "./operations.ts";
import { onceCommitted, onceInLog, uncommitted, unfit } from "./operations.ts";

/**
 * An operation that waits for an event outside the run: a question, a sleep or a receive. The log holds that it waits,
 * and until when. It ends with its result, at its deadline, when its signal aborts, or with its run.
 */
export abstract class Wait implements Operation {
  readonly key: string;
  protected readonly execution: Execution;
  readonly #signal: AbortSignal | undefined;
  #clearDeadline: (() => void) | undefined;
  #onRelease: (() => void)[] | undefined;
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
    else this.onRelease(onceAborted(this.execution.logger, signal, withdraw));
  }

  release(): void {
    this.#clearDeadline?.();
    this.#clearDeadline = undefined;
    for (const callback of this.#onRelease ?? []) callback();
  }

  /** Calls back when the wait has its result, or the run leaves this process. */
  onRelease(callback: () => void): void {
    this.#onRelease = [...(this.#onRelease ?? []), callback];
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
  /** The agent may be given the entry that ends the wait. */
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
    this.onDecided(entry);
  }

  /** The end of the wait is decided: the agent gets it when it is committed. */
  protected onDecided(entry: Entry): void {
    onceInLog(this.execution.log, entry, (committed) => {
      if (committed !== undefined) this.onEnded(committed);
    });
  }

  /** The error of a wait that was withdrawn. */
  protected withdrawn(otherwise: () => CadenzaError): unknown {
    return this.#signal?.aborted === true ? this.#signal.reason : otherwise();
  }

  protected onDeadline(): void {
    const { run, clock } = this.execution;
    if (run.mayGoOn) this.finish(this.expiry(clock.now()));
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

/** A wait whose deadline is in the `intent` of its operation. */
abstract class IntendedWait extends Wait {
  readonly given = new AgentPromise<unknown>();

  protected get isLogged(): boolean {
    return this.#intent !== undefined;
  }

  protected get deadline(): number | undefined {
    return this.#intent?.until ?? undefined;
  }

  resolve(value: unknown): void {
    this.given.resolve(value);
  }

  reject(error: unknown): void {
    this.execution.fail(this.given, error, this.key);
  }

  /** Logs that the operation waits. */
  protected intend(until: number | null): boolean {
    const { log, clock } = this.execution;
    const entry: IntentEntry = { type: "intent", at: clock.now(), key: this.key, attempt: 1, run_id: null, until };
    const decision = log.decide({ type: "intend", entry });
    if (isRefusal(decision) || decision.length === 0) return false;
    log.flush();
    return true;
  }

  get #intent(): IntentEntry | undefined {
    return this.execution.log.state.waits?.get(this.key);
  }
}

/** A durable timer of the agent. */
class Sleep extends IntendedWait {
  readonly #until: number;

  constructor(execution: Execution, key: string, until: number, signal: AbortSignal | undefined) {
    super(execution, key, signal);
    this.#until = until;
  }

  protected begin(): boolean {
    return this.intend(this.#until);
  }

  /** Its beginning is committed first: the cancel of another process would drop the beginning, and not the result. */
  protected override onDeadline(): void {
    onceCommitted(this.execution.log, () => {
      if (this.isLogged) super.onDeadline();
    });
  }

  protected expiry(at: number): Command {
    const usage = this.execution.takeUsage();
    return { type: "record", entry: { type: "step", at, key: this.key, result: undefined, error: null, usage } };
  }

  settle(entry: ResultEntry): undefined {
    if (entry.type !== "withdrawn") return undefined;
    const { run_id } = this.execution.log.key;
    throw this.withdrawn(
      () => new CadenzaError("withdrawn", `The sleep ${this.key} of run ${run_id} was withdrawn.`, { run_id }),
    );
  }
}

const units: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/**
 * Reads when a sleep ends, in milliseconds since 1970: after a number of milliseconds, after a text such as "90s" or
 * "24h", or at a date. Throws `invalid_argument` for anything else, and for a time that no `Date` can have.
 */
function readUntil(name: string, value: unknown, now: number): number {
  const until = value instanceof Date ? value.getTime() : now + durationOf(value);
  if (until <= LAST_TIME) return until;
  throw badArgument(name, 'a number of milliseconds, a duration such as "90s" or "24h", or a Date', value);
}

/** In milliseconds. NaN for a value that is no duration. */
function durationOf(value: unknown): number {
  if (typeof value === "number") return value >= 0 ? value : Number.NaN;
  const [, amount, unit] = typeof value === "string" ? (/^(\d+(?:\.\d+)?) ?(ms|[smhdw])$/.exec(value) ?? []) : [];
  return Number(amount) * (units[unit ?? ""] ?? Number.NaN);
}

/** How a message is received. */
export interface Receiving {
  readonly schema?: StandardSchema | undefined;
  readonly timeoutMs?: number | undefined;
  readonly default?: unknown;
  readonly signal?: AbortSignal | undefined;
  readonly details?: boolean | undefined;
}

/** A message that a receive is about to take, and what the schema says of it. */
interface Claim {
  readonly message: InboxMessage;
  /** Undefined: the schema has not answered. */
  readonly verdict?: Validated;
}

/** One receive of the agent: takes the first message of its name. */
class Receive extends IntendedWait {
  readonly #name: string;
  readonly #options: Receiving;
  taken: InboxMessage | undefined;
  #claim: Claim | undefined;

  constructor(execution: Execution, key: string, name: string, options: Receiving) {
    super(execution, key, options.signal);
    this.#name = name;
    this.#options = options;
  }

  override start(): void {
    // Receives that began before this one come first.
    if (this.#next() !== undefined) takeMail(this.execution);
    if (!this.isEnded) super.start();
  }

  /** The position of the message that its schema is asked about. No other receive takes that message. */
  get claimed(): number | undefined {
    return this.#isAsking ? this.#claim?.message.position : undefined;
  }

  /** Takes the next message of its name, unless it has ended. To `claimed` it adds the message that it is about to take. */
  take(claimed: Set<number>): void {
    const message = this.isEnded || this.#isAsking ? undefined : this.#next(claimed);
    if (message === undefined) return;
    const verdict = this.#validate(message.entry);
    if (!isPromise(verdict)) {
      this.#end({ message, verdict });
      return;
    }
    const claim: Claim = { message };
    this.#claim = claim;
    claimed.add(message.position);
    const judged = verdict.then((later) => {
      if (this.#claim === claim && !this.execution.isStopped) this.#end({ message, verdict: later });
    });
    inBackground(this.execution.logger, judged);
  }

  /** The log says at once whether the message was rejected, so the schema has answered by then. */
  #end(claim: Claim & { readonly verdict: Validated }): void {
    this.#claim = claim;
    const { position } = claim.message;
    const entry: Growing<TakenEntry> = { type: "taken", at: this.execution.clock.now(), key: this.key, position };
    if ("issues" in claim.verdict) entry.issues = claim.verdict.issues;
    this.finish({ type: "take", entry });
    if (this.isEnded) this.taken = claim.message;
  }

  get #isAsking(): boolean {
    return !this.isEnded && this.#claim !== undefined && this.#claim.verdict === undefined;
  }

  /** The first message of its name that has arrived and is committed, and that no receive has taken or takes now. */
  #next(claimed?: ReadonlySet<number>): InboxMessage | undefined {
    const { state, committed } = this.execution.log;
    return state.mail?.inbox.find(
      ({ entry, position }) => entry.name === this.#name && position < committed && claimed?.has(position) !== true,
    );
  }

  protected begin(): boolean {
    const { timeoutMs = Number.POSITIVE_INFINITY } = this.#options;
    const now = this.execution.clock.now();
    if (timeoutMs === 0 && !this.#isAsking) {
      this.finish(this.expiry(now));
      return false;
    }
    return this.intend(now + timeoutMs <= LAST_TIME ? now + timeoutMs : null);
  }

  /** A message that has arrived in time is taken, however long its schema needs. */
  protected override onDeadline(): void {
    if (!this.#isAsking) super.onDeadline();
  }

  /**
   * A message is given to an agent at once if that waits for nothing else. Executed again, the agent takes the same message, since
   * the log says which one is the first of its name. No step or sub-run is at work that the agent could stop, and none begins
   * before the commit.
   */
  protected override onDecided(entry: Entry): void {
    const { journal, open, log } = this.execution;
    const isTaken = entry.type === "taken" && entry.position !== null;
    if (isTaken && journal !== undefined && open.length === 1 && log.handsOver) this.onEnded(uncommitted(entry));
    else super.onDecided(entry);
  }

  /** A receive that is aborted leaves its message to the next one. */
  protected override finish(command: Command): void {
    const wasAsking = this.#isAsking;
    super.finish(command);
    if (!wasAsking || !this.isEnded || command.type !== "withdraw") return;
    this.#claim = undefined;
    takeMail(this.execution);
  }

  protected expiry(at: number): Command {
    return { type: "take", entry: { type: "taken", at, key: this.key, position: null } };
  }

  settle(entry: ResultEntry, taken: unknown): unknown {
    if (entry.type === "withdrawn") throw this.withdrawn(() => this.#error("withdrawn", "was withdrawn."));
    if (entry.type !== "taken") throw new TypeError(`Expected an entry that takes a message, found ${entry.type}.`);
    if (entry.position === null) {
      const { default: fallback } = this.#options;
      if (fallback !== undefined) return this.#told(fallback, { at: entry.at }, "default");
      throw this.#error("receive_timeout", "got no message in time.");
    }
    if (this.#claim?.verdict !== undefined) return this.#read(this.#claim.message.entry, this.#claim.verdict);
    const message = taken as ReceivedEntry | undefined;
    if (message === undefined) throw new TypeError(`There is no message at position ${entry.position} of the log.`);
    const { issues } = entry;
    // A message that was rejected stays so, also if the code has another schema by now.
    return issues === undefined ? this.#readAgain(message) : this.#read(message, { issues });
  }

  /** An earlier execution may have got and used the message, which a schema that fails does not tell. */
  async #readAgain(message: ReceivedEntry): Promise<unknown> {
    const outcome = await this.#validate(message);
    return "failed" in outcome ? unfit : this.#read(message, outcome);
  }

  /** A copy of the message, because the agent may change it. */
  #validate({ data }: ReceivedEntry): MaybePromise<Validated> {
    const { schema } = this.#options;
    const value = copyJson(data);
    return schema === undefined ? { value } : validateAccepted(schema, [value], this.execution);
  }

  async #read(message: ReceivedEntry, outcome: Validated): Promise<unknown> {
    if ("value" in outcome) return this.#told(outcome.value, message, "message");
    const { issues } = outcome;
    throw this.#error(
      "message_rejected",
      `got a message that does not match its schema: ${issuesText(issues)}`,
      issues,
    );
  }

  /** The value for the agent. */
  #told(value: unknown, { at, by = null }: Pick<ReceivedEntry, "at" | "by">, how: "message" | "default"): unknown {
    return this.#options.details === true ? ({ value, by, at, how } satisfies MessageDetails<unknown>) : value;
  }

  #error(
    code: "receive_timeout" | "withdrawn" | "message_rejected",
    what: string,
    issues?: CadenzaError["issues"],
  ): CadenzaError {
    const { run_id } = this.execution.log.key;
    const message = `The receive ${this.key} of run ${run_id} ${what}`;
    return new CadenzaError(code, message, { run_id, ...(issues !== undefined && { issues }) });
  }
}

/** The receives that are open take the messages that have arrived, in the order in which they began. */
export function takeMail(operations: Pick<Execution, "open" | "find">): void {
  const receives = operations.open.map((key) => operations.find(key)).filter((one) => one instanceof Receive);
  const claimed = new Set(receives.flatMap((receive) => receive.claimed ?? []));
  for (const receive of receives) receive.take(claimed);
}

/** Throws `invalid_argument` for unknown or invalid options of `context.receive`. */
export function checkReceiveOptions(options: unknown): void {
  checkWaitOptions(options, ["schema", "timeoutMs", "default", "signal", "details"]);
}

/** Waits for a time. */
export function sleepFor(
  execution: Execution,
  duration: number | string | Date,
  { name, signal }: SleepOptions,
): Promise<unknown> {
  const until = readUntil("duration", duration, execution.clock.now());
  const key = execution.keyFor(name === undefined ? "sleep" : `sleep:${name}`);
  throwIfAborted(signal);
  const sleep = new Sleep(execution, key, until, signal);
  execution.begin(sleep);
  return sleep.given;
}

/** Waits for a message. */
export function receiveMessage(execution: Execution, name: string, options: Receiving): Promise<unknown> {
  const key = execution.keyFor(`receive:${name}`);
  throwIfAborted(options.signal);
  const receive = new Receive(execution, key, name, options);
  execution.begin(receive);
  return receive.given;
}

/** The clock was set, or the store has given the run to this process: the times to all deadlines may be others. */
export function measureAgain(execution: Execution): void {
  for (const key of execution.open) {
    const operation = execution.find(key);
    if (operation instanceof Wait) operation.measureAgain();
  }
}

/** Throws the reason of a signal that is aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason;
}
