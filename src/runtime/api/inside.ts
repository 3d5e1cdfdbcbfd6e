import type { Clock, RunKey, Store } from "../../core/ports.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Agent } from "../agent/agent.ts";
import type { RunInput } from "../agent/input.ts";
import type { Registry } from "../agent/registry.ts";
import type { Pauses } from "../log/pauses.ts";
import type { Feed } from "../log/watch.ts";
import type { Audit } from "../runs/audit.ts";
import type { CreateRunOptions } from "../runs/requests.ts";

/** What the operator's side needs of a runtime in addition to its public members. `Scope`: what its scopes are. */
export interface Inside<Scope = unknown> {
  readonly store: Store;
  readonly registry: Registry;
  readonly feed: Feed;
  readonly pauses: Pauses;
  /** Undefined: the application wants no records. */
  readonly audit: Audit | undefined;
  /** Whether the runtime is being closed, or is closed. */
  readonly isClosed: boolean;
  /** How many streams of one tenant a handler may have open. Undefined: a share of all that it may have. */
  readonly readersPerTenant: number | undefined;
  readonly clock: Clock;
  /** The scope of any tenant, also of `OPERATORS`. Its forks wait in a store that processes share until one has room. */
  scope(tenant: string, principal: JsonValue): Scope;
  /**
   * Registers an agent of operators, unless one of its name and version is registered. Returns the one that is: a process
   * that executes no runs knows so of it that other processes do.
   */
  register(agent: Agent): Agent;
  /**
   * Creates a run of a registered agent, whichever is the current one of its name: callers can create none of an agent of
   * operators. Resolves when the store has the run.
   */
  begin(agent: Agent, request: GivenRun): Promise<RunKey>;
}

/** A run of an agent that is given, instead of the name of one. */
export interface GivenRun {
  /** Default: `OPERATORS`. */
  readonly tenant?: string;
  readonly principal: JsonValue;
  /** Default: an empty text. */
  readonly input?: RunInput;
  readonly options: CreateRunOptions;
}

/** The key of a runtime's inside: a symbol, so that no application takes it for a member. */
export const insideKey: unique symbol = Symbol.for("cadenza.inside") as never;
