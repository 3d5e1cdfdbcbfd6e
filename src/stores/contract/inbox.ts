import type { Entry } from "../../core/log.ts";
import type { Arrived, RunKey, RunPost, Store } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  created,
  ended,
  forget,
  head,
  LEASE_END,
  LEASE_MS,
  look,
  OWNER,
  over,
  parts,
  sessionKey,
  waiting,
  write,
} from "./samples.ts";

const cancel = {
  entries: [{ type: "cancel-requested", at: NOW }],
  status: "cancelling",
  due: "look",
} as const satisfies RunPost;
const agents = [{ agent_name: "echo", version: null }];
const left = { conflict: "arrived" } as const;

/** What is written to a run that another process executes. */
export const inboxChecks: readonly StoreCheck[] = [
  check("inbox: a post to a run with an owner lies in its inbox, and its log and head stay", async (stores) => {
    const { first, second } = stores;
    const kept = head({ epoch: 3, due_at: 7, takeovers: 2 });
    const key = await create(first, 1, { head: kept });
    await post(second, key, "a", "b");
    await post(second, key, "c");
    expectSame(await first.read(key, 0, 10), [created(1)], "the log");
    expectSame(await first.find(key), { key, created: created(1), head: kept, position: 1 }, "the run");
    const { inbox, ...run } = (await first.find(key, "with inbox")) ?? {};
    expectSame(run, { key, created: created(1), head: kept, position: 1 }, "the run with its inbox");
    expectSame(
      inbox?.map(({ entries }) => entries),
      [parts("a", "b"), parts("c")],
      "the inbox",
    );
    expectSame(new Set(inbox?.map(({ id }) => id)).size, 2, "how many ids it has");
  }),

  check("inbox: a run of another tenant with the same id has an inbox of its own", async ({ first, second }) => {
    const keys = [await create(first, 1), await create(first, 1, { tenant: "other" })];
    for (const key of keys) {
      await post(second, key, `first of ${key.tenant}`);
      await post(second, key, `second of ${key.tenant}`);
    }
    for (const key of keys) {
      const expected = parts(`first of ${key.tenant}`, `second of ${key.tenant}`);
      expectSame(await arrivedFor(first, key), expected, `the inbox of tenant ${key.tenant}`);
    }
  }),

  check("inbox: a run for which nothing has arrived has none", async ({ first }) => {
    const owned = await create(first, 1);
    const unowned = await create(first, 2, { head: waiting() });
    await post(first, unowned, "a");
    for (const key of [owned, unowned])
      expectSame((await first.find(key, "with inbox"))?.inbox, undefined, "the inbox");
    expectSame((await first.find(unowned))?.position, 2, "the length of the log of a run without an owner");
  }),

  check("inbox: the owner writes as if nothing had arrived", async ({ first, second }) => {
    const key = await create(first, 1);
    await post(second, key, "a");
    await append(first, key, 1, write(parts("own")));
    await append(first, key, 2, write(parts("more")));
    expectSame(await first.read(key, 1, 10), parts("own", "more"), "the log");
    expectSame(await arrivedFor(first, key), parts("a"), "the inbox");
  }),

  check("inbox: a write takes what it names, and leaves the rest in order", async ({ first, second }) => {
    const key = await create(first, 1);
    const other = await create(first, 2);
    for (const text of ["a", "b", "c", "d"]) await post(second, key, text);
    await post(second, other, "of another run");
    const [a, b, c] = await idsOf(first, key);
    await append(first, key, 1, write(parts("a", "c"), { takes: [a ?? 0, c ?? 0] }));
    expectSame(await arrivedFor(first, key), parts("b", "d"), "the inbox");
    expectSame(await first.read(key, 1, 10), parts("a", "c"), "the log");
    await append(first, key, 3, write([], { takes: [a ?? 0, b ?? 0] }));
    expectSame(await arrivedFor(first, key), parts("d"), "the inbox after a write without entries");
    expectSame(await arrivedFor(first, other), parts("of another run"), "the inbox of another run");
  }),

  check("inbox: a refused write takes nothing", async ({ first }) => {
    const key = await create(first, 1);
    await post(first, key, "a");
    const takes = await idsOf(first, key);
    const answer = await first.append(key, { epoch: 1, position: 9 }, write(parts("a"), { takes }));
    expectConflict(answer, { conflict: "changed", epoch: 1, position: 1 }, "a write at a wrong position");
    expectSame(await arrivedFor(first, key), parts("a"), "the inbox");
  }),

  check(
    "inbox: an owner that leaves is refused as `arrived` unless it takes all, and nothing changes",
    async (stores) => {
      const { first } = stores;
      const key = await create(first, 1);
      await post(first, key, "a");
      await post(first, key, "b");
      const [a = 0, b = 0] = await idsOf(first, key);
      const before = await look(first, key, sessionKey(1));
      for (const takes of [undefined, [], [b], [a, b + 1_000]]) {
        const rest = write(parts("rests"), { head: waiting(null, { epoch: 2 }), takes });
        expectConflict(await first.append(key, { epoch: 1, position: 1 }, rest), left, `leaving with ${takes}`);
      }
      expectSame(await look(first, key, sessionKey(1)), before, "what the store returns after the refusals");
      expectSame(await arrivedFor(first, key), parts("a", "b"), "the inbox after the refusals");
      await append(first, key, 1, write(parts("a", "b"), { head: waiting(null, { epoch: 2 }), takes: [b, a] }));
      expectSame(await arrivedFor(first, key), [], "the inbox then");
      expectSame((await first.find(key))?.head, waiting(null, { epoch: 2 }), "the head then");
    },
  ),

  check("inbox: an owner that leaves with `all` leaves it in the log", async ({ first, second }) => {
    const key = await create(first, 1);
    await post(second, key, "a", "b");
    await post(second, key, "c");
    await append(first, key, 1, write(parts("own"), { head: waiting(NOW + 9, { epoch: 2 }), takes: "all" }));
    expectSame(await first.read(key, 1, 10), parts("own", "a", "b", "c"), "the log");
    expectSame(await first.find(key, "with inbox"), await first.find(key), "the run with its inbox");
    expectSame((await first.find(key))?.position, 5, "the length of the log");
    await post(second, key, "d");
    expectSame(await first.read(key, 5, 10), parts("d"), "what is posted to it without an owner");
  }),

  check(
    "inbox: it goes to the end of the log with a dead owner, by take and by claim",
    async ({ first, second, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      const [taken, claimed] = [await create(first, 1), await create(first, 2)];
      for (const key of [taken, claimed]) {
        await post(second, key, "a", "b");
        await post(second, key, "c");
      }
      expectWritten(await second.post(taken, cancel), "a cancel");
      clock.set(LEASE_END);
      const heir = head({ epoch: 2, owner: "owner-2", takeovers: 1 });
      expectWritten(await second.claim(claimed, { epoch: 1, position: 1 }, heir), "claim");
      const [run] = await second.take({ owner: "owner-2", agents, limit: 9 });
      expectSame(run?.key, taken, "the run that is taken");
      expectSame(run?.position, 5, "its length, as take gives it");
      expectSame(await first.read(taken, 1, 10), [...parts("a", "b", "c"), ...cancel.entries], "its log");
      expectSame(await first.read(claimed, 1, 10), parts("a", "b", "c"), "the log of the one that is claimed");
      expectSame((await first.find(taken))?.head, { ...heir, status: "cancelling", due_at: LEASE_END }, "the head");
      for (const key of [taken, claimed]) expectSame(await arrivedFor(first, key), [], "the inbox");
    },
  ),

  check("inbox: a run with an owner is cancelling once a cancel has arrived, until it ends", async (stores) => {
    const { first, second } = stores;
    const key = await create(first, 1);
    expectWritten(await second.post(key, cancel), "a cancel");
    expectSame((await first.find(key))?.head, head({ status: "cancelling" }), "the head");
    const { tenant } = key;
    const listed = await first.list({ tenant, statuses: ["cancelling"], limit: 9, offset: 0 });
    expectSame(
      listed.map((one) => one.key),
      [key],
      "the runs that are listed as cancelling",
    );
    expectWritten(await second.post(key, { entries: parts("late"), status: "in-progress" }), "a later post");
    expectSame((await first.find(key))?.head, head({ status: "cancelling" }), "the head after another post");
    await append(first, key, 1, write(parts("own")));
    expectSame((await first.find(key))?.head, head({ status: "cancelling" }), "the head after a write of the owner");
    const takes = await idsOf(first, key);
    const rest = write(cancel.entries, { head: waiting(null, { epoch: 2 }), takes });
    await append(first, key, 2, rest);
    expectSame((await first.find(key))?.head.status, "cancelling", "the status without an owner");
  }),

  check("inbox: a run cannot end before a cancel that has arrived is taken", async ({ first, second }) => {
    const key = await create(first, 1);
    await post(second, key, "late");
    const before = await idsOf(first, key);
    expectWritten(await second.post(key, cancel), "a cancel");
    for (const takes of [undefined, before]) {
      const end = write([ended()], { head: over(), takes });
      expectConflict(await first.append(key, { epoch: 1, position: 1 }, end), left, "an end without the cancel");
    }
    const takes = (await idsOf(first, key)).filter((id) => !before.includes(id));
    const end = write([...cancel.entries, ended(NOW, "cancelled")], {
      head: over(NOW, { status: "cancelled" }),
      takes,
    });
    await append(first, key, 1, end);
    expectSame((await first.find(key))?.head.status, "cancelled", "the status");
  }),

  check("inbox: what arrives as a run ends stays in its inbox, and is deleted with it", async ({ first, second }) => {
    const key = await create(first, 1);
    await post(second, key, "late");
    await append(first, key, 1, write([ended()], { head: over() }));
    expectSame(await first.read(key, 1, 10), [ended()], "the log");
    expectSame(await arrivedFor(first, key), parts("late"), "the inbox");
    await first.prune(forget);
    expectSame(await first.find(key, "with inbox"), undefined, "the run that was deleted");
    await create(first, 1);
    expectSame(await arrivedFor(first, key), [], "the inbox of a new run with its id");
  }),

  check("inbox: `moved` gives what has arrived, and each run without it once", async ({ first, second }) => {
    const [told, silent] = [await create(first, 1), await create(first, 2)];
    const known = [told, silent].map((key) => ({ key, epoch: 1, position: 1 }));
    await post(second, told, "a");
    await post(second, told, "b");
    const moved = await first.moved(known);
    expectSame(
      moved.map(({ key, epoch, position }) => ({ key, epoch, position })),
      known.slice(0, 1),
      "the runs",
    );
    expectSame(
      moved.flatMap(({ inbox = [] }) => entriesOf(inbox)),
      parts("a", "b"),
      "what has arrived",
    );
    await append(first, told, 1, write(parts("a", "b"), { takes: await idsOf(first, told) }));
    expectSame(await first.moved(known), [{ key: told, epoch: 1, position: 3 }], "the runs once it was taken");
  }),

  check("inbox: posts of one process keep their order, whatever else is written", async ({ first, second }) => {
    const key = await create(first, 1);
    const texts = Array.from({ length: 20 }, (_, n) => `${n}`);
    for (const text of texts) {
      await post(second, key, text);
      await post(first, key, `other ${text}`);
    }
    const said = await arrivedFor(first, key);
    expectSame(said, parts(...texts.flatMap((text) => [text, `other ${text}`])), "the inbox");
  }),
];

async function post(store: Store, key: RunKey, ...texts: readonly string[]): Promise<void> {
  expectWritten(await store.post(key, { entries: parts(...texts), due: "work" }), "post");
}

function entriesOf(inbox: readonly Arrived[]): readonly Entry[] {
  return inbox.flatMap(({ entries }) => entries);
}

async function arrivedFor(store: Store, key: RunKey): Promise<readonly Entry[]> {
  return entriesOf((await store.find(key, "with inbox"))?.inbox ?? []);
}

async function idsOf(store: Store, key: RunKey): Promise<readonly number[]> {
  return ((await store.find(key, "with inbox"))?.inbox ?? []).map(({ id }) => id);
}
