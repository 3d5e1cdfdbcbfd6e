import type { AgentVersion, RunHead } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectConflict, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  createEnded,
  head,
  LEASE_END,
  LEASE_MS,
  OWNER,
  over,
  parts,
  runId,
  runKey,
  TAKER,
  take,
  waiting,
  write,
} from "./samples.ts";

const echo: AgentVersion = { agent_name: "echo", version: null };
/** An owner without a lease. */
const dead: Partial<RunHead> = { owner: "dead" };

/** `take`: which runs need work, which owner gets them, and in which order. */
export const takeChecks: readonly StoreCheck[] = [
  check("take: a run without an owner, from the time at which it is due", async ({ first, clock }) => {
    await create(first, 1, { head: waiting(NOW) });
    await create(first, 2, { head: waiting(NOW + 1) });
    await create(first, 3, { head: waiting(null) });
    await create(first, 4, { head: head({ status: "created", owner: null, due_at: NOW + 2 }) });
    await create(first, 5, { head: head({ owner: null }) });
    clock.set(NOW - 1);
    expectSame(await take(first), [], "taken before the first is due");
    clock.set(NOW);
    expectSame(await take(first), ids(1), "taken when the first is due");
    clock.set(NOW + 2);
    expectSame(await take(first), ids(2, 4), "taken when two more are due");
    expectSame(await take(first), [], "taken when nothing is due");
  }),

  check("take: a run whose owner's lease has expired or never existed, in any status", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    await create(first, 1);
    await create(first, 2, { head: head({ status: "awaiting" }) });
    await create(first, 3, { head: head({ ...dead, status: "created" }) });
    await create(first, 4, { head: head({ ...dead, status: "cancelling", due_at: NOW + 99 }) });
    clock.set(LEASE_END - 1);
    expectSame(await take(first), ids(3, 4), "taken while the owner lives");
    clock.set(LEASE_END);
    expectSame(await take(first), ids(1, 2), "taken when its lease expires");
    await create(first, 5);
    await first.release(OWNER);
    expectSame(await take(first), ids(5), "taken after a release");
  }),

  check(
    "take: the caller becomes the owner in a higher epoch, and the run is returned as it is then",
    async ({ first, second, clock }) => {
      const key = await create(first, 1, { head: waiting(NOW - 5, { epoch: 7, takeovers: 1 }) });
      await append(first, key, 1, write(parts("a"), { head: waiting(NOW - 5, { epoch: 7, takeovers: 1 }) }), 7);
      clock.set(NOW + 3);
      const [run] = await second.take({ owner: TAKER, agents: [echo], limit: 9 });
      const taken = waiting(NOW - 5, { owner: TAKER, epoch: 8, takeovers: 1, due_at: NOW + 3 });
      expectSame(run?.head, taken, "the head that is told");
      expectSame(run, await first.find(key), "the run that is told, and what `find` gives");
      expectSame(await first.read(key, 1, 9), parts("a"), "its entries");
      const late = await first.append(key, { epoch: 7, position: 2 }, write(parts("late")));
      expectConflict(late, { conflict: "changed", epoch: 8, position: 2 }, "a write of the epoch before");
      await append(first, key, 2, write(parts("b"), { head: taken }), 8);
    },
  ),

  check("take: counts a take-over only if the run had an owner", async ({ first }) => {
    await create(first, 1, { head: waiting(NOW, { takeovers: 2 }) });
    await create(first, 2, { head: head({ ...dead, takeovers: 2 }) });
    const taken = await first.take({ owner: TAKER, agents: [echo], limit: 9 });
    const counts = taken.map(({ key, head }) => [key.run_id, head.takeovers]);
    expectSame(
      counts,
      [
        [runId(2), 3],
        [runId(1), 2],
      ],
      "the take-overs of the two",
    );
  }),

  check("take: only runs of these agents, and of these versions of them", async ({ first }) => {
    for (const [n, agent_name, version] of [
      [1, "echo", undefined],
      [2, "echo", "1"],
      [3, "echo", "2"],
      [4, "ask", undefined],
      [5, "ask", "1"],
      [6, "ECHO", "1"],
    ] as const) {
      const created = { agent_name, ...(version !== undefined && { version }) };
      await create(first, n, { created, head: waiting(NOW) });
      await create(first, n + 10, { created, head: head(dead) });
    }
    expectSame(await take(first, { agents: [] }), [], "taken without agents");
    expectSame(await take(first, { agents: [{ agent_name: "none", version: null }] }), [], "taken of an unknown agent");
    expectSame(await take(first, { agents: [{ agent_name: "echo", version: "" }] }), [], "taken of an empty version");
    expectSame(await take(first, { agents: [{ agent_name: "echo", version: "1" }] }), ids(12, 2), "taken of a version");
    const two = [{ agent_name: "echo", version: "2" }, echo, echo];
    expectSame(await take(first, { agents: two }), ids(11, 13, 1, 3), "taken of two versions, one of them named twice");
    expectSame(
      await take(first, { agents: [{ agent_name: "ask", version: null }] }),
      ids(14, 4),
      "taken of another agent",
    );
  }),

  check("take: never a run that has ended, whose owner lives, or that is blocked", async ({ first, clock }) => {
    await first.renew(OWNER, Number.POSITIVE_INFINITY);
    await createEnded(first, 1, NOW, { head: head(dead) });
    const key = await create(first, 2, { head: waiting(NOW) });
    await append(first, key, 1, write(parts("a"), { head: over(NOW, { due_at: 1, owner: "dead" }) }));
    await create(first, 3, { head: head({ due_at: 1 }) });
    await create(first, 4, { head: waiting(null, { blocked: { position: 1, expected: "a", asked: "b" } }) });
    clock.set(NOW + 1_000_000);
    expectSame(await take(first), [], "taken");
  }),

  check(
    "take: of all tenants, those due first, then those created first, and no more than requested",
    async ({ first }) => {
      await create(first, 5, { head: waiting(NOW - 1) });
      await create(first, 3, { head: head({ ...dead, due_at: NOW - 5 }), tenant: "other" });
      await create(first, 4, { head: waiting(NOW - 5) });
      await create(first, 1, { head: waiting(NOW - 9), tenant: "third" });
      await create(first, 2, { head: head(dead) });
      await create(first, 6, { head: waiting(NOW - 1), created: { agent_name: "ask" } });
      await create(first, 8, { head: head({ owner: "gone", due_at: NOW - 9 }) });
      await create(first, 7, { head: waiting(NOW - 5) });
      const agents = [{ agent_name: "ask", version: null }, echo];
      expectSame(await take(first, { agents, limit: 0 }), [], "the first none");
      expectSame(await take(first, { agents, limit: 1 }), ids(2), "the first");
      expectSame(await take(first, { agents, limit: 3 }), ids(1, 8, 3), "the next three");
      expectSame(await take(first, { agents, limit: 9 }), ids(4, 7, 5, 6), "the others");
    },
  ),

  check("take: a great many, in pages", async ({ first }) => {
    const numbers = Array.from({ length: 120 }, (_, n) => n);
    await Promise.all(
      numbers.map((n) => create(first, n, { head: n % 2 === 0 ? waiting(NOW) : head({ ...dead, due_at: NOW }) })),
    );
    const taken: string[] = [];
    for (let page = 0; page < 4; page++) taken.push(...(await take(first, { limit: 50 })));
    expectSame(taken, ids(...numbers), "taken");
  }),

  check("take: concurrent callers get different runs", async ({ first, second }) => {
    const numbers = Array.from({ length: 12 }, (_, n) => n);
    for (const n of numbers) await create(first, n, { head: n % 2 === 0 ? waiting(NOW) : head(dead) });
    await Promise.all(["a", "b", "c", "d"].map((owner) => first.renew(owner, LEASE_MS)));
    const takes = ["a", "b", "c", "d"].map(async (owner, n) => {
      const taken = await (n % 2 === 0 ? first : second).take({ owner, agents: [echo], limit: 4 });
      for (const run of taken) expectSame(run.head.owner, owner, "the owner that is told");
      return taken.map(({ key }) => key.run_id);
    });
    const all = (await Promise.all(takes)).flat();
    expectSame(all.toSorted(), ids(...numbers), "what the four have taken");
  }),

  check(
    "take: what has been taken is not taken again while its owner lives, and a claim of it is refused",
    async ({ first, clock }) => {
      const key = await create(first, 1, { head: waiting(NOW) });
      expectSame(await take(first, { forMs: LEASE_MS }), ids(1), "taken");
      clock.set(LEASE_END - 1);
      expectSame(await take(first, { owner: "owner-3" }), [], "taken by another");
      const claim = await first.claim(key, { epoch: 2, position: 1 }, head({ epoch: 3, owner: "owner-3" }));
      expectConflict(claim, { conflict: "owned" }, "a claim");
      clock.set(LEASE_END);
      expectSame(await take(first, { owner: "owner-3" }), ids(1), "taken by another when the lease has expired");
      expectSame((await first.find(key))?.head.takeovers, 1, "its take-overs");
    },
  ),

  check("take: follows what is written, posted and woken", async ({ first, clock }) => {
    await first.renew(OWNER, 1_000);
    const key = await create(first, 1, { head: waiting(NOW + 5) });
    expectWritten(await first.claim(key, { epoch: 1, position: 1 }, head({ epoch: 2 })), "claim");
    clock.set(NOW + 5);
    expectSame(await take(first), [], "taken while it has an owner");
    await append(first, key, 1, write(parts("a"), { head: waiting(NOW + 9, { epoch: 2 }) }), 2);
    expectSame(await take(first), [], "taken before the next time");
    expectWritten(await first.post(key, { entries: parts("b"), due: "work" }), "post");
    expectSame(await take(first), ids(1), "taken after a post");
    await append(first, key, 3, write(parts("c"), { head: waiting(null, { epoch: 3 }) }), 3);
    expectSame(await take(first), [], "taken while it waits for an event");
    await create(first, 2, { head: over(), wake: key });
    expectSame(await take(first), ids(1), "taken after a wake-up");
    await append(first, key, 4, write(parts("d"), { head: over(NOW, { epoch: 5 }) }), 4);
    expectSame(await take(first), [], "taken once it has ended");
  }),

  check(
    "take: a lease that another process meets lasts no longer than requested, also if the clock was set back",
    async (stores) => {
      const { first, second, clock } = stores;
      await first.renew(OWNER, LEASE_MS);
      await create(first, 1);
      clock.set(NOW - 1_000_000);
      expectSame(await take(second), [], "taken once the clock is back");
      clock.set(NOW - 1_000_000 + LEASE_MS - 1);
      expectSame(await take(second), [], "taken a moment before");
      clock.set(NOW - 1_000_000 + LEASE_MS);
      expectSame(await take(second), ids(1), "taken a lease later");
    },
  ),

  check("take: no more suspects than requested, and the other runs as usual", async ({ first }) => {
    const suspect = { ...dead, takeovers: 2 };
    for (const n of [1, 2, 3]) await create(first, n, { head: head({ ...suspect, due_at: n }) });
    await create(first, 4, { head: head({ ...dead, due_at: 4, takeovers: 1 }) });
    await create(first, 5, { head: waiting(NOW, { takeovers: 3 }) });
    await create(first, 6, { head: waiting(NOW) });
    const suspects = { takeovers: 2, limit: 0 };
    expectSame(await take(first, { suspects, limit: 1 }), ids(4), "taken without suspects");
    expectSame(await take(first, { suspects: { ...suspects, limit: 1 } }), ids(1, 6), "taken with one suspect");
    expectSame(await take(first, { suspects: { ...suspects, limit: 2 }, limit: 1 }), ids(2), "taken with room for one");
    expectSame(await take(first), ids(3, 5), "taken when suspects are as others");
  }),

  check(
    "take: with cancelledForMs, cancelling runs of other agents, once no process has taken them for so long",
    async (stores) => {
      const { first, clock } = stores;
      const cancelling = { status: "cancelling", owner: null } as const;
      const other = { agent_name: "ask", version: "9" };
      await first.renew(OWNER, 10);
      await create(first, 1, { created: other, head: head({ ...cancelling, due_at: NOW }) });
      await create(first, 2, { created: other, head: waiting(NOW) });
      await create(first, 3, { created: other, head: head({ ...cancelling, due_at: null }) });
      await create(first, 4, { created: other, head: head({ status: "cancelling", due_at: NOW + 1 }) });
      await create(first, 5, { created: other, head: head({ ...dead, status: "cancelling", due_at: NOW + 2 }) });
      await create(first, 6, { created: other, head: head(dead) });
      await create(first, 7, { head: head({ ...cancelling, due_at: NOW + 200 }) });
      clock.set(NOW + 99);
      expectSame(await take(first), [], "taken without the option");
      expectSame(
        await take(first, { cancelledForMs: 100 }),
        ids(5),
        "taken before the time: one whose owner has no lease",
      );
      clock.set(NOW + 109);
      expectSame(await take(first, { cancelledForMs: 100 }), ids(1), "taken once the first was due for so long");
      clock.set(NOW + 110);
      expectSame(await take(first, { cancelledForMs: 100 }), ids(4), "taken once the owner was dead for so long");
      clock.set(NOW + 200);
      expectSame(await take(first, { cancelledForMs: 100 }), ids(7), "taken of an agent that is there, at once");
    },
  ),

  check(
    "take: a run of another agent whose owner is dead, if it is not durable: no code is needed to end it",
    async ({ first, clock }) => {
      const plain = { isPlain: true, created: { agent_name: "ask", version: "9" } };
      await first.renew(OWNER, LEASE_MS);
      await create(first, 1, { ...plain, head: head({ ...dead, due_at: NOW + 2 }) });
      await create(first, 2, { ...plain, head: head({ ...dead, status: "cancelling", due_at: NOW + 1 }) });
      await create(first, 3, { ...plain, tenant: "other", head: head({ ...dead, status: "awaiting", due_at: NOW }) });
      await create(first, 4, { ...plain, head: head() });
      await create(first, 5, { ...plain, head: head({ status: "created", owner: null, due_at: NOW }) });
      await create(first, 6, { created: plain.created, head: head(dead) });
      await create(first, 7, { isPlain: true, head: head({ ...dead, due_at: NOW + 3 }) });
      expectWritten(await first.post(runKey(1), { entries: parts("arrived") }), "a post");
      expectSame(await take(first, { limit: 1 }), ids(3), "taken first");
      expectSame(await take(first), ids(2, 1, 7), "taken with those of the agent");
      expectSame((await first.find(runKey(1)))?.position, 2, "the length of the one for which something has arrived");
      clock.set(LEASE_END);
      expectSame(await take(first, { agents: [] }), ids(4), "taken when the lease of its owner has expired");
      expectSame((await first.find(runKey(4)))?.head.takeovers, 1, "its take-overs");
    },
  ),
];

function ids(...numbers: readonly number[]): readonly string[] {
  return numbers.map((n) => runKey(n).run_id);
}
