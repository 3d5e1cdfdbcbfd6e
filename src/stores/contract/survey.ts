import type { Store } from "../../core/ports.ts";
import { COUNTED } from "../../core/ports.ts";
import type { SurveyQuery } from "../../core/survey.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import {
  append,
  create,
  created,
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

/** `survey`, `tails`, `census` and `workers`: what operators ask about the runs of all tenants. */
export const surveyChecks: readonly StoreCheck[] = [
  check("survey: the runs of all tenants, the newest first, each once in pages of any size", async ({ first }) => {
    const numbers = [1, 2, 3, 4, 5, 6, 7];
    for (const n of numbers) await create(first, n, { tenant: n % 3 === 0 ? "" : `tenant ${n % 3}`, head: waiting() });
    const expected = numbers.toReversed().map(runId);
    for (const limit of [1, 2, 3, 6, 7, 8, 100])
      expectSame(await surveyed(first, { limit }), expected, `pages of ${limit}`);
    const { runs, next } = await first.survey({ limit: 100 });
    expectSame(runs[0], await first.find(runKey(7, "tenant 1")), "a run of the page");
    expectSame(next, null, "what follows a page that has all runs");
  }),

  check("survey: a page continues behind a run that is deleted, while others are added", async ({ first }) => {
    for (const n of [1, 2, 3, 4]) await createEnded(first, n, NOW + n);
    const page = await first.survey({ limit: 2 });
    await first.delete([runKey(3)]);
    for (const n of [5, 6]) await create(first, n);
    const rest = await first.survey({ limit: 9, after: page.next ?? 0 });
    const ids = [...page.runs, ...rest.runs].map(({ key }) => key.run_id);
    expectSame(ids, [4, 3, 2, 1].map(runId), "the runs of both pages");
  }),

  check("survey: by every condition, and by several", async ({ first }) => {
    await create(first, 1, { tenant: "", head: waiting(), created: { at: NOW, labels: { order: "7", team: "a" } } });
    await create(first, 2, { head: waiting(), created: { at: NOW + 10, version: "1", labels: { order: "7" } } });
    await create(first, 3, { created: { at: NOW + 20, agent_name: "ask", version: "2" } });
    await create(first, 4, {
      head: head({ status: "created", owner: null }),
      created: { at: NOW + 30, parent: { run_id: runId(1), key: "run:echo#1", depth: 1 } },
    });
    await createEnded(first, 5, NOW + 40, { created: { at: NOW + 40, version: "1" } });
    const failed = await create(first, 6, { created: { at: NOW + 50 } });
    await append(first, failed, 1, write([ended(NOW + 51, "failed")], { head: over(NOW + 51, { status: "failed" }) }));
    await create(first, 7, { head: head({ status: "awaiting" }), created: { at: NOW + 60 } });
    const cases: readonly (readonly [what: string, query: Partial<SurveyQuery>, found: readonly number[]])[] = [
      ["the tenant without a name", { tenant: "" }, [1]],
      ["another tenant", { tenant: "acme" }, [7, 6, 5, 4, 3, 2]],
      ["a tenant without runs", { tenant: "none" }, []],
      ["an agent", { agent_name: "ask" }, [3]],
      ["a version", { agent_name: "echo", version: "1" }, [5, 2]],
      ["no version", { version: null }, [7, 6, 4, 1]],
      ["runs that wait, with and without an owner", { statuses: ["awaiting"] }, [7, 2, 1]],
      ["runs that failed", { statuses: ["failed", "cancelled"] }, [6]],
      ["live runs", { statuses: ["created", "in-progress", "cancelling"] }, [4, 3]],
      ["completed runs and others", { statuses: ["completed", "failed"] }, [6, 5]],
      ["no status", { statuses: [] }, []],
      ["a label", { labels: { order: "7" } }, [2, 1]],
      ["a label within a tenant", { labels: { order: "7" }, tenant: "acme" }, [2]],
      ["two labels", { labels: { order: "7", team: "a" }, tenant: "" }, [1]],
      ["the beginning of an id", { idPrefix: runId(3) }, [3]],
      ["a beginning that several ids have", { idPrefix: runId(1).slice(0, -2), tenant: "acme" }, [7, 6, 5, 4, 3, 2]],
      ["a beginning that no id has", { idPrefix: "f" }, []],
      ["roots", { roots: true, statuses: ["created", "in-progress"] }, [3]],
      ["a time", { createdAfter: NOW + 10, createdBefore: NOW + 30 }, [3, 2]],
      ["a time and a status", { createdAfter: NOW + 10, statuses: ["awaiting"], agent_name: "echo" }, [7, 2]],
    ];
    for (const [what, query, found] of cases)
      for (const limit of [1, 2, 100]) expectSame(await surveyed(first, { ...query, limit }), found.map(runId), what);
  }),

  check("survey: rare runs among many are found in some page", async ({ first }) => {
    await create(first, 0, { created: { agent_name: "rare" } });
    const many = Array.from({ length: 1_100 }, (_, n) => n + 1);
    await Promise.all(many.map((n) => create(first, n)));
    expectSame(await surveyed(first, { agent_name: "rare", limit: 10 }), [runId(0)], "the runs of a rare agent");
    const all = await surveyed(first, { agent_name: "echo", limit: 400 });
    expectSame(new Set(all).size, 1_100, "how many runs the pages of the other agent have");
    expectSame(all.length, 1_100, "how often they have them");
    const named = await surveyed(first, { idPrefix: runId(0).slice(0, 8), limit: 400 });
    expectSame(named, [0, ...many].toReversed().map(runId), "the runs whose ids begin alike, the newest first");
  }),

  check("tails: the last entries of each run, in the order of the runs", async ({ first }) => {
    const one = await create(first, 1);
    await append(first, one, 1, write(parts("a", "b")));
    await append(first, one, 3, write(parts("c")));
    await create(first, 1, { tenant: "other" });
    const asked = [runKey(1, "other"), runKey(2), one];
    const [a, b, c] = parts("a", "b", "c");
    const other = { from: 0, entries: [created(1)] };
    for (const [count, tail] of [
      [1, { from: 3, entries: [c] }],
      [2, { from: 2, entries: [b, c] }],
      [9, { from: 0, entries: [created(1), a, b, c] }],
    ] as const)
      expectSame([...(await first.tails(asked, count))], [other, undefined, tail], `${count} last entries`);
    expectSame(await first.tails([], 3), [], "of no run");
  }),

  check("census: counts live runs by agent, version and status", async ({ first }) => {
    for (const n of [1, 2]) await create(first, n, { head: waiting(), tenant: `tenant ${n}` });
    await create(first, 3, { created: { version: "1" } });
    await create(first, 4, { created: { version: "1" }, head: head({ owner: null }) });
    await createEnded(first, 5, NOW);
    const counted = [
      { agent_name: "echo", version: null, status: "awaiting", runs: 2 },
      { agent_name: "echo", version: "1", status: "in-progress", runs: 2 },
    ];
    const plain = (await first.census()).map(({ agent_name, version, status, runs }) => ({
      agent_name,
      version,
      status,
      runs,
    }));
    expectSame(sorted(plain), sorted(counted), "the counts");
  }),

  check("census, backlog: live runs are counted up to a thousand and one", async ({ first, clock }) => {
    const numbers = Array.from({ length: COUNTED + 1 }, (_, n) => n);
    await Promise.all(numbers.map((n) => create(first, n, { head: waiting(NOW + 1 + n) })));
    const counted = { agent_name: "echo", version: null, status: "awaiting" };
    expectSame(await first.census(), [{ ...counted, runs: COUNTED }], "the counts of one more than that");
    const backlog = { agent_name: "echo", version: null, due: 0, since: null, waiting: COUNTED, blocked: 0 };
    expectSame(await first.backlog(), [backlog], "the backlog of one more than that");
    clock.set(NOW + 10);
    const later = { ...backlog, due: 10, since: NOW + 1, waiting: COUNTED + 1 - 10 };
    expectSame(await first.backlog(), [later], "the backlog when ten of them are due");
    clock.set(NOW + 2 * COUNTED);
    const due = { ...backlog, due: COUNTED, since: NOW + 1, waiting: 0 };
    expectSame(await first.backlog(), [due], "the backlog when all of them are due");
  }),

  check("workers: each owner with its lease and the number of its live runs", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    await first.renew("idle", 2 * LEASE_MS);
    await create(first, 1);
    await create(first, 2, { tenant: "other" });
    await createEnded(first, 3, NOW);
    await create(first, 4, { head: head({ owner: "gone" }) });
    const expected = (isAlive: boolean): readonly unknown[] => [
      { owner: OWNER, until: LEASE_END, is_alive: isAlive, runs: 2 },
      { owner: "idle", until: NOW + 2 * LEASE_MS, is_alive: true, runs: 0 },
      { owner: "gone", until: null, is_alive: false, runs: 1 },
    ];
    const workers = async (): Promise<readonly unknown[]> =>
      (await first.workers()).map(({ owner, until, is_alive, runs }) => ({ owner, until, is_alive, runs }));
    clock.set(LEASE_END - 1);
    expectSame(sorted(await workers()), sorted(expected(true)), "in the last moment of a lease");
    clock.set(LEASE_END);
    expectSame(sorted(await workers()), sorted(expected(false)), "when it has expired");
  }),

  check("living: the owners whose lease lasts, also those without runs", async ({ first, clock }) => {
    await first.renew(OWNER, LEASE_MS);
    await first.renew("idle", 2 * LEASE_MS);
    await create(first, 1);
    await create(first, 2, { head: head({ owner: "gone" }) });
    clock.set(LEASE_END - 1);
    expectSame(sorted(await first.living()), sorted([OWNER, "idle"]), "in the last moment of a lease");
    clock.set(LEASE_END);
    expectSame(await first.living(), ["idle"], "when it has expired");
    await first.release("idle");
    expectSame(await first.living(), [], "when the other was released");
  }),
];

/** The ids of all runs of a query, from all of its pages. */
async function surveyed(store: Store, query: SurveyQuery): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let after = query.after; ; ) {
    const { runs, next } = await store.survey({ ...query, after });
    ids.push(...runs.map(({ key }) => key.run_id));
    if (next === null) return ids;
    after = next;
  }
}
