import type { Entry, Expected, RunHead, RunWrite, Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import type { Plant } from "../../harness/planted-faults.ts";
import {
  changedWrites,
  eagerToConfirm,
  reversedResults,
  unawareClock,
  withoutLeases,
  withTimers,
} from "../../harness/planted-faults.ts";
import { withMembers } from "../../harness/port-proxy.ts";
import { share } from "../../harness/share.ts";
import { crashedOtherwise, crashPoints } from "../../harness/world/crash-points.ts";
import { play } from "../../harness/world/play.ts";
import { scenarios } from "../../harness/world/scenarios.ts";
import type { Trouble } from "../../harness/world/trials.ts";
import { trial } from "../../harness/world/trials.ts";
import { keyOf, World } from "../../harness/world/world.ts";

/*
 * Each mechanism that durable runs rest on fails once, by a fault of the store or of a clock, and the checks of the
 * other tests here must find it.
 */

describe("a store that does not compare epochs", () => {
  it("is noticed", async () => {
    expect(await writtenAfterTakeOver()).toEqual([]);
    expect(await writtenAfterTakeOver(withoutEpochs)).toEqual(["process-1 has written to a run of process-2"]);
  });
});

describe("results that are not handed over in the order of the log", () => {
  it("are noticed", async () => {
    expect(await tried("crashes", share(60, 20))).toEqual([]);
    expect(await tried("crashes", 60, { view: reversedResults })).not.toEqual([]);
  });
});

describe("an owner that does not notice that its lease has expired", () => {
  it("is noticed", async () => {
    expect(await tried("freezes", share(60, 20))).toEqual([]);
    expect(await tried("none", share(20, 5), { clock: unawareClock })).toEqual([]);
    expect((await tried("freezes", 240, { clock: unawareClock }, /./, 82)).join()).toMatch(
      /runs(, and the run belongs to (process-\d|null)| while process-\d)/,
    );
  });
});

describe("an acknowledgement before the commit", () => {
  it("is noticed", async () => {
    expect(await crashed("questions one after the other")).toEqual([]);
    expect(await crashed("questions one after the other", { view: eagerToConfirm })).toContainEqual(
      expect.stringContaining("the answer to ask#1 was acknowledged before it was written"),
    );
  });
});

describe("a store that keeps no leases", () => {
  it("gives a process none of its own runs again", async () => {
    expect(await begunTwice(1, { store: withoutLeases })).toEqual([]);
  });

  it("is noticed when it gives them to another process", async () => {
    expect(await begunTwice(2)).toEqual([]);
    expect(await begunTwice(2, { store: withoutLeases })).toContain(
      "attempt 2 at long#1 began while attempt 1 was running",
    );
  });
});

describe("an end that does not fence", () => {
  it("is noticed", async () => {
    expect(await writtenAfterTheEnd()).toEqual([]);
    expect(await writtenAfterTheEnd(withoutLastEpoch)).not.toEqual([]);
  });
});

describe("a feed", () => {
  const fed = (change: (feed: NonNullable<RunWrite["feed"]>) => RunWrite["feed"]) => ({
    store: (store: Store) =>
      withMembers(store, {
        append: (key, expected, { feed, ...write }) =>
          store.append(key, expected, { ...write, feed: feed && change(feed) }),
      }),
  });

  it("that lacks the last event of a write is noticed", async () => {
    const wrong = await tried(
      "none",
      20,
      fed((feed) => feed.slice(0, -1)),
    );
    expect(wrong).toContainEqual(expect.stringMatching(/^the feed lacks run\.\w+ of run/));
  });

  it("that has the events of a write in another order is noticed", async () => {
    const wrong = await tried(
      "none",
      60,
      fed((feed) => feed.toReversed()),
    );
    expect(wrong).toContainEqual(expect.stringMatching(/^the feed has .* and its log tells/));
  });
});

describe("the times of a log", () => {
  it("that go back are noticed", async () => {
    const past = (entry: Entry): Entry => (entry.type === "step" ? { ...entry, at: entry.at - 3_000 } : entry);
    const wrong = await tried("none", 20, { view: (store) => changedWrites(store, (entry) => [past(entry)]) });
    expect(wrong).toContainEqual(expect.stringMatching(/^step at position \d+ is \d+ ms before an earlier entry$/));
  });

  it("at which a wait ends early are noticed", async () => {
    const longer = (entry: Entry): Entry =>
      entry.type === "intent" && entry.until != null ? { ...entry, until: entry.until + 1_000 } : entry;
    const says = /^\S+ ends \d+ ms before its time, at position \d+$/m;
    const plant: Plant = { view: (store) => changedWrites(store, (entry) => [longer(entry)]) };
    expect((await tried("none", 60, plant, says, 12)).join("\n")).toMatch(says);
  });

  it("at which a wait ends late are noticed", async () => {
    const late = ({ due_at, ...head }: RunHead): RunHead => ({ ...head, due_at: due_at && due_at + 5_000 });
    const wrong = await tried("none", 20, {
      view: (store) =>
        withMembers(store, {
          append: (key, expected, write) => store.append(key, expected, { ...write, head: late(write.head) }),
        }),
      clock: (clock) => withTimers(clock, (delayMs) => delayMs > 1_000 && delayMs < 60_000),
    });
    expect(wrong.join("\n")).toMatch(/^\S+ ends \d+ ms after its time, at position \d+$/m);
  });
});

/** A run that a fault has blocked never ends. Other programs take a few thousand steps. */
const MAX_STEPS = 30_000;

/**
 * What goes wrong with the first so many programs, up to the first of which this is said. The one of `seed` is tried first:
 * it has shown the fault, and a search from the first program on takes long.
 */
async function tried(
  trouble: Trouble,
  programs: number,
  plant?: Plant,
  says = /./,
  seed = 1,
): Promise<readonly string[]> {
  const others = Array.from({ length: programs }, (_, index) => index + 1).filter((one) => one !== seed);
  for (const one of [seed, ...others]) {
    const { wrong } = await trial(one, trouble, { plant, maxSteps: MAX_STEPS });
    if (says.test(wrong.join("\n"))) return wrong;
  }
  return [];
}

/** What goes wrong when the first process dies at each call of its store in turn. */
async function crashed(name: string, plant?: Plant): Promise<readonly string[]> {
  const scenario = scenarios.find((one) => one.name === name);
  if (scenario === undefined) throw new Error(`There is no scenario ${name}.`);
  const uncrashed = await play(scenario, { late: true });
  const wrong: string[] = [];
  for (const point of crashPoints(uncrashed.world.processes[0]?.storeCalls ?? []))
    wrong.push(...(await crashedOtherwise(scenario, [point], uncrashed, true, plant)));
  return wrong;
}

/**
 * What goes wrong when a process with a stopped clock, which does not know that its lease has expired, writes a result
 * after another one has taken its run over and before that one has written anything.
 */
async function writtenAfterTakeOver(plant: (store: Store) => Store = same): Promise<readonly string[]> {
  let finish = (): void => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const finishing = (store: Store): Store =>
    withMembers(store, {
      take: async (...parameters) => {
        const taken = await store.take(...parameters);
        if (taken.length > 0) finish();
        return taken;
      },
    });
  const world = new World({
    plant: { store: (store) => finishing(plant(store)) },
    register: (process) => {
      const work = () => (process === world.processes[0] ? finished : process.wait(10_000));
      process.runtime.register("agent", { durable: true }, (_input, { step }) => step("work", work));
    },
  });
  const first = world.start();
  await world.until(first.runtime.createRun({ agent_name: "agent", input: "Go.", mode: "async" }), first);
  await world.settle();
  first.stopClock();
  world.start();
  await world.pass(5_000);
  return world.violations;
}

function withoutEpochs(store: Store): Store {
  return withMembers(store, {
    append: async (key, { position }, write) => {
      const epoch = (await store.find(key))?.head.epoch ?? 0;
      return store.append(key, { epoch, position }, write);
    },
  });
}

/** Which attempts of a step overlap when so many processes scan the store for runs. */
async function begunTwice(processes: number, plant?: Plant): Promise<readonly string[]> {
  const begun: number[] = [];
  const world = new World({
    plant,
    register: (process) => {
      process.runtime.register("agent", { durable: true }, (_input, { step }) =>
        step("long", ({ attempt }) => {
          begun.push(attempt);
          return process.wait(300);
        }),
      );
    },
  });
  const first = world.start();
  for (let others = 1; others < processes; others++) world.start();
  await world.until(first.runtime.createRun({ agent_name: "agent", input: "Go.", mode: "async" }), first);
  await world.pass(250);
  return begun
    .slice(1)
    .map((attempt, index) => `attempt ${attempt} at long#1 began while attempt ${begun[index]} was running`);
}

/** Whether the last owner of a run may write after its end. */
async function writtenAfterTheEnd(plant: (store: Store) => Store = same): Promise<readonly string[]> {
  const [scenario] = scenarios;
  if (scenario === undefined) throw new Error("There are no scenarios.");
  const written: Expected[] = [];
  const watched = (store: Store): Store =>
    withMembers(store, {
      append: (key, expected, write) => {
        written.push(expected);
        return store.append(key, expected, write);
      },
    });
  const { run_id, log, world } = await play(scenario, { plant: { store: (store) => watched(plant(store)) } });
  const { head } = (await world.find(run_id)) ?? {};
  const epoch = written.at(-1)?.epoch ?? 0;
  if (head === undefined) throw new Error("The run is gone.");
  const conflict = await world.store.append(keyOf(run_id), { epoch, position: log.length }, { entries: [], head });
  return conflict === undefined ? ["Its last owner may write after the end."] : [];
}

function withoutLastEpoch(store: Store): Store {
  const lowered = (head: RunHead): RunHead => (head.finished_at === null ? head : { ...head, epoch: head.epoch - 1 });
  return withMembers(store, {
    append: (key, expected, write) => store.append(key, expected, { ...write, head: lowered(write.head) }),
  });
}

function same(store: Store): Store {
  return store;
}
