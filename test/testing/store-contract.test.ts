import { storeContract } from "cadenza/testing";
import { expect, it } from "vitest";
import { creatorsFaults } from "../harness/planted-stores/creators.ts";
import { damageFaults } from "../harness/planted-stores/damage.ts";
import { deleteFaults } from "../harness/planted-stores/delete.ts";
import { feedFaults, ownFeed } from "../harness/planted-stores/feed.ts";
import { gatesFaults } from "../harness/planted-stores/gates.ts";
import { inboxFaults } from "../harness/planted-stores/inbox.ts";
import { limitsFaults } from "../harness/planted-stores/limits.ts";
import { linesFaults } from "../harness/planted-stores/lines.ts";
import { listsFaults } from "../harness/planted-stores/lists.ts";
import { movesFaults } from "../harness/planted-stores/moves.ts";
import { ownersFaults } from "../harness/planted-stores/owners.ts";
import { pausesFaults } from "../harness/planted-stores/pauses.ts";
import { postsFaults } from "../harness/planted-stores/posts.ts";
import { prioritiesFaults } from "../harness/planted-stores/priorities.ts";
import { pruneFaults } from "../harness/planted-stores/prune.ts";
import { readsFaults } from "../harness/planted-stores/reads.ts";
import { retentionFaults } from "../harness/planted-stores/retention.ts";
import { sessionsFaults } from "../harness/planted-stores/sessions.ts";
import { slotsFaults } from "../harness/planted-stores/slots.ts";
import { snapshotFaults } from "../harness/planted-stores/snapshots.ts";
import { stepLimitsFaults } from "../harness/planted-stores/step-limits.ts";
import { surveyFaults } from "../harness/planted-stores/survey.ts";
import { takeFaults } from "../harness/planted-stores/take.ts";
import { trimFaults } from "../harness/planted-stores/trim.ts";
import { workFaults } from "../harness/planted-stores/work.ts";
import { writesFaults } from "../harness/planted-stores/writes.ts";

const brokenStores = [
  ...writesFaults,
  ...postsFaults,
  ...inboxFaults,
  ...readsFaults,
  ...listsFaults,
  ...surveyFaults,
  ...ownersFaults,
  ...takeFaults,
  ...slotsFaults,
  ...linesFaults,
  ...limitsFaults,
  ...prioritiesFaults,
  ...gatesFaults,
  ...movesFaults,
  ...pausesFaults,
  ...stepLimitsFaults,
  ...workFaults,
  ...sessionsFaults,
  ...creatorsFaults,
  ...pruneFaults,
  ...retentionFaults,
  ...deleteFaults,
  ...trimFaults,
  ...snapshotFaults,
  ...damageFaults,
  ...feedFaults,
];

it("every check has a name of its own", () => {
  expect(new Set(storeContract.map(({ name }) => name)).size).toBe(storeContract.length);
});

it("no two broken stores have the same fault", () => {
  expect(new Set(brokenStores.map(({ fault }) => fault)).size).toBe(brokenStores.length);
});

it("a feed that a user wrote keeps the contract, without a fault", async () => {
  for (const { run } of storeContract)
    await run((options) => {
      const store = ownFeed(options);
      return { first: store, second: store, close: () => store.close() };
    });
});

// Each row is a store with one fault, and names the check that must find it. The other checks may find it, too.
it.each(brokenStores.map((store) => [store.fault, store] as const))(
  "the contract finds: %s",
  async (_fault, broken) => {
    const check = storeContract.find(({ name }) => name === broken.caughtBy);
    const outcome = check?.run((options) => {
      const opened = broken.open(options);
      const stores = "first" in opened ? opened : { first: opened, second: opened };
      return { ...stores, close: () => stores.first.close() };
    });
    await expect(outcome).rejects.toThrow(/./);
  },
);
