import { MemoryStore } from "cadenza";
import { expect, it } from "vitest";
import { create, head, runKey, take, waiting } from "../../src/stores/contract/samples.ts";
import { forgotten, SlotJudge } from "../harness/slot-judge.ts";

const slot = { key: "slot", max: 1 };
const holding = head({ holds_slot: true });

it("finds that more runs hold a slot than it has permits", () => {
  const judge = new SlotJudge();
  for (const n of [1, 2, 3]) judge.onCreated(runKey(n), n === 3 ? { ...slot, key: "other" } : slot);
  const [one, two, three] = [1, 2, 3].map((n) => ({ key: runKey(n), head: holding }));
  if (one === undefined || two === undefined || three === undefined) throw new Error("there are three runs");

  expect(judge.complaints([one, three])).toEqual([]);
  expect(judge.complaints([one, { ...two, head: waiting() }, three])).toEqual([]);
  expect(judge.complaints([one, two, three])).toEqual(["2 runs hold slot, which has 1 permits"]);
  judge.onCreated(runKey(2), { ...slot, max: 2 });
  expect(judge.complaints([one, two, three])).toEqual([]);
});

it("finds the runs that a store never gives", async () => {
  const store = new MemoryStore();
  await create(store, 1, { slot, head: { ...holding, owner: null } });
  for (const n of [2, 3]) await create(store, n, { slot, head: waiting(0) });
  const live = () => {
    const runs = store.list({ tenant: "acme", limit: 9, offset: 0 });
    return runs.filter((run) => run.head.finished_at === null);
  };
  const given = async (ids: readonly string[]) => ids.flatMap((id) => live().filter(({ key }) => key.run_id === id));

  expect(await forgotten(store, live, () => [])).toEqual([
    "acme/00000000-0000-4000-8000-000000000003",
    "acme/00000000-0000-4000-8000-000000000002",
  ]);
  expect(await forgotten(store, live, async () => given(await take(store)))).toEqual([]);
});
