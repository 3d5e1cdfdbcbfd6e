import type { RunHead, Store } from "../../core/ports.ts";
import type { Slot } from "../../core/slots.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectOneWritten, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  ended,
  forget,
  head,
  holders,
  LEASE_MS,
  OWNER,
  over,
  parts,
  runId,
  runKey,
  take,
  tryCreate,
  waiting,
  write,
} from "./samples.ts";

const a = { key: ":a", max: 1 };
const b = { key: ":b", max: 1 };
const c = { key: ":c", max: 1 };
const PER_MS = 1_000;
const twice = { key: ":r", rate: { count: 2, perMs: PER_MS } };
const once = { key: ":r", rate: { count: 1, perMs: PER_MS } };
/** The head of a run that executes with its permits. */
const holding = head({ holds_slot: true });
/** The head of a run that waits for permits. */
const queued: RunHead = head({ status: "created", owner: null, due_at: NOW });
const full = { conflict: "full" } as const;
const mismatch = { position: 1, expected: "ask#1", asked: "step#1" };

/** Slots of which a run needs several, and rates. */
export const limitChecks: readonly StoreCheck[] = [
  check("slots: a run needs permits of all its slots, and is refused as `full` if one is missing", async (stores) => {
    const { first, second } = stores;
    await create(first, 1, { slots: [a, b], head: holding });
    expectConflict(await tryCreate(second, 2, { slots: [a], head: holding }), full, "a run of the first slot");
    expectConflict(await tryCreate(second, 2, { slots: [b, c], head: holding }), full, "a run of the second slot");
    await create(first, 3, { slots: [c], head: holding });
    const key = await create(first, 4, { slots: [a, c], head: waiting() });
    const claimed = { ...holding, epoch: 2 };
    await append(first, runKey(1), 1, write([ended()], { head: over() }));
    expectConflict(await first.claim(key, { epoch: 1, position: 1 }, claimed), full, "a claim without the second slot");
    const answer = await first.append(key, { epoch: 1, position: 1 }, write([], { head: holding }));
    expectConflict(answer, full, "a write without it");
    await create(first, 5, { slots: [a, b], head: holding });
    expectSame(await holders(first, 5), [3, 5], "who holds slots");
  }),

  check("slots: a new run that is refused is told which slot refuses it, if it is told", async ({ first }) => {
    const refusing = async (n: number, slots: readonly Slot[]): Promise<string> => {
      const answer = await tryCreate(first, n, { slots, head: holding });
      if (answer?.conflict !== "full") throw new Error(`run ${n}: expected to be refused as full`);
      return answer.key ?? "not said";
    };
    const expectOneOf = (key: string, expected: string, what: string): void => {
      if (key !== "not said") expectSame(key, expected, what);
    };
    await create(first, 1, { slots: [b], head: holding });
    await create(first, 2, { slots: [once], head: holding });
    expectOneOf(await refusing(3, [b]), b.key, "the only slot");
    expectOneOf(await refusing(4, [a, b, c]), b.key, "one of three");
    expectOneOf(await refusing(5, [a, once]), once.key, "a rate");
    expectOneOf(await refusing(6, [b, once]), b.key, "the first of two");
    const odd = { key: ":odd\0 \ud800", max: 1 };
    await create(first, 7, { slots: [odd], head: holding });
    expectOneOf(await refusing(8, [odd]), odd.key, "a slot with an odd key");
    expectOneOf(await refusing(9, [a, odd]), odd.key, "an odd key beside another one");
  }),

  check("slots: a run that needs two permits holds none while it waits", async ({ first }) => {
    await create(first, 1, { slots: [b], head: holding });
    await create(first, 2, { slots: [a, b], head: queued });
    expectSame(await waits(first), [[":b", 2]], "who waits for which slot");
    await create(first, 3, { slots: [a], head: holding });
    expectSame(await holders(first, 3), [1, 3], "who holds slots");
    await append(first, runKey(3), 1, write([ended()], { head: over() }));
    await append(first, runKey(1), 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 3), [2], "who holds them once both are free");
    for (const slot of [a, b]) expectConflict(await tryCreate(first, 4, { slot, head: holding }), full, "one more");
  }),

  check("slots: runs that wait in the lines of two slots begin as soon as both are free", async ({ first, clock }) => {
    const numbers = Array.from({ length: 60 }, (_, n) => n);
    for (const n of numbers) await create(first, n, { slots: [a, twice], head: queued });
    const taken: string[] = [];
    for (const _ of [...numbers, ...numbers]) {
      for (const run_id of await take(first)) {
        taken.push(run_id);
        const n = numbers.findIndex((one) => runId(one) === run_id);
        await append(first, runKey(n), 1, write([ended()], { head: over(NOW, { epoch: 3 }) }), 2);
      }
      clock.set(clock.now() + PER_MS / 2);
    }
    expectSame(taken.toSorted(), numbers.map(runId).toSorted(), "taken");
  }),

  check("slots: a run waits in the line of the first slot that refuses it", async ({ first }) => {
    await create(first, 1, { slots: [b, c], head: holding });
    await create(first, 2, { slots: [a, b, c], head: queued });
    await create(first, 3, { slots: [c], head: queued });
    await create(first, 4, { slots: [a, c], head: queued });
    const lines = await first.lines({ limit: 9 });
    expectSame(
      lines.map(({ key, first: next, waiting: count }) => [key, next.key, count]),
      [
        [b.key, runKey(2), 1],
        [c.key, runKey(3), 2],
      ],
      "the lines",
    );
  }),

  check(
    "slots: a waiter whose other slot refuses lets the next one pass, and waits for that slot",
    async ({ first }) => {
      await create(first, 1, { slots: [a], head: holding });
      await create(first, 2, { slots: [b], head: holding });
      for (const n of [3, 4]) await create(first, n, { slots: [a, b], head: queued });
      await create(first, 5, { slots: [a], head: queued });
      await create(first, 6, { slots: [b], head: queued });
      await append(first, runKey(1), 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 6), [2, 5], "who holds slots once the first is free");
      expectSame(await waits(first), [[":b", 6]], "who waits for which slot then");
      await append(first, runKey(2), 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 6), [5, 6], "who holds them once the second is free");
      await append(first, runKey(5), 1, write([ended()], { head: over() }));
      await append(first, runKey(6), 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 6), [3], "who holds them once both are free");
      await append(first, runKey(3), 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 6), [4], "who holds them at last");
    },
  ),

  check("slots: a run that rests, is blocked or ends gives back all its permits", async ({ first }) => {
    const heads = { rests: waiting(), "is blocked": waiting(null, { blocked: mismatch }), ends: over() };
    for (const [index, [what, last]] of Object.entries(heads).entries()) {
      const n = 10 * index;
      await create(first, n, { slots: [a, b], head: holding });
      await create(first, n + 1, { slots: [a], head: queued });
      await create(first, n + 2, { slots: [b], head: queued });
      await append(first, runKey(n), 1, write([], { head: last }));
      expectSame(await holders(first, n + 2), [n + 1, n + 2], `who holds slots once a run ${what}`);
      for (const one of [1, 2]) await append(first, runKey(n + one), 1, write([ended()], { head: over() }));
    }
  }),

  check("slots: a run that leaves a line in which it waits for several lets the next one in", async ({ first }) => {
    await create(first, 1, { slots: [a], head: holding });
    await create(first, 2, { slots: [a, b], head: queued });
    await create(first, 3, { slots: [{ ...a, max: 2 }, b], head: queued });
    await append(first, runKey(2), 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 3), [1, 3], "who holds slots");
  }),

  check(
    "slots: a run that has moved to another line leaves it as any other, and moves within its priority",
    async (stores) => {
      const { first } = stores;
      await create(first, 1, { slots: [a], head: holding });
      await create(first, 2, { slots: [b], head: holding });
      for (const [n, priority] of [
        [3, 0],
        [4, 5],
      ] as const)
        await create(first, n, { slots: [a, b], head: queued, priority });
      await create(first, 5, { slots: [b], head: queued });
      await append(first, runKey(1), 1, write([ended()], { head: over() }));
      expectSame(await waits(first), [[b.key, 4]], "who waits for which slot once the first is free");
      await append(first, runKey(4), 1, write([ended()], { head: over() }));
      expectSame(await waits(first), [[b.key, 5]], "who waits for which slot once the first in line has ended");
      await append(first, runKey(2), 1, write([ended()], { head: over() }));
      await append(first, runKey(5), 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 5), [3], "who holds slots at last");
    },
  ),

  check("slots: a run with an owner that asks gets all permits in its turn", async ({ first }) => {
    await create(first, 1, { slots: [a], head: holding });
    await create(first, 2, { slots: [b], head: holding });
    const key = await create(first, 3, { slots: [a, b], asks: true });
    await append(first, runKey(1), 1, write([ended()], { head: over() }));
    await append(first, key, 1, write(parts("asks"), { asks: true }));
    expectSame(await holders(first, 3), [2], "who holds slots once the first is free");
    await append(first, runKey(2), 1, write([ended()], { head: over() }));
    expectSame((await first.find(key))?.head, holding, "the head of the run once both are free");
    for (const slot of [a, b]) expectConflict(await tryCreate(first, 4, { slot, head: holding }), full, "one more");
    await append(first, key, 2, write(parts("needs none")));
    await create(first, 5, { slots: [a, b], head: holding });
  }),

  check(
    "take: a run of a dead owner keeps all its permits, and one that is looked at takes none",
    async ({ first }) => {
      await create(first, 1, { slots: [a, b], head: head({ owner: "dead", holds_slot: true }) });
      const key = await create(first, 2, { slots: [a, c], head: waiting() });
      expectWritten(await first.post(key, { entries: parts("answer"), due: "look" }), "a post for a look");
      expectSame(await take(first), [1, 2].map(runId), "taken");
      expectSame(await holders(first, 2), [1], "who holds slots");
      for (const slot of [a, b]) expectConflict(await tryCreate(first, 3, { slot, head: holding }), full, "one more");
      await create(first, 4, { slots: [c], head: holding });
    },
  ),

  check(
    "take: a run without a process gives back all its permits if one of them is waited for",
    async ({ first, clock }) => {
      await first.renew(OWNER, 1_000_000);
      await create(first, 1, { slots: [a, b], head: queued, created: { version: "1" } });
      await create(first, 2, { slots: [b, c], head: queued });
      expectSame(await holders(first, 2), [1], "who holds slots");
      clock.set(NOW + 100);
      expectSame(await take(first, { unusedForMs: 100 }), [runId(2)], "taken");
      await create(first, 3, { slots: [a], head: holding });
      expectSame(await take(first, { agents: [{ agent_name: "echo", version: "1" }] }), [], "taken of the version");
      for (const n of [2, 3]) await append(first, runKey(n), 1, write([ended()], { head: over() }), n === 2 ? 2 : 1);
      expectSame(await take(first, { agents: [{ agent_name: "echo", version: "1" }] }), [runId(1)], "taken of it then");
    },
  ),

  check("slots: concurrent creates get no more permits of several slots than there are", async ({ first, second }) => {
    const pairs = [
      [a, b],
      [b, c],
      [a, c],
      [a, b],
      [b, c],
      [a, c],
    ];
    const answers = await Promise.all(
      pairs.map((slots, n) => tryCreate(n % 2 === 0 ? first : second, n, { slots, head: holding })),
    );
    expectOneWritten(answers, "runs of which any two share a slot");
    const rated = await Promise.all(
      pairs.map((_, n) => tryCreate(n % 2 === 0 ? first : second, 10 + n, { slots: [twice], head: holding })),
    );
    expectSame(rated.filter((answer) => answer === undefined).length, 2, "how many were created under a rate");
  }),

  check("take: concurrent takes give no more of a rate than its count", async ({ first, second, clock }) => {
    const owners = ["a", "b", "c", "d"];
    for (let n = 1; n <= 8; n++) await create(first, n, { slots: [twice], head: queued });
    for (let round = 0; round < 4; round++) {
      clock.set(NOW + round * PER_MS);
      const taken = await Promise.all(owners.map((owner, n) => take(n % 2 === 0 ? first : second, { owner })));
      // A run that has got its permit may be met by the next call.
      const more = await take(first, { owner: "a" });
      const ids = [...taken.flat(), ...more].toSorted();
      expectSame(ids, [2 * round + 1, 2 * round + 2].map(runId), `taken by the four in window ${round}`);
    }
  }),

  check("slots: a rate gives no more than its count in any window", async ({ first, second, clock }) => {
    await create(first, 1, { slots: [twice], head: holding });
    clock.set(NOW + 600);
    await create(second, 2, { slots: [twice], head: holding });
    expectConflict(await tryCreate(first, 3, { slots: [twice], head: holding }), full, "a third run");
    await append(first, runKey(1), 1, write([ended()], { head: over() }));
    clock.set(NOW + PER_MS - 1);
    expectConflict(await tryCreate(first, 3, { slots: [twice], head: holding }), full, "a third run before its time");
    clock.set(NOW + PER_MS);
    await create(first, 3, { slots: [twice], head: holding });
    expectConflict(await tryCreate(first, 4, { slots: [twice], head: holding }), full, "a fourth run");
    clock.set(NOW + 600 + PER_MS);
    await create(first, 4, { slots: [twice], head: holding });
    expectConflict(await tryCreate(first, 5, { slots: [twice], head: holding }), full, "a fifth run");
  }),

  check("slots: a rate gives no more also after the clock was set back", async ({ first, clock }) => {
    await create(first, 1, { slots: [twice], head: holding });
    clock.set(NOW + 10);
    await create(first, 2, { slots: [twice], head: holding });
    for (const at of [NOW - 5_000, NOW - 1, NOW + 5, NOW + PER_MS - 1]) {
      clock.set(at);
      expectConflict(await tryCreate(first, 3, { slots: [twice], head: holding }), full, `a third run at ${at - NOW}`);
    }
    clock.set(NOW + PER_MS);
    await create(first, 3, { slots: [twice], head: holding });
    expectConflict(await tryCreate(first, 4, { slots: [twice], head: holding }), full, "a fourth run");
  }),

  check("slots: a changed count of a rate holds for what was given before", async ({ first, clock }) => {
    const three = { key: once.key, rate: { count: 3, perMs: PER_MS } };
    await create(first, 1, { slots: [once], head: holding });
    clock.set(NOW + 10);
    expectConflict(await tryCreate(first, 2, { slots: [once], head: holding }), full, "one more");
    for (const n of [2, 3]) await create(first, n, { slots: [three], head: holding });
    expectConflict(await tryCreate(first, 4, { slots: [three], head: holding }), full, "one more with a higher count");
    clock.set(NOW + PER_MS);
    expectConflict(await tryCreate(first, 4, { slots: [once], head: holding }), full, "one with the former count");
    expectConflict(await tryCreate(first, 4, { slots: [twice], head: holding }), full, "one with a count between them");
    await create(first, 4, { slots: [three], head: holding });
    clock.set(NOW + 2 * PER_MS);
    await create(first, 5, { slots: [once], head: holding });
  }),

  check(
    "slots: those that wait for a rate get it in order, with the first take at its time",
    async ({ first, clock }) => {
      for (const n of [1, 2, 3, 4, 5]) await create(first, n, { slots: [twice], head: queued });
      expectSame(await take(first), [1, 2].map(runId), "taken at once");
      clock.set(NOW + PER_MS - 1);
      expectSame(await take(first), [], "taken before the time");
      clock.set(NOW + PER_MS);
      expectConflict(await tryCreate(first, 6, { slots: [twice], head: holding }), full, "one that does not wait");
      expectSame(await take(first, { limit: 1 }), [runId(3)], "taken at the time");
      expectSame(await holders(first, 5), [1, 2, 3, 4], "who has got the rate");
      expectSame(await take(first), [runId(4)], "taken then");
      clock.set(NOW + 2 * PER_MS);
      expectSame(await take(first), [runId(5)], "taken at the next time");
    },
  ),

  check("slots: a refused or waiting run takes nothing from a rate", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    await create(first, 1, { slots: [a], head: holding });
    expectConflict(await tryCreate(first, 2, { slots: [a, once], head: holding }), full, "create");
    await create(first, 3, { slots: [a, once], head: queued });
    await create(first, 4, { slots: [once], head: queued });
    expectSame(await holders(first, 4), [1, 4], "who holds slots");
    await append(first, runKey(1), 1, write([ended()], { head: over() }));
    expectSame(await waits(first), [[once.key, 3]], "who waits for which slot once the other one is free");
    await create(first, 5, { slots: [a], head: holding });
    clock.set(NOW + PER_MS);
    expectSame(await take(first), [runId(4)], "taken when the rate gives again, and the other slot does not");
    expectSame(await waits(first), [[a.key, 3]], "who waits for which slot then");
    await create(first, 6, { slots: [once], head: holding });
  }),

  check("slots: a rate counts a run once", async ({ first, clock }) => {
    const both = { ...once, max: 1 };
    await first.renew(OWNER, LEASE_MS);
    const key = await create(first, 1, { slots: [both], head: holding });
    const other = await create(first, 2, { slots: [{ ...once, key: ":s" }], head: queued });
    expectSame(await take(first), [runId(2)], "taken");
    await append(first, key, 1, write(parts("waits"), { head: waiting(NOW) }));
    await append(first, other, 1, write(parts("waits"), { head: waiting(NOW, { epoch: 2 }) }), 2);
    expectSame(await take(first), [1, 2].map(runId), "taken when they come back");
    expectSame(await holders(first, 2), [1, 2], "who holds slots then");
    await append(first, key, 2, write([], { head: head({ epoch: 2, owner: "owner-2" }), asks: true }), 2);
    await append(first, other, 2, write([], { head: head({ epoch: 3, owner: "owner-2" }) }), 3);
    await append(first, other, 2, write([], { head: head({ epoch: 3, owner: "owner-2" }), asks: true }), 3);
    expectSame(await holders(first, 2), [1, 2], "who holds slots once both have asked");
    expectConflict(await tryCreate(first, 3, { slots: [both], head: holding }), full, "another run");
    clock.set(NOW + PER_MS);
    expectConflict(await tryCreate(first, 3, { slots: [both], head: holding }), full, "another run later");
    await append(first, key, 2, write([ended()], { head: over() }), 2);
    await create(first, 3, { slots: [both], head: holding });
  }),

  check("slots: a slot may have a limit and a rate", async ({ first, clock }) => {
    const both = { ...twice, max: 1 };
    for (const n of [1, 2, 3]) await create(first, n, { slots: [both], head: queued });
    expectSame(await holders(first, 3), [1], "who holds the slot");
    await append(first, runKey(1), 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 3), [2], "who holds it then");
    clock.set(NOW + 10);
    await append(first, runKey(2), 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 3), [], "who holds it while the rate is used up");
    clock.set(NOW + PER_MS);
    expectSame(await take(first), [runId(3)], "taken at the time of the rate");
  }),

  check("prune: keeps what still counts of a rate", async ({ first, clock }) => {
    for (const n of [1, 2]) await create(first, n, { slots: [twice], head: holding });
    for (const n of [1, 2]) await append(first, runKey(n), 1, write([ended()], { head: over() }));
    clock.set(NOW + PER_MS - 1);
    expectSame(await first.prune(forget), 2, "how many runs were deleted");
    expectConflict(await tryCreate(first, 3, { slots: [twice], head: holding }), full, "another run");
    clock.set(NOW + PER_MS);
    await first.prune(forget);
    for (const n of [3, 4]) await create(first, n, { slots: [twice], head: holding });
    expectConflict(await tryCreate(first, 5, { slots: [twice], head: holding }), full, "one more");
  }),

  check("lines: shows rates and when they give again", async ({ first, clock }) => {
    await create(first, 1, { slots: [twice], head: queued });
    clock.set(NOW + 300);
    for (const n of [2, 3]) await create(first, n, { slots: [twice], head: queued });
    await create(first, 4, { slots: [{ ...once, key: ":s", max: 3 }], head: queued });
    await create(first, 5, { slots: [{ ...once, key: ":s", max: 3 }], head: queued });
    const next = (n: number) => ({ key: runKey(n), agent_name: "echo", version: null, due_at: NOW });
    const { rate } = twice;
    const [line, other] = [
      { key: ":r", rate, next_at: NOW + PER_MS, held: 0, waiting: 1, first: next(3) },
      { key: ":s", max: 3, rate: once.rate, next_at: NOW + 300 + PER_MS, held: 1, waiting: 1, first: next(5) },
    ];
    expectSame(await first.lines({ limit: 9 }), [line, other], "the lines");
    clock.set(NOW + PER_MS);
    const { next_at: _, ...gives } = line ?? {};
    expectSame(await first.lines({ limit: 1 }), [gives], "the first line at its time");
    await take(first);
    expectSame((await first.lines({ limit: 9 })).length, 1, "how many lines there are once it was taken");
  }),
];

/** Which run is the first to wait for each slot. */
async function waits(store: Store): Promise<readonly (readonly [key: string, n: number])[]> {
  const lines = await store.lines({ limit: 9 });
  return lines.map(({ key, first }) => [key, Number(first.key.run_id.slice(-3))]);
}
