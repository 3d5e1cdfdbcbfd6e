import type { RunKey, RunPosition, StoreHint } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  createEnded,
  ended,
  head,
  LEASE_END,
  LEASE_MS,
  OWNER,
  over,
  parts,
  runId,
  runKey,
  sorted,
  waiting,
  write,
} from "./samples.ts";

const mismatch = { position: 3, expected: "ask#1", asked: "the agent returned \ud800" };
const blocked = waiting(null, { blocked: mismatch });

/** `moved`, `owned`, `blocked`, `backlog` and `watch`: what a process asks about many runs at once. */
export const workChecks: readonly StoreCheck[] = [
  check("moved: those with more entries or another epoch, as they are now", async ({ first, second }) => {
    const keys: RunKey[] = [];
    for (const n of [1, 2, 3, 4]) keys.push(await create(first, n));
    const [longer = runKey(1), taken = runKey(2), ends = runKey(3), same = runKey(4)] = keys;
    const known = keys.map((key): RunPosition => ({ key, epoch: 1, position: 1 }));
    expectSame(await second.moved(known), [], "what has moved before anything has");
    await append(first, longer, 1, write(parts("a", "b")));
    expectWritten(await first.claim(taken, { epoch: 1, position: 1 }, head({ epoch: 2, owner: "owner-2" })), "claim");
    await append(first, ends, 1, write([ended()], { head: over() }));
    await append(first, same, 1, write([], { head: head({ takeovers: 1 }) }));
    const moved = [
      { key: longer, epoch: 1, position: 3 },
      { key: taken, epoch: 2, position: 1 },
      { key: ends, epoch: 2, position: 2 },
    ];
    expectSame(sorted(await second.moved(known)), moved, "what has moved");
    expectSame(await second.moved(moved), [], "what has moved since");
    expectSame(await first.moved([]), [], "of no runs");
    await append(first, same, 1, write([], { head: waiting() }));
    expectWritten(await first.post(same, { entries: parts("post") }), "post");
    expectSame(await second.moved(known.slice(3)), [{ key: same, epoch: 1, position: 2 }], "what a post has moved");
  }),

  check(
    "moved: a missing run has position and epoch 0, and a run that has lost entries has moved",
    async ({ first }) => {
      const key = await create(first, 1);
      const known = [
        { key, epoch: 1, position: 5 },
        { key: { ...key, tenant: "other" }, epoch: 1, position: 1 },
        { key: runKey(2), epoch: 0, position: 0 },
      ];
      const moved = [
        { key, epoch: 1, position: 1 },
        { key: { ...key, tenant: "other" }, epoch: 0, position: 0 },
      ];
      expectSame(sorted(await first.moved(known)), moved, "what has moved");
    },
  ),

  check("moved: of a great many runs at once", async ({ first }) => {
    const numbers = Array.from({ length: 300 }, (_, n) => n);
    const keys = await Promise.all(numbers.map((n) => create(first, n)));
    await append(first, runKey(250), 1, write(parts("a")));
    const moved = await first.moved(keys.map((key) => ({ key, epoch: 1, position: 1 })));
    expectSame(moved, [{ key: runKey(250), epoch: 1, position: 2 }], "what has moved");
  }),

  check(
    "owned: the runs of an owner that have not ended, of all tenants, those created first",
    async ({ first, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      await create(first, 3, { created: { agent_name: "zebra" } });
      await create(first, 1, { tenant: "other", head: head({ status: "awaiting", due_at: 5 }) });
      await create(first, 2, { created: { agent_name: "ask", version: "1" }, head: head({ due_at: 1 }) });
      await create(first, 4, { head: head({ owner: "owner-2" }) });
      await create(first, 5, { head: waiting(NOW) });
      await createEnded(first, 6, NOW);
      const own = [runKey(3), runKey(1, "other"), runKey(2)];
      expectSame(await first.owned(OWNER, 9), own, "the runs of the owner");
      expectSame(await first.owned(OWNER, 2), own.slice(0, 2), "the first two");
      expectSame(await first.owned(OWNER, 0), [], "the first none");
      expectSame(await first.owned("no owner", 9), [], "the runs of an owner that has none");
      clock.set(LEASE_END);
      expectSame(await first.owned(OWNER, 9), own, "its runs once its lease has expired");
      await append(first, runKey(3), 1, write([], { head: waiting() }));
      expectSame(await first.owned(OWNER, 9), own.slice(1), "its runs once it has given one up");
    },
  ),

  check("blocked: runs without an owner that are blocked, of all tenants, those created first", async ({ first }) => {
    await create(first, 3, { head: blocked });
    await create(first, 1, { head: blocked, tenant: "other" });
    await create(first, 2, { head: head({ blocked: mismatch }) });
    await create(first, 4, { head: waiting() });
    await create(first, 5, { head: blocked, created: { version: "1" } });
    await create(first, 6, { head: blocked, created: { agent_name: "ask", version: "1" } });
    const ended = await create(first, 7, { head: blocked });
    await append(first, ended, 1, write([], { head: over(NOW, { blocked: mismatch }) }));
    await create(first, 1, { head: waiting() });
    const [run] = await first.blocked({ limit: 1 });
    expectSame(run, await first.find(runKey(3)), "the first, and what `find` gives");
    for (const [query, expected] of [
      [{}, [3, 1, 5, 6]],
      [{ limit: 2 }, [3, 1]],
      [{ limit: 0 }, []],
      [{ after: runKey(1, "other") }, [5, 6]],
      [{ after: runKey(4), limit: 1 }, [5]],
      [{ after: runKey(6) }, []],
      [{ after: runKey(99) }, [3, 1, 5, 6]],
      [{ agents: [] }, []],
      [{ agents: [{ agent_name: "echo", version: null }] }, [3, 1]],
      [
        {
          agents: [
            { agent_name: "ask", version: "1" },
            { agent_name: "echo", version: "1" },
          ],
        },
        [5, 6],
      ],
      [
        {
          agents: [
            { agent_name: "ask", version: "1" },
            { agent_name: "echo", version: null },
          ],
          limit: 2,
        },
        [3, 1],
      ],
    ] as const) {
      const found = await first.blocked({ limit: 9, ...query });
      expectSame(
        found.map(({ key }) => key.run_id),
        expected.map(runId),
        `blocked with ${JSON.stringify(query)}`,
      );
    }
    expectWritten(await first.claim(runKey(3), { epoch: 1, position: 1 }, head({ epoch: 2 })), "claim");
    expectSame((await first.blocked({ limit: 1 }))[0]?.key, runKey(1, "other"), "the first once one is claimed");
  }),

  check("backlog: the runs without a living owner, by agent and version", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    await first.renew("expires", 5);
    expectSame(await first.backlog(), [], "the backlog of an empty store");
    await create(first, 1, { head: waiting(NOW - 5) });
    await create(first, 2, { head: waiting(NOW - 9), tenant: "other" });
    await create(first, 3, { head: waiting(NOW + 6) });
    await create(first, 4, { head: waiting(null) });
    await create(first, 5, { head: blocked });
    await create(first, 6);
    await createEnded(first, 7, NOW);
    await create(first, 8, { head: head({ owner: "dead" }), created: { version: "1" } });
    await create(first, 9, { head: head({ owner: "expires" }), created: { agent_name: "ask" } });
    await create(first, 10, { head: blocked, created: { agent_name: "ask", version: "" } });
    const echo = { agent_name: "echo", version: null, due: 2, since: NOW - 9, waiting: 3, blocked: 1 };
    const dead = { agent_name: "echo", version: "1", due: 1, since: null, waiting: 0, blocked: 0 };
    const odd = { agent_name: "ask", version: "", due: 0, since: null, waiting: 1, blocked: 1 };
    expectSame(sorted(await first.backlog()), sorted([echo, dead, odd]), "the backlog");
    clock.set(NOW + 6);
    const later = { ...echo, due: 3, waiting: 2 };
    const expired = { agent_name: "ask", version: null, due: 1, since: NOW + 5, waiting: 0, blocked: 0 };
    expectSame(sorted(await first.backlog()), sorted([later, dead, odd, expired]), "the backlog later");
    await first.take({ owner: OWNER, agents: [{ agent_name: "echo", version: null }], limit: 9 });
    const left = { ...echo, due: 0, since: null, waiting: 2 };
    expectSame(sorted(await first.backlog()), sorted([left, dead, odd, expired]), "the backlog after a take");
  }),

  check(
    "watch: a store that has it takes any number of callbacks, and calls none of them once it is removed",
    async (stores) => {
      const { first, second } = stores;
      if (first.watch === undefined) return;
      const hints: StoreHint[] = [];
      const late: StoreHint[] = [];
      const stop = first.watch((hint) => {
        hints.push(hint);
      });
      const stopFailing = first.watch(() => {
        throw new Error("a callback that fails");
      });
      const stopLate = first.watch((hint) => {
        late.push(hint);
      });
      stopLate();
      const key = await create(second, 1);
      await append(second, key, 1, write(parts("a"), { head: waiting(NOW) }));
      stop();
      stopFailing();
      const heard = hints.length;
      await append(second, key, 2, write(parts("b")));
      expectSame(hints.length, heard, "how many hints came, after the last callback was taken off");
      expectSame(late.length, 0, "how many came to a callback that was taken off at once");
    },
  ),
];
