import { CadenzaError } from "../../core/errors.ts";
import type { Clock, RunKey, Store } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ownName } from "../../core/tenants.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { Agent, AgentFunction, Registration } from "../agent/agent.ts";
import type { DurableContext } from "../agent/agent-context.ts";
import type { RunInput } from "../agent/input.ts";
import type { Interceptors } from "../agent/interceptors.ts";
import type { Registry } from "../agent/registry.ts";
import type { Pauses } from "../log/pauses.ts";
import type { Feed } from "../log/watch.ts";
import type { Audit, AuditedCall, AuditedObjects } from "../runs/audit.ts";
import type { CreateRunOptions } from "../runs/requests.ts";

/** What the operator's side needs of a runtime in addition to its public members. `Scope`: what its scopes are. */
export interface Inside<Scope = unknown> {
  readonly store: Store;
  readonly registry: Registry;
  /** What wraps the calls of its agents. */
  readonly interceptors: Interceptors;
  readonly feed: Feed;
  readonly pauses: Pauses;
  /** Undefined: the application wants no records. */
  readonly audit: Audit | undefined;
  /** Whether the runtime is being closed, or is closed. */
  readonly isClosed: boolean;
  /** How many streams of one tenant a handler may have open. Undefined: a share of all that it may have. */
  readonly readersPerTenant: number | undefined;
  readonly clock: Clock;
  /**
   * The scope of any tenant, also of `OPERATORS`. Its forks wait in a store that processes share until one has room. `untold`:
   * the caller itself tells `audit` of what it does.
   */
  scope(tenant: string, principal: JsonValue, told?: "untold"): Scope;
  /** Makes a call, and tells `audit` of it. The call says so if it changes nothing. */
  told<T>(about: ToldCall, call: (unchanged: () => void) => Promise<T>): MaybePromise<T>;
  /**
   * Registers an agent of operators, unless one of its name and version is registered. Returns the one that is: a process
   * that executes no runs knows so of it that other processes do.
   */
  register(agent: Agent): Agent;
  /** Checks an input by the schema of an agent. Throws `invalid_input`. */
  checkInput(agent: Agent, input: readonly Message[]): undefined | Promise<unknown>;
  /**
   * Creates a run of a registered agent, whichever is the current one of its name: callers can create none of an agent of
   * operators. Resolves when the store has the run.
   */
  begin(agent: Agent, request: GivenRun): Promise<RunKey>;
}

/** What a call does, for whom and to what. */
export interface ToldCall extends AuditedObjects, Pick<AuditedCall, "action" | "tenant" | "by"> {}

/** A run of an agent that is given, instead of the name of one. */
export interface GivenRun {
  /** Default: `OPERATORS`. */
  readonly tenant?: string;
  readonly principal: JsonValue;
  /** Default: an empty text. */
  readonly input?: RunInput;
  /** Names the run within its tenant: a repeated call creates no second one. Its key is the `ownKey` of these texts. */
  readonly name?: readonly string[];
  readonly options?: Omit<CreateRunOptions, "idempotencyKey">;
}

const passing: ReadonlySet<string> = new Set(["store_failed", "lost_ownership", "runtime_closed"]);

/** Whether another process, or the same one later, may not meet an error. */
export function isPassing(error: unknown): boolean {
  return CadenzaError.is(error) && passing.has(error.code);
}

/** How often a step of the runtime's own is tried: it outlasts a store that fails, and a process that is being closed. */
export const outlasting = {
  attempts: Number.MAX_SAFE_INTEGER,
  backoffMs: 1_000,
  maxBackoffMs: 60_000,
  when: isPassing,
};

const gone: ReadonlySet<string> = new Set(["run_not_found", "run_finished", "run_cancelling"]);

/** Makes a call about a run. Resolves with whether it was not refused because the run has ended, is being cancelled or was deleted. */
export async function unlessGone(call: () => Promise<unknown>): Promise<boolean> {
  try {
    await call();
    return true;
  } catch (error) {
    if (CadenzaError.is(error) && gone.has(error.code)) return false;
    throw error;
  }
}

/** An agent of the runtime's own. New runs are given it: no name leads to it. */
export function ownAgent(name: string, fn: (input: never, context: DurableContext) => Promise<unknown>): Agent {
  const options: Agent["options"] & Registration = {
    ...{ durable: true, version: "1", current: false },
    timeoutMs: Number.POSITIVE_INFINITY,
  };
  return { name: ownName(name), options, fn: fn as AgentFunction };
}

/** The key of a runtime's inside: a symbol, so that no application takes it for a member. */
export const insideKey: unique symbol = Symbol.for("cadenza.inside") as never;
