import type { RunHead, RunPost } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  created,
  createEnded,
  ended,
  head,
  LEASE_END,
  LEASE_MS,
  look,
  OWNER,
  over,
  part,
  parts,
  runKey,
  sessionKey,
  tryCreate,
  waiting,
  write,
} from "./samples.ts";

const cancel = { entries: [{ type: "cancel-requested", at: NOW }], status: "cancelling" } as const satisfies RunPost;
const mismatch = { position: 1, expected: "ask#1", asked: "step#1" };
/** The head of a run whose code does not match its history. */
const blocked = waiting(null, { blocked: mismatch });

/** `post`, and writes that wake another run: what a process does to a run that it does not execute. */
export const postChecks: readonly StoreCheck[] = [
  check("post: the entries go to the end of the log, and the head stays", async ({ first, second }) => {
    const kept = head({ epoch: 3, owner: null, due_at: 7, takeovers: 2, holds_slot: true });
    const key = await create(first, 1, { head: kept });
    await append(first, key, 1, write(parts("a"), { head: kept }), 3);
    expectWritten(await second.post(key, { entries: parts("b", "c") }), "post");
    expectSame(await first.read(key, 0, 10), [created(1), ...parts("a", "b", "c")], "the log");
    expectSame(await first.find(key), { key, created: created(1), head: kept, position: 4 }, "the run");
  }),

  check("post: a missing run is refused as `missing`, and one that has ended as `ended`", async ({ first }) => {
    expectConflict(await first.post(runKey(1), cancel), { conflict: "missing" }, "no such run");
    const key = await createEnded(first, 2, NOW);
    const before = await look(first, key, sessionKey(1));
    expectConflict(await first.post(key, { ...cancel, due: "work" }), { conflict: "ended" }, "a run that has ended");
    expectConflict(
      await first.post({ ...key, tenant: "other" }, cancel),
      { conflict: "missing" },
      "another tenant's run",
    );
    expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
  }),

  check("post: one that is not for a run that is being cancelled is refused by it as `cancelling`", async (stores) => {
    const { first, second } = stores;
    const message = { entries: parts("a"), due: "work", unlessCancelling: true } as const satisfies RunPost;
    const refused = { conflict: "cancelling" } as const;
    const keys = [await create(first, 1, { head: waiting() }), await create(first, 2), await create(first, 3)] as const;
    // The cancel is the first post to the last run, and not to the others.
    for (const key of keys.slice(0, 2)) expectWritten(await second.post(key, message), `a message to ${key.run_id}`);
    for (const key of keys) expectWritten(await second.post(key, cancel), `a cancel of ${key.run_id}`);
    for (const key of keys) {
      const before = await first.find(key, "with inbox");
      expectConflict(await second.post(key, message), refused, `a message to ${key.run_id} that is cancelling`);
      expectSame(await first.find(key, "with inbox"), before, "what the store returns afterwards");
      expectWritten(await second.post(key, { entries: parts("b") }), `another post to ${key.run_id}`);
    }
    const done = await createEnded(first, 4, NOW);
    expectConflict(await second.post(done, message), { conflict: "ended" }, "a run that has ended");
  }),

  check(
    "post: a pending write to a run without an owner is refused as `changed`, in the same epoch",
    async (stores) => {
      const { first } = stores;
      const key = await create(first, 1, { head: waiting() });
      const answers = await Promise.all([
        first.append(key, { epoch: 1, position: 1 }, write(parts("a"), { head: waiting() })),
        first.post(key, cancel),
        first.append(key, { epoch: 1, position: 2 }, write(parts("b"))),
      ]);
      expectSame(answers, [undefined, undefined, { conflict: "changed", epoch: 1, position: 3 }], "three writes");
      expectSame((await first.find(key))?.head, waiting(null, { status: "cancelling" }), "the head");
      await append(first, key, 3, write(parts("b"), { head: head({ status: "cancelling" }) }));
    },
  ),

  check("post: of many concurrent posts, all are written", async ({ first, second }) => {
    const key = await create(first, 1, { head: waiting() });
    const posts = Array.from({ length: 20 }, (_, n) =>
      (n % 2 === 0 ? first : second).post(key, { entries: [part(`${n}`)] }),
    );
    for (const answer of await Promise.all(posts)) expectWritten(answer, "a post");
    const log = (await first.read(key, 1, 100)) ?? [];
    expectSame(
      log.map((entry) => JSON.stringify(entry)).sort(),
      Array.from({ length: 20 }, (_, n) => JSON.stringify(part(`${n}`))).sort(),
      "the log",
    );
    expectSame((await first.find(key))?.position, 21, "its length");
  }),

  check("post: the status is what the post says", async ({ first }) => {
    for (const [n, before] of [waiting(9), head(), head({ status: "created", owner: null })].entries()) {
      const key = await create(first, n, { head: before });
      expectWritten(await first.post(key, cancel), "post");
      expectSame((await first.find(key))?.head, { ...before, status: "cancelling" }, `head ${n}`);
    }
  }),

  check(
    "post: a status that the entries alone do not decide is refused as `changed` without an owner",
    async (stores) => {
      const { first, second } = stores;
      const key = await create(first, 1, { head: waiting() });
      const post = { entries: parts("a"), status: "in-progress" } as const;
      expectConflict(await second.post(key, post), { conflict: "changed", epoch: 1, position: 1 }, "no owner");
      expectSame((await first.find(key))?.head, waiting(), "the head of a run without an owner");
      const owned = await create(first, 2, { head: head({ status: "awaiting" }) });
      expectWritten(await second.post(owned, post), "post");
      expectSame((await first.find(owned))?.head, head({ status: "in-progress" }), "the head of a run with an owner");
    },
  ),

  check("post: a run without an owner is due now if the post says so, or stays due since earlier", async (stores) => {
    const { first } = stores;
    for (const [n, due, before, expected] of [
      [1, undefined, waiting(null), null],
      [2, undefined, waiting(NOW + 9), NOW + 9],
      [3, "work", waiting(null), NOW],
      [4, "work", waiting(NOW + 9), NOW],
      [5, "look", waiting(NOW - 9), NOW - 9],
      [6, "look", head({ due_at: 5 }), 5],
      [7, "work", head({ due_at: null }), null],
    ] as const) {
      const key = await create(first, n, { head: before });
      expectWritten(await first.post(key, { entries: parts("a"), due }), "post");
      expectSame((await first.find(key))?.head, { ...before, due_at: expected }, `the head of run ${n}`);
    }
  }),

  check("post: a blocked run becomes due only if the post unblocks it", async ({ first }) => {
    const key = await create(first, 1, { head: blocked });
    expectWritten(await first.post(key, { entries: parts("a"), due: "work" }), "a post that does not unblock");
    expectSame((await first.find(key))?.head, blocked, "the head after it");
    expectWritten(await first.post(key, { entries: parts("b"), unblocks: true }), "a post that only unblocks");
    expectSame((await first.find(key))?.head, waiting(), "the head once it is unblocked");
    const other = await create(first, 2, { head: blocked });
    expectWritten(await first.post(other, { ...cancel, due: "look", unblocks: true }), "a cancel");
    expectSame((await first.find(other))?.head, waiting(null, { status: "cancelling", due_at: NOW }), "the head then");
  }),

  check(
    "wake: a run without an owner is due with the write, or stays due since earlier",
    async ({ first, second, clock }) => {
      const child = await create(first, 1);
      for (const [n, before, expected] of [
        [2, waiting(null), NOW + 5],
        [3, waiting(NOW + 99), NOW + 5],
        [4, waiting(NOW), NOW],
        [5, head({ status: "created", owner: null }), NOW + 5],
      ] as const) {
        const parent = await create(first, n, { head: before });
        clock.set(NOW + 5);
        await append(first, child, n - 1, write(parts(`${n}`), { wake: parent }));
        expectSame((await second.find(parent))?.head, { ...before, due_at: expected }, `the head of run ${n}`);
        clock.set(NOW);
      }
      const last = await create(first, 6, { head: waiting() });
      await create(first, 7, { head: over(), wake: last });
      expectSame((await first.find(last))?.head.due_at, NOW, "when a run is due that a create wakes");
    },
  ),

  check("wake: a run that was woken without an owner stays due until it has one", async ({ first, second }) => {
    const key = await create(first, 1, { head: waiting() });
    await create(second, 2, { wake: key });
    await append(first, key, 1, write(parts("a"), { head: waiting() }));
    await append(first, key, 2, write([], { head: waiting(NOW + 99) }));
    expectSame((await second.find(key))?.head, waiting(NOW), "the head after writes without an owner");
    await append(first, key, 2, write([], { head: head({ epoch: 2 }) }));
    await append(first, key, 2, write([], { head: waiting(null, { epoch: 2 }) }), 2);
    expectSame((await second.find(key))?.head, waiting(null, { epoch: 2 }), "the head once it was owned");
  }),

  check("wake: a run that has ended, is blocked or is missing is left alone", async ({ first }) => {
    const key = await create(first, 1);
    const still = await create(first, 2, { head: blocked });
    const gone = await createEnded(first, 3, NOW);
    for (const [index, wake] of [still, gone, runKey(4), { ...still, tenant: "other" }].entries()) {
      await append(first, key, index + 1, write([part("a")], { wake }));
    }
    expectSame((await first.find(still))?.head, blocked, "the head of the blocked run");
    expectSame((await first.find(gone))?.head, over(), "the head of the run that has ended");
    expectSame((await first.find(key))?.position, 5, "the length of the run that wrote");
  }),

  check("wake: a refused write wakes nothing", async ({ first }) => {
    const parent = await create(first, 1, { head: waiting() });
    const owned = await create(first, 2);
    const key = await create(first, 3);
    for (const wake of [parent, owned]) {
      const answer = await first.append(key, { epoch: 1, position: 9 }, write(parts("a"), { wake }));
      expectConflict(answer, { conflict: "changed", epoch: 1, position: 1 }, "an append at a wrong position");
      expectConflict(await tryCreate(first, 3, { wake }), { conflict: "exists" }, "a run that is there");
    }
    expectSame((await first.find(parent))?.head, waiting(), "the head of the run without an owner");
    await append(first, owned, 1, write([], { head: waiting() }));
  }),

  check(
    "wake: the head of a run with an owner stays, and its owner cannot release it without knowing of the wake-up",
    async (stores) => {
      const { first, second } = stores;
      const parent = await create(first, 1, { head: head({ due_at: 3 }) });
      const child = await create(second, 2);
      const tooMany = await first.append(parent, { epoch: 1, position: 1, wakes: 1 }, write([], { head: waiting() }));
      expectConflict(tooMany, { conflict: "woken", wakes: 0 }, "giving it up with a wake-up known that never was");
      await append(second, child, 1, write([part("a")], { wake: parent }));
      await append(second, child, 2, write([ended()], { head: over(), wake: parent }));
      expectSame((await first.find(parent))?.head, head({ due_at: 3 }), "the head");
      expectSame((await first.find(parent))?.position, 1, "the length");
      await append(first, parent, 1, write(parts("goes on")));
      const before = await look(first, parent, sessionKey(1));
      const given = write(parts("gives up"), { head: waiting(null, { epoch: 2 }) });
      for (const wakes of [undefined, 0, 1, 3]) {
        const answer = await first.append(parent, { epoch: 1, position: 2, wakes }, given);
        expectConflict(answer, { conflict: "woken", wakes: 2 }, `giving the run up, with ${wakes} wake-ups known`);
      }
      expectSame(await look(first, parent, sessionKey(1)), before, "what the store returns after the refusals");
      expectWritten(await first.append(parent, { epoch: 1, position: 2, wakes: 2 }, given), "with all of them known");
      expectSame((await first.find(parent))?.head, waiting(null, { epoch: 2 }), "the head then");
    },
  ),

  check("wake: a run that has been woken may end", async ({ first }) => {
    const key = await create(first, 1);
    await create(first, 2, { wake: key });
    await append(first, key, 1, write([ended()], { head: over() }));
  }),

  check("wake: wake-ups are counted for one owner", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    const keys = [await create(first, 1), await create(first, 2), await create(first, 3)];
    for (const [n, key] of keys.entries()) await create(first, 10 + n, { wake: key, head: over() });
    const [claimed = runKey(1), taken = runKey(2), given = runKey(3)] = keys;
    const givenUp = write([], { head: waiting() });
    const refused = await first.append(given, { epoch: 1, position: 1 }, givenUp);
    expectConflict(refused, { conflict: "woken", wakes: 1 }, "giving up a run that was woken");
    expectWritten(await first.append(given, { epoch: 1, position: 1, wakes: 1 }, givenUp), "giving it up then");
    const again: RunHead = head({ epoch: 2 });
    await append(first, given, 1, write([], { head: again }));
    await append(first, given, 1, write([], { head: waiting(null, { epoch: 2 }) }), 2);
    clock.set(LEASE_END);
    expectWritten(await first.claim(claimed, { epoch: 1, position: 1 }, head({ epoch: 2 })), "claim by the same owner");
    await append(first, claimed, 1, write([], { head: waiting(null, { epoch: 2 }) }), 2);
    const [run] = await first.take({ owner: "owner-2", agents: [{ agent_name: "echo", version: null }], limit: 1 });
    expectSame(run?.key, taken, "the run that is taken");
    await append(first, taken, 1, write([], { head: waiting(null, { epoch: 2 }) }), 2);
  }),
];
