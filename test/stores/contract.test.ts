import { describe, test } from "vitest";
import { MemoryStore } from "../../src/stores/memory.ts";
import type { OpenStores } from "../../src/testing/store-check.ts";
import { storeContract } from "../../src/testing/store-contract.ts";
import { lateStore } from "../helpers/stores.ts";
import { drivers, openTwice } from "./sqlite-files.ts";

const stores: readonly (readonly [name: string, open: OpenStores])[] = [
  ["MemoryStore", () => same(new MemoryStore())],
  ["MemoryStore, answering late", () => same(lateStore(new MemoryStore()))],
  ...drivers.map((driver) => {
    // What is tested here does not depend on the disk.
    return [`SqliteStore on ${driver.name}`, () => openTwice(driver, { synchronous: "NORMAL" })] as const;
  }),
];

describe.each(stores)("%s keeps the store contract", (_name, open) => {
  for (const { name, run } of storeContract) test(name, () => run(open));
});

function same(store: MemoryStore | ReturnType<typeof lateStore>) {
  return { first: store, second: store, close: () => store.close() };
}
