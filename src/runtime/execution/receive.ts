import { inBackground } from "../../core/background.ts";
import type { Command } from "../../core/commands.ts";
import { CadenzaError } from "../../core/errors.ts";
import { copyJson } from "../../core/json.ts";
import type { Growing, ReceivedEntry, ResultEntry, TakenEntry } from "../../core/log.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { InboxMessage } from "../../core/state.ts";
import { LAST_TIME } from "../../core/time.ts";
import type { MessageDetails } from "../agent/agent-waits.ts";
import type { StandardSchema, Validated } from "../agent/standard-schema.ts";
import { validateAccepted } from "../agent/standard-schema.ts";
import { issuesText } from "../log/refusals.ts";
import type { Execution } from "./execution.ts";
import { IntendedWait } from "./sleep.ts";
import { checkWaitOptions } from "./wait.ts";

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
export class Receive extends IntendedWait {
  readonly #name: string;
  readonly #options: Receiving;
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
      if ("default" in this.#options) return this.#told(this.#options.default, { at: entry.at }, "default");
      throw this.#error("receive_timeout", "got no message in time.");
    }
    if (this.#claim?.verdict !== undefined) return this.#read(this.#claim.message.entry, this.#claim.verdict);
    const message = taken as ReceivedEntry | undefined;
    if (message === undefined) throw new TypeError(`There is no message at position ${entry.position} of the log.`);
    const { issues } = entry;
    // A message that was rejected stays so, also if the code has another schema by now.
    return this.#read(message, issues === undefined ? this.#validate(message) : { issues });
  }

  /** A copy of the message, because the agent may change it. */
  #validate({ data }: ReceivedEntry): MaybePromise<Validated> {
    const { schema } = this.#options;
    const value = copyJson(data);
    return schema === undefined ? { value } : validateAccepted(schema, [value], this.execution);
  }

  async #read(message: ReceivedEntry, reading: MaybePromise<Validated>): Promise<unknown> {
    const outcome = await reading;
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
