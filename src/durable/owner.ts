import type { Store } from "../core/ports.ts";
import type { RemoteRunsHost } from "../runtime/remote-runs.ts";
import type { DurabilitySettings } from "./options.ts";

/** A process as the owner of runs. */
export interface Owner {
  /** The loaded runs. */
  readonly runs: RemoteRunsHost;
  readonly store: Store;
  /** The name under which this process owns runs. */
  readonly name: string;
  readonly settings: DurabilitySettings;
  /** A run that is not loaded here may need work. */
  onWake(): void;
  /** A call to the store failed. The store may still have made this process the owner of a run. */
  onUnknownOutcome(): void;
}
