import { ASIDE_MS } from "../../core/pauses.ts";
import type { AgentVersion, RunHead } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, expectWritten, NOW } from "./check.ts";
import {
  append,
  create,
  ended,
  head,
  holders,
  LEASE_MS,
  OWNER,
  over,
  parts,
  runId,
  runKey,
  take,
  waiting,
  write,
} from "./samples.ts";

const echo: AgentVersion = { agent_name: "echo", version: null };
const ask: AgentVersion = { agent_name: "ask", version: "1" };
const ofAsk = { agent_name: "ask", version: "1" };
const one = { key: "session 1", max: 1 };
const holding = head({ holds_slot: true });
/** The head of a run that needs work. */
const queued: RunHead = head({ status: "created", owner: null, due_at: NOW });
const queuedAt = (due_at: number): RunHead => ({ ...queued, due_at });

/** Priorities: which of the due runs go first. */
export const priorityChecks: readonly StoreCheck[] = [
  check(
    "priorities: of the runs that are due, those of a higher priority are taken first, over all agents and tenants",
    async ({ first }) => {
      await create(first, 1, { head: queuedAt(NOW - 9), priority: -10 });
      await create(first, 2, { head: queuedAt(NOW - 8) });
      await create(first, 3, { head: queuedAt(NOW - 7), priority: 1, created: ofAsk });
      await create(first, 4, { head: queuedAt(NOW - 6), priority: 10, tenant: "other" });
      await create(first, 5, { head: queuedAt(NOW - 5), priority: -1, created: ofAsk });
      await create(first, 6, { head: queuedAt(NOW - 4), priority: 10, created: ofAsk });
      await create(first, 7, { head: queuedAt(NOW - 3), priority: 1 });
      const agents = [echo, ask];
      expectSame(await take(first, { agents, limit: 1 }), ids(4), "the first");
      expectSame(await take(first, { agents: [echo], limit: 1 }), ids(7), "the next one of an agent");
      expectSame(await take(first, { agents, limit: 3 }), ids(6, 3, 2), "the next three");
      expectSame(await take(first, { agents, limit: 9 }), ids(5, 1), "the others");
    },
  ),

  check(
    "priorities: runs of one priority are taken in the order of their times, then of their creation",
    async (stores) => {
      const { first } = stores;
      await create(first, 5, { head: queuedAt(NOW - 1), priority: 3 });
      await create(first, 1, { head: queuedAt(NOW - 2), priority: 3, created: ofAsk });
      await create(first, 3, { head: queuedAt(NOW - 2), priority: 3 });
      await create(first, 4, { head: queuedAt(NOW - 2), priority: -3 });
      await create(first, 2, { head: queuedAt(NOW - 9), priority: -3, created: ofAsk });
      expectSame(await take(first, { agents: [echo, ask], limit: 2 }), ids(1, 3), "the first two");
      expectSame(await take(first, { agents: [echo, ask] }), ids(5, 2, 4), "the others");
    },
  ),

  check(
    "priorities: a run has its priority from the time at which it is due, and hinders none before",
    async ({ first, clock }) => {
      await create(first, 1, { head: waiting(NOW + 5), priority: 9 });
      await create(first, 2, { head: queuedAt(NOW) });
      await create(first, 3, { head: queuedAt(NOW) });
      await create(first, 4, { head: waiting(null), priority: 9 });
      expectSame(await take(first, { limit: 1 }), ids(2), "taken before the time");
      clock.set(NOW + 4);
      expectSame(await take(first, { limit: 0 }), [], "the first none");
      clock.set(NOW + 5);
      expectSame(await take(first, { limit: 1 }), ids(1), "taken at the time");
      await create(first, 5, { head: queuedAt(NOW + 5), priority: 8 });
      expectWritten(await first.post(runKey(4), { entries: parts("message"), due: "work" }), "a post");
      expectSame(await take(first), ids(4, 5, 3), "taken once one was posted to");
    },
  ),

  check("priorities: a run keeps its priority", async ({ first, clock }) => {
    await create(first, 1, { head: queued, priority: 2 });
    expectSame(await take(first), ids(1), "taken");
    for (const [n, priority] of [
      [2, 3],
      [3, 2],
      [4, 1],
    ] as const)
      await create(first, n, { head: queuedAt(NOW), priority });
    await append(first, runKey(1), 1, write(parts("a"), { head: { ...waiting(NOW + 1), epoch: 2 } }), 2);
    clock.set(NOW + 1);
    expectSame(await take(first, { limit: 2 }), ids(2, 3), "taken before the one that was taken before");
    await append(first, runKey(3), 1, write(parts("a"), { head: waiting(null, { epoch: 2 }) }), 2);
    await create(first, 5, { head: over(), wake: runKey(3) });
    expectSame(await take(first), ids(1, 3, 4), "taken then, and one that was woken");
  }),

  check("priorities: runs of dead owners are taken by their priority among the others", async ({ first }) => {
    await create(first, 1, { head: head({ owner: "dead", due_at: NOW - 9 }), priority: -1 });
    await create(first, 2, { head: queuedAt(NOW - 5) });
    await create(first, 3, { head: head({ owner: "dead", due_at: NOW - 1 }), priority: 1 });
    await create(first, 4, { head: queuedAt(NOW - 3), priority: 1 });
    await create(first, 5, { head: queuedAt(NOW - 2), priority: 2 });
    expectSame(await take(first, { limit: 2 }), ids(5, 4), "the first two");
    expectSame(await take(first), ids(3, 2, 1), "the others");
  }),

  check(
    "priorities: a run joins a line in front of all of a lower priority, and behind those of its own",
    async ({ first, clock }) => {
      await first.renew(OWNER, LEASE_MS);
      await create(first, 1, { slot: one, head: holding });
      for (const [n, priority] of [0, -1, 5, 0, 5, -1, 6].entries()) {
        clock.set(NOW + n);
        await create(first, 2 + n, { slot: one, head: queuedAt(NOW + n), priority });
      }
      const [line] = await first.lines({ limit: 9 });
      const next = { key: runKey(8), agent_name: "echo", version: null, due_at: NOW + 6 };
      expectSame(line, { key: one.key, max: 1, held: 1, waiting: 7, first: next }, "the line");
      await append(first, runKey(1), 1, write([ended()], { head: over() }));
      const order: number[] = [];
      for (let left = 7; left > 0; left--) {
        const [holder = 0] = await holders(first, 8);
        order.push(holder);
        await append(first, runKey(holder), 1, write([ended()], { head: over() }));
      }
      expectSame(order, [8, 4, 6, 2, 5, 3, 7], "who has held the slot, in order");
    },
  ),

  check("priorities: a run that asks under its owner joins the line by its priority", async ({ first }) => {
    await create(first, 1, { slot: one, head: holding });
    await create(first, 2, { slot: one, asks: true });
    await create(first, 3, { slot: one, asks: true, priority: 1 });
    await create(first, 4, { slot: one, priority: 2 });
    await append(first, runKey(4), 1, write([], { asks: true }));
    const order: number[] = [];
    for (const n of [1, 4, 3]) {
      order.push(...(await holders(first, 4)));
      await append(first, runKey(n), 1, write([ended()], { head: over() }));
    }
    expectSame([...order, ...(await holders(first, 4))], [1, 4, 3, 2], "who has held the slot, in order");
  }),

  check(
    "priorities: a run of a dead owner that gets its permits in front of others has the next epoch",
    async ({ first }) => {
      await first.renew(OWNER, LEASE_MS);
      const [wide, other] = [
        { key: "session 1", max: 2 },
        { key: "session 2", max: 1 },
      ];
      await create(first, 1, { slot: wide, head: holding });
      await create(first, 2, { slot: one, head: queued });
      await create(first, 3, { slot: wide, head: head({ owner: "dead" }), priority: 1 });
      expectSame(await take(first), ids(3), "taken");
      await append(first, runKey(3), 1, write([ended()], { head: over(NOW, { epoch: 2 }) }), 2);
      await create(first, 4, { slots: [wide, other], head: head({ owner: "dead" }), priority: 1 });
      expectSame(await take(first), ids(4), "taken of those that need two permits");
      const after = (await first.find(runKey(4)))?.head;
      expectSame([after?.epoch, after?.takeovers], [2, 1], "its epoch, and how often it was taken over");
    },
  ),

  check("priorities: the backlog tells since when a run is due, whatever its priority", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    await create(first, 1, { head: queuedAt(NOW - 400), priority: -10 });
    await create(first, 2, { head: queuedAt(NOW - 500), priority: 10 });
    await create(first, 3, { head: waiting(NOW + 5), priority: 10 });
    await create(first, 4, { head: waiting(NOW + 5), priority: -10 });
    await create(first, 5, { slot: one, head: holding });
    await create(first, 6, { slot: one, head: queuedAt(NOW - 600), priority: -10 });
    const counted = { agent_name: "echo", version: null, due: 3, since: NOW - 600, waiting: 2, blocked: 0 };
    expectSame(await first.backlog(), [counted], "the backlog");
    clock.set(NOW + 5);
    expectSame(await first.backlog(), [{ ...counted, due: 5, waiting: 0 }], "the backlog at the time of the others");
  }),

  check("priorities: runs that were set aside come back with theirs", async ({ first }) => {
    for (const [n, priority] of [
      [1, -4],
      [2, 0],
      [3, 4],
    ] as const)
      await create(first, n, { head: waiting(ASIDE_MS + NOW - n), priority });
    expectSame(await take(first), [], "taken while they are set aside");
    expectSame(await first.comeBack(9), 3, "how many have come back");
    expectSame(
      [(await first.find(runKey(1)))?.head.due_at, (await first.find(runKey(3)))?.head.due_at],
      [NOW - 1, NOW - 3],
      "when two of them are due",
    );
    expectSame(await take(first), ids(3, 2, 1), "taken then");
  }),

  check(
    "priorities: what a take looks for after some time, it finds whatever the priority",
    async ({ first, clock }) => {
      await first.renew(OWNER, 1_000_000);
      const cancelling = head({ status: "cancelling", owner: null, due_at: NOW });
      const others = { agents: [echo], cancelledForMs: 100 };
      await create(first, 1, { created: ofAsk, head: cancelling, priority: -10 });
      await create(first, 2, { created: ofAsk, head: cancelling, priority: 10 });
      await create(first, 3, { created: { version: "old" }, slot: one, head: queued, priority: 10 });
      await create(first, 4, { slot: one, head: queued, priority: -10 });
      expectSame(await take(first, { ...others, unusedForMs: 100 }), [], "taken before the time");
      clock.set(NOW + 100);
      expectSame(await take(first, others), ids(2, 1), "cancelled runs, after it");
      expectSame(await take(first, { unusedForMs: 100 }), ids(4), "the run whose slot was not used, after it");
    },
  ),
];

function ids(...numbers: readonly number[]): readonly string[] {
  return numbers.map(runId);
}
