import { CadenzaError } from "../../core/errors.ts";
import type { Store } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { RunStatus } from "../../protocol/run.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import {
  append,
  create,
  createEnded,
  head,
  over,
  parts,
  runId,
  runKey,
  sessionId,
  TENANT,
  waiting,
  write,
} from "./samples.ts";

/** Labels that an encoding, an escape or a border between name and value may confuse. */
const oddLabels = [
  ["a", "bc"],
  ["ab", "c"],
  ["a", "b:c"],
  ["a:b", "c"],
  ["a", '"bc"'],
  ["__proto__", "bc"],
  ["constructor", "bc"],
  ["a", "bC"],
  ["a", "bc "],
  ["a", "%"],
  ["a", "b\u0000c"],
  ["a", "b\u0000d"],
  ["a", "\ud800"],
  ["a", "\ufffd"],
  ["a", "17"],
  ["17", "a"],
] as const;

/** Which runs `list` shows, and in which order. */
export const listChecks: readonly StoreCheck[] = [
  check("list: the newest first, in pages", async ({ first }) => {
    // A store does not look at the times of entries.
    const ids = [5, 2, 9, 1, 7];
    for (const [index, n] of ids.entries()) await create(first, n, { created: { at: NOW - index } });
    const newest = ids.map(runId).reverse();
    for (const [offset, limit] of [
      [0, 10],
      [0, 2],
      [2, 2],
      [4, 2],
      [5, 2],
      [50, 2],
      [0, 0],
      [0, Number.POSITIVE_INFINITY],
    ] as const) {
      const page = await listed(first, { limit, offset });
      expectSame(page, newest.slice(offset, offset + limit), `${limit} runs from ${offset} on`);
    }
    await append(first, runKey(2), 1, write(parts("a")));
    expectSame(await listed(first, {}), newest, "the order after a write to an older run");
  }),

  check("list: a run as `find` gives it", async ({ first }) => {
    const key = await create(first, 1);
    await append(first, key, 1, write(parts("a"), { head: waiting(77) }));
    expectSame(await first.list({ tenant: TENANT, limit: 1, offset: 0 }), [await first.find(key)], "the list");
  }),

  check("list: by agent, by session and by status, alone and together", async ({ first }) => {
    const shared = { session_id: sessionId(1) };
    await create(first, 1, { created: { agent_name: "echo", ...shared }, head: waiting() });
    await create(first, 2, { created: { agent_name: "ask", ...shared } });
    await create(first, 3, { created: { agent_name: "ask" } });
    await createEnded(first, 4, NOW, { created: { agent_name: "ask", ...shared } });
    // A run that joins the own session of another run.
    await create(first, 5, { created: { agent_name: "echo", session_id: runId(3) } });
    await expectLists(first, [
      [{ agent_name: "ask" }, [4, 3, 2]],
      [{ agent_name: "none" }, []],
      [{ session_id: sessionId(1) }, [4, 2, 1]],
      [{ session_id: runId(3) }, [5, 3]],
      [{ session_id: runId(1) }, []],
      [{ statuses: ["in-progress"] }, [5, 3, 2]],
      [{ statuses: ["awaiting"] }, [1]],
      [{ statuses: ["completed"] }, [4]],
      [{ statuses: ["cancelling"] }, []],
      [{ agent_name: "ask", statuses: ["in-progress"] }, [3, 2]],
      [{ agent_name: "ask", session_id: sessionId(1) }, [4, 2]],
      [{ agent_name: "ask", session_id: sessionId(1), statuses: ["completed"] }, [4]],
      [{ session_id: sessionId(1), statuses: ["in-progress"] }, [2]],
      [{ statuses: ["in-progress"], limit: 1, offset: 1 }, [3]],
      [{ session_id: sessionId(1), limit: 2, offset: 1 }, [2, 1]],
    ]);
  }),

  check("list: after a run, those that were created before it", async ({ first, second }) => {
    const labels = { order: "1" };
    const parent = { run_id: runId(9), key: "run:echo#1", depth: 1 };
    await create(first, 4, { created: { labels, parent }, head: waiting() });
    await create(first, 2, { created: { session_id: sessionId(1), labels, parent } });
    await createEnded(first, 5, NOW, { created: { labels } });
    await create(first, 1, { created: { session_id: sessionId(1), parent }, head: waiting() });
    await create(first, 3, { created: { labels }, head: waiting(NOW) });
    await create(first, 6, { tenant: "other" });
    await expectLists(second, [
      [{ after: runId(3) }, [1, 5, 2, 4]],
      [{ after: runId(5) }, [2, 4]],
      [{ after: runId(4) }, []],
      [{ after: runId(1), limit: 1 }, [5]],
      [{ after: runId(1), limit: 1, offset: 1 }, [2]],
      [{ after: runId(3), statuses: ["awaiting"] }, [1, 4]],
      [{ after: runId(1), statuses: ["awaiting", "completed"] }, [5, 4]],
      [{ after: runId(3), labels }, [5, 2, 4]],
      [{ after: runId(5), labels: { order: "1" }, statuses: ["in-progress"] }, [2]],
      [{ after: runId(1), session_id: sessionId(1) }, [2]],
      [{ after: runId(1), parents: [runId(9)] }, [2, 4]],
      [{ after: runId(3), roots: true }, [5]],
      // A run that does not exist, and one of another tenant.
      [{ after: runId(8) }, []],
      [{ after: runId(6) }, []],
    ]);
  }),

  check("list: by the time of creation", async ({ first, second }) => {
    const labels = { order: "1" };
    const parent = { run_id: runId(9), key: "run:echo#1", depth: 1 };
    await create(first, 4, { created: { at: NOW + 10, labels, parent } });
    await create(first, 2, { created: { at: NOW + 20, session_id: sessionId(1) }, head: waiting() });
    await createEnded(first, 3, NOW + 90, { created: { at: NOW + 20, parent } });
    await create(first, 1, { created: { at: NOW + 30, session_id: sessionId(1), labels }, head: waiting() });
    await create(first, 5, { created: { at: NOW + 20 }, tenant: "other" });
    const since = (ms: number) => ({ createdAfter: NOW + ms });
    const until = (ms: number) => ({ createdBefore: NOW + ms });
    await expectLists(second, [
      [since(0), [1, 3, 2, 4]],
      [since(20), [1, 3, 2]],
      [since(21), [1]],
      [since(31), []],
      [until(31), [1, 3, 2, 4]],
      [until(20), [4]],
      [until(10), []],
      [{ ...since(10), ...until(30) }, [3, 2, 4]],
      [{ ...since(20), ...until(20) }, []],
      [{ ...since(10), limit: 1, offset: 1 }, [3]],
      [{ ...since(10), limit: 2, after: runId(3) }, [2, 4]],
      [{ ...since(20), ...until(30), after: runId(1) }, [3, 2]],
      [{ ...until(30), after: runId(2) }, [4]],
      [{ ...since(0), after: runId(8) }, []],
      [{ ...since(20), agent_name: "echo", roots: true }, [1, 2]],
      [{ ...until(30), statuses: ["awaiting"] }, [2]],
      [{ ...until(30), statuses: ["awaiting", "completed"] }, [3, 2]],
      [{ ...until(30), labels }, [4]],
      [{ ...since(20), parents: [runId(9)] }, [3]],
      [{ ...since(30), session_id: sessionId(1) }, [1]],
    ]);
  }),

  check("list: by the time of creation, where clocks disagree, each run once in the pages", async ({ first }) => {
    const times = [50, 10, 40, 40, 20, 60, 30, 10, 50];
    for (const [n, at] of times.entries()) await create(first, n, { created: { at: NOW + at } });
    const query = { createdAfter: NOW + 20, createdBefore: NOW + 60, limit: 3 };
    const found: string[] = [];
    for (let page = await listed(first, query); page.length > 0; ) {
      found.push(...page);
      page = await listed(first, { ...query, after: page.at(-1) });
    }
    expectSame(found.toSorted(), [0, 2, 3, 4, 6, 8].map(runId), "the runs of all pages");
  }),

  check("list: with several statuses, in one order", async ({ first, second }) => {
    await create(first, 3, { head: waiting() });
    await create(first, 1);
    await createEnded(first, 5, NOW);
    await create(first, 2, { head: waiting(NOW) });
    await create(first, 6, { created: { session_id: sessionId(1) }, head: head({ status: "created" }) });
    await createEnded(first, 4, NOW, { tenant: "other" });
    await expectLists(second, [
      [{ statuses: [] }, []],
      [{ statuses: ["in-progress", "awaiting"] }, [2, 1, 3]],
      [{ statuses: ["awaiting", "in-progress", "awaiting"] }, [2, 1, 3]],
      [{ statuses: ["completed", "awaiting"] }, [2, 5, 3]],
      [{ statuses: ["failed", "completed"] }, [5]],
      [{ statuses: ["created", "in-progress", "awaiting", "cancelling"] }, [6, 2, 1, 3]],
      [{ statuses: ["in-progress", "awaiting"], limit: 2, offset: 1 }, [1, 3]],
      [{ statuses: ["completed", "awaiting"], limit: 1, offset: 1 }, [5]],
      [{ statuses: ["created", "awaiting"], session_id: sessionId(1) }, [6]],
      [{ statuses: [], agent_name: "echo" }, []],
    ]);
  }),

  check("list: with labels, the runs that have all of them with these values", async ({ first, second }) => {
    const ask = { agent_name: "ask" };
    await create(first, 1, { created: { labels: { order: "1", team: "a" } }, head: waiting() });
    await create(first, 2, { created: { labels: { order: "2", team: "a" }, ...ask } });
    await create(first, 3, { created: { labels: { order: "2" } } });
    await createEnded(first, 4, NOW, { created: { labels: { team: "b", order: "2", x: "2" }, ...ask } });
    await create(first, 5);
    await create(first, 1, { tenant: "other", created: { labels: { order: "2", team: "a" } } });
    await create(first, 7, { created: { labels: { team: "a" }, session_id: sessionId(1) } });
    await expectLists(second, [
      [{ labels: { order: "2" } }, [4, 3, 2]],
      [{ labels: { team: "a" } }, [7, 2, 1]],
      [{ labels: { order: "2", team: "a" } }, [2]],
      [{ labels: { team: "a", order: "2" } }, [2]],
      [{ labels: { order: "2", team: "b", x: "2" } }, [4]],
      [{ labels: { order: "1", team: "b" } }, []],
      [{ labels: { order: "3" } }, []],
      [{ labels: { order: "2", none: "2" } }, []],
      // A store may begin with the label that fewest runs have, wherever it stands. It has to look at each of the others.
      [{ labels: { team: "a", x: "2" } }, []],
      [{ labels: { x: "2", team: "a" } }, []],
      [{ labels: { team: "a", x: "2", order: "2" } }, []],
      [{ labels: {} }, [7, 5, 4, 3, 2, 1]],
      [{ labels: { order: "2" }, limit: 1, offset: 1 }, [3]],
      [{ labels: { order: "2" }, statuses: ["in-progress", "awaiting"] }, [3, 2]],
      [{ labels: { order: "2" }, statuses: ["in-progress"], agent_name: "ask" }, [2]],
      [{ labels: { order: "2" }, agent_name: "ask", limit: 1, offset: 1 }, [2]],
      [{ labels: { team: "a" }, session_id: sessionId(1) }, [7]],
      [{ labels: { order: "2" }, session_id: sessionId(1) }, []],
      [{ labels: { order: "2" }, statuses: [] }, []],
    ]);
    const others = await second.list({ tenant: "other", labels: { order: "2" }, limit: 9, offset: 0 });
    expectSame(
      others.map(({ key }) => key),
      [runKey(1, "other")],
      "the runs of another tenant",
    );
  }),

  check("list: labels of any text, and no two of them as one", async ({ first, second }) => {
    for (const [index, [name, value]] of oddLabels.entries())
      await create(first, index, { created: { labels: Object.fromEntries([[name, value]]) } });
    await expectLists(
      second,
      oddLabels.map(([name, value], index) => [{ labels: Object.fromEntries([[name, value]]) }, [index]]),
    );
  }),

  check("list: by parents, the direct sub-runs alone", async ({ first, second }) => {
    const parent = { run_id: runId(1), key: "run:echo#1", depth: 1 };
    const labels = { order: "2" };
    await create(first, 1);
    await create(first, 3, { created: { parent, agent_name: "ask", labels }, head: waiting() });
    await create(first, 2, { created: { parent, session_id: sessionId(1) } });
    await create(first, 4, { created: { parent: { ...parent, run_id: runId(2), depth: 2 } }, head: waiting() });
    await createEnded(first, 5, NOW, { created: { parent } });
    await create(first, 6, { tenant: "other", created: { parent } });
    await expectLists(second, [
      [{ parents: [runId(1)] }, [5, 2, 3]],
      [{ parents: [runId(2)] }, [4]],
      [{ parents: [runId(3)] }, []],
      [{ parents: [runId(9)] }, []],
      [{ parents: [runId(1)], roots: false, limit: 1, offset: 1 }, [2]],
      [{ parents: [runId(1)], roots: true }, []],
      [{ parents: [runId(1)], agent_name: "ask" }, [3]],
      [{ parents: [runId(1)], statuses: ["awaiting"] }, [3]],
      [{ parents: [runId(1)], statuses: ["in-progress", "completed"] }, [5, 2]],
      [{ parents: [runId(1)], session_id: sessionId(1) }, [2]],
      [{ parents: [runId(1)], labels }, [3]],
      [{ parents: [runId(2)], labels }, []],
      [{ parents: [runId(2), runId(9), runId(1), runId(2)] }, [5, 4, 2, 3]],
      [{ parents: [runId(1), runId(2)], limit: 2, offset: 1 }, [4, 2]],
      [{ parents: [runId(1), runId(2)], after: runId(4), statuses: ["awaiting"] }, [3]],
      [{ parents: [] }, []],
    ]);
  }),

  check("list: with roots, sub-runs are left out before the page is taken", async ({ first, second }) => {
    const parent = { run_id: runId(1), key: "run:echo#1", depth: 1 };
    await create(first, 1, { head: waiting() });
    await create(first, 2, { created: { parent }, head: waiting() });
    await create(first, 3, { created: { parent: { ...parent, run_id: runId(2) } }, head: waiting(NOW) });
    await create(first, 4, { created: { agent_name: "ask", session_id: sessionId(1) }, head: waiting() });
    await create(first, 5, { created: { parent, agent_name: "ask", session_id: sessionId(1) } });
    await createEnded(first, 6, NOW, { created: { parent } });
    await expectLists(second, [
      [{}, [6, 5, 4, 3, 2, 1]],
      [{ roots: false }, [6, 5, 4, 3, 2, 1]],
      [{ roots: true }, [4, 1]],
      [{ roots: true, statuses: ["awaiting"] }, [4, 1]],
      [{ roots: false, statuses: ["awaiting"] }, [4, 3, 2, 1]],
      [{ roots: true, statuses: ["awaiting"], limit: 1, offset: 1 }, [1]],
      [{ roots: true, agent_name: "ask" }, [4]],
      [{ roots: true, session_id: sessionId(1) }, [4]],
      [{ roots: true, statuses: ["completed"] }, []],
      [{ roots: true, statuses: ["in-progress"] }, []],
    ]);
  }),

  check("list: of a number of runs to look at, the whole page or a refusal", async ({ first, second }) => {
    const common = { kind: "common" };
    const parent = { run_id: runId(90), key: "run:echo#1", depth: 1 };
    await create(first, 1, { created: { agent_name: "rare", labels: { ...common, order: "1" }, at: NOW + 1 } });
    await create(first, 2, { created: { labels: common, principal: "ada", at: NOW + 2 }, head: waiting() });
    for (const [n, status] of [
      [3, "failed"],
      [4, "cancelled"],
    ] as const)
      await create(first, n, { created: { labels: common, at: NOW + n }, head: over(NOW, { status }) });
    const family = { session_id: sessionId(1), parent, labels: common };
    for (let n = 5; n <= 10; n++) await createEnded(first, n, NOW, { created: { ...family, at: NOW + n } });
    await create(first, 11, { tenant: "", created: { at: NOW } });
    const most = 3;
    await expectLists(second, [
      // What an index selects is few.
      [{ most, labels: { order: "1" } }, [1]],
      [{ most, labels: { ...common, order: "1" } }, [1]],
      [{ most, creator: "ada" }, [2]],
      [{ most, labels: common, creator: "ada" }, [2]],
      [{ most, statuses: ["awaiting"] }, [2]],
      [{ most, statuses: ["failed"] }, [3]],
      [{ most, statuses: ["cancelled"], labels: common }, [4]],
      [{ most, statuses: ["awaiting", "failed", "cancelled"] }, [4, 3, 2]],
      [{ most, createdBefore: NOW + 4 }, [3, 2, 1]],
      [{ most, createdBefore: NOW + 4, agent_name: "rare" }, [1]],
      [{ most, createdAfter: NOW + 3, statuses: ["failed"] }, [3]],
      [{ most, createdBefore: NOW + 9, labels: { order: "1" } }, [1]],
      [{ most, tenant: "" }, [11]],
      // A family is read as a whole.
      [{ most, session_id: sessionId(1) }, [10, 9, 8, 7, 6, 5]],
      [{ most, parents: [runId(90)], agent_name: "rare" }, []],
      // The page is full by then.
      [{ most, limit: 3 }, [10, 9, 8]],
      [{ most, limit: 2, agent_name: "echo", after: runId(8) }, [7, 6]],
      [{ most, limit: 3, labels: common, statuses: ["completed"] }, [10, 9, 8]],
      [{ most, limit: 3, createdAfter: NOW }, [10, 9, 8]],
      [{ most, limit: 1, offset: 2 }, [8]],
    ]);
    const whole: readonly (readonly [query: Partial<RunQuery>, expected: readonly number[]])[] = [
      [{ agent_name: "rare" }, [1]],
      [{ agent_name: "none" }, []],
      [{ roots: true }, [4, 3, 2, 1]],
      [{ labels: common, agent_name: "rare" }, [1]],
      [{ statuses: ["completed"], agent_name: "rare" }, []],
      [{ createdAfter: NOW, labels: common, agent_name: "rare" }, [1]],
      [{ limit: 1, offset: 9 }, [1]],
    ];
    for (const [query, expected] of whole) {
      const found = await wholeOrRefused(second, { ...query, most });
      if (found !== "refused") expectSame(found, expected.map(runId), `the runs with ${JSON.stringify(query)}`);
      expectSame(await wholeOrRefused(second, { ...query, most: 10 }), expected.map(runId), "where all are looked at");
    }
  }),

  check("list: the status is that of the last write", async ({ first }) => {
    const key = await create(first, 1, { created: { labels: { order: "1" } } });
    const of = (status: RunStatus) => [{ statuses: [status] }, { statuses: [status], labels: { order: "1" } }];
    await append(first, key, 1, write(parts("a"), { head: waiting() }));
    for (const query of of("in-progress"))
      expectSame(await listed(first, query), [], "runs in progress, once it waits");
    for (const query of of("awaiting")) expectSame(await listed(first, query), [runId(1)], "runs that wait");
    await append(first, key, 2, write(parts("b"), { head: over() }));
    for (const query of of("awaiting")) expectSame(await listed(first, query), [], "runs that wait, once it has ended");
    for (const query of of("completed")) expectSame(await listed(first, query), [runId(1)], "completed runs");
  }),
];

/** Throws unless each query lists the runs with these numbers. */
async function expectLists(
  store: Store,
  rows: readonly (readonly [query: Partial<RunQuery>, expected: readonly number[]])[],
): Promise<void> {
  for (const [query, expected] of rows)
    expectSame(await listed(store, query), expected.map(runId), `the runs with ${JSON.stringify(query)}`);
}

async function wholeOrRefused(store: Store, query: Partial<RunQuery>): Promise<readonly string[] | "refused"> {
  try {
    return await listed(store, query);
  } catch (error) {
    if (CadenzaError.is(error) && error.code === "limit_reached" && error.limit === "maxExaminedRuns") return "refused";
    throw error;
  }
}

async function listed(store: Store, query: Partial<RunQuery>): Promise<readonly string[]> {
  const runs = await store.list({ tenant: TENANT, limit: 100, offset: 0, ...query });
  return runs.map((run) => run.key.run_id);
}
