import { expect, test } from "vitest";
import { storeContract } from "../../src/testing/store-contract.ts";
import { damageFaults } from "./store-broken-damage.ts";
import { ownersFaults } from "./store-broken-owners.ts";
import { postsFaults } from "./store-broken-posts.ts";
import { pruneFaults } from "./store-broken-prune.ts";
import { readsFaults } from "./store-broken-reads.ts";
import { sessionsFaults } from "./store-broken-sessions.ts";
import { slotsFaults } from "./store-broken-slots.ts";
import { takeFaults } from "./store-broken-take.ts";
import { workFaults } from "./store-broken-work.ts";
import { writesFaults } from "./store-broken-writes.ts";

const brokenStores = [
  ...writesFaults,
  ...postsFaults,
  ...readsFaults,
  ...ownersFaults,
  ...takeFaults,
  ...slotsFaults,
  ...workFaults,
  ...sessionsFaults,
  ...pruneFaults,
  ...damageFaults,
];

test("every check has a name of its own", () => {
  expect(new Set(storeContract.map(({ name }) => name)).size).toBe(storeContract.length);
});

test("no two broken stores have the same fault", () => {
  expect(new Set(brokenStores.map(({ fault }) => fault)).size).toBe(brokenStores.length);
});

// Each row is a store with one fault, and names the check that must find it.
test.each(brokenStores.map((store) => [store.fault, store] as const))(
  "the contract finds: %s",
  async (_fault, broken) => {
    const found: string[] = [];
    for (const { name, run } of storeContract) {
      const outcome = run((options) => {
        const opened = broken.open(options);
        const stores = "first" in opened ? opened : { first: opened, second: opened };
        return { ...stores, close: () => stores.first.close() };
      });
      await outcome.catch((error: Error) => {
        expect(error.message).not.toBe("");
        found.push(name);
      });
    }

    expect(found).toContain(broken.caughtBy);
  },
);
