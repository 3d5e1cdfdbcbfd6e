import { MemoryStore } from "cadenza";
import { expect, it } from "vitest";
import { NOW } from "../../../src/stores/contract/check.ts";
import { create, head, runId, take } from "../../../src/stores/contract/samples.ts";

it("a take gives the first run of a new priority, which a rate has just let in", async () => {
  let now = NOW;
  const store = new MemoryStore({ clock: { now: () => now } });
  const slots = [{ key: "rated", rate: { count: 1, perMs: 100 } }];
  const queued = head({ status: "created", owner: null, due_at: NOW });
  await create(store, 1, { slots, head: queued });
  await create(store, 2, { slots, head: queued, priority: 3 });
  expect(await take(store)).toEqual([runId(1)]);
  now += 100;
  expect(await take(store)).toEqual([runId(2)]);
});
