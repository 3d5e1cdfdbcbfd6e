import type { Store } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectFailure, expectOneWritten, expectSame, expectWritten } from "./check.ts";
import {
  append,
  counters,
  create,
  created,
  ended,
  head,
  look,
  message,
  OWNER,
  over,
  part,
  parts,
  runId,
  runKey,
  sessionId,
  sessionKey,
  TENANT,
  tryCreate,
  waiting,
  write,
} from "./samples.ts";

/** Everything that a write can carry besides its entries. A refused write must leave none of it. */
const everything = {
  session: { session_id: sessionId(1), create: true, messages: () => [message("joined")], state: { value: 1 }, at: 5 },
  counters: counters({ completed: 1, total_tokens: 7 }),
};

/** `create` and `append`: what they write, when they refuse, and that a refusal changes nothing. */
export const writeChecks: readonly StoreCheck[] = [
  check("create: the run exists, with its head, its entries and its length", async ({ first }) => {
    const key = runKey(1);
    const entries = [created(1), ...parts("a", "b")];
    expectWritten(await first.create(key, write(entries, { head: waiting(50, { takeovers: 3 }) }), null), "create");
    const stored = { key, created: created(1), head: waiting(50, { takeovers: 3 }), position: 3 };
    expectSame(await first.find(key), stored, "find");
    expectSame(await first.read(key, 0, 10), entries, "read");
  }),

  check("create: a run may end with its first write", async ({ first }) => {
    const key = runKey(1);
    const whole = write([created(1), part("a"), ended()], { head: over(), ...everything });
    expectWritten(await first.create(key, whole, null), "create");
    expectSame((await first.find(key))?.head, over(), "the head");
    expectSame(await first.counters("echo"), everything.counters, "the counters");
    expectSame(await first.session(sessionKey(1)), { history: [message("joined")], state: 1 }, "the session");
  }),

  check("create: a used id is refused as `exists`, and nothing changes", async ({ first }) => {
    const key = await create(first, 1, { idempotencyKey: "key" });
    const before = await look(first, key, sessionKey(1));
    const again = { ...everything, head: over(), created: { agent_name: "other" }, idempotencyKey: "other" };
    expectConflict(await tryCreate(first, 1, again), { conflict: "exists" }, "the same id again");
    expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
    expectSame(await first.findByIdempotencyKey(TENANT, "other"), undefined, "the idempotency key of the refused run");
    expectSame(await first.counters("other"), undefined, "the counters of the refused run");
  }),

  check(
    "create: a used idempotency key is refused as `key_used` with its run, and nothing changes",
    async ({ first }) => {
      const key = await create(first, 1, { idempotencyKey: "key" });
      const before = await look(first, key, sessionKey(1));
      const answer = await tryCreate(first, 2, { ...everything, idempotencyKey: "key" });
      expectConflict(answer, { conflict: "key_used", run_id: runId(1) }, "the same key again");
      expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
      expectSame(await first.find(runKey(2)), undefined, "the refused run");
      expectSame(await first.read(runKey(2), 0, 10), undefined, "the entries of the refused run");
    },
  ),

  check("create: an idempotency key finds its run; runs without a key do not conflict", async ({ first }) => {
    await create(first, 1);
    await create(first, 2, { idempotencyKey: "key" });
    await create(first, 3);
    expectSame((await first.findByIdempotencyKey(TENANT, "key"))?.key, runKey(2), "the run of the key");
    expectSame(await first.findByIdempotencyKey(TENANT, "Key"), undefined, "a key in other letters");
    expectSame(await first.findByIdempotencyKey(TENANT, ""), undefined, "an empty key that no run was created with");
    await create(first, 4, { idempotencyKey: "" });
    expectSame((await first.findByIdempotencyKey(TENANT, ""))?.key, runKey(4), "the run of the empty key");
  }),

  check("create: of several concurrent runs with one id, exactly one is written", async ({ first, second }) => {
    const answers = await Promise.all([first, second, first, second].map((store) => tryCreate(store, 1)));
    expectOneWritten(answers, "four runs with one id");
    const refused = answers.filter((answer) => answer !== undefined);
    expectSame(refused, [{ conflict: "exists" }, { conflict: "exists" }, { conflict: "exists" }], "the refusals");
  }),

  check(
    "create: of several concurrent runs with one idempotency key, exactly one is written",
    async ({ first, second }) => {
      const stores = [first, second, first, second];
      const answers = await Promise.all(stores.map((store, n) => tryCreate(store, n, { idempotencyKey: "key" })));
      expectOneWritten(answers, "four runs with one idempotency key");
      const winner = runId(answers.indexOf(undefined));
      for (const answer of answers) {
        if (answer !== undefined) expectConflict(answer, { conflict: "key_used", run_id: winner }, "a refused run");
      }
    },
  ),

  check("append: the entries are added to the log, and the head is replaced as a whole", async ({ first }) => {
    const key = await create(first, 1, { head: head({ takeovers: 2 }) });
    await append(first, key, 1, write(parts("a", "b"), { head: waiting(99) }));
    expectSame((await first.find(key))?.head, waiting(99), "the head after the first append");
    await append(first, key, 3, write([ended(7)], { head: over(7, { status: "failed", epoch: 4 }) }));
    const stored = { key, created: created(1), head: over(7, { status: "failed", epoch: 4 }), position: 4 };
    expectSame(await first.find(key), stored, "the run after the second append");
    expectSame(await first.read(key, 0, 10), [created(1), ...parts("a", "b"), ended(7)], "the log");
  }),

  check("append: without entries it replaces the head and changes the session", async ({ first }) => {
    const key = await create(first, 1);
    const change = { session_id: sessionId(1), create: true, state: { value: "set" }, at: 5 };
    await append(first, key, 1, write([], { head: head({ takeovers: 1 }), session: change }));
    await append(first, key, 1, write(parts("a")));
    expectSame((await first.session(sessionKey(1)))?.state, "set", "the state");
    expectSame(await first.read(key, 0, 10), [created(1), part("a")], "the log");
  }),

  check("append: a missing run is refused as `missing`", async ({ first }) => {
    const answer = await first.append(runKey(1), { epoch: 1, position: 1 }, write(parts("a"), everything));
    expectConflict(answer, { conflict: "missing" }, "append");
    expectSame(await first.find(runKey(1)), undefined, "the run");
    expectSame(await first.session(sessionKey(1)), undefined, "the session of the refused write");
    expectSame(await first.counters("echo"), undefined, "the counters of the refused write");
  }),

  ...refusedAppend("another position", [
    { epoch: 3, position: 0 },
    { epoch: 3, position: 1 },
    { epoch: 3, position: 3 },
  ]),
  ...refusedAppend("another epoch", [
    { epoch: 2, position: 2 },
    { epoch: 4, position: 2 },
    { epoch: 0, position: 2 },
  ]),

  check("append: under another owner than the expected one it is refused as `changed`", async ({ first }) => {
    const key = await create(first, 1);
    const free = await create(first, 2, { head: waiting() });
    const asks = (owner: string | null) => ({ epoch: 1, position: 1, owner });
    const changed = { conflict: "changed", epoch: 1, position: 1 } as const;
    for (const owner of ["owner-2", "", null])
      expectConflict(await first.append(key, asks(owner), write(parts("a"))), changed, `an append under ${owner}`);
    for (const owner of [OWNER, ""])
      expectConflict(await first.append(free, asks(owner), write(parts("a"))), changed, `an append under ${owner}`);
    expectSame((await first.find(key))?.position, 1, "the length of the run with an owner");
    expectWritten(await first.append(key, asks(OWNER), write(parts("a"))), "an append under the owner");
    expectWritten(await first.append(free, asks(null), write(parts("a"))), "an append under no owner");
  }),

  check("append: of several concurrent writes at one position, exactly one is made", async ({ first, second }) => {
    const key = await create(first, 1);
    const stores = [first, second, first, second, first, second];
    const answers = await Promise.all(
      stores.map((store, n) => store.append(key, { epoch: 1, position: 1 }, write(parts(`${n}`)))),
    );
    expectOneWritten(answers, "six appends");
    expectSame(await first.read(key, 0, 10), [created(1), part(`${answers.indexOf(undefined)}`)], "the log");
  }),

  check("append: writes that do not wait for each other are made in the order of the calls", async ({ first }) => {
    const key = runKey(1);
    const answers: ReturnType<Store["append"]>[] = [first.create(key, write([created(1)]), null)];
    for (let position = 1; position <= 20; position++) {
      answers.push(first.append(key, { epoch: 1, position }, write(parts(`${position}`))));
    }
    for (const answer of await Promise.all(answers)) expectWritten(answer, "one of the writes");
    const texts = Array.from({ length: 20 }, (_, index) => `${index + 1}`);
    expectSame(await first.read(key, 1, 100), parts(...texts), "the log");
  }),

  check("a write that fails changes nothing, and the writes before and after it succeed", async ({ first }) => {
    const key = await create(first, 1, { idempotencyKey: "key" });
    const before = await look(first, key, sessionKey(1));
    const broken = () => {
      throw new Error("these messages cannot be had");
    };
    const session = { session_id: sessionId(1), create: true, messages: broken, state: { value: 1 }, at: 5 };
    const failing = write(parts("a"), { head: over(), session, counters: everything.counters });
    await expectFailure(() => first.append(key, { epoch: 1, position: 1 }, failing), "an append that fails");
    await expectFailure(
      () => first.create(runKey(2), { ...failing, entries: [created(2)] }, "other"),
      "a create that fails",
    );
    expectSame(await look(first, key, sessionKey(1)), before, "what the store returns afterwards");
    expectSame(await first.findByIdempotencyKey(TENANT, "other"), undefined, "the idempotency key of the failed run");
    const settled = await Promise.allSettled([
      tryCreate(first, 3),
      (async () => first.append(key, { epoch: 1, position: 1 }, failing))(),
      tryCreate(first, 4),
    ]);
    const outcomes = settled.map((one) => (one.status === "fulfilled" ? one.value : one.status));
    expectSame(outcomes, [undefined, "rejected", undefined], "a failing write between two good ones");
    expectSame((await first.find(runKey(4)))?.position, 1, "the run created after the failing write");
  }),

  check("a list that is passed in or returned may be changed afterwards", async ({ first }) => {
    const key = runKey(1);
    const entries = [created(1), part("a")];
    expectWritten(await first.create(key, write(entries), null), "create");
    entries.push(part("slipped in"));
    const more = [part("b")];
    await append(first, key, 2, write(more));
    more.push(part("slipped in"));
    const read = await first.read(key, 0, 10);
    (read as unknown[]).push(part("slipped in"));
    expectSame(await first.read(key, 0, 10), [created(1), ...parts("a", "b")], "the log");
    expectSame((await first.find(key))?.position, 3, "its length");
  }),

  check("close: a second call does nothing", async ({ first }) => {
    await create(first, 1);
    await first.close();
    await first.close();
  }),
];

function refusedAppend(what: string, expectations: readonly { epoch: number; position: number }[]): StoreCheck[] {
  return [
    check(`append: on ${what} it is refused as \`changed\`, and nothing changes`, async ({ first }) => {
      const key = await create(first, 1, { head: head({ epoch: 3 }), idempotencyKey: "key" });
      await append(first, key, 1, write(parts("a"), { head: head({ epoch: 3 }) }), 3);
      const before = await look(first, key, sessionKey(1));
      for (const expected of expectations) {
        const label = `epoch ${expected.epoch}, position ${expected.position}`;
        const answer = await first.append(key, expected, write([part("b"), ended()], { ...everything, head: over() }));
        expectConflict(answer, { conflict: "changed", epoch: 3, position: 2 }, label);
        expectSame(await look(first, key, sessionKey(1)), before, `what the store returns after ${label}`);
      }
    }),
  ];
}
