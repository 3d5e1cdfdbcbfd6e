import type { CreatedEntry, MovedEntry } from "../../core/log.ts";
import type { Store } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import { append, create, created, head, OWNER, over, part, runId, runKey, take, waiting, write } from "./samples.ts";

const moved: MovedEntry = { type: "moved", at: NOW, version: "2", by: "ann" };
const toTwo = [{ agent_name: "echo", version: "2" }];

/** The first entry of a run as stores show it when it was moved. */
function movedCreated(n: number): CreatedEntry {
  return { ...created(n), version: "2", moved: true };
}

/** The check of a store without `changeVersion` passes. */
function checkMove(
  name: string,
  body: (store: Required<Pick<Store, "changeVersion">> & Store, second: Store) => Promise<void>,
): StoreCheck {
  return check(`changeVersion: ${name}`, async ({ first, second }) => {
    if (first.changeVersion !== undefined) await body(first as Required<Pick<Store, "changeVersion">> & Store, second);
  });
}

/** `changeVersion`. */
export const moveChecks: readonly StoreCheck[] = [
  checkMove(
    "a run is found, listed and taken with its new version, and its log keeps the first one",
    async (store, second) => {
      const key = await create(store, 1, { head: waiting() });
      expectSame(await store.changeVersion(key, { epoch: 1, position: 1 }, moved), undefined, "the move");
      for (const one of [store, second]) {
        const found = await one.find(key);
        expectSame(found?.created, movedCreated(1), "the run");
        expectSame([found?.head, found?.position], [waiting(null, { epoch: 2 }), 2], "its head and its length");
        expectSame(await one.read(key, 0, 10), [created(1), moved], "its log");
        const listed = await one.list({ tenant: key.tenant, limit: 10, offset: 0 });
        expectSame(
          listed.map((run) => run.created?.version),
          ["2"],
          "its version in a list",
        );
        const { runs } = await one.survey({ version: "2", limit: 10 });
        expectSame(
          runs.map((run) => run.created),
          [movedCreated(1)],
          "the runs of the version",
        );
        expectSame((await one.survey({ version: null, limit: 10 })).runs, [], "the runs of the former version");
        expectSame(
          await one.census(),
          [{ agent_name: "echo", version: "2", status: "awaiting", runs: 1 }],
          "the census",
        );
      }
      await append(store, key, 2, write([part("a")], { head: waiting(NOW, { epoch: 2 }) }), 2);
      expectSame(await take(store), [], "the runs for a process with the former version");
      expectSame(await take(second, { agents: toTwo }), [runId(1)], "those for one with the new version");
      expectSame((await second.find(key))?.created.version, "2", "its version when it was taken");
    },
  ),

  checkMove("one that was due is taken by a process with the new version alone", async (store) => {
    const key = await create(store, 1, { head: waiting(NOW - 5) });
    const other = await create(store, 2, { head: waiting(NOW - 4) });
    expectSame(await store.changeVersion(key, { epoch: 1, position: 1 }, moved), undefined, "the move");
    expectSame(await take(store), [other.run_id], "the runs for a process with the former version");
    expectSame(await take(store, { agents: toTwo }), [key.run_id], "those for one with the new version");
  }),

  checkMove("a blocked run is due, and not blocked any more", async (store) => {
    const blocked = { position: 1, expected: "a", asked: "b" };
    const key = await create(store, 1, { head: waiting(null, { blocked }) });
    expectSame(await store.changeVersion(key, { epoch: 1, position: 1 }, moved), undefined, "the move");
    expectSame((await store.find(key))?.head, waiting(NOW, { epoch: 2 }), "its head");
    expectSame(await store.blocked({ limit: 10 }), [], "the blocked runs");
    expectSame(await take(store, { agents: toTwo }), [key.run_id], "the runs for the new version");
  }),

  checkMove(
    "the writes of those who knew the run before are refused, and so is a second move",
    async (store, second) => {
      const key = await create(store, 1, { head: waiting() });
      expectSame(await second.changeVersion?.(key, { epoch: 1, position: 1 }, moved), undefined, "the move");
      const changed = { conflict: "changed", epoch: 2, position: 2 } as const;
      const late = write([part("late")], { head: waiting() });
      expectSame(await store.append(key, { epoch: 1, position: 1 }, late), changed, "the late write");
      expectSame(await store.changeVersion(key, { epoch: 1, position: 1 }, moved), changed, "the second move");
      expectSame(await store.claim(key, { epoch: 1, position: 1 }, head({ epoch: 2 })), changed, "the late claim");
      expectSame((await store.read(key, 0, 10))?.length, 2, "the length of the log");
    },
  ),

  checkMove("a run with an owner, one that has ended and one that is not there are left alone", async (store) => {
    const owned = await create(store, 1);
    expectSame(
      await store.changeVersion(owned, { epoch: 1, position: 1 }, moved),
      { conflict: "owned" },
      "the one with an owner",
    );
    expectSame(await store.find(owned), { key: owned, created: created(1), head: head(), position: 1 }, "that run");
    const ended = await create(store, 2);
    await append(store, ended, 1, write([part("a")], { head: over() }));
    expectSame(
      await store.changeVersion(ended, { epoch: 2, position: 2 }, moved),
      { conflict: "ended" },
      "the ended one",
    );
    expectSame(
      await store.changeVersion(runKey(3), { epoch: 1, position: 1 }, moved),
      { conflict: "missing" },
      "the missing one",
    );
    expectSame(await store.owned(OWNER, 10), [owned], "the runs of the owner");
  }),

  checkMove("a run with a priority, and one behind others of its customer, are taken in their turn", async (store) => {
    const high = await create(store, 1, { head: waiting(NOW), priority: 3, gate: "a" });
    const low = await create(store, 2, { head: waiting(NOW - 1), gate: "b" });
    for (const key of [high, low])
      expectSame(
        await store.changeVersion(key, { epoch: 1, position: 1 }, moved),
        undefined,
        `the move of ${key.run_id}`,
      );
    expectSame(await take(store, { agents: toTwo }), [high.run_id, low.run_id], "the runs that are taken");
  }),
];
