import { CadenzaError, noSession } from "../../core/errors.ts";
import { expectedAfter, localHead } from "../../core/head.ts";
import type { SessionChange, StoreConflict } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import type { Ownership } from "./ownership.ts";
import { lostError } from "./refusals.ts";
import type { Attempt, Outcome } from "./run-write.ts";

const nothing = (): undefined => undefined;

/** The ownership of all runs in a store that only this process uses. It has no state. */
export const localOwnership: Ownership = {
  expected: expectedAfter,
  headFor: localHead,
  wakeFor: nothing,
  onWritten: ignore,
  told: nothing,
  onWakeWritten: ignore,
  onConflict,
  onReaders: ignore,
  sync: nothing,
  slotOf: nothing,
  prepare: ignore,
  operations: nothing,
  mismatch: undefined,
  isCatchingUp: false,
  whenAnswerable: nothing,
  onCommit: ignore,
  onGone: ignore,
  setSubRun: ignore,
  settle: ignore,
  mayLeave: false,
  release: nothing,
};

/** No other process writes, so a conflict comes from an attempt of this one whose answer was lost. */
function onConflict(conflict: StoreConflict, { expected, key, write }: Attempt, failed: readonly Attempt[]): Outcome {
  const position = expected?.position ?? 0;
  const own = failed.find(
    (one) => conflict.conflict === "changed" && conflict.position === position + one.write.entries.length,
  );
  if (own !== undefined) return { is: "recognised", own };
  return { is: "lost", error: takenError(conflict, write.session) ?? lostError(key.run_id) };
}

/**
 * The error for a new run whose idempotency key another request has used, or whose session another user has made
 * meanwhile. Undefined: it is another conflict.
 */
export function takenError(conflict: StoreConflict, session: SessionChange | undefined): CadenzaError | undefined {
  if (conflict.conflict === "foreign" && session !== undefined) return noSession(session.session_id);
  if (conflict.conflict !== "key_used") return undefined;
  const { run_id } = conflict;
  const message = "The idempotency key was used by another request at the same time.";
  return new CadenzaError("idempotency_conflict", message, { run_id });
}
