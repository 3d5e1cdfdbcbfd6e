import { newerPart } from "../../core/format.ts";
import { copyJson, sameJson } from "../../core/json.ts";
import type { Entry } from "../../core/log.ts";
import type { Store, StoreConflict } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { readRange } from "../../runtime/log/fold-log.ts";
import { lostError, takenError } from "../../runtime/log/refusals.ts";
import type { Attempt, Outcome } from "../../runtime/log/run-write.ts";

/** The meaning of a conflict that needs no write to be recognised. */
export type Meaning =
  | { readonly is: "woken"; readonly wakes: number }
  | { readonly is: "truncated"; readonly position: number }
  | { readonly is: "full" }
  | Extract<Outcome, { readonly is: "recognised" | "arrived" | "behind" | "lost" }>;

/**
 * What it means that the store refused a write. `woken`: the run has wake-ups that its owner has not handled.
 * `truncated`: the store holds fewer entries than it had accepted. `full`: no slot is free. `failed`: the attempts whose answer was lost.
 */
export function meaningOf(
  store: Store,
  conflict: StoreConflict,
  attempt: Attempt,
  failed: Attempt[],
): MaybePromise<Meaning> {
  const own = failed.filter((one) => mayHaveMade(one, conflict));
  return own.length === 0 ? plainMeaningOf(conflict, attempt) : recognise(store, own, conflict, attempt, failed);
}

/** Whether a write may have led to what the store holds now. Other processes may have posted entries after it. */
function mayHaveMade({ expected, write }: Attempt, conflict: StoreConflict): boolean {
  if (conflict.conflict !== "changed" || conflict.epoch !== write.head.epoch) return false;
  const beyond = conflict.position - (expected?.position ?? 0) - write.entries.length;
  // A write of the head alone leaves no trace in the log.
  return beyond === 0 || (beyond > 0 && write.entries.length > 0);
}

/**
 * Checks whether the store has written an attempt that it reported as failed. Then its log holds the same entries, and
 * its head the same owner. The epoch is not enough, because another process that claims the run at the same time sets
 * the same epoch. Of several attempts, each begins with the entries of those before it.
 */
async function recognise(
  store: Store,
  own: readonly Attempt[],
  conflict: StoreConflict,
  attempt: Attempt,
  failed: Attempt[],
): Promise<Meaning> {
  const stored = await store.find(attempt.key);
  for (const one of own.toReversed()) {
    const { entries, head } = one.write;
    const isSameOwner = stored?.head.owner === head.owner && stored.head.epoch === head.epoch;
    const held = await readBack(store, one);
    if (isSameOwner && sameJson(copyJson(held), copyJson(entries))) return { is: "recognised", own: one };
  }
  failed.length = 0;
  return plainMeaningOf(conflict, attempt);
}

/** What the store holds where an attempt wrote. Undefined also for entries that only a newer version can have written. */
async function readBack(store: Store, { key, expected, write }: Attempt): Promise<readonly Entry[] | undefined> {
  try {
    const from = expected?.position ?? 0;
    return await readRange(store, key, from, from + write.entries.length);
  } catch (error) {
    if (newerPart(error) !== undefined) return undefined;
    throw error;
  }
}

function plainMeaningOf(conflict: StoreConflict, { key, expected, write }: Attempt): Meaning {
  if (conflict.conflict === "woken") return { is: "woken", wakes: conflict.wakes };
  if (conflict.conflict === "full") return { is: "full" };
  if (conflict.conflict === "arrived") return { is: "arrived" };
  if (conflict.conflict === "changed" && expected !== undefined) {
    if (conflict.position < expected.position) return { is: "truncated", position: conflict.position };
    // With the same length the owner is another one.
    if (conflict.epoch === expected.epoch && conflict.position > expected.position) return { is: "behind" };
  }
  return { is: "lost", error: takenError(conflict, write.session) ?? lostError(key.run_id) };
}
