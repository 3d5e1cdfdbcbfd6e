import { CadenzaError } from "../core/errors.ts";
import type { RunKey } from "../core/ports.ts";

/** The error for a run of which an entry cannot be read. It concerns this run alone. */
export function damaged({ run_id }: RunKey, position: number, cause?: unknown): CadenzaError {
  const message = `Run ${run_id} is damaged in the store: position ${position} of its log cannot be read.`;
  return new CadenzaError("store_failed", message, { run_id, cause });
}

/** Whether an error is of {@link damaged}. */
export function isDamage(error: unknown): boolean {
  return CadenzaError.is(error) && error.code === "store_failed" && error.run_id !== undefined;
}
