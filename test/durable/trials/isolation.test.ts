import type { Store } from "cadenza/store";
import { expect, it } from "vitest";
import { withMembers } from "../../harness/port-proxy.ts";
import { wholeSeed } from "../../harness/random.ts";
import { oneOf } from "../../harness/share.ts";
import { again, isolationTrial, tryIsolation } from "../../harness/world/isolation.ts";

/** How many worlds a test has. All of them are a share of what `npm run stress -- durable --part isolation` tries. */
const WORLDS = 4;
/** The long test tries others. */
const seed = wholeSeed(process.env["DURABLE_SEED"] ?? "7");
const seeds = oneOf(2, [0, 1, 2, 3]).map((n) => seed + n * WORLDS);

it.each(seeds)(
  "eight tenants with the same ids get nothing of each other, in any trouble (DURABLE_SEED=%i)",
  async (from) => {
    const { wrong, troubles, shared } = await tryIsolation(from, WORLDS);
    expect(wrong.map((one) => `${again(one)}\n${one.wrong.join("\n")}`)).toEqual([]);
    expect(troubles).toBeGreaterThan(WORLDS / 2);
    expect(shared).toBeGreaterThan(WORLDS / 2);
  },
);

/** Stores that give the tenant "gold" what belongs to the tenant "red". */
const leaks: Readonly<Record<string, (store: Store) => Store>> = {
  find: (store) => withMembers(store, { find: (key, how) => store.find(asRed(key), how) }),
  read: (store) => withMembers(store, { read: (key, from, limit) => store.read(asRed(key), from, limit) }),
  list: (store) => withMembers(store, { list: (query) => store.list(asRed(query)) }),
  session: (store) => withMembers(store, { session: (key) => store.session(asRed(key)) }),
  findByIdempotencyKey: (store) =>
    withMembers(store, {
      findByIdempotencyKey: (tenant, key) => store.findByIdempotencyKey(asRed({ tenant }).tenant, key),
    }),
};

it.each(Object.keys(leaks))("a leak by %s is noticed", async (method) => {
  const view = leaks[method];
  let wrong: readonly string[] = [];
  for (let world = 1; world <= 10 && wrong.length === 0; world++)
    wrong = (await isolationTrial(world, "none", { view })).wrong;
  expect(wrong).not.toEqual([]);
});

function asRed<Key extends { readonly tenant: string }>(key: Key): Key {
  return key.tenant === "gold" ? { ...key, tenant: "red" } : key;
}
