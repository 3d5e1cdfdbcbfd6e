import type { SessionChange } from "../../core/ports.ts";
import { counterNames } from "../../core/statistics.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import {
  append,
  counters,
  create,
  created,
  ended,
  message,
  over,
  part,
  parts,
  runKey,
  sessionId,
  sessionKey,
  tryCreate,
  write,
} from "./samples.ts";

/** What writes do to sessions and counters. */
export const sessionChecks: readonly StoreCheck[] = [
  check("sessions: a missing session is undefined", async ({ first }) => {
    expectSame(await first.session(sessionKey(1)), undefined, "the session");
    await create(first, 1, { created: { session_id: sessionId(1) } });
    expectSame(await first.session(sessionKey(1)), undefined, "the session that a run only names");
    expectSame(await first.session({ tenant: "acme", session_id: runKey(1).run_id }), undefined, "a run's own session");
  }),

  check("sessions: a change with `create` makes the session", async ({ first }) => {
    await create(first, 1, { session: change({ create: true }) });
    expectSame(await first.session(sessionKey(1)), { history: [], state: null }, "the session");
    await create(first, 2, { session: change({ session_id: sessionId(2), create: true, messages: said("a", "b") }) });
    expectSame(
      await first.session(sessionKey(2)),
      { history: heard("a", "b"), state: null },
      "the session with messages",
    );
    const key = await create(first, 3);
    const set = change({ session_id: sessionId(3), create: true, state: { value: { n: 1 } } });
    await append(first, key, 1, write([], { session: set }));
    expectSame(await first.session(sessionKey(3)), { history: [], state: { n: 1 } }, "the session made by an append");
  }),

  check(
    "sessions: without `create`, a change to a missing session is ignored, and its messages are not requested",
    async ({ first }) => {
      let asked = 0;
      const messages = () => {
        asked += 1;
        return heard("a");
      };
      const nothing = change({ create: false, messages, state: { value: 1 } });
      const key = await create(first, 1, { session: nothing });
      await append(first, key, 1, write([ended()], { head: over(), session: nothing }));
      expectSame(await first.session(sessionKey(1)), undefined, "the session");
      expectSame(asked, 0, "how often the messages were asked for");
      expectSame((await first.find(key))?.position, 2, "the length of the run");
    },
  ),

  check("sessions: messages join the history in order, and the state is replaced", async ({ first }) => {
    const key = await create(first, 1, {
      session: change({ create: true, messages: said("a"), state: { value: [1] } }),
    });
    await append(first, key, 1, write(parts("x"), { session: change({ messages: said("b", "c") }) }));
    expectSame(
      await first.session(sessionKey(1)),
      { history: heard("a", "b", "c"), state: [1] },
      "after more messages",
    );
    await append(first, key, 2, write(parts("y"), { session: change({ create: true, state: { value: null } }) }));
    expectSame(
      await first.session(sessionKey(1)),
      { history: heard("a", "b", "c"), state: null },
      "with the state null",
    );
    await append(
      first,
      key,
      3,
      write(parts("z"), { session: change({ messages: said("d"), state: { value: false } }) }),
    );
    expectSame(await first.session(sessionKey(1)), { history: heard("a", "b", "c", "d"), state: false }, "in the end");
  }),

  check("sessions: with a range only these messages are given", async ({ first, second }) => {
    await create(first, 1, { session: change({ create: true, messages: said("a", "b", "c"), state: { value: 1 } }) });
    const of = (from: number, to: number) => second.session(sessionKey(1), { from, to });
    expectSame(await of(1, 2), { history: heard("b"), state: 1 }, "one in the middle");
    expectSame(await of(1, 9), { history: heard("b", "c"), state: 1 }, "those from the second on");
    expectSame(await of(0, Number.POSITIVE_INFINITY), { history: heard("a", "b", "c"), state: 1 }, "all");
    for (const [from, to] of [
      [2, 2],
      [3, 9],
    ] as const)
      expectSame(await of(from, to), { history: [], state: 1 }, `those from ${from} on, before ${to}`);
    expectSame(await first.session(sessionKey(2), { from: 0, to: 9 }), undefined, "of a missing session");
  }),

  check("sessions: a change with `replaces` takes the place of the history", async ({ first, second }) => {
    const replaces = (...texts: readonly string[]) =>
      change({ create: true, replaces: true, messages: said(...texts), state: { value: texts.length } });
    await create(first, 1, { session: replaces("a", "b", "c") });
    expectSame(await first.session(sessionKey(1)), { history: heard("a", "b", "c"), state: 3 }, "a new session");
    await create(second, 2, { session: replaces("z") });
    expectSame(await first.session(sessionKey(1)), { history: heard("z"), state: 1 }, "the session replaced");
    expectSame((await second.sessionHead(sessionKey(1)))?.length, 1, "its length");
    await create(first, 3, { session: change({ messages: said("y") }) });
    expectSame((await first.session(sessionKey(1)))?.history, heard("z", "y"), "with a message more");
    await create(first, 4, { session: change({ create: true, replaces: true, messages: said("x") }) });
    expectSame(await first.session(sessionKey(1)), { history: heard("x"), state: 1 }, "replaced without a state");
    const ending = change({ create: true, replaces: true, messages: said("w", "v") });
    await append(second, runKey(4), 1, write([ended()], { head: over(), session: ending }));
    expectSame((await first.session(sessionKey(1)))?.history, heard("w", "v"), "replaced by an append");
  }),

  check("sessions: a refused write replaces nothing", async ({ first }) => {
    await create(first, 1, { session: change({ create: true, messages: said("a") }), idempotencyKey: "key" });
    const session = change({ create: true, replaces: true, generation: "z", messages: said("z"), state: { value: 1 } });
    const refusals = [
      await tryCreate(first, 1, { session }),
      await tryCreate(first, 2, { session, idempotencyKey: "key" }),
      await first.append(runKey(1), { epoch: 1, position: 7 }, write(parts("x"), { session })),
      await first.append(runKey(3), { epoch: 1, position: 1 }, write(parts("x"), { session })),
    ];
    const conflicts = refusals.map((refusal) => refusal?.conflict);
    expectSame(conflicts, ["exists", "key_used", "changed", "missing"], "the refusals");
    expectSame(await first.session(sessionKey(1)), { history: heard("a"), state: null }, "the session");
  }),

  check(
    "sessions: sessionHead is the number of messages and the state, and undefined without a session",
    async (stores) => {
      const { first, second } = stores;
      expectSame(await first.sessionHead(sessionKey(1)), undefined, "a missing session");
      const key = await create(first, 1, { session: change({ create: true }) });
      expectSame(await first.sessionHead(sessionKey(1)), { length: 0, state: null }, "an empty session");
      const both = change({ messages: said("a", "b"), state: { value: { n: 1 } } });
      await append(first, key, 1, write([ended()], { head: over(), session: both }));
      expectSame(await second.sessionHead(sessionKey(1)), { length: 2, state: { n: 1 } }, "after a change");
      expectSame(await first.sessionHead(sessionKey(1, "other")), undefined, "for another tenant");
      await first.putSession(sessionKey(1), { history: heard("z"), state: [false] }, NOW);
      expectSame(await second.sessionHead(sessionKey(1)), { length: 1, state: [false] }, "after putSession");
      await first.makeSession(sessionKey(2), { history: heard("a", "b", "c"), state: "x" }, NOW);
      expectSame(await second.sessionHead(sessionKey(2)), { length: 3, state: "x" }, "after makeSession");
      await first.deleteSession(sessionKey(2));
      expectSame(await second.sessionHead(sessionKey(2)), undefined, "a deleted session");
    },
  ),

  check("sessions: a session keeps its generation until it is replaced or deleted", async ({ first, second }) => {
    const generations = async (what: string, expected: string | undefined): Promise<void> => {
      const head = await first.sessionHead(sessionKey(1));
      const whole = await second.session(sessionKey(1));
      expectSame([head?.generation, whole?.generation], [expected, expected], `the generation ${what}`);
    };
    const changeOf = (generation: string, others: Partial<SessionChange> = {}): SessionChange =>
      change({ create: true, generation, messages: said(generation), state: { value: generation }, ...others });
    await create(first, 1, { session: changeOf("a \u0000") });
    await generations("of a session that a run has made", "a \u0000");
    await append(second, runKey(1), 1, write([ended()], { head: over(), session: changeOf("b") }));
    await generations("after another change", "a \u0000");
    await create(first, 3, { session: changeOf("g", { replaces: true }) });
    await generations("after a change with `replaces`", "g");
    await create(second, 4, { session: change({ create: true, replaces: true }) });
    await generations("after a change with `replaces` and without one", undefined);
    await append(first, runKey(3), 1, write([ended()], { head: over(), session: changeOf("h", { replaces: true }) }));
    await append(first, runKey(4), 1, write([ended()], { head: over(), session: changeOf("i") }));
    await generations("of a session that an append has replaced", "h");
    await first.makeSession(sessionKey(1), { history: [], state: null, generation: "c" }, NOW);
    await generations("after makeSession of one that exists", "h");
    await second.putSession(sessionKey(1), { history: heard("x"), state: null, generation: "d" }, NOW);
    await generations("after putSession", "d");
    await first.putSession(sessionKey(1), { history: heard("x"), state: null }, NOW);
    await generations("after putSession without one", undefined);
    await second.deleteSession(sessionKey(1));
    await first.makeSession(sessionKey(1), { history: heard("y"), state: null, generation: "e" }, NOW);
    await generations("of a session that was deleted and made again", "e");
    await second.deleteSession(sessionKey(1));
    await create(second, 2, { session: change({ create: false, generation: "f", messages: said("z") }) });
    await generations("of a session that no change has made", undefined);
  }),

  check("sessions: putSession makes the session or replaces it as a whole", async ({ first }) => {
    await first.putSession(sessionKey(1), { history: heard("a", "b", "c"), state: { n: 1 } }, NOW);
    expectSame(await first.session(sessionKey(1)), { history: heard("a", "b", "c"), state: { n: 1 } }, "made");
    await first.putSession(sessionKey(1), { history: heard("z"), state: null }, NOW);
    expectSame(await first.session(sessionKey(1)), { history: heard("z"), state: null }, "replaced");
    await create(first, 1, { session: change({ messages: said("y") }) });
    expectSame(await first.session(sessionKey(1)), { history: heard("z", "y"), state: null }, "with a message more");
  }),

  check(
    "sessions: makeSession makes the session, unless it exists, and answers whether it did",
    async ({ first, second }) => {
      const whole = { history: heard("a", "b"), state: { n: 1 } };
      expectSame(await first.makeSession(sessionKey(1), whole, NOW), true, "whether it was made");
      expectSame(await first.session(sessionKey(1)), whole, "the session");
      const again = await second.makeSession(sessionKey(1), { history: heard("z"), state: 2 }, NOW);
      expectSame(again, false, "whether it was made a second time");
      expectSame(await first.session(sessionKey(1)), whole, "the session after the second time");
      const other = { history: [], state: null };
      expectSame(
        await first.makeSession(sessionKey(1, "other"), other, NOW),
        true,
        "whether it was made for another tenant",
      );
      const made = change({ session_id: sessionId(2), create: true, messages: said("c") });
      await create(first, 1, { session: made });
      expectSame(await first.makeSession(sessionKey(2), whole, NOW), false, "whether it was made beside a run's");
      expectSame((await first.session(sessionKey(2)))?.history, heard("c"), "the history that the run made");
    },
  ),

  check("sessions: of several concurrent makeSession, exactly one makes it, and no message is lost", async (stores) => {
    const { first, second } = stores;
    const made = await Promise.all(
      [first, second, first, second].map((store, n) =>
        store.makeSession(sessionKey(1), { history: heard(`${n}`), state: n }, NOW),
      ),
    );
    expectSame(made.filter((one) => one).length, 1, "how many made it");
    expectSame((await first.session(sessionKey(1)))?.state, made.indexOf(true), "whose session it is");
    await create(first, 1, { session: change({ create: true, messages: said("first") }) });
    await second.makeSession(sessionKey(1), { history: [], state: null }, NOW);
    const history = (await first.session(sessionKey(1)))?.history;
    expectSame(history, heard(`${made.indexOf(true)}`, "first"), "the history");
  }),

  check("sessions: runs that end concurrently lose none of their messages", async ({ first, second }) => {
    await first.putSession(sessionKey(1), { history: heard("start"), state: null }, NOW);
    const numbers = Array.from({ length: 12 }, (_, n) => n);
    const keys = await Promise.all(numbers.map((n) => create(n % 2 === 0 ? first : second, n)));
    await Promise.all(
      keys.map((key, n) => {
        const session = change({ messages: said(`${n} asks`, `${n} answers`) });
        return append(n % 3 === 0 ? first : second, key, 1, write([ended()], { head: over(), session }));
      }),
    );
    const history = (await first.session(sessionKey(1)))?.history.map((one) => String(one.parts[0]?.content)) ?? [];
    expectSame(history.length, 25, "how many messages there are");
    const pairs = numbers.map((n) => history[history.indexOf(`${n} asks`) + 1]);
    expectSame(
      pairs,
      numbers.map((n) => `${n} answers`),
      "what follows the first message of each run",
    );
  }),

  check("sessions: a list that is passed in or returned may be changed afterwards", async ({ first }) => {
    const history = heard("a");
    await first.putSession(sessionKey(1), { history, state: null }, NOW);
    history.push(message("slipped in"));
    const read = await first.session(sessionKey(1));
    (read?.history as unknown[] | undefined)?.push(message("slipped in"));
    expectSame((await first.session(sessionKey(1)))?.history, heard("a"), "the history");
  }),

  check("counters: undefined before the first run of the agent has ended", async ({ first }) => {
    await create(first, 1);
    await append(first, runKey(1), 1, write(parts("a")));
    expectSame(await first.counters("echo"), undefined, "the counters");
  }),

  check("counters: added up, key by key, for each agent and over all tenants", async ({ first }) => {
    const one = counters(Object.fromEntries(counterNames.map((name, index) => [name, index + 1])));
    const two = counters(Object.fromEntries(counterNames.map((name, index) => [name, 100 * (index + 1)])));
    for (const [n, tenant, agent_name, added] of [
      [1, "acme", "echo", one],
      [2, "other", "echo", two],
      [3, "acme", "ask", two],
    ] as const) {
      const key = await create(first, n, { tenant, created: { agent_name } });
      await append(first, key, 1, write([ended()], { head: over(), counters: added }));
    }
    const sum = Object.fromEntries(counterNames.map((name) => [name, one[name] + two[name]]));
    expectSame(await first.counters("echo"), sum, "the counters of echo");
    expectSame(await first.counters("ask"), two, "the counters of ask");
    expectSame(await first.counters("none"), undefined, "the counters of an agent that never ran");
  }),

  check("counters: runs that end concurrently are all counted", async ({ first, second }) => {
    const added = { head: over(), counters: counters({ completed: 1, active_ms: 10 }) };
    const runs = Array.from({ length: 20 }, (_, n) => n);
    await Promise.all(
      runs.map((n) =>
        (n % 2 === 0 ? first : second).create(runKey(n), write([created(n), part("a"), ended()], added), null),
      ),
    );
    expectSame(await first.counters("echo"), counters({ completed: 20, active_ms: 200 }), "the counters");
  }),
];

function change(changes: Partial<SessionChange>): SessionChange {
  return { session_id: sessionId(1), create: false, at: NOW, ...changes };
}

function heard(...texts: readonly string[]) {
  return texts.map(message);
}

function said(...texts: readonly string[]) {
  return () => heard(...texts);
}
