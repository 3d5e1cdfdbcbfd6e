import { MemoryStore } from "cadenza";
import type { Store, StoredRun } from "cadenza/store";
import type { BrokenStore } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

type Move = NonNullable<Store["changeVersion"]>;
type Key = Parameters<Move>[0];
type Expected = Parameters<Move>[1];
type Moved = Parameters<Move>[2];

const found = "changeVersion: a run is found, listed and taken with its new version, and its log keeps the first one";
const due = "changeVersion: one that was due is taken by a process with the new version alone";
const blocked = "changeVersion: a blocked run is due, and not blocked any more";
const refused = "changeVersion: the writes of those who knew the run before are refused, and so is a second move";
const alone = "changeVersion: a run with an owner, one that has ended and one that is not there are left alone";

class Moving extends MemoryStore {
  moveWell(key: Key, expected: Expected, moved: Moved): ReturnType<MemoryStore["changeVersion"]> {
    return super.changeVersion(key, expected, moved);
  }
}

const none: StoredRun["head"] = {
  ...{ status: "created", epoch: 0, owner: null, due_at: null, blocked: null },
  ...{ holds_slot: false, finished_at: null, takeovers: 0 },
};

/** Faults in `changeVersion`. */
export const movesFaults: readonly BrokenStore[] = [
  withMove("changeVersion adds the entry, and keeps the version", found, (store, key, { position }, moved) =>
    store.append(key, { epoch: 1, position }, { entries: [moved], head: { ...headOf(store, key), epoch: 2 } }),
  ),
  broken(
    "find has a moved run with its first version",
    found,
    class extends MemoryStore {
      override find(key: Key): StoredRun | undefined {
        const run = super.find(key);
        if (run?.created.moved !== true) return run;
        const { version: _, moved: __, ...created } = run.created;
        return { ...run, created };
      }
    },
  ),
  broken(
    "take gives moved runs to processes with the former version",
    due,
    class extends MemoryStore {
      override take(request: Parameters<Store["take"]>[0]): readonly StoredRun[] {
        const agents = request.agents.flatMap((agent) => [agent, { ...agent, version: "2" }]);
        return super.take({ ...request, agents });
      }
    },
  ),
  withMove("changeVersion leaves the epoch as it is", blocked, (store, key, expected, moved) => {
    const { epoch } = headOf(store, key);
    const conflict = store.moveWell(key, expected, moved);
    if (conflict === undefined)
      store.claim(key, { epoch: epoch + 1, position: expected.position + 1 }, { ...headOf(store, key), epoch });
    return conflict;
  }),
  withMove("changeVersion does not compare the position", refused, (store, key, expected, moved) => {
    const run = store.find(key);
    return store.moveWell(key, run === undefined ? expected : { epoch: run.head.epoch, position: run.position }, moved);
  }),
  withMove("changeVersion takes a run from its owner", alone, (store, key, expected, moved) => {
    const { owner, epoch } = headOf(store, key);
    if (owner === null) return store.moveWell(key, expected, moved);
    store.append(
      key,
      { ...expected, wakes: 0 },
      { entries: [], head: { ...headOf(store, key), owner: null, epoch: epoch + 1 } },
    );
    return store.moveWell(key, { ...expected, epoch: epoch + 1 }, moved);
  }),
  withMove("changeVersion says that a run that is not there has changed", alone, (store, key, expected, moved) => {
    const conflict = store.moveWell(key, expected, moved);
    return conflict?.conflict === "missing" ? { conflict: "changed", epoch: 0, position: 0 } : conflict;
  }),
];

function headOf(store: MemoryStore, key: Key): StoredRun["head"] {
  const run = store.find(key);
  if (run === undefined) return { ...none };
  return run.head;
}

function withMove(
  name: string,
  caughtBy: string,
  move: (store: Moving, key: Key, expected: Expected, moved: Moved) => unknown,
): BrokenStore {
  return broken(
    name,
    caughtBy,
    class extends Moving {
      override changeVersion(key: Key, expected: Expected, moved: Moved): ReturnType<MemoryStore["changeVersion"]> {
        return move(this, key, expected, moved) as ReturnType<MemoryStore["changeVersion"]>;
      }
    },
  );
}
