import type { StoreCheck } from "./store-check.ts";
import { damageChecks } from "./store-contract-damage.ts";
import { deleteChecks } from "./store-contract-delete.ts";
import { feedChecks } from "./store-contract-feed.ts";
import { listChecks } from "./store-contract-lists.ts";
import { ownerChecks } from "./store-contract-owners.ts";
import { postChecks } from "./store-contract-posts.ts";
import { pruneChecks } from "./store-contract-prune.ts";
import { readChecks } from "./store-contract-reads.ts";
import { sessionChecks } from "./store-contract-sessions.ts";
import { slotChecks } from "./store-contract-slots.ts";
import { surveyChecks } from "./store-contract-survey.ts";
import { takeChecks } from "./store-contract-take.ts";
import { tenantChecks } from "./store-contract-tenants.ts";
import { workChecks } from "./store-contract-work.ts";
import { writeChecks } from "./store-contract-writes.ts";

/**
 * The contract of every store, as a list of checks for any test runner. Each check opens the store twice on data of its
 * own, and rejects with an error that says what was expected.
 *
 * @example
 * ```ts
 * import { test } from "vitest";
 * import { MemoryStore } from "cadenza";
 * import { storeContract } from "cadenza/store";
 *
 * for (const { name, run } of storeContract) {
 *   test(name, () =>
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
  ...readChecks,
  ...tenantChecks,
  ...listChecks,
  ...surveyChecks,
  ...ownerChecks,
  ...takeChecks,
  ...slotChecks,
  ...workChecks,
  ...sessionChecks,
  ...pruneChecks,
  ...deleteChecks,
  ...feedChecks,
  ...damageChecks,
];
