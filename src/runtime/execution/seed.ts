import type { CreatedEntry, ParentRun } from "../../core/log.ts";
import { hashedUuid } from "../agent/uuid.ts";

/* What the random numbers and the idempotency keys of a run are made of. A fork has those of its origin. */

/** What `uuid` and `random` of a run are made of. */
export function seedOf({ seed, parent }: CreatedEntry, runId: string): string {
  if (seed !== undefined) return seed;
  return parent === undefined ? runId : idempotencyKeyOf(parent.seed ?? parent.run_id, parent.key);
}

/** What the idempotency keys of a run are made of. */
export function keySeedOf(created: CreatedEntry, runId: string): string {
  return created.key_seed ?? seedOf(created, runId);
}

/** The parent of a sub-run, as the sub-run's log names it. */
export function parentOf(created: CreatedEntry, runId: string, key: string): ParentRun {
  const depth = (created.parent?.depth ?? 0) + 1;
  const seed = keySeedOf(created, runId);
  return seed === runId ? { run_id: runId, key, depth } : { run_id: runId, key, depth, seed };
}

/**
 * The idempotency key of a step. It is the UUID of the SHA-1 hash of the run's seed and the step's key, each with its
 * length in front. A step may be tried by several versions of the library, so the key of a seed and a step never changes.
 */
export function idempotencyKeyOf(seed: string, stepKey: string): string {
  return hashedUuid(new TextEncoder().encode(`${seed.length}:${seed}${stepKey.length}:${stepKey}`));
}
