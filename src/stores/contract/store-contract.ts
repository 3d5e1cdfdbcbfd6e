import type { StoreCheck } from "./check.ts";
import { creatorChecks } from "./creators.ts";
import { damageChecks } from "./damage.ts";
import { deleteChecks } from "./delete.ts";
import { feedChecks } from "./feed.ts";
import { gateChecks } from "./gates.ts";
import { inboxChecks } from "./inbox.ts";
import { limitChecks } from "./limits.ts";
import { lineChecks } from "./lines.ts";
import { listChecks } from "./lists.ts";
import { moveChecks } from "./moves.ts";
import { ownerChecks } from "./owners.ts";
import { pauseChecks } from "./pauses.ts";
import { postChecks } from "./posts.ts";
import { priorityChecks } from "./priorities.ts";
import { pruneChecks } from "./prune.ts";
import { readChecks } from "./reads.ts";
import { retentionChecks } from "./retention.ts";
import { sessionChecks } from "./sessions.ts";
import { slotChecks } from "./slots.ts";
import { snapshotChecks } from "./snapshots.ts";
import { stepLimitChecks } from "./step-limits.ts";
import { surveyChecks } from "./survey.ts";
import { takeChecks } from "./take.ts";
import { tenantChecks } from "./tenants.ts";
import { trimChecks } from "./trim.ts";
import { workChecks } from "./work.ts";
import { writeChecks } from "./writes.ts";

/**
 * The contract of every store, as a list of checks for any test runner. Each check opens the store twice on data of its
 * own, and rejects with an error that says what was expected.
 *
 * @example
 * ```ts
 * import { it } from "vitest";
 * import { MemoryStore } from "cadenza";
 * import { storeContract } from "cadenza/testing";
 *
 * for (const { name, run } of storeContract) {
 *   it(name, () =>
 *     run(({ clock, feed }) => {
 *       const store = new MemoryStore({ clock, feed }); // yours
 *       return { first: store, second: store, close: () => store.close() };
 *     }));
 * }
 * ```
 */
export const storeContract: readonly StoreCheck[] = [
  ...writeChecks,
  ...postChecks,
  ...inboxChecks,
  ...readChecks,
  ...tenantChecks,
  ...listChecks,
  ...creatorChecks,
  ...surveyChecks,
  ...ownerChecks,
  ...takeChecks,
  ...slotChecks,
  ...lineChecks,
  ...limitChecks,
  ...priorityChecks,
  ...gateChecks,
  ...moveChecks,
  ...pauseChecks,
  ...stepLimitChecks,
  ...workChecks,
  ...sessionChecks,
  ...pruneChecks,
  ...retentionChecks,
  ...deleteChecks,
  ...trimChecks,
  ...snapshotChecks,
  ...feedChecks,
  ...damageChecks,
];
