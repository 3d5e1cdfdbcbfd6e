import type { Clock } from "cadenza";
import { describe, expect, it } from "vitest";
import { explain, playAll } from "../../harness/model/run.ts";
import type { Plant } from "../../harness/planted-faults.ts";
import { afterAppend, changedWrites, eagerToConfirm, withTimers } from "../../harness/planted-faults.ts";
import { withMembers } from "../../harness/port-proxy.ts";

/** Each fault has to be found within so many schedules. Most need far fewer. */
const SCHEDULES = 800;
const AT_ONCE = 40;

interface Fault {
  readonly name: string;
  /** The violation that has to be found. */
  readonly noticed: RegExp;
  readonly plant: Pick<Plant, "store" | "clock">;
}

const faults: readonly Fault[] = [
  {
    name: "an answer is written twice",
    noticed: /was settled twice/,
    plant: {
      store: (store) => afterAppend(store, ({ entries }) => entries.filter(({ type }) => type === "resumed")),
    },
  },
  {
    name: "an answer goes to another question",
    noticed: /resumed at \d+ follows the status/,
    plant: {
      store: (store) =>
        changedWrites(store, (entry) => [entry.type === "resumed" ? { ...entry, await_id: "ask#9" } : entry]),
    },
  },
  {
    name: "a run ends twice",
    noticed: /it ended 2 times/,
    plant: {
      store: (store) => afterAppend(store, ({ entries }) => entries.filter(({ type }) => type === "ended")),
    },
  },
  {
    name: "a part is written twice",
    noticed: /emits no\. \d+ twice/,
    plant: {
      store: (store) => changedWrites(store, (entry) => (entry.type === "emitted" ? [entry, entry] : [entry])),
    },
  },
  {
    name: "a part is lost",
    noticed: /and its agent emitted/,
    plant: {
      store: (store) =>
        changedWrites(store, (entry) => (entry.type === "emitted" && entry.kind === "generic" ? [] : [entry])),
    },
  },
  {
    name: "the store confirms what it has not written",
    noticed: /before it was committed/,
    plant: { store: eagerToConfirm },
  },
  {
    name: "a confirmation is lost",
    noticed: /waits, and the run rests/,
    plant: {
      store: (store) =>
        withMembers(store, {
          append: async (key, expected, write) => {
            const conflict = await store.append(key, expected, write);
            return write.head.status === "awaiting" ? new Promise(() => {}) : conflict;
          },
        }),
    },
  },
  {
    name: "the store has another status than the log",
    noticed: /the store says in-progress, the log says/,
    plant: {
      store: (store) =>
        withMembers(store, {
          append: (key, expected, write) =>
            store.append(key, expected, { ...write, head: { ...write.head, status: "in-progress" } }),
        }),
    },
  },
  {
    name: "a reader is given an entry twice",
    noticed: /saw another event|instead of/,
    plant: {
      store: (store) =>
        withMembers(store, {
          read: async (key, from, limit) => {
            const entries = await store.read(key, from, limit);
            return from === 0 ? entries : entries?.flatMap((entry) => [entry, entry]);
          },
        }),
    },
  },
  {
    name: "a session loses messages",
    noticed: /session .* holds 0 messages/,
    plant: {
      store: (store) =>
        withMembers(store, {
          append: (key, expected, { session, ...write }) =>
            store.append(key, expected, { ...write, session: session && { ...session, messages: undefined } }),
        }),
    },
  },
  {
    name: "an idempotency key is lost",
    noticed: /neither refused nor|instead of undefined|was refused with/,
    plant: {
      store: (store) =>
        withMembers(store, {
          create: (key, write) => store.create(key, write, null),
          findByIdempotencyKey: () => undefined,
        }),
    },
  },
  {
    name: "a deadline never fires",
    noticed: /awaits an answer after its deadline/,
    plant: { clock: (clock) => withTimers(clock, (delayMs) => delayMs <= 250) },
  },
  {
    name: "the grace period never ends",
    noticed: /it took \d+ ms to stop/,
    plant: { clock: (clock) => withTimers(clock, (delayMs) => delayMs === 500) },
  },
  {
    name: "the active time is never over",
    noticed: /was at work for \d+ ms, and its limit is/,
    plant: { clock: (clock) => withTimers(clock, (delayMs) => delayMs > 500 && delayMs <= 1_000) },
  },
  {
    name: "the active time is over too early",
    noticed: /is out of time after \d+ ms/,
    plant: {
      clock: (clock) =>
        withMembers(clock, {
          monotonic: () => 2 * clock.now(),
          setTimeout: (callback, delayMs) => clock.setTimeout(callback, delayMs === 1_000 ? 500 : delayMs),
        }),
    },
  },
  {
    name: "a timer is never cleared",
    noticed: /timers are left/,
    plant: {
      clock: (clock) =>
        withMembers(clock, {
          setTimeout: (callback, delayMs) => {
            clock.setTimeout(callback, delayMs);
            return () => {};
          },
        }),
    },
  },
];

describe("The checker finds planted faults", () => {
  it.each(faults.map((fault) => [fault.name, fault] as const))("It finds that %s", async (_name, fault) => {
    const { noticed, plant } = fault;
    const found: string[] = [];
    for (let from = 1; from < SCHEDULES && !found.some((violation) => noticed.test(violation)); from += AT_ONCE) {
      const { failures } = await playAll({ from, count: AT_ONCE, stores: ["at once", "late"], change: { plant } });
      found.push(...failures.flatMap(({ violations }) => violations));
    }
    expect(found.join("\n")).toMatch(noticed);
  });

  it("It reports the shortest schedule that it finds", async () => {
    const change = { plant: { clock: (clock: Clock) => withTimers(clock, (delayMs) => delayMs <= 250) } };
    const { failures } = await playAll({ from: 1, count: SCHEDULES, stores: ["at once"], change });
    const story = await explain(failures[0]?.seed ?? 0, { stores: ["at once"], change });
    expect(story).toMatch(/create/);
    expect(story).toMatch(/\* .*deadline/);
    expect(story.split("\n").length).toBeLessThan(12);
  });
});
