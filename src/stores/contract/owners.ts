import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectOneWritten, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  createEnded,
  head,
  LEASE_END,
  LEASE_MS,
  look,
  OWNER,
  parts,
  runKey,
  sessionKey,
  waiting,
  write,
} from "./samples.ts";

const asFound = { epoch: 1, position: 1 };
/** The head of a run that another owner takes. */
const taken = head({ epoch: 2, owner: "owner-2", takeovers: 1 });

/** `claim`, `renew` and `release`: which process may own a run. */
export const ownerChecks: readonly StoreCheck[] = [
  check("time: that of the clock of the store, if it tells any", async ({ first, second, clock }) => {
    clock.set(NOW + 1);
    for (const store of [first, second])
      if (store.time !== undefined) expectSame(await store.time(), NOW + 1, "the time");
    for (const part of ["first", "next"]) {
      const told = await first.renew(OWNER, LEASE_MS);
      if (told !== undefined) expectSame(told, NOW + 1, `the time that the ${part} renewal tells`);
    }
  }),

  check("claim: a run without an owner gets the new head, and keeps its entries", async ({ first }) => {
    const key = await create(first, 1, { head: waiting(55) });
    const before = await first.read(key, 0, 10);
    expectWritten(await first.claim(key, asFound, taken), "claim");
    expectSame((await first.find(key))?.head, taken, "the head");
    expectSame(await first.read(key, 0, 10), before, "the entries");
    expectSame((await first.find(key))?.position, 1, "the length");
  }),

  check("claim: a run whose owner lives is refused as `owned`, and nothing changes", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    const key = await create(first, 1);
    const before = await look(first, key, sessionKey(1));
    expectConflict(await first.claim(key, asFound, taken), { conflict: "owned" }, "claim");
    clock.set(LEASE_END - 1);
    expectConflict(await first.claim(key, asFound, taken), { conflict: "owned" }, "claim in the last moment");
    expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
  }),

  check("claim: a run whose owner's lease has expired or never existed is given", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    const expired = await create(first, 1);
    const never = await create(first, 2, { head: head({ owner: "no owner yet" }) });
    expectWritten(await first.claim(never, asFound, taken), "claim from an owner without a lease");
    clock.set(LEASE_END);
    expectWritten(await first.claim(expired, asFound, taken), "claim when the lease expires");
  }),

  check("claim: refused as `missing` and as `changed`, and nothing changes", async ({ first }) => {
    expectConflict(await first.claim(runKey(1), asFound, taken), { conflict: "missing" }, "no such run");
    const key = await create(first, 1, { head: waiting(null, { epoch: 3 }) });
    const before = await look(first, key, sessionKey(1));
    const changed = { conflict: "changed", epoch: 3, position: 1 } as const;
    for (const expected of [
      { epoch: 2, position: 1 },
      { epoch: 4, position: 1 },
      { epoch: 3, position: 0 },
      { epoch: 3, position: 2 },
    ]) {
      const label = `epoch ${expected.epoch}, position ${expected.position}`;
      expectConflict(await first.claim(key, expected, taken), changed, label);
    }
    expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
  }),

  check("claim: a run that has ended is refused as `ended`, and nothing changes", async ({ first }) => {
    const key = await createEnded(first, 1, NOW);
    const before = await look(first, key, sessionKey(1));
    for (const expected of [{ epoch: 2, position: 2 }, asFound]) {
      expectConflict(await first.claim(key, expected, taken), { conflict: "ended" }, "claim");
    }
    expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
  }),

  check("claim: of several concurrent callers, exactly one gets the run", async ({ first, second }) => {
    const key = await create(first, 1, { head: waiting() });
    await Promise.all(["a", "b", "c", "d"].map((owner) => first.renew(owner, LEASE_MS)));
    const claims = ["a", "b", "c", "d"].map((owner, n) => {
      const store = n % 2 === 0 ? first : second;
      return store.claim(key, asFound, head({ epoch: 2, owner }));
    });
    const answers = await Promise.all(claims);
    expectOneWritten(answers, "four claims");
    expectSame((await first.find(key))?.head.owner, ["a", "b", "c", "d"][answers.indexOf(undefined)], "the owner");
  }),

  check("claim: the former owner can no longer write", async ({ first }) => {
    const key = await create(first, 1);
    expectWritten(await first.claim(key, asFound, taken), "claim");
    const answer = await first.append(key, asFound, write(parts("late")));
    expectConflict(answer, { conflict: "changed", epoch: 2, position: 1 }, "an append of the owner before");
    await append(first, key, 1, write(parts("a"), { head: taken }), 2);
  }),

  check("renew: the lease lasts as long as last requested, from then on", async ({ first, clock }) => {
    const key = await create(first, 1);
    await first.renew(OWNER, LEASE_MS);
    clock.set(NOW + 4_000);
    await first.renew(OWNER, LEASE_MS);
    clock.set(LEASE_END + 3_999);
    expectConflict(await first.claim(key, asFound, taken), { conflict: "owned" }, "claim after a renewal");
    await first.renew("another owner", LEASE_MS);
    clock.set(LEASE_END + 4_000);
    expectWritten(await first.claim(key, asFound, taken), "claim after the last renewal");
    const shorter = await create(first, 2);
    await first.renew(OWNER, LEASE_MS);
    await first.renew(OWNER, 1);
    clock.set(LEASE_END + 4_001);
    expectWritten(await first.claim(shorter, asFound, taken), "claim after a shorter lease");
  }),

  check(
    "renew: once another process meets a lease, it lasts no longer than requested, also if the clock was set back",
    async ({ first, second, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      const key = await create(first, 1);
      clock.set(NOW - 1_000_000);
      expectConflict(await second.claim(key, asFound, taken), { conflict: "owned" }, "claim once the clock is back");
      clock.set(NOW - 1_000_000 + LEASE_MS - 1);
      expectConflict(await second.claim(key, asFound, taken), { conflict: "owned" }, "claim a moment before");
      clock.set(NOW - 1_000_000 + LEASE_MS);
      expectWritten(await second.claim(key, asFound, taken), "claim a lease later");
    },
  ),

  check("release: the lease has expired at once, and may be renewed", async ({ first }) => {
    await first.renew(OWNER, LEASE_MS);
    await first.renew("owner-3", LEASE_MS);
    const [released, renewed, other] = [
      await create(first, 1),
      await create(first, 2),
      await create(first, 3, { head: head({ owner: "owner-3" }) }),
    ];
    await first.release(OWNER);
    await first.release("an owner that never was");
    expectWritten(await first.claim(released, asFound, taken), "claim after the release");
    expectConflict(await first.claim(other, asFound, taken), { conflict: "owned" }, "claim from another owner");
    await first.renew(OWNER, LEASE_MS);
    expectConflict(await first.claim(renewed, asFound, taken), { conflict: "owned" }, "claim after a new lease");
  }),
];
