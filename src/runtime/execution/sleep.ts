import type { Command } from "../../core/commands.ts";
import { isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { IntentEntry, ResultEntry } from "../../core/log.ts";
import { LAST_TIME } from "../../core/time.ts";
import { badArgument } from "../agent/check.ts";
import { AgentPromise } from "./agent-promise.ts";
import type { Execution } from "./execution.ts";
import { onceCommitted } from "./once-committed.ts";
import { Wait } from "./wait.ts";

/** A wait whose deadline is in the `intent` of its operation. */
export abstract class IntendedWait extends Wait {
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
export class Sleep extends IntendedWait {
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
export function readUntil(name: string, value: unknown, now: number): number {
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
