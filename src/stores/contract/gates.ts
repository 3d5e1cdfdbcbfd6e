import { ASIDE_MS } from "../../core/pauses.ts";
import type { RunHead, Store } from "../../core/ports.ts";
import { FEW_THROUGH, MOST_THROUGH } from "../gates.ts";
import type { CheckClock, StoreCheck } from "./check.ts";
import { check, expectSame, expectWritten, NOW } from "./check.ts";
import { append, create, ended, head, holders, over, parts, runId, runKey, take, waiting, write } from "./samples.ts";

/** A key may be any text. */
const GATE = '~echo/"\0/\ud800';
const one = { key: "session 1", max: 1 };
/** The head of a run that needs work. */
const queued: RunHead = head({ status: "created", owner: null, due_at: NOW });
const queuedAt = (due_at: number): RunHead => ({ ...queued, due_at });
/** Runs behind a gate, beside those that are through. */
const MORE = 6;
/** As many runs of a gate as are through, and a few more. */
const CROWD = MOST_THROUGH + MORE;
const cancel = { entries: parts("cancel"), status: "cancelling", due: "look" } as const;

/** Gates: a customer with many runs does not hold up others. */
export const gateChecks: readonly StoreCheck[] = [
  check("gates: a customer with many due runs does not hold up others, who come later", async ({ first, clock }) => {
    await crowd(first, upTo(300));
    clock.set(NOW + 1);
    const others = upTo(9, 1_000);
    for (const n of others) await create(first, n, { gate: `other ${n}`, tenant: "other", head: queuedAt(NOW + 1) });
    const taken = await takeAll(first, clock, 10);
    expectFew(taken, others);
    expectSame(taken.toSorted(), [...upTo(300), ...others].map(runId).toSorted(), "taken in all");
  }),

  check("gates: nor in a line that all of them stand in", async ({ first, clock }) => {
    await crowd(first, upTo(200), { slot: one });
    clock.set(NOW + 1);
    await create(first, 1_000, { gate: "other", tenant: "other", slot: one, head: queuedAt(NOW + 1) });
    const order: string[] = [];
    for (let later = 2; !order.includes(runId(1_000)) && later < 300; later++) {
      clock.set(NOW + later);
      for (const run of await first.take(request(1))) {
        order.push(run.key.run_id);
        const over_ = write([ended()], { head: over(NOW, { epoch: run.head.epoch + 1 }) });
        expectWritten(await first.append(run.key, { epoch: run.head.epoch, position: 1 }, over_), "the end of a run");
      }
    }
    expectFew(order, [1_000]);
  }),

  check("gates: the runs of one are taken in their order, each of them once", async ({ first, clock }) => {
    const numbers = upTo(3 * CROWD);
    await crowd(first, numbers);
    expectSame(await takeAll(first, clock, 40), numbers.map(runId), "taken");
  }),

  check("gates: a run that is let through is not in front of what was due before", async ({ first, clock }) => {
    const numbers = upTo(CROWD);
    await crowd(first, numbers);
    await first.take({ ...request(MOST_THROUGH), owner: "dead" });
    clock.set(NOW + 1);
    expectSame(
      await take(first, { limit: CROWD }),
      numbers.map(runId),
      "taken from the dead owner, and of those behind",
    );
  }),

  check("gates: a run whose permits are freed stays where it is among the due ones", async ({ first, clock }) => {
    const version = "1";
    await crowd(first, upTo(3), { slot: { key: "two", max: 2 }, created: { version } });
    clock.set(NOW + 1);
    expectSame(await take(first, { unusedForMs: 0 }), [], "taken of another version");
    const own = { agents: [{ agent_name: "echo", version }] };
    expectSame(await take(first, own), upTo(2).map(runId), "taken of its version");
  }),

  check("gates: concurrent takes give all runs of one, each of them once", async ({ first, second, clock }) => {
    const numbers = upTo(2 * CROWD);
    await crowd(first, numbers);
    const taken: string[] = [];
    for (let later = 1; later < 20; later++) {
      clock.set(NOW + later);
      const given = await Promise.all([first, second, first, second].map((store) => take(store, { limit: 10 })));
      taken.push(...given.flat());
    }
    expectSame(taken.toSorted(), numbers.map(runId).toSorted(), "taken by the four");
  }),

  check("gates: a run behind one can be claimed, ended, posted to and looked at", async ({ first, clock }) => {
    await crowd(first, upTo(CROWD));
    const [claimed, ends, posted, looked, cancelled] = upTo(5, MOST_THROUGH) as [
      number,
      number,
      number,
      number,
      number,
    ];
    const owned = head({ epoch: 2, due_at: NOW });
    expectWritten(await first.claim(runKey(claimed), { epoch: 1, position: 1 }, owned), "a claim");
    await append(first, runKey(ends), 1, write([ended()], { head: over() }));
    expectWritten(await first.post(runKey(posted), { entries: parts("message"), due: "work" }), "a post");
    expectWritten(await first.post(runKey(looked), { entries: parts("answer"), due: "look" }), "a post for a look");
    expectWritten(await first.post(runKey(cancelled), cancel), "a cancel");
    expectSame((await first.find(runKey(posted)))?.position, 2, "the length of one that was posted to");
    await first.renew(owned.owner ?? "", 1_000_000);
    const taken = [...(await take(first, { limit: CROWD }))];
    expectSame(
      [looked, cancelled].filter((n) => !taken.includes(runId(n))),
      [],
      "what was not taken at once",
    );
    taken.push(...(await takeAll(first, clock, CROWD)));
    const left = upTo(CROWD).filter((n) => n !== claimed && n !== ends);
    expectSame(taken.toSorted(), left.map(runId), "taken in all");
  }),

  check("gates: the next ones come also if those before them have left without a take", async ({ first, clock }) => {
    await crowd(first, upTo(CROWD));
    for (const n of upTo(MOST_THROUGH)) await append(first, runKey(n), 1, write([ended()], { head: over() }));
    expectSame(await takeAll(first, clock, 9), upTo(MORE, MOST_THROUGH).map(runId), "taken");
  }),

  check("gates: a run that holds its permits passes, and so does one whose time comes", async ({ first, clock }) => {
    await crowd(first, upTo(MOST_THROUGH));
    const [holds, sleeps] = [1_000, 1_001];
    await create(first, holds, { gate: GATE, slot: one, head: { ...queued, holds_slot: true } });
    await create(first, sleeps, { gate: GATE, head: waiting(NOW + 5) });
    clock.set(NOW + 5);
    const taken = await take(first, { limit: 2 * CROWD });
    expectSame(
      [holds, sleeps].filter((n) => !taken.includes(runId(n))),
      [],
      "what was not taken",
    );
  }),

  check("gates: runs that are woken, posted to or given back pass it as new ones do", async ({ first, clock }) => {
    const numbers = upTo(4 * CROWD);
    await Promise.all(numbers.map((n) => create(first, n, { gate: GATE, head: n % 3 === 0 ? head() : waiting() })));
    for (const n of numbers) {
      if (n % 3 === 0) await append(first, runKey(n), 1, write([], { head: waiting(NOW) }));
      else if (n % 3 === 1) await append(first, runKey(0), 1, write([], { head: waiting(NOW), wake: runKey(n) }));
      else expectWritten(await first.post(runKey(n), { entries: parts("message"), due: "work" }), "a post");
    }
    clock.set(NOW + 1);
    await create(first, 1_000, { gate: "other", tenant: "other", head: queuedAt(NOW + 1) });
    const taken = await takeAll(first, clock, 10);
    expectFew(taken, [1_000]);
    expectSame(taken.toSorted(), [...numbers, 1_000].map(runId).toSorted(), "taken in all");
  }),

  check("gates: the runs behind one are counted as due", async ({ first }) => {
    await crowd(first, upTo(CROWD));
    const counted = { agent_name: "echo", version: null, due: CROWD, since: NOW, waiting: 0, blocked: 0 };
    expectSame(await first.backlog(), [counted], "the backlog");
  }),

  check("gates: many runs that were set aside come back, and all of them are taken", async ({ first, clock }) => {
    await crowd(first, upTo(CROWD), { head: waiting(ASIDE_MS + NOW) });
    expectSame(await first.comeBack(2 * CROWD), CROWD, "how many have come back");
    expectSame((await takeAll(first, clock, CROWD)).toSorted(), upTo(CROWD).map(runId), "taken");
  }),

  check("lines: gates are not shown", async ({ first, clock }) => {
    await crowd(first, upTo(CROWD));
    expectSame(await first.lines({ limit: 9 }), [], "the lines beside a gate");
    const slotted = upTo(CROWD, 1_000);
    await crowd(first, slotted, { slot: one, gate: "another" });
    const lines = await first.lines({ limit: 9 });
    expectSame(
      lines.map(({ key, held }) => [key, held]),
      [[one.key, 1]],
      "the lines",
    );
    expectSame(await holders(first, 1_000), [1_000], "who holds the slot");
    clock.set(NOW + 1);
    await append(first, runKey(1_000), 1, write([ended()], { head: over() }));
    expectSame(await holders(first, 1_001), [1_001], "who holds it then");
  }),
];

/** So many numbers, from one on. */
function upTo(count: number, from = 0): readonly number[] {
  return Array.from({ length: count }, (_, n) => from + n);
}

/** Creates due runs of one gate, in order. */
async function crowd(store: Store, numbers: readonly number[], more: Parameters<typeof create>[2] = {}): Promise<void> {
  await Promise.all(numbers.map((n) => create(store, n, { gate: GATE, head: queued, ...more })));
}

const request = (limit: number) => ({ owner: "owner-2", agents: [{ agent_name: "echo", version: null }], limit });

/** Takes all that is due, so many at a time, while time passes. A store may find the next of a gate with a second take. */
async function takeAll(store: Store, clock: CheckClock, limit: number): Promise<string[]> {
  const taken: string[] = [];
  for (let empty = 0; empty < 2; ) {
    clock.set(clock.now() + 1);
    const given = await take(store, { limit });
    taken.push(...given);
    empty = given.length === 0 ? empty + 1 : 0;
  }
  return taken;
}

/** Throws unless these were among the first: few of a crowd come before them. */
function expectFew(taken: readonly string[], numbers: readonly number[]): void {
  const last = Math.max(...numbers.map((n) => taken.indexOf(runId(n))));
  const isMissing = numbers.some((n) => !taken.includes(runId(n)));
  const most = MOST_THROUGH + FEW_THROUGH + numbers.length;
  if (isMissing || last > most)
    throw new Error(`the others: expected to be taken among the first ${most}, were ${last}`);
}
