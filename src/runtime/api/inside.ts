import type { Clock, RunKey, Store } from "../../core/ports.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { Agent } from "../agent/agent.ts";
import type { Registry } from "../agent/registry.ts";
import type { Pauses } from "../log/pauses.ts";
import type { Feed } from "../log/watch.ts";
import type { Audit } from "../runs/audit.ts";

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
  /** Registers an agent of operators, unless it is registered: see {@link begin}. */
  register(agent: Agent): void;
  /**
   * Creates a run of an agent of operators, in the tenant `OPERATORS`. Other callers can create none, since the agent is
   * the current version of no name. Resolves when the store has the run.
   */
  begin(agent: Agent, principal: JsonValue, metadata: JsonObject): Promise<RunKey>;
}

/** The key of a runtime's inside: a symbol, so that no application takes it for a member. */
export const insideKey: unique symbol = Symbol.for("cadenza.inside") as never;
