import type { Store } from "../../core/ports.ts";
import type { Registry } from "../agent/registry.ts";
import type { Pauses } from "../log/pauses.ts";
import type { Feed } from "../log/watch.ts";
import type { Audit } from "../runs/audit.ts";

/** What the operator's side needs of a runtime in addition to its public members. */
export interface Inside {
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
}

/** The key of a runtime's inside: a symbol, so that no application takes it for a member. */
export const insideKey: unique symbol = Symbol.for("cadenza.inside") as never;
