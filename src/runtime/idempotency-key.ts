import { hashedUuid } from "./uuid.ts";

/**
 * The idempotency key of a step. `seed` is the id of the run. It is the UUID of the SHA-1 hash of both texts, each with
 * its length in front. A step may be tried by several versions of the library, so the key of a seed and a step never
 * changes.
 */
export function idempotencyKeyOf(seed: string, stepKey: string): string {
  return hashedUuid(new TextEncoder().encode(`${seed.length}:${seed}${stepKey.length}:${stepKey}`));
}
