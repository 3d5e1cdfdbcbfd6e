import type { Store } from "../../core/ports.ts";
import type { Rate } from "../../core/slots.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import { LEASE_END, LEASE_MS } from "./samples.ts";

const rate: Rate = { count: 3, perMs: 1_000 };

/** Asks for one grant. Gives how long after the beginning of the check it lies. */
async function grantedAt(store: Store, clock: { now(): number }, by = rate, key = "limit"): Promise<number> {
  const waits = await store.grantSteps(key, by, 1);
  if (waits.length !== 1) throw new Error(`grantSteps: expected one grant, received ${JSON.stringify(waits)}`);
  return clock.now() - NOW + (waits[0] ?? 0);
}

/** A process that tells what it has used and wants of a limit. */
class Process {
  readonly #name: string;
  readonly #key: string;
  #turn = 0;

  constructor(name: string, key = "limit") {
    this.#name = name;
    this.#key = key;
  }

  /** Gives how many permits it was given in all. */
  async tell(store: Store, used: number, over: number, wanted: number, max = 2): Promise<number> {
    this.#turn += 1;
    return this.repeat(store, used, over, wanted, max);
  }

  /** As `tell`, as a call that is sent again, or late. */
  async repeat(store: Store, used: number, over: number, wanted: number, max = 2, late = 0): Promise<number> {
    return store.permitSteps(this.#name, this.#key, max, { turn: this.#turn - late, used, over, wanted });
  }
}

/** Processes with a lease. */
async function living<Names extends readonly string[]>(
  store: Store,
  ...names: Names
): Promise<{ readonly [Index in keyof Names]: Process }> {
  await Promise.all(names.map((name) => store.renew(name, LEASE_MS)));
  return names.map((name) => new Process(name)) as { readonly [Index in keyof Names]: Process };
}

/** `grantSteps` and `permitSteps`. */
export const stepLimitChecks: readonly StoreCheck[] = [
  check(
    "steps: a rate grants at once what it may, and then one at a time in the future",
    async ({ first, second, clock }) => {
      expectSame(await first.grantSteps("limit", rate, 2), [0, 0], "two grants");
      clock.set(NOW + 400);
      expectSame(await second.grantSteps("limit", rate, 5), [0], "all that the rate allows at once");
      expectSame(await second.grantSteps("limit", rate, 5), [600], "one in the future");
      expectSame(await first.grantSteps("limit", rate, 1), [600], "the next one");
      expectSame(await first.grantSteps("limit", rate, 1), [1_000], "one behind the third");
      expectSame(await first.grantSteps("other", rate, 1), [0], "a grant under another key");
    },
  ),

  check(
    "steps: of the grants, any more in a row than the rate has take at least its time",
    async ({ first, second, clock }) => {
      const times: number[] = [];
      for (let n = 0; n < 12; n++) {
        clock.set(NOW + 600 + 170 * n);
        const calls = [first, second, first].map((store) => store.grantSteps("limit", rate, 1 + (n % 3)));
        for (const waits of await Promise.all(calls)) times.push(...waits.map((wait) => clock.now() + wait));
      }
      times.sort((a, b) => a - b);
      const closest = Math.min(...times.slice(rate.count).map((at, n) => at - (times[n] ?? 0)));
      expectSame(
        [closest, times.length >= 36],
        [rate.perMs, true],
        "the shortest time of four grants, and enough of them",
      );
    },
  ),

  check("steps: after the clock was set back, grants are as long ago as before", async ({ first, clock }) => {
    clock.set(NOW + 100);
    await first.grantSteps("limit", rate, 2);
    clock.set(NOW + 700);
    await first.grantSteps("limit", rate, 1);
    clock.set(NOW - 1_000_000);
    expectSame(await first.grantSteps("limit", rate, 1), [400], "the fourth grant");
    clock.set(NOW - 1_000_000 + 400);
    expectSame(await first.grantSteps("limit", rate, 1), [0], "the fifth grant");
    expectSame(await first.grantSteps("limit", rate, 1), [600], "the sixth grant");
  }),

  check(
    "steps: a rate that is changed holds from then on, and counts what was granted before",
    async ({ first, clock }) => {
      for (let n = 0; n < 5; n++) {
        clock.set(NOW + 500 * n);
        await first.grantSteps("limit", { count: 2, perMs: 1_000 }, 1);
      }
      const raised = { count: 4, perMs: 1_000 };
      const lowered = { count: 1, perMs: 1_000 };
      const at: number[] = [];
      for (let n = 0; n < 5; n++) at.push(await grantedAt(first, clock, raised));
      // What was granted before the last two is not known any more: at the latest when the first of these was.
      expectSame(at, [2_500, 2_500, 2_500, 3_000, 3_500], "the grants under a higher count");
      expectSame(await grantedAt(first, clock, lowered), 4_500, "a grant under a lower count");
      expectSame(await grantedAt(first, clock, raised), 4_500, "a grant under the higher count again");
    },
  ),

  check("steps: grants and permits outlive the process, if the store does", async ({ first, reopen }) => {
    const [a] = await living(first, "a");
    await first.grantSteps("limit", rate, 3);
    await a.tell(first, 0, 0, 2);
    if (reopen === undefined) return;
    const again = (await reopen()).first;
    expectSame(await again.grantSteps("limit", rate, 1), [1_000], "the fourth grant");
    expectSame(await new Process("b").tell(again, 0, 0, 1), 0, "a third permit of two");
  }),

  check("steps: no more permits are held than there may be, by all owners", async ({ first, second }) => {
    const [a, b] = await living(first, "a", "b");
    const other = new Process("a", "other");
    expectSame(await a.tell(first, 0, 0, 3), 2, "what the first owner is given");
    expectSame(await b.tell(second, 0, 0, 1), 0, "what the second is given");
    expectSame(await other.tell(second, 0, 0, 1), 1, "what is given under another key");
    expectSame(await a.tell(first, 2, 0, 3), 2, "what the first has once it has used its permits");
  }),

  check(
    "steps: a permit that was given back goes to the owner that waits longest, and each gets one in turn",
    async ({ first, second }) => {
      const [a, b, c] = await living(first, "a", "b", "c");
      await a.tell(first, 0, 0, 4);
      await b.tell(second, 0, 0, 3);
      await c.tell(first, 0, 0, 1);
      expectSame([await a.tell(first, 2, 1, 4), await b.tell(second, 0, 0, 3)], [3, 0], "after the first permit");
      expectSame([await a.tell(first, 3, 2, 4), await b.tell(second, 0, 0, 3)], [3, 1], "after the second");
      expectSame([await a.tell(first, 3, 3, 4), await c.tell(second, 0, 0, 1)], [3, 1], "after the third");
      expectSame([await b.tell(first, 1, 1, 3), await a.tell(second, 3, 3, 4)], [1, 4], "after the fourth");
      expectSame([await c.tell(first, 1, 1, 1), await b.tell(second, 1, 1, 3)], [1, 2], "after the fifth");
    },
  ),

  check(
    "steps: a call that is repeated, or comes behind a later one, changes nothing more",
    async ({ first, second }) => {
      const [a, b] = await living(first, "a", "b");
      expectSame(await a.tell(first, 0, 0, 2), 2, "the first call");
      expectSame(await b.tell(first, 0, 0, 2), 0, "another owner, which waits");
      expectSame(
        [await a.tell(first, 2, 1, 2), await a.repeat(second, 2, 1, 2)],
        [2, 2],
        "a permit that is given back twice",
      );
      expectSame(await b.tell(first, 0, 0, 2), 1, "what the other owner is given for it");
      await a.tell(first, 2, 2, 2);
      expectSame(await a.repeat(second, 0, 0, 9, 2, 2), 2, "the first call once more, for more permits");
      expectSame(await b.tell(first, 1, 1, 3), 3, "what the other one is given then");
      expectSame(await a.tell(first, 2, 2, 2), 2, "what the owner has, which wants no more");
    },
  ),

  check(
    "steps: the permits of owners are free whose lease has ended, or never was",
    async ({ first, second, clock }) => {
      const [a, b] = await living(first, "a", "b");
      expectSame([await a.tell(first, 0, 0, 2), await b.tell(second, 0, 0, 1)], [2, 0], "what is given at first");
      clock.set(LEASE_END - 1);
      await first.renew("b", LEASE_MS);
      expectSame(await b.tell(second, 0, 0, 1), 0, "what is given in the last moment of a lease");
      clock.set(LEASE_END);
      expectSame(await b.tell(second, 0, 0, 1), 1, "what is given when it has ended");
      expectSame(await new Process("never").tell(first, 0, 0, 1), 1, "what an owner without a lease is given");
      expectSame(await b.tell(second, 0, 0, 2), 2, "what is given in its place");
      await first.renew("c", LEASE_MS);
      await first.release("b");
      expectSame(await new Process("c").tell(second, 0, 0, 2), 2, "what is given after a release");
    },
  ),

  check(
    "steps: a lease that another owner meets keeps permits no longer than requested, also if the clock was set back",
    async ({ first, second, clock }) => {
      const [a] = await living(first, "a");
      await a.tell(first, 0, 0, 2);
      const b = new Process("b");
      clock.set(NOW - 1_000_000);
      await first.renew("b", 10 * LEASE_MS);
      expectSame(await b.tell(second, 0, 0, 1), 0, "what is given once the clock is back");
      clock.set(NOW - 1_000_000 + LEASE_MS - 1);
      expectSame(await b.tell(second, 0, 0, 1), 0, "what is given a moment before the end");
      clock.set(NOW - 1_000_000 + LEASE_MS);
      expectSame(await b.tell(second, 0, 0, 1), 1, "what is given a lease later");
    },
  ),

  check(
    "steps: an owner that is not known any more holds what it has used, and gets no more for it",
    async ({ first, second, clock }) => {
      const [a, b] = await living(first, "a", "b");
      await a.tell(first, 0, 0, 2);
      clock.set(LEASE_END);
      await first.renew("b", LEASE_MS);
      expectSame(await b.tell(second, 0, 0, 1), 1, "what is given for permits of an owner that is gone");
      await first.renew("a", LEASE_MS);
      expectSame(await a.tell(first, 2, 0, 3), 2, "what that owner has, once it is back");
      expectSame(
        [await b.tell(second, 1, 1, 1), await a.tell(first, 2, 0, 3)],
        [1, 2],
        "after the other one has ended",
      );
      expectSame(await a.tell(first, 2, 1, 3), 3, "after it has given one back");
    },
  ),

  check("steps: an owner that wants no more leaves the line", async ({ first, second }) => {
    const [a, b, c] = await living(first, "a", "b", "c");
    await a.tell(first, 0, 0, 2);
    await b.tell(second, 0, 0, 2);
    await c.tell(first, 0, 0, 1);
    await b.tell(second, 0, 0, 0);
    await a.tell(first, 2, 1, 2);
    expectSame([await b.tell(second, 0, 0, 0), await c.tell(first, 0, 0, 1)], [0, 1], "what the two are given");
  }),

  check("steps: an owner is given a permit under its own max, and those behind it wait", async ({ first, second }) => {
    const [a, b, c] = await living(first, "a", "b", "c");
    expectSame(await a.tell(first, 0, 0, 3, 3), 3, "what an owner is given under a max of 3");
    await b.tell(second, 0, 0, 1, 2);
    expectSame(await c.tell(first, 0, 0, 1, 5), 0, "what is given behind one that waits under a max of 2");
    await a.tell(first, 3, 1, 3, 3);
    expectSame([await b.tell(second, 0, 0, 1, 2), await c.tell(first, 0, 0, 1, 5)], [0, 0], "while two are held");
    await a.tell(first, 3, 2, 3, 3);
    expectSame([await b.tell(second, 0, 0, 1, 2), await c.tell(first, 0, 0, 1, 5)], [1, 1], "while one was held");
  }),

  check("steps: a name may be any text", async ({ first, second }) => {
    for (const name of ["\u0000", '"', "a b/ü\ud800"]) {
      const [a, b] = [new Process(name, name), new Process(`${name}2`, name)];
      await Promise.all([name, `${name}2`].map((owner) => first.renew(owner, LEASE_MS)));
      expectSame([await a.tell(first, 0, 0, 2), await b.tell(second, 0, 0, 1)], [2, 0], "what is given");
      expectSame(await first.grantSteps(name, rate, 3), [0, 0, 0], "the grants");
      expectSame(await second.grantSteps(name, rate, 1), [1_000], "the next grant");
    }
  }),
];
