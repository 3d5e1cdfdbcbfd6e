import { decide, isRefusal } from "../../core/decide.ts";
import type { ReceivedEntry } from "../../core/log.ts";
import type { RunKey, Store } from "../../core/ports.ts";
import { foldLog, present } from "../log/fold-log.ts";
import { lostError, refusalError } from "../log/refusals.ts";

/**
 * Refuses a message to a run that has ended or is being cancelled. A message that has arrived before under the same
 * idempotency key is not refused. Throws `run_not_found`, `run_finished`, `run_cancelling` or `idempotency_conflict`.
 */
export async function refuseLate(store: Store, key: RunKey, entry: ReceivedEntry): Promise<void> {
  const state = present(key, await foldLog(store, key, Number.POSITIVE_INFINITY));
  const decision = decide(state, { type: "receive", entry });
  if (isRefusal(decision)) throw refusalError(decision, key.run_id);
  if (decision.length > 0) throw lostError(key.run_id);
}
