import type { AgentVersion, RunHead, RunKey } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  ended,
  head,
  holders,
  LEASE_END,
  LEASE_MS,
  look,
  OWNER,
  over,
  parts,
  runId,
  runKey,
  sessionKey,
  take,
  tryCreate,
  waiting,
  write,
} from "./samples.ts";

const two = { key: "agent echo", max: 2 };
const one = { key: "session 1", max: 1 };
/** The head of a run that executes in its slot. */
const holding = head({ holds_slot: true });
/** The head of a run that waits for a permit. */
const queued: RunHead = head({ status: "created", owner: null, due_at: NOW });
const mismatch = { position: 1, expected: "ask#1", asked: "step#1" };
const full = { conflict: "full" } as const;

/** Slots: limits on executing runs, over all processes. */
export const slotChecks: readonly StoreCheck[] = [
  check("slots: a run beyond the limit is refused as `full`, and nothing changes", async ({ first, second }) => {
    await create(first, 1, { slot: two, head: holding });
    await create(second, 2, { slot: two, head: holding, tenant: "other" });
    const third = await create(first, 3, { slot: two, head: queued, idempotencyKey: "key" });
    const before = await look(first, third, sessionKey(1));
    expectConflict(await tryCreate(second, 4, { slot: two, head: holding, idempotencyKey: "other" }), full, "create");
    const claimed = { ...holding, epoch: 2 };
    expectConflict(await first.claim(third, { epoch: 1, position: 1 }, claimed), full, "claim");
    const answer = await first.append(third, { epoch: 1, position: 1 }, write(parts("a"), { head: holding }));
    expectConflict(answer, full, "append");
    expectSame(await look(first, third, sessionKey(1)), before, "what the store returns afterwards");
    expectSame(await first.find(runKey(4)), undefined, "the run that was refused");
    expectSame(await first.findByIdempotencyKey("acme", "other"), undefined, "its idempotency key");
  }),

  check("slots: a used id or idempotency key is refused as such, also if the slot is full", async ({ first }) => {
    await create(first, 1, { slot: one, head: holding, idempotencyKey: "key" });
    expectConflict(await tryCreate(first, 1, { slot: one, head: holding }), { conflict: "exists" }, "the same id");
    const sameKey = await tryCreate(first, 2, { slot: one, head: holding, idempotencyKey: "key" });
    expectConflict(sameKey, { conflict: "key_used", run_id: runId(1) }, "the same idempotency key");
  }),

  check("slots: a permit is free again once its run releases it, or ends", async ({ first }) => {
    const a = await create(first, 1, { slot: two, head: holding });
    const b = await create(first, 2, { slot: two, head: holding });
    await append(first, a, 1, write(parts("waits"), { head: waiting() }));
    const c = await create(first, 3, { slot: two, head: holding });
    await append(first, b, 1, write([ended()], { head: over(NOW, { holds_slot: true }) }));
    expectWritten(await first.claim(a, { epoch: 1, position: 2 }, { ...holding, epoch: 2 }), "a claim");
    await append(first, c, 1, write(parts("goes on"), { head: holding }));
    expectConflict(await tryCreate(first, 4, { slot: two, head: holding }), full, "one more");
  }),

  check("slots: a run that rests, is blocked or ends frees its permit for one other run", async ({ first }) => {
    await first.renew(OWNER, LEASE_MS);
    const three = { key: "agent echo", max: 3 };
    const keys: RunKey[] = [];
    for (const n of [1, 2, 3]) keys.push(await create(first, n, { slot: three, head: holding }));
    for (const n of [4, 5, 6, 7]) await create(first, n, { slot: three, head: { ...queued, due_at: NOW - 9 + n } });
    const heads = { rests: waiting(), "is blocked": waiting(null, { blocked: mismatch }), ends: over() };
    for (const [index, [what, last]] of Object.entries(heads).entries()) {
      expectSame(await take(first), [], `taken before the run ${what}`);
      await append(first, keys[index] ?? runKey(0), 1, write([], { head: last }));
      expectSame(await take(first), [runId(4 + index)], `taken once the run ${what}`);
    }
    expectSame(await take(first), [], "taken while all others execute");
  }),

  check("slots: a run that waits may keep its permit", async ({ first }) => {
    const key = await create(first, 1, { slot: one, head: waiting(null, { holds_slot: true }) });
    expectConflict(await tryCreate(first, 2, { slot: one, head: holding }), full, "another run of the slot");
    expectWritten(await first.claim(key, { epoch: 1, position: 1 }, { ...holding, epoch: 2 }), "a claim of it");
    await append(first, key, 1, write(parts("a"), { head: waiting(NOW, { holds_slot: true, epoch: 2 }) }), 2);
    expectSame(await take(first), [runId(1)], "taken");
    expectSame((await first.find(key))?.head.holds_slot, true, "whether it holds its slot then");
  }),

  check("slots: each key is a slot of its own, and runs without a slot need none", async ({ first }) => {
    await create(first, 1, { slot: one, head: holding });
    await create(first, 2, { slot: { ...one, key: "session 2" }, head: holding });
    for (const n of [3, 4, 5]) await create(first, n, { head: holding });
    expectConflict(await tryCreate(first, 6, { slot: one, head: holding }), full, "one more in the first slot");
    await create(first, 7, { slot: { ...one, max: 2 }, head: holding });
  }),

  check("slots: concurrent creates get no more permits than there are", async ({ first, second }) => {
    const stores = [first, second, first, second, first, second];
    const answers = await Promise.all(stores.map((store, n) => tryCreate(store, n, { slot: two, head: holding })));
    expectSame(answers.filter((answer) => answer === undefined).length, 2, "how many were created");
    for (const answer of answers) if (answer !== undefined) expectConflict(answer, full, "a refused create");
  }),

  check("slots: a permit that other runs wait for is refused as `full`, also if it is free", async ({ first }) => {
    await create(first, 1, { slot: one, head: holding });
    await create(first, 2, { slot: one, head: queued });
    const wide = { ...one, max: 9 };
    expectConflict(await tryCreate(first, 3, { slot: wide, head: holding }), full, "create");
    const key = await create(first, 4, { slot: wide });
    expectConflict(await first.append(key, { epoch: 1, position: 1 }, write([], { head: holding })), full, "append");
    const rests = await create(first, 5, { slot: wide, head: waiting() });
    const claimed = { ...holding, epoch: 2 };
    expectConflict(await first.claim(rests, { epoch: 1, position: 1 }, claimed), full, "claim");
    await append(first, runKey(2), 1, write([ended()], { head: over() }));
    expectWritten(await first.claim(rests, { epoch: 1, position: 1 }, claimed), "a claim once no other run waits");
  }),

  check("slots: whatever frees a permit gives it to the run that has waited longest", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    const holder = await create(first, 1, { slot: one, head: queued });
    expectSame((await first.find(holder))?.head, { ...queued, holds_slot: true }, "the head of the first run");
    for (const n of [2, 3, 4]) {
      clock.set(NOW + n);
      await create(first, n, { slot: one, head: { ...queued, due_at: NOW - n } });
    }
    expectSame(await holders(first, 4), [1], "who holds the slot");
    expectSame(await take(first), [runId(1)], "taken");
    await append(first, holder, 1, write(parts("waits"), { head: waiting(null, { epoch: 2 }) }), 2);
    expectSame(await holders(first, 4), [2], "who holds the slot once the first run rests");
    expectSame((await first.find(runKey(2)))?.head.due_at, NOW - 2, "since when the next one is due");
    await append(first, runKey(2), 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 4), [3], "who holds it once the next one has ended, which was not taken");
    expectSame(await take(first), [runId(3)], "taken then");
  }),

  check("slots: a run that is ended, claimed or blocked while it waits lets others pass", async ({ first }) => {
    const holder = await create(first, 1, { slot: one, head: holding });
    for (const n of [2, 3, 4]) await create(first, n, { slot: one, head: queued });
    await create(first, 5, { slot: { ...one, max: 2 }, head: queued });
    await append(first, runKey(2), 1, write([ended()], { head: over() }));
    expectWritten(
      await first.claim(runKey(3), { epoch: 1, position: 1 }, head({ epoch: 2 })),
      "a claim without a permit",
    );
    expectSame(await holders(first, 5), [1], "who holds the slot while one before it waits");
    await append(first, runKey(4), 1, write([], { head: waiting(null, { blocked: mismatch }) }));
    expectSame(await holders(first, 5), [1, 5], "who holds it once the run is the first, and has a higher limit");
    await append(first, holder, 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 5), [5], "who holds it then");
  }),

  check("slots: a raised limit lets in as many runs as it allows, in order", async ({ first }) => {
    const holder = await create(first, 1, { slot: one, head: holding });
    await create(first, 2, { slot: one, head: queued });
    for (const n of [3, 4, 5]) await create(first, n, { slot: { ...one, max: 3 }, head: queued });
    expectSame(await holders(first, 5), [1], "who holds the slot while one with the former limit is the first");
    await append(first, holder, 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 5), [2, 3, 4], "who holds it then");
  }),

  check(
    "slots: a run passes none that stands in line, also if both come at the same time",
    async ({ first, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      const holder = await create(first, 1, { slot: one, head: holding });
      await create(first, 2, { slot: { ...one, max: 2 }, head: waiting(NOW + 5) });
      clock.set(NOW + 5);
      await create(first, 3, { slot: one, head: queued });
      expectSame(await take(first), [], "taken at the time of the second");
      expectSame(await holders(first, 3), [1], "who holds the slot then");
      await append(first, holder, 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 3), [2, 3], "who holds it once a permit is free for the one that was there");
    },
  ),

  check("slots: a run that comes back to the front of the line gets a permit at once", async ({ first }) => {
    await first.renew(OWNER, LEASE_MS);
    const wide = { ...one, max: 2 };
    await create(first, 1, { slot: wide, head: holding });
    const holder = await create(first, 2, { slot: wide, head: holding });
    const key = await create(first, 3, { slot: wide, head: queued });
    await create(first, 4, { slot: one, head: queued });
    expectWritten(await first.post(key, { entries: parts("answer"), due: "look" }), "a post for a look");
    expectSame(await take(first), [runId(3)], "taken for a look");
    await append(first, holder, 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 4), [1], "who holds the slot while the next one has a lower limit");
    await append(first, key, 2, write(parts("accepted"), { head: { ...queued, epoch: 2 } }), 2);
    expectSame(await holders(first, 4), [1, 3], "who holds it once the other is back");
  }),

  check("slots: a write that gives a permit back and needs one again holds one", async ({ first }) => {
    const key = await create(first, 1, { slot: one, head: waiting() });
    const other = await create(first, 2);
    await append(first, other, 1, write(parts("wakes"), { wake: key }));
    expectSame(await holders(first, 2), [1], "who holds the slot once the run was woken");
    await append(first, key, 1, write(parts("a"), { head: waiting() }));
    expectSame(await holders(first, 2), [1], "who holds it after a write that does not know of that");
    await create(first, 3, { slot: one, head: queued });
    expectSame(await holders(first, 3), [1], "who holds it while another run waits for it");
    await append(first, key, 2, write([ended()], { head: over() }));
    expectSame(await holders(first, 3), [3], "who holds it then");
  }),

  check(
    "slots: a run with an owner that asks for a permit gets it in its turn, and keeps its owner",
    async ({ first }) => {
      const holder = await create(first, 1, { slot: one, head: holding });
      await create(first, 2, { slot: one, head: queued });
      const key = await create(first, 3, { slot: one });
      await append(first, key, 1, write(parts("asks"), { asks: true }));
      await create(first, 4, { slot: one, head: queued });
      await create(first, 5, { slot: one, asks: true });
      await append(first, holder, 1, write([ended()], { head: over() }));
      await append(first, key, 2, write(parts("goes on"), { asks: true }));
      expectSame(await holders(first, 5), [2], "who holds the slot while one that came before waits");
      await append(first, runKey(2), 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 5), [3], "who holds it then");
      const { head: given, position } = (await first.find(key)) ?? {};
      expectSame([given, position], [holding, 3], "the head and the length of the run that asked");
      await append(first, key, 3, write(parts("does not know"), { asks: true }));
      expectSame(await holders(first, 5), [3], "who holds it after a write that does not know of it");
      await append(first, key, 4, write(parts("knows"), { head: holding }));
      expectConflict(await tryCreate(first, 6, { slot: one, head: holding }), full, "one more");
      await append(first, key, 5, write(parts("rests"), { head: waiting() }));
      await append(first, runKey(4), 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 5), [5], "who holds it after the run that waited meanwhile");
    },
  ),

  check(
    "slots: a run with an owner that asks no more leaves the line, and gives back what it got",
    async ({ first }) => {
      const holder = await create(first, 1, { slot: one, head: holding });
      const leaves = await create(first, 2, { slot: one, asks: true });
      const gets = await create(first, 3, { slot: one, asks: true });
      const last = await create(first, 4, { slot: one, asks: true });
      await append(first, leaves, 1, write(parts("needs none")));
      await append(first, holder, 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 4), [3], "who holds the slot once the first has left the line");
      await append(first, gets, 1, write(parts("needs none")));
      expectSame(await holders(first, 4), [4], "who holds it once it was given back");
      await append(first, last, 1, write([ended()], { head: over() }));
      await append(first, gets, 2, write(parts("asks"), { asks: true }));
      expectSame(await holders(first, 4), [3], "who holds it that asks while it is free");
    },
  ),

  check("slots: a run that waits for a permit is counted as due", async ({ first }) => {
    await first.renew(OWNER, LEASE_MS);
    await create(first, 1, { slot: one, head: holding });
    for (const n of [2, 3]) await create(first, n, { slot: one, head: { ...queued, due_at: NOW - n } });
    const counted = { agent_name: "echo", version: null, due: 2, since: NOW - 3, waiting: 0, blocked: 0 };
    expectSame(await first.backlog(), [counted], "the backlog");
  }),

  check("take: as many of a slot as it has permits, those first that have waited longest", async ({ first }) => {
    const key = await create(first, 1, { slot: two, head: holding });
    await first.renew(OWNER, LEASE_MS);
    for (const n of [2, 3, 4]) await create(first, n, { slot: two, head: { ...queued, due_at: NOW - n } });
    await create(first, 5, { slot: one, head: queued });
    await create(first, 6, { slot: one, head: queued });
    await create(first, 7, { head: queued });
    expectSame(await take(first), [2, 5, 7].map(runId), "taken");
    expectSame((await first.find(runKey(2)))?.head.holds_slot, true, "whether a taken run holds its slot");
    expectSame((await first.find(runKey(7)))?.head.holds_slot, false, "whether one without a slot does");
    expectSame(await take(first), [], "taken while the slots are full");
    await append(first, key, 1, write([ended()], { head: over() }));
    expectSame(await take(first), [runId(3)], "taken once a permit is free");
  }),

  check("take: a run whose time comes waits for a permit from then on", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    const holder = await create(first, 1, { slot: one, head: holding });
    await create(first, 2, { slot: one, head: waiting(NOW + 5) });
    await create(first, 3, { slot: two, head: waiting(NOW + 5) });
    expectSame(await holders(first, 3), [1], "who holds a slot before the time");
    clock.set(NOW + 5);
    expectSame(await take(first), [runId(3)], "taken at the time");
    clock.set(NOW + 6);
    await create(first, 4, { slot: one, head: queued });
    await append(first, holder, 1, write([ended()], { head: over() }));
    expectSame(await take(first), [runId(2)], "taken once a permit is free");
  }),

  check(
    "take: while the first of a slot waits for a permit, those behind it do, and runs of other slots do not",
    async ({ first }) => {
      await first.renew(OWNER, LEASE_MS);
      await create(first, 1, { slot: one, head: holding });
      for (let n = 2; n < 60; n++) await create(first, n, { slot: one, head: { ...queued, due_at: NOW - 100 + n } });
      await create(first, 60, { slot: { ...one, max: 9 }, head: queued });
      await create(first, 61, { slot: two, head: queued });
      await create(first, 62, { head: queued });
      expectSame(await take(first), [61, 62].map(runId), "taken");
    },
  ),

  check(
    "take: a run of a dead owner keeps the slot that it holds, and needs a permit if it holds none",
    async ({ first }) => {
      await create(first, 1, { slot: one, head: head({ owner: "dead", holds_slot: true }) });
      await create(first, 2, { slot: one, head: head({ owner: "dead" }) });
      await create(first, 3, { slot: two, head: head({ owner: "dead" }) });
      expectSame(await take(first), [1, 3].map(runId), "taken");
      expectSame(
        (await first.find(runKey(3)))?.head.holds_slot,
        true,
        "whether the one that got a permit holds its slot",
      );
    },
  ),

  check(
    "take: a run of a dead owner that gets no permit waits for one without an owner, in a higher epoch",
    async ({ first }) => {
      await first.renew(OWNER, LEASE_MS);
      const holder = await create(first, 1, { slot: one, head: holding });
      const key = await create(first, 2, { slot: one, head: head({ owner: "dead" }) });
      expectSame(await take(first), [], "taken while the slot is full");
      const left = head({ owner: null, epoch: 2, due_at: NOW, takeovers: 1 });
      expectSame((await first.find(key))?.head, left, "its head then");
      const late = await first.append(key, { epoch: 1, position: 1 }, write(parts("late")));
      expectConflict(late, { conflict: "changed", epoch: 2, position: 1 }, "a write of the dead owner");
      await append(first, holder, 1, write([ended()], { head: over() }));
      expectSame(await take(first), [runId(2)], "taken once a permit is free");
      const taken = { ...left, owner: "owner-2", epoch: 3, holds_slot: true };
      expectSame((await first.find(key))?.head, taken, "its head once it is taken");
    },
  ),

  check(
    "take: a run that is looked at keeps its place among those that wait for a permit",
    async ({ first, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      const holder = await create(first, 1, { slot: one, head: holding });
      const key = await create(first, 2, { slot: one, head: queued });
      clock.set(NOW + 1);
      await create(first, 3, { slot: one, head: queued });
      expectWritten(await first.post(key, { entries: parts("answer"), due: "look" }), "a post for a look");
      expectSame(await take(first), [runId(2)], "taken for a look");
      clock.set(NOW + 2);
      await append(first, key, 2, write(parts("accepted"), { head: { ...queued, epoch: 2 } }), 2);
      await append(first, holder, 1, write([ended()], { head: over() }));
      expectSame(await holders(first, 3), [2], "who holds the slot once a permit is free");
    },
  ),

  check(
    "take: a run that was posted to with `look` is taken although its slot is full, without holding it",
    async ({ first }) => {
      await first.renew(OWNER, LEASE_MS);
      await first.renew("owner-2", LEASE_MS);
      await create(first, 1, { slot: one, head: holding });
      const key = await create(first, 2, { slot: one, head: waiting() });
      const other = await create(first, 3, { slot: one, head: waiting() });
      expectWritten(await first.post(other, { entries: parts("message"), due: "work" }), "a post");
      expectSame(await take(first), [], "taken while the slot is full");
      expectWritten(await first.post(key, { entries: parts("answer"), due: "look" }), "a post for a look");
      expectSame(await take(first), [runId(2)], "taken for a look");
      expectSame((await first.find(key))?.head.holds_slot, false, "whether it holds its slot");
      await append(first, key, 2, write(parts("accepted"), { head: waiting(NOW, { epoch: 2 }) }), 2);
      expectSame(await take(first), [], "taken once it has been looked at, and needs a permit");
    },
  ),

  check(
    "take: slots of other versions that no process executes are freed for those that wait, if that is asked for",
    async ({ first, clock }) => {
      const old = { slot: one, created: { version: "1" } };
      await create(first, 1, { ...old, head: queued });
      await create(first, 2, { ...old, head: queued });
      await create(first, 3, { slot: one, head: queued });
      clock.set(NOW + 1_000);
      expectSame(await take(first), [], "taken without being asked for");
      expectSame(await take(first, { unusedForMs: 1_001 }), [], "taken before the time");
      expectSame(
        await take(first, { unusedForMs: 1_000, agents: [versionOf("1")] }),
        [runId(1)],
        "taken of that version",
      );
      await append(first, runKey(1), 1, write([], { head: { ...queued, epoch: 3, holds_slot: true, due_at: NOW } }), 2);
      clock.set(NOW + 3_000);
      expectSame(
        await take(first, { unusedForMs: 1_000, agents: [versionOf("1"), versionOf(null)], limit: 0 }),
        [],
        "of both",
      );
      expectSame(await holders(first, 3), [1], "who holds the slot then");
      expectSame(await take(first, { unusedForMs: 1_000 }), [runId(3)], "taken after the time");
      expectSame(await holders(first, 3), [3], "who holds the slot then");
      expectSame(await take(first, { agents: [versionOf("1")] }), [], "taken of the other version meanwhile");
      await append(first, runKey(3), 1, write([ended()], { head: over() }), 2);
      expectSame(await take(first, { agents: [versionOf("1")] }), [runId(2)], "taken of it once the slot is free");
      expectSame(await holders(first, 3), [2], "who holds the slot in the end");
    },
  ),

  check("take: slots of agents that the caller does not have are freed likewise", async ({ first, clock }) => {
    const another = { created: { agent_name: "other" }, head: queued };
    const other = { agents: [{ agent_name: "other", version: null }] };
    for (const n of [1, 2]) await create(first, n, { ...another, slot: one });
    await create(first, 3, { slot: one, head: queued });
    for (const n of [4, 5]) await create(first, n, { ...another, slot: { key: "of its own", max: 1 } });
    clock.set(NOW + 1_000);
    expectSame(await take(first), [], "taken without being asked for");
    expectSame(await take(first, { unusedForMs: 1_001 }), [], "taken before the time");
    expectSame(await take(first, { unusedForMs: 1_000 }), [runId(3)], "taken after the time");
    expectSame(await holders(first, 5), [3, 4], "who holds slots then, of which one is waited for by no other agent");
    expectSame(await take(first, other), [runId(4)], "taken of the other agent");
    await append(first, runKey(3), 1, write([ended()], { head: over() }), 2);
    expectSame(await take(first, other), [runId(2)], "taken of it once the first slot is free");
    expectSame(await holders(first, 5), [2, 4], "who holds slots in the end");
  }),

  check(
    "take: the slot of a run with a living owner is not freed, and that of a dead one is",
    async ({ first, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      const key = await create(first, 1, { slot: one, head: holding, created: { version: "1" } });
      await create(first, 2, { slot: one, head: queued });
      expectWritten(await first.post(key, { entries: parts("arrived") }), "a post");
      clock.set(LEASE_END - 1);
      expectSame(await take(first, { unusedForMs: 0 }), [], "taken while its lease lasts");
      clock.set(LEASE_END + 1_000);
      expectSame(await take(first, { unusedForMs: 1_001 }), [], "taken before the time");
      expectSame(await take(first, { unusedForMs: 1_000 }), [runId(2)], "taken after the time");
      const { head: left, position } = (await first.find(key)) ?? {};
      expectSame(
        [left, position],
        [head({ owner: null, epoch: 2, takeovers: 1, due_at: LEASE_END + 1_000 }), 2],
        "the head and the length of the run without a process",
      );
      await append(first, runKey(2), 1, write([ended()], { head: over() }), 2);
      expectSame(await take(first, { agents: [versionOf("1")] }), [runId(1)], "taken of its version then");
    },
  ),

  check(
    "take: a run that asked under an owner who is dead keeps its place without an owner",
    async ({ first, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      await first.renew("living", 1_000_000);
      const holder = await create(first, 1, { slot: one, head: { ...holding, owner: "living" } });
      const key = await create(first, 2, { slot: one, asks: true });
      await create(first, 3, { slot: one, head: queued });
      expectWritten(await first.post(key, { entries: parts("arrived") }), "a post");
      clock.set(LEASE_END);
      expectSame(await take(first), [], "taken while the slot is full");
      const { head: left, position } = (await first.find(key)) ?? {};
      expectSame([left?.owner, left?.epoch, left?.takeovers, position], [null, 2, 1, 2], "the run without its owner");
      await append(first, holder, 1, write([ended()], { head: over() }));
      expectSame(await take(first), [runId(2)], "taken once the permit is free");
    },
  ),

  check(
    "take: a run of a dead owner that is only taken to end it needs no permit, and leaves the line",
    async ({ first }) => {
      await first.renew(OWNER, LEASE_MS);
      const dead = { owner: "dead" };
      await create(first, 1, { slot: one, head: holding });
      await create(first, 2, { slot: one, asks: true, head: head({ ...dead, due_at: 1 }), isPlain: true });
      await create(first, 3, { slot: one, asks: true, head: head({ ...dead, due_at: 2, status: "cancelling" }) });
      await create(first, 4, { slot: two, head: holding, isPlain: true, created: { version: "1" } });
      await create(first, 5, { slot: one, head: head(dead), isPlain: true });
      await create(first, 6, { slot: { ...one, max: 2 }, asks: true });
      expectSame(await holders(first, 6), [1, 4], "who holds a slot while those of the dead owner wait");
      await first.release("dead");
      expectSame(await take(first, { unusedForMs: 0 }), [5, 2, 3].map(runId), "taken");
      expectSame(await holders(first, 6), [1, 4, 6], "who holds a slot once they have left the line");
      const left = head({ owner: "owner-2", epoch: 2, takeovers: 1, due_at: NOW });
      expectSame((await first.find(runKey(2)))?.head, left, "the head of one that was taken");
      expectSame(await first.lines({ limit: 9 }), [], "the lines");
    },
  ),

  check("take: concurrent takes get no more permits than there are", async ({ first, second }) => {
    for (let n = 0; n < 8; n++) await create(first, n, { slot: two, head: queued });
    const owners = ["a", "b", "c", "d"];
    await Promise.all(owners.map((owner) => first.renew(owner, LEASE_MS)));
    const taken = await Promise.all(owners.map((owner, n) => take(n % 2 === 0 ? first : second, { owner })));
    expectSame(taken.flat().toSorted(), [0, 1].map(runId), "taken by the four");
  }),
];

function versionOf(version: string | null): AgentVersion {
  return { agent_name: "echo", version };
}
