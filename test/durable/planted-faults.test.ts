import type { Store } from "cadenza";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Entry } from "../../src/core/log.ts";
import type { Expected, RunHead } from "../../src/core/ports.ts";
import { Recovery } from "../../src/runtime/recovery.ts";
import { play } from "./play.ts";
import { scenarios } from "./scenarios.ts";
import type { Trouble } from "./trials.ts";
import { trial } from "./trials.ts";
import { keyOf, lastingStore } from "./world.ts";

/* Each of the things that durable runs rest on is taken away once, and what the other tests here look at must show it. */

const planted = vi.hoisted(() => ({ isUnordered: false }));

vi.mock("../../src/runtime/recording.ts", async (importOriginal) => {
  const original = await importOriginal<typeof import("../../src/runtime/recording.ts")>();
  class Unordered extends original.Recording {
    constructor(entries: Iterable<Entry>) {
      super(entries);
      if (planted.isUnordered) Object.assign(this, { results: this.results.toReversed() });
    }
  }
  return { ...original, Recording: Unordered };
});

beforeEach(() => {
  planted.isUnordered = false;
});
afterEach(() => void vi.restoreAllMocks());

describe("results that are not handed over in the order of the log", () => {
  it("are noticed", async () => {
    expect(await tried("crashes", 60)).toEqual([]);
    planted.isUnordered = true;
    expect(await tried("crashes", 60)).not.toEqual([]);
  });
});

describe("an owner that does not look at its own lease", () => {
  it("is noticed", async () => {
    expect(await tried("freezes", 60)).toEqual([]);
    vi.spyOn(Recovery.prototype, "ensureOwner").mockReturnValue(undefined);
    expect(await tried("freezes", 60)).not.toEqual([]);
  });
});

describe("an end that does not fence", () => {
  it("is noticed", async () => {
    expect(await writtenAfterTheEnd()).toEqual([]);
    expect(await writtenAfterTheEnd(withoutLastEpoch)).not.toEqual([]);
  });
});

/** What goes wrong with the first programs. It ends with the first that does. */
async function tried(trouble: Trouble, programs: number, plant?: (store: Store) => Store): Promise<readonly string[]> {
  for (let seed = 1; seed <= programs; seed++) {
    const { wrong } = await trial(seed, trouble, plant?.(lastingStore()));
    if (wrong.length > 0) return wrong;
  }
  return [];
}

/** Whether whoever had the run before its end may still write. */
async function writtenAfterTheEnd(plant: (store: Store) => Store = same): Promise<readonly string[]> {
  const [scenario] = scenarios;
  if (scenario === undefined) throw new Error("There are no scenarios.");
  const written: Expected[] = [];
  const store = plant(lastingStore());
  const watched = changed(store, {
    append: (key, expected, write) => {
      written.push(expected);
      return store.append(key, expected, write);
    },
  });
  const { run_id, log, world } = await play(scenario, { store: watched });
  const { head } = (await world.find(run_id)) ?? {};
  const epoch = written.at(-1)?.epoch ?? 0;
  if (head === undefined) throw new Error("The run is gone.");
  const conflict = await store.append(keyOf(run_id), { epoch, position: log.length }, { entries: [], head });
  return conflict === undefined ? ["Its last owner may write after the end."] : [];
}

function withoutLastEpoch(store: Store): Store {
  const lowered = (head: RunHead): RunHead => (head.finished_at === null ? head : { ...head, epoch: head.epoch - 1 });
  return changed(store, {
    append: (key, expected, write) => store.append(key, expected, { ...write, head: lowered(write.head) }),
  });
}

function same(store: Store): Store {
  return store;
}

/** The store with some of its methods replaced. */
function changed(store: Store, methods: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const own: unknown = Reflect.get(methods, name);
      return own ?? (Reflect.get(target, name, target) as unknown);
    },
  });
}
