import type { SessionChange, Store } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, NOW } from "./check.ts";
import {
  append,
  create,
  createEnded,
  ended,
  message,
  over,
  runId,
  runKey,
  sessionId,
  sessionKey,
  TENANT,
  tryCreate,
  waiting,
  write,
} from "./samples.ts";

/** Ids that an encoding may confuse. */
const oddIds = ["ada", "Ada", "ada ", "a\u0000da", '"ada"', "\ud800", "\ufffd", "__proto__", "17"];

/** Whose runs and sessions they are. */
export const creatorChecks: readonly StoreCheck[] = [
  check("creators: a list has the runs of one creator, the newest first", async ({ first, second }) => {
    const principals: readonly JsonValue[] = ["ada", "bob", { id: "ada", name: "Ada" }, null, { name: "ada" }, ["ada"]];
    for (const [n, principal] of principals.entries()) await create(first, n, { created: { principal } });
    await create(first, 6, { created: { principal: { id: 17 } } });
    await create(first, 7, { tenant: "other", created: { principal: "ada" } });
    for (const store of [first, second]) {
      expectSame(await of(store, "ada"), [runId(2), runId(0)], "Ada's runs");
      expectSame(await of(store, "bob"), [runId(1)], "Bob's runs");
      expectSame(await of(store, "17"), [runId(6)], "the runs of a number");
      expectSame(await of(store, "eve"), [], "the runs of a user who has created none");
    }
  }),

  check("creators: ids are told apart by every character", async ({ first }) => {
    for (const [n, principal] of oddIds.entries()) await create(first, n, { created: { principal } });
    for (const [n, id] of oddIds.entries()) expectSame(await of(first, id), [runId(n)], JSON.stringify(id));
  }),

  check("creators: the other conditions of a list hold too, and pages", async ({ first }) => {
    const of1 = { principal: "ada", session_id: sessionId(1) };
    await create(first, 1, { head: waiting(), created: { principal: "ada", session_id: sessionId(2) } });
    await createEnded(first, 2, NOW, { created: { ...of1, labels: { order: "O-1" } } });
    await create(first, 3, { created: { ...of1, agent_name: "ask" } });
    await create(first, 4, {
      created: {
        ...of1,
        principal: "bob",
        labels: { order: "O-1" },
        parent: { run_id: runId(3), key: "run:echo#1", depth: 1 },
      },
    });
    await create(first, 5, { head: waiting(), created: { principal: "bob" } });
    const seen = async (query: Partial<RunQuery>): Promise<readonly string[]> => of(first, "ada", query);
    expectSame(await seen({ session_id: sessionId(1) }), [runId(3), runId(2)], "of a session");
    expectSame(await seen({ agent_name: "ask" }), [runId(3)], "of an agent");
    expectSame(await seen({ statuses: ["awaiting"] }), [runId(1)], "that wait");
    expectSame(
      await seen({ statuses: ["awaiting", "completed"] }),
      [runId(2), runId(1)],
      "that wait or have completed",
    );
    expectSame(await seen({ labels: { order: "O-1" } }), [runId(2)], "with a label");
    expectSame(await seen({ parents: [runId(3)] }), [], "below a run");
    expectSame(await of(first, "bob", { roots: true }), [runId(5)], "without a parent");
    expectSame(await seen({ createdAfter: NOW + 2, createdBefore: NOW + 5 }), [runId(3), runId(2)], "of a time");
    expectSame(await seen({ after: runId(3) }), [runId(2), runId(1)], "after a run");
    expectSame(await seen({ limit: 1, offset: 1 }), [runId(2)], "the second page");
    await append(first, runKey(3), 1, write([ended()], { head: over() }));
    await first.delete([runKey(3)]);
    expectSame(await seen({}), [runId(2), runId(1)], "after a deletion");
  }),

  check(
    "creators: the write that makes a session says its creator, and other writes keep it",
    async ({ first, second }) => {
      const creator = async (n: number): Promise<unknown> => {
        const whole = (await second.session(sessionKey(n)))?.creator;
        expectSame((await second.sessionHead(sessionKey(n)))?.creator, whole, "the creator in the head of the session");
        return whole;
      };
      await create(first, 1, { session: change(1, { creator: "ada" }) });
      expectSame(await creator(1), "ada", "the creator");
      await create(first, 2, { session: change(1, { creator: "bob", messages: () => [message("b")] }) });
      const whole = { replaces: true, messages: () => [message("c")], state: { value: 1 }, generation: "g" } as const;
      await create(first, 3, { session: change(1, { creator: "bob", ...whole }) });
      expectSame(await creator(1), "ada", "the creator after writes of another one");
      await first.putSession(sessionKey(1), { history: [], state: null, creator: "bob" }, NOW);
      expectSame(await creator(1), "ada", "the creator of a session that is replaced as a whole");
      await create(first, 4, { session: change(2, {}) });
      expectSame(await creator(2), undefined, "the creator of a session that has none");
      for (const [n, id] of oddIds.entries()) {
        expectSame(
          await first.makeSession(sessionKey(10 + n), { history: [], state: null, creator: id }, NOW),
          true,
          "made",
        );
        expectSame(await creator(10 + n), id, "the creator of a session that is made by itself");
      }
    },
  ),

  check(
    "creators: a run that wants a session of its creator is refused as `foreign` in that of another",
    async ({ first }) => {
      await create(first, 1, { session: change(1, { creator: "ada" }) });
      await create(first, 2, { session: change(2, {}) });
      const before = [await first.session(sessionKey(1)), await first.session(sessionKey(2))];
      for (const n of [1, 2]) {
        const session = change(n, { onlyOf: "bob", messages: () => [message("b")], state: { value: 1 } });
        const answer = await tryCreate(first, 3, { session, idempotencyKey: "key", created: { principal: "bob" } });
        expectConflict(answer, { conflict: "foreign" }, `a run in session ${n}`);
      }
      expectSame([await first.session(sessionKey(1)), await first.session(sessionKey(2))], before, "the sessions");
      expectSame(await first.find(runKey(3)), undefined, "the refused run");
      expectSame(await first.findByIdempotencyKey(TENANT, "key"), undefined, "its key");
      await create(first, 3, { session: change(1, { creator: "ada", onlyOf: "ada" }) });
      await create(first, 4, { session: change(3, { creator: "ada", onlyOf: "ada" }) });
      await create(first, 5, { tenant: "other", session: change(1, { onlyOf: "bob" }) });
      expectSame((await first.session(sessionKey(3)))?.creator, "ada", "the creator of a session that was missing");
    },
  ),

  check("creators: of two users who make one session at a time, one is refused", async ({ first, second }) => {
    for (let n = 0; n < 10; n++) {
      const answers = await Promise.all(
        (["ada", "bob"] as const).map((creator, index) =>
          tryCreate(index === n % 2 ? first : second, 2 * n + index, {
            session: change(n, { creator, onlyOf: creator }),
            created: { principal: creator, session_id: sessionId(n) },
          }),
        ),
      );
      const winner = answers.indexOf(undefined);
      expectConflict(answers[1 - winner], { conflict: "foreign" }, "the other run");
      expectSame((await first.session(sessionKey(n)))?.creator, ["ada", "bob"][winner], "the creator");
    }
  }),
];

async function of(store: Store, creator: string, query: Partial<RunQuery> = {}): Promise<readonly string[]> {
  const found = await store.list({ tenant: TENANT, creator, limit: 100, offset: 0, ...query });
  return found.map(({ key }) => key.run_id);
}

function change(n: number, changes: Partial<SessionChange>): SessionChange {
  return { session_id: sessionId(n), create: true, at: NOW, ...changes };
}
