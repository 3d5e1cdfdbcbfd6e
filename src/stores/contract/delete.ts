import type { RunKey, Store } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame } from "./check.ts";
import {
  append,
  counters,
  create,
  createEnded,
  ended,
  head,
  look,
  message,
  over,
  parts,
  runId,
  runKey,
  sessionId,
  sessionKey,
  TENANT,
  waiting,
  write,
} from "./samples.ts";

/** `delete` and `deleteSession`. */
export const deleteChecks: readonly StoreCheck[] = [
  check("delete: a deleted run does not exist any more, nor does its idempotency key", async ({ first, second }) => {
    const labels = { order: "1" };
    const parent = { run_id: runId(9), key: "run:echo#1", depth: 1 };
    const made = { session_id: sessionId(1), labels, parent };
    const key = await createEnded(first, 1, 10, { idempotencyKey: "key", created: made });
    expectSame(await second.delete([key]), 1, "how many were deleted");
    expectSame(await first.find(key), undefined, "find");
    expectSame(await first.read(key, 0, 10), undefined, "read");
    expectSame(await first.findByIdempotencyKey(TENANT, "key"), undefined, "findByIdempotencyKey");
    const moved = await first.moved([{ key, epoch: 2, position: 2 }]);
    expectSame(moved, [{ key, epoch: 0, position: 0 }], "moved");
    const queries: readonly Partial<RunQuery>[] = [
      {},
      { session_id: sessionId(1) },
      { labels },
      { parents: [runId(9)] },
    ];
    for (const query of queries)
      expectSame(await first.list({ tenant: TENANT, limit: 9, offset: 0, ...query }), [], "list");
    const answer = await first.append(key, { epoch: 2, position: 2 }, write(parts("a")));
    expectConflict(answer, { conflict: "missing" }, "append");
    await create(first, 1, { idempotencyKey: "key" });
    expectSame((await first.read(key, 0, 10))?.length, 1, "the length of a new run with its id");
  }),

  check("delete: the session that a run has made for itself, unless another run is in it", async ({ first }) => {
    const keys = await ownSessions(first);
    expectSame(await first.delete(keys), 3, "how many were deleted");
    expectSame(await lengthsOf(first), [undefined, 1, 1], "the lengths of their sessions");
  }),

  check("delete: no other run, session or counter", async ({ first }) => {
    const session = { session_id: sessionId(1), create: true, messages: () => [message("a")], at: 5 };
    const other = await createEnded(first, 1, 10, { idempotencyKey: "key", session });
    const before = await look(first, other, sessionKey(1));
    const key = await create(first, 2);
    await append(first, key, 1, write([ended(20)], { head: over(20), counters: counters({ completed: 1 }) }));
    const sub = { parent: { run_id: runId(2), key: "run:echo#1", depth: 1 } };
    const below = await createEnded(first, 3, 20, { created: sub });
    expectSame(await first.delete([key]), 1, "how many were deleted");
    expectSame((await first.find(below))?.position, 2, "the length of a sub-run that was not named");
    expectSame(await first.delete([below]), 1, "how many were deleted with the sub-run");
    const counted = { ...(before as object), counters: counters({ completed: 1 }) };
    expectSame(await look(first, other, sessionKey(1)), counted, "what the store returns of the others");
    const fresh = await createEnded(first, 4, 40);
    expectSame(await first.prune({ maxRuns: 1, endedBefore: 0, sessionsBefore: 0 }), 1, "how many prune deletes then");
    expectSame((await first.find(fresh))?.position, 2, "the length of the run that ended last");
  }),

  check("delete: never a run that has not ended, and no run that does not exist", async ({ first }) => {
    await create(first, 1, { idempotencyKey: "key" });
    await create(first, 2, { head: waiting(1) });
    await create(first, 3, { head: head({ status: "cancelling", owner: null }) });
    await createEnded(first, 4, 10);
    await createEnded(first, 5, 10, { tenant: "other" });
    const keys = [1, 2, 3, 4, 5, 6].map((n) => runKey(n));
    expectSame(await first.delete(keys), 1, "how many were deleted");
    expectSame(await first.delete([]), 0, "how many were deleted of none");
    const left = await Promise.all(keys.map(async (key) => (await first.find(key))?.position));
    expectSame(left, [1, 1, 1, undefined, undefined, undefined], "the lengths of the runs that are left");
    expectSame((await first.find(runKey(5, "other")))?.position, 2, "the run of another tenant");
    expectSame((await first.findByIdempotencyKey(TENANT, "key"))?.key, runKey(1), "the idempotency key of a live run");
  }),

  check("delete: a great many runs in one call", async ({ first }) => {
    const numbers = Array.from({ length: 450 }, (_, n) => n);
    const keys = await Promise.all(numbers.map((n) => createEnded(first, n, n + 1)));
    expectSame(await first.delete(keys.slice(5)), 445, "how many were deleted");
    const runs = await first.list({ tenant: TENANT, limit: 10_000, offset: 0 });
    expectSame(runs.map(({ key }) => key.run_id).sort(), numbers.slice(0, 5).map(runId), "the runs that are left");
  }),

  check("deleteSession: its history and its state, and no other session", async ({ first, second }) => {
    await first.putSession(sessionKey(1), { history: [message("a")], state: 1 }, 10);
    await first.putSession(sessionKey(2), { history: [message("b")], state: 2 }, 10);
    await first.putSession(sessionKey(1, "other"), { history: [message("c")], state: 3 }, 10);
    await createEnded(first, 1, 10, { created: { session_id: sessionId(1) } });
    expectSame(await second.deleteSession(sessionKey(1)), true, "whether the session is gone");
    expectSame(await first.session(sessionKey(1)), undefined, "the session");
    expectSame((await first.session(sessionKey(2)))?.state, 2, "another session");
    expectSame((await first.session(sessionKey(1, "other")))?.state, 3, "the session of another tenant");
    expectSame((await first.find(runKey(1)))?.position, 2, "the length of a run of the session");
    expectSame(await first.deleteSession(sessionKey(1)), true, "whether a missing session is gone");
    expectSame(await first.deleteSession(sessionKey(2, "third")), true, "whether that of an unknown tenant is gone");
    await first.putSession(sessionKey(1), { history: [], state: null }, 50);
    expectSame(await first.session(sessionKey(1)), { history: [], state: null }, "a session made anew");
    await first.prune({ maxRuns: 9, endedBefore: 0, sessionsBefore: 20 });
    expectSame((await first.session(sessionKey(1)))?.history, [], "the session made anew, after a prune");
  }),

  check("deleteSession: never a session that a live run uses", async ({ first }) => {
    await create(first, 1, { created: { session_id: sessionId(1) } });
    await first.putSession(sessionKey(1), { history: [message("a")], state: 1 }, 10);
    await create(first, 2, { session: { session_id: runId(2), create: true, at: 10 } });
    const own = { tenant: TENANT, session_id: runId(2) };
    const deleted = async () => [await first.deleteSession(sessionKey(1)), await first.deleteSession(own)];
    expectSame(await deleted(), [false, false], "whether the sessions of live runs are gone");
    const state = { history: [message("a")], state: 1 };
    expectSame(await first.session(sessionKey(1)), state, "the session that a run has joined");
    // A prune that finds them in use changes nothing for a later deletion.
    await first.prune({ maxRuns: 9, endedBefore: 0, sessionsBefore: 20 });
    expectSame(await deleted(), [false, false], "whether they are gone after a prune");
    for (const n of [1, 2]) await append(first, runKey(n), 1, write([ended(20)], { head: over(20) }));
    expectSame(await deleted(), [true, true], "whether they are gone once the runs have ended");
    expectSame(await first.session(sessionKey(1)), undefined, "the session that the run had joined");
    expectSame(await first.session(own), undefined, "the session of the other run");
  }),
];

/** Three ended runs: one with a session of its own, one whose session another run is in, and one in another run's. */
export async function ownSessions(store: Store): Promise<readonly RunKey[]> {
  const own = (n: number, by: number) =>
    ({ session_id: runId(n), create: true, generation: runId(by), messages: () => [message("a")], at: 5 }) as const;
  const keys = [
    await createEnded(store, 1, 10, { session: own(1, 1) }),
    await createEnded(store, 2, 20, { session: own(2, 2) }),
    await createEnded(store, 3, 30, { session: own(3, 4) }),
  ];
  await create(store, 5, { created: { session_id: runId(2) } });
  return keys;
}

/** How long the sessions of these runs are. */
export async function lengthsOf(store: Store): Promise<readonly (number | undefined)[]> {
  const lengths: (number | undefined)[] = [];
  for (const n of [1, 2, 3]) lengths.push((await store.sessionHead({ tenant: TENANT, session_id: runId(n) }))?.length);
  return lengths;
}
