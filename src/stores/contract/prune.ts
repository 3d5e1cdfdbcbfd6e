import type { Store } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, expectWritten, NOW } from "./check.ts";
import { lengthsOf, ownSessions } from "./delete.ts";
import {
  append,
  counters,
  create,
  createEnded,
  ended,
  forget,
  head,
  keep,
  keepOf,
  LEASE_MS,
  look,
  message,
  OWNER,
  over,
  parts,
  runId,
  runKey,
  sessionId,
  sessionKey,
  TENANT,
  take,
  waiting,
  write,
} from "./samples.ts";

/** The session of which two instances see the same. */
const shared = { session_id: sessionId(1), create: true, messages: () => [message("a")], state: { value: 1 }, at: 5 };

/** `prune`, and what two instances and a reopened store see of each other. */
export const pruneChecks: readonly StoreCheck[] = [
  check("prune: ended runs beyond the number, the ones that ended first", async ({ first }) => {
    for (const n of [1, 2, 3, 4]) await create(first, n);
    for (const [n, at] of [
      [2, 10],
      [4, 20],
      [3, 30],
      [1, 40],
    ] as const) {
      await append(first, runKey(n), 1, write([ended(at)], { head: over(at) }));
    }
    expectSame(await first.prune({ ...keep, maxRuns: 4 }), 0, "how many were deleted below the limit");
    expectSame(await first.prune({ ...keep, maxRuns: 2 }), 2, "how many were deleted");
    expectSame(await known(first), [3, 1].map(runId).sort(), "the runs that are left");
    expectSame(await first.prune({ ...keep, maxRuns: 0 }), 2, "how many were deleted with the limit 0");
    expectSame(await known(first), [], "the runs that are left then");
  }),

  check("prune: runs that ended before the time", async ({ first }) => {
    for (const [n, at] of [
      [1, 10],
      [2, 20],
      [3, 30],
    ] as const) {
      await createEnded(first, n, at);
    }
    expectSame(await first.prune({ ...keep, endedBefore: 10 }), 0, "how many were deleted before the first had ended");
    expectSame(await first.prune({ ...keep, endedBefore: 20 }), 1, "how many were deleted");
    expectSame(await known(first), [2, 3].map(runId), "the runs that are left");
    expectSame(await first.prune({ ...keep, endedBefore: 21 }), 1, "how many were deleted a moment later");
  }),

  check("prune: the number and the time apply independently", async ({ first }) => {
    for (let n = 1; n <= 6; n++) await createEnded(first, n, n * 10);
    expectSame(await first.prune({ ...keep, maxRuns: 5, endedBefore: 30 }), 2, "how many were deleted for the time");
    expectSame(await first.prune({ ...keep, maxRuns: 1, endedBefore: 40 }), 3, "how many were deleted for the number");
    expectSame(await known(first), [runId(6)], "the run that is left");
  }),

  check("prune: a deleted run does not exist any more, nor does its idempotency key", async ({ first }) => {
    const labels = { order: "1" };
    const parent = { run_id: runId(9), key: "run:echo#1", depth: 1 };
    const made = { session_id: sessionId(1), labels, parent };
    const key = await createEnded(first, 1, 10, { idempotencyKey: "key", created: made });
    expectSame(await first.prune(forget), 1, "how many were deleted");
    expectSame(await first.find(key), undefined, "find");
    expectSame(await first.read(key, 0, 10), undefined, "read");
    expectSame(await first.findByIdempotencyKey(TENANT, "key"), undefined, "findByIdempotencyKey");
    const queries: readonly Partial<RunQuery>[] = [{ session_id: sessionId(1) }, { labels }, { parents: [runId(9)] }];
    for (const query of queries)
      expectSame(await first.list({ tenant: TENANT, limit: 9, offset: 0, ...query }), [], "list");
    const answer = await first.append(key, { epoch: 2, position: 2 }, write(parts("a")));
    expectConflict(answer, { conflict: "missing" }, "append");
    await create(first, 1, { idempotencyKey: "key" });
    expectSame((await first.read(key, 0, 10))?.length, 1, "the length of a new run with its id");
    for (const query of queries)
      expectSame(await first.list({ tenant: TENANT, limit: 9, offset: 0, ...query }), [], "list, with a new run");
  }),

  check("prune: the session that a run has made for itself, unless another run is in it", async ({ first }) => {
    await ownSessions(first);
    expectSame(await first.prune({ ...keep, maxRuns: 0 }), 3, "how many runs were deleted");
    expectSame(await lengthsOf(first), [undefined, 1, 1], "the lengths of their sessions");
  }),

  check("prune: never a run that has not ended", async ({ first }) => {
    await create(first, 1, { idempotencyKey: "key" });
    await create(first, 2, { head: waiting(1), tenant: "other" });
    await create(first, 3, { head: head({ status: "cancelling", owner: null }) });
    await createEnded(first, 4, 10);
    await create(first, 5, { head: head({ status: "created" }) });
    expectSame(await first.prune(forget), 1, "how many were deleted");
    expectSame(await known(first), [1, 3, 5].map(runId), "the runs that are left");
    expectSame((await first.find(runKey(2, "other")))?.position, 1, "the waiting run of another tenant");
    expectSame((await first.findByIdempotencyKey(TENANT, "key"))?.key, runKey(1), "the idempotency key of a live run");
    await createEnded(first, 6, 10);
    expectSame(await first.prune({ ...keep, maxRuns: 1 }), 0, "live runs do not count towards the number");
  }),

  check("prune: never a sub-run whose durable parent has not ended", async ({ first }) => {
    const parent = { run_id: runId(1), key: "run:echo#1", depth: 1 };
    await create(first, 1);
    await create(first, 1, { tenant: "other" });
    await createEnded(first, 2, 10, { created: { parent } });
    await createEnded(first, 3, 20);
    await createEnded(first, 4, 30, { created: { parent } });
    await createEnded(first, 5, 40, { created: { parent: { ...parent, run_id: runId(9) } } });
    await createEnded(first, 7, 40, { tenant: "third", created: { parent } });
    await createEnded(first, 6, 50, { tenant: "other", created: { parent } });
    expectSame(await first.prune({ ...keep, maxRuns: 5 }), 0, "how many were deleted beyond the number");
    expectSame(await first.prune({ ...keep, maxRuns: 3 }), 1, "how many were deleted beyond a lower number");
    expectSame(await first.prune({ ...keep, endedBefore: 45 }), 2, "how many were deleted for the time");
    expectSame(await known(first), [1, 2, 4].map(runId), "the runs that are left");
    await append(first, runKey(1), 1, write([ended(60)], { head: over(60) }));
    expectSame(await first.prune({ ...keep, endedBefore: 55 }), 2, "how many were deleted when the parent has ended");
    expectSame(await known(first), [1].map(runId), "the run that is left");
    expectSame((await first.find(runKey(6, "other")))?.position, 2, "the sub-run of another tenant's live run");
  }),

  check("prune: a live run keeps no run of another tenant that names its id as the parent", async ({ first }) => {
    const parent = { run_id: runId(1), key: "run:echo#1", depth: 1 };
    await create(first, 1);
    const limits = [{ ...keep, maxRuns: 0 }, { ...keep, endedBefore: 20 }, keepOf(["other"], { maxRuns: 0 })];
    for (const [index, limit] of limits.entries()) {
      await createEnded(first, index + 2, 10, { tenant: "other", created: { parent } });
      expectSame(await first.prune(limit), 1, `how many were deleted with limit ${index}`);
    }
  }),

  check("prune: ended runs of a tenant beyond its number, the ones that ended first", async ({ first }) => {
    for (const tenant of [TENANT, "other", ""]) {
      for (let n = 1; n <= 4; n++) await create(first, n, { tenant, idempotencyKey: `key ${n}` });
      for (const [n, at] of [
        [3, 10],
        [1, 20],
        [4, 30],
      ] as const)
        await append(first, runKey(n, tenant), 1, write([ended(at)], { head: over(at) }));
    }
    expectSame(
      await first.prune(keepOf([TENANT, "other", "", "none"], { maxRuns: 3 })),
      0,
      "how many were deleted below the number",
    );
    expectSame(await first.prune(keepOf([TENANT], { maxRuns: 1 })), 2, "how many were deleted beyond it");
    expectSame(await known(first), [2, 4].map(runId), "the runs that are left");
    expectSame(await known(first, "other"), [1, 2, 3, 4].map(runId), "the runs of another tenant");
    expectSame(await known(first, ""), [1, 2, 3, 4].map(runId), "the runs of the empty tenant");
    expectSame(await first.findByIdempotencyKey(TENANT, "key 1"), undefined, "the key of a run that was deleted");
    expectSame((await first.findByIdempotencyKey("other", "key 1"))?.key, runKey(1, "other"), "the same key elsewhere");
    expectSame(await first.prune(keepOf(["other", ""], { maxRuns: 0 })), 6, "how many were deleted of two tenants");
    for (const tenant of ["other", ""]) expectSame(await known(first, tenant), [runId(2)], "the live run that is left");
    expectSame(await known(first), [2, 4].map(runId), "the runs of the tenant that was not looked at");
  }),

  check("prune: of a tenant never a sub-run whose durable parent has not ended", async ({ first }) => {
    const parent = { run_id: runId(1), key: "run:echo#1", depth: 1 };
    await create(first, 1);
    await createEnded(first, 2, 10, { created: { parent } });
    await createEnded(first, 3, 20);
    await createEnded(first, 4, 30);
    expectSame(await first.prune(keepOf([TENANT], { maxRuns: 2 })), 0, "how many were deleted beyond the number");
    expectSame(await first.prune(keepOf([TENANT], { maxRuns: 1 })), 1, "how many were deleted beyond a lower number");
    expectSame(await known(first), [1, 2, 4].map(runId), "the runs that are left");
  }),

  check("prune: a great many runs of a tenant in one call", async ({ first }) => {
    const numbers = Array.from({ length: 1_250 }, (_, n) => n);
    await Promise.all(numbers.map((n) => createEnded(first, n, n + 1)));
    expectSame(await first.prune(keepOf([TENANT], { maxRuns: 5 })), 1_245, "how many were deleted");
    expectSame(await known(first), numbers.slice(-5).map(runId), "the runs that are left");
  }),

  check("prune: sessions of a tenant beyond its number, unless a live run uses them", async ({ first }) => {
    const put = (n: number, at: number, tenant?: string) =>
      first.putSession(sessionKey(n, tenant), { history: [message(`${n}`)], state: n }, at);
    for (const [n, at] of [
      [1, 10],
      [2, 20],
      [3, 30],
      [4, 40],
    ] as const)
      for (const tenant of [TENANT, "other"]) await put(n, at, tenant);
    // The first is changed again, and a run uses the second.
    await put(1, 50);
    await create(first, 1, { created: { session_id: sessionId(2) } });
    const left = async (tenant?: string): Promise<readonly number[]> => {
      const found: number[] = [];
      for (const n of [1, 2, 3, 4]) if ((await first.session(sessionKey(n, tenant))) !== undefined) found.push(n);
      return found;
    };
    await first.prune(keepOf([TENANT, "other"], { maxSessions: 4 }));
    expectSame(await left(), [1, 2, 3, 4], "the sessions within the number");
    await first.prune(keepOf([TENANT], { maxSessions: 2 }));
    expectSame(await left(), [1, 2, 4], "the sessions beyond it");
    expectSame(await left("other"), [1, 2, 3, 4], "the sessions of another tenant");
    await first.prune(keepOf([TENANT, "other"], { maxSessions: 0 }));
    expectSame(await left(), [2], "the session that a live run uses");
    expectSame(await left("other"), [], "the sessions of another tenant, when it is looked at");
  }),

  check("prune: keeps everything if the retention says so", async ({ first }) => {
    const session = { session_id: sessionId(1), create: true, messages: () => [message("a")], at: 5 };
    const key = await createEnded(first, 1, 10, { idempotencyKey: "key", session });
    const before = await look(first, key, sessionKey(1));
    expectSame(await first.prune(keep), 0, "how many were deleted");
    expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
  }),

  check("prune: a great many runs in one call", async ({ first }) => {
    const numbers = Array.from({ length: 450 }, (_, n) => n);
    await Promise.all(numbers.map((n) => createEnded(first, n, n + 1)));
    expectSame(await first.prune({ ...keep, maxRuns: 5 }), 445, "how many were deleted");
    expectSame(await known(first), numbers.slice(-5).map(runId), "the runs that are left");
  }),

  check("prune: several calls at once keep as many runs as one", async ({ first, second }) => {
    const numbers = Array.from({ length: 900 }, (_, n) => n);
    await Promise.all(numbers.map((n) => createEnded(first, n, n + 1)));
    const calls: Promise<number>[] = [];
    for (let n = 0; n < 12; n++) {
      calls.push(Promise.resolve((n % 2 === 0 ? first : second).prune({ ...keep, maxRuns: 250 })));
      // Each begins a write later, while those before it count and delete.
      await first.renew("other", LEASE_MS);
    }
    await Promise.all(calls);
    expectSame(await known(first), numbers.slice(-250).map(runId), "the runs that are left");
  }),

  check("prune: leases and counters stay", async ({ first }) => {
    await first.renew(OWNER, LEASE_MS);
    await create(first, 1);
    const key = await create(first, 2);
    await append(first, key, 1, write([ended()], { head: over(), counters: counters({ completed: 1 }) }));
    expectSame(await first.prune(forget), 1, "how many were deleted");
    expectSame(await first.counters("echo"), counters({ completed: 1 }), "the counters");
    const answer = await first.claim(runKey(1), { epoch: 1, position: 1 }, head({ epoch: 2, owner: "other" }));
    expectConflict(answer, { conflict: "owned" }, "claim from an owner that lives");
  }),

  check("prune: sessions that were last changed before the time", async ({ first }) => {
    await first.putSession(sessionKey(1), { history: [message("a")], state: 1 }, 10);
    await first.putSession(sessionKey(2), { history: [message("b")], state: 2 }, 20);
    await first.putSession(sessionKey(1, "other"), { history: [], state: 3 }, 30);
    expectSame(await first.prune({ ...keep, sessionsBefore: 10 }), 0, "how many runs were deleted");
    expectSame((await first.session(sessionKey(1)))?.state, 1, "a session that was changed at the time");
    await first.prune({ ...keep, sessionsBefore: 11 });
    expectSame(await first.session(sessionKey(1)), undefined, "a session that was changed before");
    expectSame((await first.session(sessionKey(2)))?.state, 2, "a session that was changed since");
    const change = { session_id: sessionId(2), create: false, messages: () => [message("c")], at: 40 };
    await createEnded(first, 1, 40, { session: change });
    await first.prune({ ...keep, sessionsBefore: 35 });
    expectSame(await first.session(sessionKey(1, "other")), undefined, "a session of another tenant");
    expectSame((await first.session(sessionKey(2)))?.history.length, 2, "a session that a run has changed");
    await first.putSession(sessionKey(1), { history: [], state: null }, 50);
    expectSame(await first.session(sessionKey(1)), { history: [], state: null }, "a session made anew");
  }),

  check("prune: never a session that a live run uses", async ({ first }) => {
    const makes = (n: number) => ({ session_id: sessionId(n), create: true, at: 10 });
    // Made with the run, before it and after it, and the session of the run itself.
    await create(first, 1, { created: { session_id: sessionId(1) }, session: makes(1) });
    await first.putSession(sessionKey(2), { history: [], state: null }, 10);
    await create(first, 2, { created: { session_id: sessionId(2) } });
    await create(first, 3, { created: { session_id: sessionId(3) } });
    await first.putSession(sessionKey(3), { history: [], state: null }, 10);
    await create(first, 4, { session: { session_id: runId(4), create: true, at: 10 } });
    await first.putSession(sessionKey(5), { history: [], state: null }, 10);
    const sessions = [sessionKey(1), sessionKey(2), sessionKey(3), { tenant: TENANT, session_id: runId(4) }];
    for (let time = 0; time < 2; time++) {
      await first.prune({ ...keep, sessionsBefore: 100 });
      const left = await Promise.all(sessions.map(async (key) => (await first.session(key)) !== undefined));
      expectSame(left, [true, true, true, true], "whether the sessions of live runs are left");
      expectSame(await first.session(sessionKey(5)), undefined, "a session that no run uses");
    }
    // A second run in the first session outlives the first.
    await create(first, 6, { created: { session_id: sessionId(1) } });
    for (const n of [1, 2, 3, 4]) await append(first, runKey(n), 1, write([ended(200)], { head: over(200) }));
    await first.prune({ ...keep, sessionsBefore: 100 });
    const left = await Promise.all(sessions.map(async (key) => (await first.session(key)) !== undefined));
    expectSame(left, [true, false, false, false], "whether the sessions are left once four of the runs have ended");
    await append(first, runKey(6), 1, write([ended(200)], { head: over(200) }));
    await first.prune({ ...keep, sessionsBefore: 100 });
    expectSame(await first.session(sessionKey(1)), undefined, "the first session once all runs have ended");
  }),

  check("instances: each sees at once what the other has written", async ({ first, second }) => {
    await first.renew(OWNER, LEASE_MS);
    const key = await create(first, 1, { idempotencyKey: "key", session: shared });
    expectSame(
      await look(second, key, sessionKey(1)),
      await look(first, key, sessionKey(1)),
      "what the second returns",
    );
    expectSame((await second.read(key, 0, 10))?.length, 1, "the length of the log in the second");
    const claim = await second.claim(key, { epoch: 1, position: 1 }, head({ epoch: 2, owner: "other" }));
    expectConflict(claim, { conflict: "owned" }, "a claim by the second, from an owner that lives");
    await append(
      second,
      key,
      1,
      write([ended()], { head: over(), session: shared, counters: counters({ failed: 1 }) }),
    );
    expectSame(await look(first, key, sessionKey(1)), await look(second, key, sessionKey(1)), "what the first returns");
    expectSame((await first.find(key))?.head, over(), "the head in the first");
    await second.release(OWNER);
    await create(first, 2);
    expectSame(await take(first), [runId(2)], "what the first takes after a release in the second");
    expectSame(await second.prune(forget), 1, "how many the second deletes");
    expectSame(await first.find(key), undefined, "the deleted run in the first");
  }),

  check("instances: a persistent store keeps its data when it is opened again", async (stores) => {
    const { first, second } = stores;
    if (stores.reopen === undefined) {
      expectSame(first.persistent, false, "`persistent` of a store that cannot be opened again");
      return;
    }
    await first.renew(OWNER, LEASE_MS);
    const key = await create(first, 1, { idempotencyKey: "key", session: shared });
    await append(second, key, 1, write(parts("a"), { head: waiting(NOW + 1), counters: counters({ completed: 1 }) }));
    await create(second, 2);
    const before = await look(first, key, sessionKey(1));
    expectSame(first.persistent, true, "`persistent` of a store that can be opened again");
    const again = await stores.reopen();
    expectSame(await look(again.first, key, sessionKey(1)), before, "what the store returns when it is open again");
    const claim = await again.first.claim(runKey(2), { epoch: 1, position: 1 }, head({ epoch: 2, owner: "other" }));
    expectConflict(claim, { conflict: "owned" }, "a claim from an owner whose lease lasts");
    expectWritten(
      await again.second.append(key, { epoch: 1, position: 2 }, write(parts("b"))),
      "an append to the old run",
    );
  }),
];

async function known(store: Store, tenant = TENANT): Promise<readonly string[]> {
  const runs = await store.list({ tenant, limit: 10_000, offset: 0 });
  return runs.map((run) => run.key.run_id).sort();
}
