import type { PausedRuns } from "../../core/pauses.ts";
import { ASIDE_MS } from "../../core/pauses.ts";
import type { Store } from "../../core/ports.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, expectWritten, NOW } from "./check.ts";
import { append, create, head, holders, OWNER, over, runId, runKey, take, waiting, write } from "./samples.ts";

/** More than a store sets aside at once. */
const MANY = 300;

/** `pauses`, `pause`, `resume` and `comeBack`. */
export const pauseChecks: readonly StoreCheck[] = [
  check("pauses: all of them, the oldest first, each with its time and who has asked for it", async (stores) => {
    const { first, second, clock, reopen } = stores;
    expectSame(await first.pauses(), [], "the pauses of an empty store");
    expectSame(await first.pause({ agent_name: "echo" }, { user: "ann" }), true, "the first pause");
    clock.set(NOW + 5);
    expectSame(await second.pause({ agent_name: "a", version: "2", tenant: "acme" }, null), true, "the second pause");
    const pauses = [
      { agent_name: "echo", at: NOW, by: { user: "ann" } },
      { agent_name: "a", version: "2", tenant: "acme", at: NOW + 5, by: null },
    ];
    for (const store of [first, second]) expectSame(await store.pauses(), pauses, "the pauses");
    const again = await reopen?.();
    if (again !== undefined)
      expectSame(await again.first.pauses(), pauses, "the pauses after the data was opened again");
  }),

  check("pauses: the same runs are paused once, and resumed once", async ({ first, second, clock }) => {
    await first.pause({ agent_name: "echo" }, 1);
    clock.set(NOW + 5);
    expectSame(await second.pause({ agent_name: "echo" }, 2), false, "the pause of the same runs");
    expectSame(await first.pauses(), [{ agent_name: "echo", at: NOW, by: 1 }], "the pauses after it");
    expectSame(await second.resume({ agent_name: "echo" }), true, "the resume");
    expectSame(await first.resume({ agent_name: "echo" }), false, "the resume of the same runs");
    expectSame(await second.pauses(), [], "the pauses after it");
  }),

  check("pauses: one of the same runs becomes one with `now`, and keeps its time and who has asked", async (stores) => {
    const { first, second, clock } = stores;
    await first.pause({ agent_name: "echo" }, 1);
    await first.pause({ tenant: "acme", now: true }, null);
    clock.set(NOW + 5);
    expectSame(await second.pause({ agent_name: "echo", now: true }, 2), true, "the pause with `now`");
    expectSame(await first.pause({ agent_name: "echo", now: true }, 3), false, "the same once more");
    expectSame(await first.pause({ agent_name: "echo" }, 4), false, "the pause without `now`");
    const pauses = [
      { agent_name: "echo", now: true, at: NOW, by: 1 },
      { tenant: "acme", now: true, at: NOW, by: null },
    ];
    for (const store of [first, second]) expectSame(await store.pauses(), pauses, "the pauses after it");
    expectSame(await second.resume({ agent_name: "echo" }), true, "the resume");
    expectSame(await first.pauses(), pauses.slice(1), "the pauses after the resume");
  }),

  check("pauses: those that name other things are others", async ({ first }) => {
    const names: readonly PausedRuns[] = [
      { agent_name: "a" },
      { tenant: "a" },
      { agent_name: "a", version: null },
      { agent_name: "a", version: "a" },
      { agent_name: "a", tenant: "a" },
      { agent_name: "a", version: null, tenant: "a" },
      { agent_name: "a", version: "a", tenant: "a" },
      { tenant: "" },
      { agent_name: '"a\0\ud800', version: '"\0', tenant: '"a\0' },
    ];
    for (const runs of names) expectSame(await first.pause(runs, null), true, `the pause of ${JSON.stringify(runs)}`);
    const pauses = names.map((runs) => ({ ...runs, at: NOW, by: null }));
    expectSame(await first.pauses(), pauses, "the pauses");
    for (const [n, runs] of names.entries()) {
      expectSame(await first.resume(runs), true, `the resume of ${JSON.stringify(runs)}`);
      expectSame(await first.pauses(), pauses.slice(n + 1), "the pauses after it");
    }
  }),

  check(
    "pauses: runs that were set aside are not taken, and come back in their order",
    async ({ first, second, clock }) => {
      await aside(first, 1, NOW - 5);
      await aside(first, 2, NOW - 9);
      await aside(first, 3, NOW + 7);
      await create(first, 4, { head: waiting(NOW + 7) });
      clock.set(NOW + 2);
      expectSame(await take(second), [], "what is taken while they are set aside");
      expectSame(await second.comeBack(9), 3, "how many have come back");
      expectSame(await second.comeBack(9), 0, "how many come back then");
      expectSame((await first.find(runKey(2)))?.head.due_at, NOW - 9, "when the first of them is due");
      expectSame((await first.find(runKey(3)))?.head.due_at, NOW + 2, "when one is due whose time had not come");
      expectSame(await take(second), [runId(2), runId(1), runId(3)], "what is taken once they have come back");
    },
  ),

  check("pauses: so many come back as the caller allows, those that are due first", async ({ first }) => {
    for (const n of [1, 2, 3]) await aside(first, n, NOW - n);
    expectSame(await first.comeBack(2), 2, "how many have come back");
    expectSame(await take(first), [runId(3), runId(2)], "what is taken then");
    expectSame(await first.comeBack(2), 1, "how many come back then");
    expectSame(await take(first), [runId(1)], "what is taken at last");
  }),

  check("pauses: none comes back that a pause of its tenant covers", async ({ first, second }) => {
    const of = (agent_name: string, version?: string) => ({ created: { agent_name, ...(version && { version }) } });
    await aside(first, 1, NOW, of("a"));
    await aside(first, 2, NOW, of("a", "2"));
    await aside(first, 3, NOW, of("b"));
    await aside(first, 4, NOW, { ...of("a"), tenant: "other" });
    await aside(first, 5, NOW, { ...of("a"), tenant: "" });
    const agents = [
      ...["a", "b"].map((agent_name) => ({ agent_name, version: null })),
      { agent_name: "a", version: "2" },
    ];
    const back = async (): Promise<readonly string[]> => {
      await second.comeBack(9);
      return take(first, { agents });
    };
    await first.pause({ tenant: "acme" }, null);
    await first.pause({ tenant: "other", agent_name: "a" }, null);
    await first.pause({ tenant: "", agent_name: "a", version: null }, null);
    await first.pause({ tenant: "acme", agent_name: "a", version: "2" }, null);
    expectSame(await second.comeBack(9), 0, "how many come back while all of them are paused");
    await first.resume({ tenant: "acme" });
    await first.pause({ agent_name: "b" }, null);
    expectSame(await back(), [runId(1), runId(3)], "what comes back to one tenant, of all but one version");
    await first.resume({ tenant: "other", agent_name: "a" });
    expectSame(await back(), [runId(4)], "what comes back to another tenant");
    await first.resume({ tenant: "", agent_name: "a", version: null });
    await first.resume({ tenant: "acme", agent_name: "a", version: "2" });
    expectSame(await back(), [runId(2), runId(5)], "what comes back at last");
  }),

  check("pauses: a run that is woken or has an owner is not set aside any more", async ({ first, clock }) => {
    for (const n of [1, 2]) await aside(first, n, NOW);
    await first.claim(runKey(2), { epoch: 1, position: 1 }, head({ epoch: 2, owner: OWNER }));
    await first.renew(OWNER, 1_000);
    clock.set(NOW + 5);
    await first.post(runKey(1), { entries: [], due: "work" });
    expectSame((await first.find(runKey(1)))?.head.due_at, NOW + 5, "when the woken one is due");
    expectSame(await first.comeBack(9), 0, "how many come back");
    expectSame(await take(first), [runId(1)], "what is taken");
  }),

  check(
    "pauses: a take sets the due runs of a paused tenant aside, each with its own time, and gives those behind them",
    async ({ first, second, clock }) => {
      for (let n = 1; n <= MANY; n++) await create(first, n, { head: waiting(NOW - MANY + n) });
      await create(first, MANY + 1, { head: waiting(NOW), tenant: "other" });
      await create(first, MANY + 2, { head: waiting(NOW, { status: "cancelling" }) });
      await first.pause({ tenant: "acme", agent_name: "echo" }, null);
      expectSame(await take(second), [MANY + 1, MANY + 2].map(runId), "what is taken while the tenant is paused");
      expectSame(await take(second), [], "what is taken then");
      expectSame((await first.find(runKey(2)))?.head.due_at, ASIDE_MS + NOW - MANY + 2, "when a paused one is due");
      clock.set(NOW + 5);
      await second.resume({ tenant: "acme", agent_name: "echo" });
      let back = 0;
      for (let more = 1; more > 0; back += more) more = await second.comeBack(MANY);
      expectSame(back, MANY, "how many have come back");
      const ids = Array.from({ length: MANY }, (_, index) => runId(index + 1));
      expectSame(await take(first, { limit: MANY }), ids, "what is taken once they have come back");
    },
  ),

  check(
    "pauses: a run that is set aside gives its permit to the next, and needs one when it is back",
    async ({ first }) => {
      const slot = { key: "session 1", max: 1 };
      await create(first, 1, { slot, head: head({ holds_slot: true }) });
      await create(first, 2, { slot, head: waiting(NOW) });
      await append(first, runKey(1), 1, write([], { head: waiting(ASIDE_MS + NOW - 1) }));
      await first.pause({ tenant: "acme" }, null);
      expectSame(await take(first), [runId(2)], "what is taken while the first one is set aside");
      await first.resume({ tenant: "acme" });
      expectSame(await first.comeBack(9), 1, "how many come back");
      expectSame(await take(first), [], "what is taken while the other one holds the permit");
      const { epoch = 0 } = (await first.find(runKey(2)))?.head ?? {};
      const gives = write([], { head: waiting(null, { epoch }) });
      expectWritten(await first.append(runKey(2), { epoch, position: 1 }, gives), "the write that gives it back");
      expectSame(await take(first), [runId(1)], "what is taken once the permit is free");
    },
  ),

  check(
    "pauses: what a run of a paused agent or version gets of a slot goes to those of others at once",
    async ({ first, second, clock }) => {
      const slot = { key: ":shared", max: 1 };
      const due = head({ status: "created", owner: null, due_at: NOW });
      const of = (agent_name: string, version?: string) => ({
        created: { agent_name, ...(version && { version }) },
        head: due,
        slot,
      });
      const end = async (n: number, epoch = 2) =>
        append(first, runKey(n), 1, write([], { head: over(NOW, { epoch: epoch + 1 }) }), epoch);
      await first.renew(OWNER, 1_000_000);
      await create(first, 1, { slot, head: head({ holds_slot: true }) });
      await create(first, 2, of("a"));
      await create(first, 3, of("a"));
      await create(first, 4, of("b", "1"));
      for (const n of [5, 6]) await create(first, n, of("echo"));
      await second.pause({ agent_name: "a" }, null);
      clock.set(NOW + 100_000);
      await end(1, 1);
      expectSame(await holders(first, 6), [2], "who gets the permit of the first run");
      expectSame(await take(first), [], "what is taken while the run behind the paused one holds it");
      expectSame(await holders(first, 6), [4], "who holds it then");
      await second.pause({ agent_name: "b", version: "1" }, null);
      expectSame(await take(first), [runId(5)], "what is taken once the version is paused");
      await create(first, 7, { ...of("b", "2"), slot: { ...slot, key: ":versions" } });
      await create(first, 8, { ...of("echo"), slot: { ...slot, key: ":versions" } });
      expectSame(await take(first), [], "what is taken while a run of another version holds the permit");
      await second.resume({ agent_name: "a" });
      const a = { agents: [{ agent_name: "a", version: null }] };
      expectSame(await take(first, a), [], "what is taken of the agent that was resumed");
      expectSame((await first.lines({ limit: 9 }))[0]?.waiting, 3, "how many wait then for the shared slot");
      await end(5);
      expectSame(await take(first, a), [runId(3)], "what is taken of it once the permit is free");
    },
  ),

  check(
    "pauses: a run of a paused agent keeps its permit while none but runs of its version wait, and one of a dead owner gives it back",
    async ({ first, clock }) => {
      const due = head({ status: "created", owner: null, due_at: NOW });
      const paused = { created: { agent_name: "a" }, slot: { key: ":shared", max: 1 } };
      await first.renew(OWNER, 1_000);
      const key = await create(first, 1, { ...paused, head: head({ holds_slot: true }) });
      await create(first, 2, { ...paused, head: due });
      await first.pause({ agent_name: "a" }, null);
      await first.pause({ agent_name: "echo", tenant: "other" }, null);
      clock.set(NOW + 999);
      await create(first, 3, { slot: paused.slot, head: due });
      expectSame(await take(first), [], "what is taken while its owner lives");
      clock.set(NOW + 1_000);
      expectSame(await take(first), [runId(3)], "what is taken once its owner is dead");
      const left = head({ owner: null, epoch: 2, takeovers: 1, due_at: NOW + 1_000 });
      expectSame((await first.find(key))?.head, left, "the head of the paused run");
      await create(first, 4, { ...paused, slot: { key: ":own", max: 1 }, head: due });
      await create(first, 5, { ...paused, slot: { key: ":own", max: 1 }, head: due });
      expectSame(await take(first), [], "what is taken then");
      expectSame(await holders(first, 5), [3, 4], "who holds slots at last");
    },
  ),
];

/** A run that was set aside, and is due at a time once it is back. */
async function aside(store: Store, n: number, due_at: number, more: Parameters<typeof create>[2] = {}): Promise<void> {
  await create(store, n, { head: waiting(ASIDE_MS + due_at), ...more });
}
