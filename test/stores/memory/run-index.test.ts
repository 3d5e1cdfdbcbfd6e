import { expect, it } from "vitest";
import type { IndexedRun } from "../../../src/stores/memory/run-index.ts";
import { RunIndex } from "../../../src/stores/memory/run-index.ts";
import type { CreatedEntry } from "../../harness/internals.ts";

const run = (order: number, created: Partial<CreatedEntry> = {}): IndexedRun => {
  const run_id = `run ${order}`;
  const entry: CreatedEntry = { type: "created", at: 0, agent_name: "echo", session_id: run_id, input: [], ...created };
  return { key: { tenant: "acme", run_id }, created: entry, order };
};
const page = { tenant: "acme", limit: 10, offset: 0 };

it("the index of a MemoryStore finds the runs of a session without a look at the others, the newest first", () => {
  const index = new RunIndex<IndexedRun>();
  const first = run(1);
  const later = [run(2, { session_id: "run 1" }), run(3, { session_id: "run 1" })] as const;
  const alone = [run(4), run(5, { session_id: "another" })] as const;
  for (const one of [first, ...later, ...alone]) index.add(one);
  expect(index.find({ ...page, session_id: "run 1" }, first)).toEqual([later[1], later[0], first]);
  expect(index.find({ ...page, session_id: "another" }, undefined)).toEqual([alone[1]]);
  expect(index.find({ ...page, session_id: "none" }, undefined)).toEqual([]);
  expect(index.find(page, undefined)).toBeUndefined();

  for (const one of later) index.remove(one);
  expect(index.find({ ...page, session_id: "run 1" }, undefined)).toEqual([]);
});

it("the index of a MemoryStore looks at as few runs as it can where a query names several things", () => {
  const index = new RunIndex<IndexedRun>();
  const wanted = run(9, { session_id: "chat", labels: { order: "7" } });
  for (let order = 1; order <= 5; order++) index.add(run(order, { session_id: "chat" }));
  index.add(wanted);
  expect(index.find({ ...page, session_id: "chat", labels: { order: "7" } }, undefined)).toEqual([wanted]);
});
