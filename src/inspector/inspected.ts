import type { Admin } from "../admin/admin.ts";
import { createAdmin } from "../admin/admin.ts";
import type { AdminRun, AdminWorker } from "../admin/records.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Clock, Logger, RunKey, Store } from "../core/ports.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import { insideKey } from "../runtime/api/inside.ts";
import { guarded } from "../runtime/log/store-failures.ts";
import { machineClock, silentLogger } from "../runtime/log/system.ts";
import type { InspectorTarget } from "./options.ts";

/** What an inspector shows, and what it needs for it. */
export interface Inspected {
  readonly admin: Admin;
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Undefined: a store alone, which is only read. */
  readonly runtime: AgentRuntime | undefined;
  isClosed(): boolean;
}

export function inspect(target: InspectorTarget): Inspected {
  const admin = createAdmin(target);
  if (!(insideKey in target)) {
    const store = guarded(target.store);
    return {
      admin,
      store,
      clock: machineClock(silentLogger),
      logger: silentLogger,
      runtime: undefined,
      isClosed: () => false,
    };
  }
  const { store } = target[insideKey];
  const { clock, logger } = target;
  return { admin, store, clock, logger, runtime: target, isClosed: () => target[insideKey].isClosed };
}

/** Whether the lease of a run's worker has ended, so that the run waits to be taken over. */
export function isLost({ status, worker }: AdminRun, workers: readonly AdminWorker[]): boolean {
  if (worker === null || !isExecuted(status)) return false;
  return workers.find((one) => one.worker === worker)?.is_alive !== true;
}

export function isExecuted(status: AdminRun["status"]): boolean {
  return status === "in-progress" || status === "cancelling";
}

/** The error for a run that does not exist for the user: the same for one of another tenant. */
export function noSuchRun({ tenant, run_id }: RunKey): CadenzaError {
  const where = tenant === "" ? "without a tenant" : `of the tenant ${JSON.stringify(tenant)}`;
  return new CadenzaError("run_not_found", `There is no run ${run_id} ${where}.`, { run_id });
}
