import type { RunHead, Store } from "../core/ports.ts";
import type { StoreCheck } from "./store-check.ts";
import { check, expectConflict, expectOneWritten, expectSame, expectWritten } from "./store-check.ts";
import {
  append,
  create,
  createEnded,
  head,
  LEASE,
  look,
  NOW,
  OWNER,
  over,
  parts,
  runId,
  runKey,
  sessionKey,
  waiting,
  write,
} from "./store-samples.ts";

const asFound = { epoch: 1, position: 1 };
/** The head of a run that somebody else takes. */
const taken = head({ epoch: 2, owner: "owner-2", takeovers: 1 });

/** `claim`, `renew`, `release` and `due`: who may have a run, and which runs need somebody. */
export const ownerChecks: readonly StoreCheck[] = [
  check("claim: a run without an owner gets the new head, and keeps its entries", async ({ first }) => {
    const key = await create(first, 1, { head: waiting(55) });
    const before = await first.read(key, 0, 10);
    expectWritten(await first.claim(key, asFound, taken, NOW), "claim");
    expectSame((await first.find(key))?.head, taken, "the head");
    expectSame(await first.read(key, 0, 10), before, "the entries");
    expectSame((await first.find(key))?.position, 1, "the length");
  }),

  check("claim: a run whose owner lives is refused as `owned`, and nothing changes", async ({ first }) => {
    await first.renew(OWNER, LEASE);
    const key = await create(first, 1);
    const before = await look(first, key, sessionKey(1));
    expectConflict(await first.claim(key, asFound, taken, NOW), { conflict: "owned" }, "claim");
    expectConflict(
      await first.claim(key, asFound, taken, LEASE - 1),
      { conflict: "owned" },
      "claim in the last moment",
    );
    expectSame(await look(first, key, sessionKey(1)), before, "what the store tells afterwards");
  }),

  check("claim: a run whose owner's lease has expired, or never was, is given", async ({ first }) => {
    await first.renew(OWNER, LEASE);
    const expired = await create(first, 1);
    expectWritten(await first.claim(expired, asFound, taken, LEASE), "claim when the lease expires");
    const never = await create(first, 2, { head: head({ owner: "nobody" }) });
    expectWritten(await first.claim(never, asFound, taken, NOW), "claim from an owner without a lease");
  }),

  check("claim: refused as `missing` and as `changed`, and nothing changes", async ({ first }) => {
    expectConflict(await first.claim(runKey(1), asFound, taken, NOW), { conflict: "missing" }, "no such run");
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
      expectConflict(await first.claim(key, expected, taken, NOW), changed, label);
    }
    expectSame(await look(first, key, sessionKey(1)), before, "what the store tells afterwards");
  }),

  check("claim: of several at once, exactly one gets the run", async ({ first, second }) => {
    const key = await create(first, 1, { head: waiting() });
    await Promise.all(["a", "b", "c", "d"].map((owner) => first.renew(owner, LEASE)));
    const claims = ["a", "b", "c", "d"].map((owner, n) => {
      const store = n % 2 === 0 ? first : second;
      return store.claim(key, asFound, head({ epoch: 2, owner }), NOW);
    });
    const answers = await Promise.all(claims);
    expectOneWritten(answers, "four claims");
    expectSame((await first.find(key))?.head.owner, ["a", "b", "c", "d"][answers.indexOf(undefined)], "the owner");
  }),

  check("claim: the owner before can write no more", async ({ first }) => {
    const key = await create(first, 1);
    expectWritten(await first.claim(key, asFound, taken, NOW), "claim");
    const answer = await first.append(key, asFound, write(parts("late")));
    expectConflict(answer, { conflict: "changed", epoch: 2, position: 1 }, "an append of the owner before");
    await append(first, key, 1, write(parts("a"), { head: taken }), 2);
  }),

  check("renew: the lease lasts until the time that was given last", async ({ first }) => {
    const key = await create(first, 1);
    await first.renew(OWNER, NOW);
    await first.renew(OWNER, LEASE);
    expectConflict(await first.claim(key, asFound, taken, LEASE - 1), { conflict: "owned" }, "claim after a renewal");
    await first.renew("somebody else", LEASE + 1_000);
    expectWritten(await first.claim(key, asFound, taken, LEASE), "claim after the last renewal");
  }),

  check("release: the lease has expired at once, and may be renewed", async ({ first }) => {
    await first.renew(OWNER, LEASE);
    await first.renew("owner-3", LEASE);
    const [released, renewed, other] = [
      await create(first, 1),
      await create(first, 2),
      await create(first, 3, { head: head({ owner: "owner-3" }) }),
    ];
    await first.release(OWNER);
    await first.release("an owner that never was");
    expectWritten(await first.claim(released, asFound, taken, NOW), "claim after the release");
    expectConflict(await first.claim(other, asFound, taken, NOW), { conflict: "owned" }, "claim from another owner");
    await first.renew(OWNER, LEASE);
    expectConflict(await first.claim(renewed, asFound, taken, NOW), { conflict: "owned" }, "claim after a new lease");
  }),

  check("due: runs that wait, from their deadline on", async ({ first }) => {
    await first.renew(OWNER, LEASE);
    await create(first, 1, { head: waiting(NOW) });
    await create(first, 2, { head: waiting(NOW + 1) });
    await create(first, 3, { head: waiting(null) });
    await create(first, 4, { head: waiting(NOW - 1, { owner: OWNER }) });
    expectSame(await due(first, NOW - 2), [], "due before the first deadline");
    expectSame(await due(first, NOW), ids(1, 4), "due at a deadline");
    expectSame(await due(first, NOW + 1), ids(1, 2, 4), "due at the next deadline");
  }),

  check("due: runs whose owner's lease has expired, also while they wait", async ({ first }) => {
    await first.renew(OWNER, LEASE);
    await create(first, 1);
    await create(first, 2, { head: waiting(null, { owner: OWNER }) });
    await create(first, 3, { head: head({ owner: "nobody", status: "created" }) });
    await create(first, 4, { head: head({ owner: "nobody", status: "cancelling" }) });
    expectSame(await due(first, LEASE - 1), ids(3, 4), "due while the owner lives");
    expectSame(await due(first, LEASE), ids(1, 2, 3, 4), "due when its lease expires");
    await first.release(OWNER);
    expectSame(await due(first, NOW), ids(1, 2, 3, 4), "due after its release");
  }),

  check("due: runs that have no owner and do not wait", async ({ first }) => {
    const free: Partial<RunHead> = { owner: null };
    await create(first, 1, { head: head({ ...free, status: "created" }) });
    await create(first, 2, { head: head({ ...free, status: "in-progress" }) });
    await create(first, 3, { head: waiting() });
    await create(first, 4, { head: head({ ...free, status: "cancelling" }) });
    expectSame(await due(first, NOW), ids(1, 2, 4), "due");
  }),

  check("due: never a run that has ended", async ({ first }) => {
    await createEnded(first, 1, NOW, { head: head({ owner: "nobody" }) });
    const key = await create(first, 2, { head: waiting(NOW) });
    await append(first, key, 1, write(parts("a"), { head: over(NOW, { status: "cancelled" }) }));
    const third = await create(first, 3, { head: head({ owner: null }) });
    await append(
      first,
      third,
      1,
      write(parts("a"), { head: over(NOW, { status: "failed", owner: "nobody", deadline: 1 }) }),
    );
    expectSame(await due(first, Number.MAX_SAFE_INTEGER), [], "due");
  }),

  check("due: of all tenants, the oldest first, and no more than asked for", async ({ first }) => {
    await create(first, 5, { head: waiting(NOW - 1) });
    await create(first, 3, { head: head({ owner: "nobody" }), tenant: "other" });
    await create(first, 4, { head: head({ owner: null }) });
    await create(first, 1, { head: waiting(NOW - 9), tenant: "third" });
    await create(first, 2, { head: head({ owner: "nobody" }) });
    expectSame(await due(first, NOW), ids(5, 3, 4, 1, 2), "due");
    expectSame(await due(first, NOW, 3), ids(5, 3, 4), "the first three");
    expectSame(await due(first, NOW, 0), [], "the first none");
    const [oldest, next] = await first.due(NOW, 2);
    expectSame(oldest, await first.find(runKey(5)), "the oldest, and what `find` gives");
    expectSame(next?.key, runKey(3, "other"), "the key of the next");
  }),

  check("due: follows what is written", async ({ first }) => {
    await first.renew(OWNER, LEASE);
    const key = await create(first, 1, { head: waiting(NOW) });
    expectSame(await due(first, NOW), ids(1), "due at the deadline");
    expectWritten(await first.claim(key, asFound, head({ epoch: 2 }), NOW), "claim");
    expectSame(await due(first, NOW), [], "due once somebody has it");
    await append(first, key, 1, write(parts("a"), { head: waiting(NOW + 5, { epoch: 2 }) }), 2);
    expectSame(await due(first, NOW + 4), [], "due before the deadline of the second question");
    expectSame(await due(first, NOW + 5), ids(1), "due at the deadline of the second question");
    await append(first, key, 2, write(parts("b"), { head: waiting(NOW + 9, { epoch: 2 }) }), 2);
    expectSame(await due(first, NOW + 8), [], "due before the deadline of the third question");
    expectSame(await due(first, NOW + 9), ids(1), "due at the deadline of the third question");
    await append(first, key, 3, write(parts("c"), { head: head({ owner: null, epoch: 2 }) }), 2);
    expectSame(await due(first, NOW), ids(1), "due once it is given back");
    await append(first, key, 4, write(parts("d"), { head: over(NOW, { epoch: 3 }) }), 2);
    expectSame(await due(first, LEASE), [], "due once it has ended");
  }),
];

async function due(store: Store, now: number, limit = 100): Promise<readonly string[]> {
  return (await store.due(now, limit)).map((run) => run.key.run_id);
}

function ids(...numbers: readonly number[]): readonly string[] {
  return numbers.map(runId);
}
