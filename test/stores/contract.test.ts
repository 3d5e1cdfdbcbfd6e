import { describe, test } from "vitest";
import { MemoryStore } from "../../src/stores/memory.ts";
import type { OpenStores } from "../../src/testing/store-check.ts";
import { storeContract } from "../../src/testing/store-contract.ts";
import { DamageableStore, damageable } from "../harness/planted-stores/damageable-store.ts";
import { HintingStore } from "../harness/planted-stores/hinting-store.ts";
import { drivers, openTwice } from "../harness/sqlite-files.ts";
import { lateStore } from "../harness/store-proxy.ts";

const stores: readonly (readonly [name: string, open: OpenStores])[] = [
  ["MemoryStore", ({ clock }) => same(new MemoryStore({ clock }))],
  ["MemoryStore, answering late", ({ clock }) => same(lateStore(new MemoryStore({ clock })))],
  ["a store that gives hints", ({ clock }) => same(new HintingStore({ clock }))],
  ["a store that can be damaged", ({ clock }) => damageable(new DamageableStore({ clock }))],
  ...drivers.map((driver) => {
    // These tests do not depend on the disk.
    const open: OpenStores = ({ clock }) => openTwice(driver, { synchronous: "NORMAL", clock });
    return [`SqliteStore on ${driver.name}`, open] as const;
  }),
];

describe.each(stores)("%s keeps the store contract", (_name, open) => {
  for (const { name, run } of storeContract) test(name, () => run(open));
});

function same(store: MemoryStore | ReturnType<typeof lateStore>) {
  return { first: store, second: store, close: () => store.close() };
}
