import { MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import type { MemoryStoreOptions } from "../internals.ts";
import type { BrokenStore } from "./broken-store.ts";
import { broken } from "./broken-store.ts";

type Grant = Parameters<Store["grantSteps"]>;
type Permit = Parameters<Store["permitSteps"]>;
type Rate = Grant[1];
type Use = Permit[3];

const oneByOne = "steps: a rate grants at once what it may, and then one at a time in the future";
const inARow = "steps: of the grants, any more in a row than the rate has take at least its time";
const setBack = "steps: after the clock was set back, grants are as long ago as before";
const changed = "steps: a rate that is changed holds from then on, and counts what was granted before";
const most = "steps: no more permits are held than there may be, by all owners";
const inTurn = "steps: a permit that was given back goes to the owner that waits longest, and each gets one in turn";
const again = "steps: a call that is repeated, or comes behind a later one, changes nothing more";
const free = "steps: the permits of owners are free whose lease has ended, or never was";
const unknown = "steps: an owner that is not known any more holds what it has used, and gets no more for it";
const ownMax = "steps: an owner is given a permit under its own max, and those behind it wait";

/** Faults in `grantSteps` and `permitSteps`. */
export const stepLimitsFaults: readonly BrokenStore[] = [
  withGrants("grantSteps counts by periods that do not slide", inARow, (clock) => {
    const counted = new Map<number, number>();
    return (_key, { count, perMs }, wanted) => {
      const waits: number[] = [];
      for (let period = Math.floor(clock.now() / perMs); waits.length < wanted; period++) {
        for (; (counted.get(period) ?? 0) < count && waits.length < wanted; ) {
          waits.push(Math.max(0, period * perMs - clock.now()));
          counted.set(period, (counted.get(period) ?? 0) + 1);
        }
      }
      return waits;
    };
  }),
  withGrants(
    "grantSteps grants all that is wanted, also in the future",
    oneByOne,
    (_clock, grant) => (key, rate, wanted) => Array.from({ length: wanted }, () => grant(key, rate, 1)).flat(),
  ),
  withGrants("grantSteps counts one grant of those that it gives", oneByOne, (_clock, grant) => (key, rate, wanted) => {
    const [first = 0] = grant(key, rate, 1);
    return first > 0 ? [first] : Array.from({ length: wanted }, () => 0);
  }),
  withGrants(
    "grantSteps gives the time of a grant",
    oneByOne,
    (clock, grant) => (key, rate, wanted) => grant(key, rate, wanted).map((wait) => clock.now() + wait),
  ),
  withGrants(
    "grantSteps counts all keys as one",
    oneByOne,
    (_clock, grant) => (_key, rate, wanted) => grant("", rate, wanted),
  ),
  withGrants("grantSteps forgets after the clock was set back", setBack, (clock, grant) => {
    let round = 0;
    let last = clock.now();
    return (key, rate, wanted) => {
      if (clock.now() < last) round += 1;
      last = clock.now();
      return grant(`${key} ${round}`, rate, wanted);
    };
  }),
  withGrants("grantSteps waits until the clock has come where it was", setBack, (clock, grant) => {
    let last = clock.now();
    return (key, rate, wanted) => {
      const backMs = Math.max(0, last - clock.now());
      last = Math.max(last, clock.now());
      return grant(key, rate, wanted).map((wait) => wait + backMs);
    };
  }),
  withGrants(
    "grantSteps counts each rate of a key for itself",
    changed,
    (_clock, grant) => (key, rate, wanted) => grant(`${key} ${rate.count}`, rate, wanted),
  ),
  withPermits(
    "permitSteps gives what is wanted",
    most,
    (permit) => (owner, key, _max, use) => permit(owner, key, Number.POSITIVE_INFINITY, use),
  ),
  withPermits(
    "permitSteps counts the permits of each owner",
    most,
    (permit) => (owner, key, max, use) => permit(owner, `${key} ${owner}`, max, use),
  ),
  withPermits(
    "permitSteps counts all keys as one",
    most,
    (permit) => (owner, _key, max, use) => permit(owner, "", max, use),
  ),
  withPermits(
    "permitSteps says how many permits the owner holds",
    again,
    (permit) => (owner, key, max, use) => permit(owner, key, max, use) - use.over,
  ),
  withPermits(
    "permitSteps gives all that is free to the first that asks",
    inTurn,
    (permit) => (owner, key, max, use) => {
      const first = permit(owner, key, max, { ...use, wanted: use.used, turn: 2 * use.turn });
      return Math.max(first, permit(owner, key, max, { ...use, turn: 2 * use.turn + 1 }));
    },
  ),
  withPermits("permitSteps takes every call for a later one", again, (permit) => {
    let turn = 0;
    return (owner, key, max, use) => {
      turn += 1;
      return permit(owner, key, max, { ...use, turn });
    };
  }),
  broken(
    "permitSteps keeps the permits of the dead",
    free,
    class extends MemoryStore {
      override permitSteps(...[owner, key, max, use]: Permit): number {
        for (const one of ["a", "b", "c", "never"]) this.renew(one, Number.MAX_SAFE_INTEGER);
        return super.permitSteps(owner, key, max, use);
      }
    },
  ),
  withPermits(
    "permitSteps takes an owner that was gone for a new one",
    unknown,
    (permit) => (owner, key, max, use) => permit(owner, key, max, { ...use, used: use.over }),
  ),
  withPermits("permitSteps gives permits under the highest max", ownMax, (permit) => {
    let highest = 0;
    return (owner, key, max, use) => {
      highest = Math.max(highest, max);
      return permit(owner, key, highest, use);
    };
  }),
  withPermits(
    "permitSteps keeps an owner in line that wants no more",
    "steps: an owner that wants no more leaves the line",
    (permit) => {
      const wanted = new Map<string, number>();
      return (owner, key, max, use) => {
        wanted.set(owner, Math.max(wanted.get(owner) ?? 0, use.wanted));
        return permit(owner, key, max, { ...use, wanted: wanted.get(owner) ?? 0 });
      };
    },
  ),
];

/** A store that grants in another way. */
function withGrants(
  fault: string,
  caughtBy: string,
  twist: (
    clock: { now(): number },
    grant: (key: string, rate: Rate, wanted: number) => readonly number[],
  ) => (key: string, rate: Rate, wanted: number) => readonly number[],
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      readonly #grant: ReturnType<typeof twist>;

      constructor(options: MemoryStoreOptions) {
        super(options);
        this.#grant = twist(options.clock ?? { now: () => 0 }, (...grant) => super.grantSteps(...grant));
      }

      override grantSteps(...grant: Grant): readonly number[] {
        return this.#grant(...grant);
      }
    },
  );
}

/** A store that gives permits in another way. */
function withPermits(
  fault: string,
  caughtBy: string,
  twist: (permit: (...permit: Permit) => number) => (owner: string, key: string, max: number, use: Use) => number,
): BrokenStore {
  return broken(
    fault,
    caughtBy,
    class extends MemoryStore {
      readonly #permit = twist((...permit) => super.permitSteps(...permit));

      override permitSteps(...permit: Permit): number {
        return this.#permit(...permit);
      }
    },
  );
}
