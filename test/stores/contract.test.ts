import { MemoryStore } from "cadenza";
import type { OpenStores } from "cadenza/testing";
import { storeContract } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import { DamageableStore, damageable } from "../harness/planted-stores/damageable-store.ts";
import { HintingStore } from "../harness/planted-stores/hinting-store.ts";
import { drivers, openTwice } from "../harness/sqlite-files.ts";
import { lateStore } from "../harness/store-proxy.ts";

const stores: readonly (readonly [name: string, open: OpenStores])[] = [
  ["MemoryStore", (options) => same(new MemoryStore(options))],
  ["MemoryStore, answering late", (options) => same(lateStore(new MemoryStore(options)))],
  ["a store that gives hints", (options) => same(new HintingStore(options))],
  ["a store that can be damaged", (options) => damageable(new DamageableStore(options))],
  ...drivers.map((driver) => {
    // These tests do not depend on the disk.
    const open: OpenStores = (options) => openTwice(driver, { synchronous: "NORMAL", ...options });
    return [`SqliteStore on ${driver.name}`, open] as const;
  }),
];

describe.each(stores)("%s keeps the store contract", (_name, open) => {
  for (const { name, run } of storeContract) it(name, () => run(open));

  it("the checks of the feed have one to read", async () => {
    const { first, close } = await open({ clock: { now: () => 0 }, feed: { keepMs: 1 } });
    expect(await first.readFeed?.({ from: "start", limit: 1 })).toMatchObject({ items: [], more: null });
    await close();
  });
});

function same(store: MemoryStore | ReturnType<typeof lateStore>) {
  return { first: store, second: store, close: () => store.close() };
}
