import { MemoryStore } from "cadenza";
import { expect, it } from "vitest";
import { create, head, runKey, take, waiting } from "../../src/stores/contract/samples.ts";
import { forgotten, SlotJudge, unservedLines } from "../harness/slot-judge.ts";

const slot = { key: "slot", max: 1 };
const holding = head({ holds_slot: true });

it("finds that more runs hold a slot than it has permits", () => {
  const judge = new SlotJudge();
  for (const n of [1, 2, 3]) judge.onCreated(runKey(n), [n === 3 ? { ...slot, key: "other" } : slot]);
  const [one, two, three] = [1, 2, 3].map((n) => ({ key: runKey(n), head: holding }));
  if (one === undefined || two === undefined || three === undefined) throw new Error("there are three runs");

  expect(judge.complaints([one, three])).toEqual([]);
  expect(judge.complaints([one, { ...two, head: waiting() }, three])).toEqual([]);
  expect(judge.complaints([one, two, three])).toEqual(["2 runs hold slot, which has 1 permits"]);
  judge.onCreated(runKey(2), [{ ...slot, max: 2 }]);
  expect(judge.complaints([one, two, three])).toEqual([]);
});

it("finds that one of several slots has more holders than permits", () => {
  const judge = new SlotJudge();
  judge.onCreated(runKey(1), [{ ...slot, key: "other" }, slot]);
  judge.onCreated(runKey(2), [slot, { key: "third", max: 1 }]);
  const [one, two] = [1, 2].map((n) => ({ key: runKey(n), head: holding }));
  if (one === undefined || two === undefined) throw new Error("there are two runs");

  expect(judge.complaints([one, { ...two, head: waiting() }])).toEqual([]);
  expect(judge.complaints([one, two])).toEqual(["2 runs hold slot, which has 1 permits"]);
});

it("finds that a rate has given more than its count in some window", () => {
  const rate = { count: 2, perMs: 10 };
  const judge = new SlotJudge();
  for (const n of [1, 2, 3, 4, 5]) judge.onCreated(runKey(n), [{ key: "rate", rate }]);
  const seen = (...numbers: readonly number[]) => numbers.map((n) => ({ key: runKey(n), head: holding }));

  expect(judge.complaints(seen(1), 100)).toEqual([]);
  expect(judge.complaints(seen(1, 2), 109)).toEqual([]);
  expect(judge.complaints(seen(1, 2, 3), 110)).toEqual([]);
  expect(judge.complaints(seen(2, 3, 4), 118)).toEqual(["rate was given 3 times in 10 ms, and allows 2"]);
  judge.onPruned(119);
  expect(judge.complaints(seen(5), 111)).toEqual(["rate was given 3 times in 10 ms, and allows 2"]);
  judge.onCreated(runKey(5), [{ key: "rate", rate: { count: 3, perMs: 10 } }]);
  expect(judge.complaints(seen(5), 112)).toEqual([]);
});

it("finds a run that waits for a slot that is free", () => {
  const first = { key: runKey(1), agent_name: "echo", version: null, due_at: 0 };
  const line = { key: "slot", max: 1, held: 1, waiting: 1, first };
  const rated = { ...line, rate: { count: 1, perMs: 1 }, held: 0 };

  expect(unservedLines([line, rated])).toEqual([]);
  expect(unservedLines([{ ...line, held: 0 }])).toEqual([
    "acme/00000000-0000-4000-8000-000000000001 waits for slot, which is free",
  ]);
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
