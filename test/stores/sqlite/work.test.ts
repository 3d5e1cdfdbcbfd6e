import { join } from "node:path";
import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import type { RunQuery, TakeRequest } from "cadenza/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CheckClock, NOW } from "../../../src/stores/contract/check.ts";
import {
  create,
  created,
  ended,
  head,
  LEASE_END,
  LEASE_MS,
  look,
  over,
  parts,
  runId,
  runKey,
  sessionId,
  sessionKey,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { firstId } from "../../../src/stores/sqlite/entries.ts";
import { ASIDE_MS, MOST_THROUGH } from "../../harness/internals.ts";
import { RecordingDatabase } from "../../harness/recording-database.ts";
import { openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";

const RUNS = 20_000;
const echo = { agent_name: "echo", version: null };
const request: TakeRequest = { owner: "taker", agents: [echo], limit: 8 };

let folder: ReturnType<typeof temporaryFolder>;
let db: RecordingDatabase;
let raw: SqliteDatabase;
let store: SqliteStore;
const clock = new CheckClock(NOW);

beforeAll(async () => {
  folder = temporaryFolder();
  raw = openDatabase(join(folder.path, "runs.db"));
  db = new RecordingDatabase(raw);
  store = new SqliteStore(db, { synchronous: "NORMAL", clock, closeDatabase: true });
  await store.renew("taker", Number.POSITIVE_INFINITY);
  await store.renew("alive", Number.POSITIVE_INFINITY);
  fill();
});

afterAll(() => {
  store.close();
  folder.remove();
});

describe(`among ${RUNS} runs`, () => {
  let plans: readonly Plan[];

  beforeAll(async () => {
    plans = await plansOf(askEverything);
  });

  it("every query uses an index that holds few other rows", () => {
    const scans = plans.flatMap(({ steps }) => steps.filter((step) => /^SCAN /.test(step)));
    const sorting = plans.filter(({ steps }) => steps.some((step) => /TEMP B-TREE/.test(step))).map(({ sql }) => sql);

    expect(plans.length).toBeGreaterThan(40);
    expect(scans.filter((step) => !KNOWN_SCANS.some(([known]) => known.test(step)))).toEqual([]);
    expect(sorting.filter((sql) => !KNOWN_SORTS.some(([known]) => known.test(sql)))).toEqual([]);
  });

  it.each(KNOWN_SCANS)("the scan that is allowed occurs: %s", (known) => {
    expect(plans.flatMap(({ steps }) => steps).filter((step) => known.test(step))).not.toEqual([]);
  });

  it.each(KNOWN_SORTS)("the sort that is allowed occurs: %s", (known) => {
    expect(plans.filter(({ sql }) => known.test(sql))).not.toEqual([]);
  });

  it("a take that finds nothing takes no lock, and reads no run that waits", async () => {
    const taking = await plansOf(async () => expect(await store.take(request)).toEqual([]));
    const used = taking.flatMap(({ steps }) => steps.flatMap((step) => step.match(/INDEX cadenza_\w+ \(.*\)/) ?? []));

    expect(db.statements.filter((sql) => /^\s*(BEGIN|UPDATE|DELETE|INSERT)/.test(sql))).toEqual([]);
    expect(db.statements.length).toBeLessThan(12);
    expect([...new Set(used)].toSorted()).toEqual([
      "INDEX cadenza_runs_by_owner (owner>?)",
      "INDEX cadenza_runs_due (agent_name=? AND version=? AND due_at>? AND due_at<?)",
      "INDEX cadenza_runs_in_line (line>? AND line<?)",
      "INDEX cadenza_slots_marked (look_at<?)",
    ]);
  });

  it("a take gives a run whose slot is free", async () => {
    await create(store, RUNS + 1, { slot: { key: "free", max: 1 }, head: waiting(NOW) });
    const taken = await store.take(request);

    expect(taken.map(({ key }) => key.run_id)).toEqual([runId(RUNS + 1)]);
  });
});

describe("runs and entries are read", () => {
  const found = ["cadenza_runs_by_key (run_id=? AND tenant=?)", "entries (rowid=?)"];
  const owners = ["cadenza_runs_by_owner (owner=?)", "cadenza_runs_by_owner (owner>?)"];
  const listed = ["entries (rowid=?)", "runs (rowid=?)"];
  const agents = ["cadenza_runs_waiting (agent_name>?)", "cadenza_runs_waiting (agent_name=? AND <expr>>?)"];

  it.each<[what: string, ask: () => unknown, allowed: readonly string[]]>([
    ["find", () => store.find(runKey(1)), found],
    [
      "findByIdempotencyKey",
      () => store.findByIdempotencyKey("acme", "key"),
      ["cadenza_runs_by_idempotency_key (tenant=? AND idempotency_key=?)", "entries (rowid=?)"],
    ],
    ["read", () => store.read(runKey(1), 0, 9), [...found, "entries (rowid>? AND rowid<?)"]],
    ["moved", () => store.moved([{ key: runKey(1), epoch: 1, position: 1 }]), found.slice(0, 1)],
    ["owned", () => store.owned("alive", 9), owners.slice(0, 1)],
    ["blocked", () => store.blocked({ limit: 9 }), ["cadenza_runs_blocked (agent_name>?)"]],
    [
      "blocked, of an agent",
      () => store.blocked({ limit: 9, agents: [echo] }),
      ["cadenza_runs_blocked (agent_name=? AND version=? AND rowid>?)"],
    ],
    // It jumps from agent to agent and from version to version, and counts up to a number. Of dead owners it counts all.
    [
      "backlog",
      () => store.backlog(),
      [
        "cadenza_runs_blocked (agent_name=? AND version=?)",
        "cadenza_runs_waiting (agent_name=? AND <expr>=? AND <expr>=? AND status=? AND due_at<?)",
        "cadenza_runs_waiting (agent_name=? AND <expr>=? AND <expr>=? AND status=? AND due_at>?)",
        "cadenza_runs_waiting (agent_name=? AND <expr>=? AND <expr>=?)",
        ...agents,
        ...owners.slice(1),
      ],
    ],
    // It jumps from key to key, and counts the first of each line up to a number.
    [
      "lines",
      () => store.lines({ limit: 9 }),
      [
        "cadenza_runs_in_line (line=?)",
        "cadenza_runs_in_line (line>?)",
        "cadenza_runs_in_line (line>? AND line<?)",
        "runs (rowid=?)",
      ],
    ],
    ["list", () => store.list(page({ tenant: "acme" })), ["cadenza_runs_by_tenant (tenant=?)", ...listed]],
    // The runs of the tenant without a name are the table itself, from its end on to the limit. Where others are in it, too,
    // those of the tenant are counted, and read if they are few.
    [
      "list, without tenants",
      () => store.list(page({ tenant: "" })),
      ["SCAN r", "cadenza_runs_by_time (tenant=?)", ...listed],
    ],
    ...["acme", ""].map((tenant): [string, () => unknown, readonly string[]] => [
      `list, of those that wait (${JSON.stringify(tenant)})`,
      () => store.list(page({ tenant, statuses: ["awaiting"] })),
      ["cadenza_runs_by_owner (owner>?)", "cadenza_runs_by_status (tenant=? AND status=?)", ...listed],
    ]),
    ...["acme", ""].map((tenant): [string, () => unknown, readonly string[]] => [
      `list, of a session (${JSON.stringify(tenant)})`,
      () => store.list(page({ tenant, session_id: sessionId(1) })),
      ["cadenza_runs_by_key (run_id=? AND tenant=?)", "cadenza_runs_by_session (tenant=? AND session_id=?)", ...listed],
    ]),
    ...["acme", ""].flatMap((tenant): [string, () => unknown, readonly string[]][] => [
      [
        `list, of a parent (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, parents: [runId(1)], statuses: ["awaiting", "completed"] })),
        ["cadenza_runs_by_parent (tenant=? AND parent=?)", ...listed],
      ],
      [
        `list, of two parents (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, parents: [runId(1), runId(2)] })),
        ["cadenza_runs_by_parent (tenant=? AND parent=?)", ...listed],
      ],
      [
        `list, with a label (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, labels: { order: "1" }, statuses: ["awaiting", "in-progress"] })),
        ["cadenza_labels_by_value (tenant=? AND name=? AND value=?)", ...listed],
      ],
      [
        `list, with two labels (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, labels: { order: "1", team: "a" }, agent_name: "echo", roots: true })),
        [
          "cadenza_labels_by_value (tenant=? AND name=? AND value=?)",
          ...listed.slice(0, 1),
          "labels (run=? AND name=?)",
          ...listed.slice(1),
        ],
      ],
    ]),
    ...["acme", ""].flatMap((tenant): [string, () => unknown, readonly string[]][] => [
      [
        `list, of a time (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, createdAfter: NOW, createdBefore: NOW + 9, agent_name: "echo", roots: true })),
        ["cadenza_runs_by_time (tenant=? AND created_at>? AND created_at<?)", ...listed],
      ],
      [
        `list, of a time, with a status that is final (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, createdAfter: NOW, statuses: ["awaiting", "completed"] })),
        ["cadenza_runs_by_time (tenant=? AND created_at>?)", ...listed],
      ],
      [
        `list, of a time, after a run (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, createdAfter: NOW, after: runId(9) })),
        [
          "cadenza_runs_by_key (run_id=? AND tenant=?)",
          "cadenza_runs_by_time (tenant=? AND created_at>? AND created_at<?)",
          ...listed,
        ],
      ],
      [
        `list, of a time, with a label (${JSON.stringify(tenant)})`,
        () => store.list(page({ tenant, createdAfter: NOW, labels: { order: "1" } })),
        ["cadenza_labels_by_value (tenant=? AND name=? AND value=?)", ...listed],
      ],
    ]),
    ...(
      [
        ["all tenants", {}, ["SCAN cadenza_runs"]],
        ["a tenant", { tenant: "acme" }, ["cadenza_runs_by_tenant (tenant=?)"]],
        [
          "a label",
          { tenant: "acme", labels: { order: "1" } },
          ["cadenza_labels_by_value (tenant=? AND name=? AND value=?)"],
        ],
        ["an id", { idPrefix: runId(1) }, ["cadenza_runs_by_key (run_id>? AND run_id<?)"]],
        ["failed ones", { statuses: ["failed"] }, ["cadenza_runs_by_state (status=?)"]],
        [
          "live ones",
          { statuses: ["awaiting"] },
          ["cadenza_runs_by_owner (owner>?)", "cadenza_runs_by_state (status=?)"],
        ],
      ] as const
    ).map(([what, query, indexes]): [string, () => unknown, readonly string[]] => [
      `survey, of ${what}`,
      () => store.survey({ limit: 9, agent_name: "echo", ...query }),
      [
        ...indexes,
        ...listed.slice(0, 1),
        ...(what === "a label" ? ["labels (run=? AND name=?)"] : []),
        ...listed.slice(1),
      ],
    ]),
    ["tails", () => store.tails([runKey(1)], 3), [...found, "entries (rowid>? AND rowid<?)"]],
    // It counts the live runs.
    [
      "census",
      () => store.census(),
      [
        "cadenza_runs_waiting (agent_name=? AND <expr>=? AND <expr>=? AND status=?)",
        ...agents,
        "cadenza_runs_by_owner (owner>?)",
      ],
    ],
    ["workers", () => store.workers(), owners],
    [
      "take",
      async () => {
        await create(store, RUNS + 30, { head: head({ owner: "dead" }) });
        db.statements.length = 0;
        expect(await store.take({ ...request, cancelledForMs: 5 })).toHaveLength(1);
      },
      [
        "cadenza_runs_by_owner (owner=? AND agent_name=? AND version=?)",
        // The index alone tells which runs of a dead owner are not durable.
        "cadenza_runs_by_owner (owner=?)",
        "cadenza_runs_by_owner (owner>?)",
        "cadenza_runs_cancelling (owner=? AND agent_name>?)",
        "cadenza_runs_cancelling (owner=? AND agent_name=?)",
        "cadenza_runs_cancelling (owner=? AND agent_name=? AND version>?)",
        "cadenza_runs_cancelling (owner=? AND agent_name=? AND version=? AND priority<?)",
        "cadenza_runs_cancelling (owner=? AND agent_name=? AND version=? AND priority=?)",
        "cadenza_runs_cancelling (owner=? AND agent_name=? AND version=? AND priority=? AND due_at>? AND due_at<?)",
        "cadenza_runs_due (agent_name=? AND version=? AND due_at>? AND due_at<?)",
        "SCAN cadenza_runs_apart",
        "cadenza_runs_in_line (line>? AND line<?)",
        ...listed,
      ],
    ],
    [
      "take, with priorities",
      async () => {
        await create(store, RUNS + 31, { priority: 1, head: head({ owner: "dead" }) });
        await create(store, RUNS + 32, { priority: 2, head: waiting(NOW) });
        db.statements.length = 0;
        expect(await store.take(request)).toHaveLength(2);
      },
      [
        "cadenza_runs_apart (owner=? AND agent_name=? AND version=? AND priority<?)",
        "cadenza_runs_apart (owner=? AND agent_name=? AND version=? AND priority=?)",
        "cadenza_runs_apart (owner=? AND agent_name=? AND version=? AND priority=? AND <expr><?)",
        "cadenza_runs_apart (owner=? AND agent_name=? AND version=? AND priority=? AND <expr>>? AND <expr><?)",
        "cadenza_runs_by_owner (owner=? AND agent_name=? AND version=?)",
        "cadenza_runs_by_owner (owner=?)",
        "cadenza_runs_by_owner (owner>?)",
        "cadenza_runs_due (agent_name=? AND version=? AND due_at>? AND due_at<?)",
        "SCAN cadenza_runs_apart",
        "cadenza_runs_in_line (line>? AND line<?)",
        ...listed,
      ],
    ],
    // Versions of SQLite choose among these, and may do without one. None may scan, or search by another index.
  ])("by nothing but these, for %s", async (_what, ask, allowed) => {
    const steps = (await plansOf(async () => ask())).flatMap((plan) => plan.steps);
    const read = [...new Set(steps.flatMap(readingOf))];

    expect(read).not.toEqual([]);
    expect(read.filter((reading) => !allowed.includes(reading))).toEqual([]);
  });
});

it("a list by status reads no run that is not in its page", async () => {
  const query = page({ tenant: "acme", statuses: ["awaiting"], agent_name: "echo", roots: true });
  const steps = (await plansOf(async () => store.list(query))).flatMap((plan) => plan.steps);
  const searches = steps.filter((step) => /cadenza_runs_by_/.test(step));

  expect(searches).toHaveLength(2);
  expect(searches.filter((step) => !step.includes("COVERING"))).toEqual([]);
});

describe("an append", () => {
  it("that changes only the length of the log writes to no index", async () => {
    const alive = head({ owner: "alive" });
    const key = await create(store, RUNS + 10, { head: alive });
    db.statements.length = 0;
    await store.append(key, { epoch: 1, position: 1 }, write(parts("a"), { head: alive }));

    expect(updates()).toEqual(["UPDATE cadenza_runs SET position = ? WHERE id = ?"]);
  });

  it("writes the columns that change", async () => {
    const key = await create(store, RUNS + 11, { head: head({ owner: "alive" }) });
    db.statements.length = 0;
    await store.append(key, { epoch: 1, position: 1 }, write(parts("a"), { head: waiting(NOW + 9, { takeovers: 1 }) }));

    const columns = "status = ?, owner = ?, due_at = ?, takeovers = ?, position = ?";
    expect(updates()).toEqual([`UPDATE cadenza_runs SET ${columns} WHERE id = ?`]);
  });
});

describe("leases", () => {
  it("of owners that are gone and have no runs are removed", async () => {
    const key = await create(store, RUNS + 20, { head: head({ owner: "leaves a run" }) });
    await store.renew("leaves a run", LEASE_MS);
    await store.renew("leaves nothing", LEASE_MS);
    clock.set(LEASE_END - 1);
    await store.renew("taker", Number.POSITIVE_INFINITY);
    expect(owners()).toEqual(["alive", "leaves a run", "leaves nothing", "taker"]);
    clock.set(LEASE_END);
    await store.renew("taker", Number.POSITIVE_INFINITY);
    expect(owners()).toEqual(["alive", "leaves a run", "taker"]);
    const run = { ...request, limit: 1 };
    expect((await store.take(run)).map((one) => one.key)).toEqual([key]);
    await store.renew("taker", Number.POSITIVE_INFINITY);
    clock.set(NOW);

    expect(owners()).toEqual(["alive", "taker"]);
  });
});

/** The steps of a plan that may scan: the table is small, or all of it is needed. */
const KNOWN_SCANS: readonly (readonly [what: RegExp, why: string])[] = [
  [/^SCAN (g|k|o|owners)$/, "owners and keys of slots, found by jumps"],
  [/^SCAN cadenza_removed$/, "deleted runs whose entries are left: the first one"],
  [/^SCAN CONSTANT ROW$/, "one row of two questions"],
  [/^SCAN k VIRTUAL TABLE/, "the runs in the query"],
  [/^SCAN json_each VIRTUAL TABLE/, "the runs that a survey looks at, up to a limit"],
  [
    /^SCAN \(subquery-([2-9]|\d\d)\)$/,
    "the runs of a status that a survey looks at or a count has found, up to a limit",
  ],
  [/^SCAN \(subquery-1\)$/, "the runs with a label, counted up to a limit"],
  [/^SCAN cadenza_retention$/, "one row for each set of rules, when the progress of a retention is written"],
  [/^SCAN cadenza_pauses$/, "one row for each pause"],
  [/^SCAN cadenza_runs USING COVERING INDEX cadenza_runs_aside$/, "the first of the runs that are set aside"],
  [/^SCAN cadenza_runs USING COVERING INDEX cadenza_runs_apart$/, "the first of the runs of other priorities"],
  [/^SCAN cadenza_leases$/, "one row for each process"],
  [/^SCAN \d+ CONSTANT ROWS$|^SCAN [as]$/, "the statuses that are counted"],
  [/^SCAN (r|cadenza_runs)$/, "the list of the tenant without a name, the newest first, up to its limit"],
];
/** The statements that may sort. */
const KNOWN_SORTS: readonly (readonly [what: RegExp, why: string])[] = [
  [/INDEXED BY cadenza_runs_by_owner WHERE owner IS NOT NULL/, "the runs that processes execute, counted"],
  [/WHERE finished_at IS NULL AND owner = \? ORDER BY id/, "the runs of one owner"],
  [/INDEXED BY cadenza_runs_blocked/, "blocked runs"],
  [/INDEXED BY cadenza_runs_by_key/, "the runs whose ids begin alike"],
  [/INDEXED BY cadenza_runs_by_state/, "the runs of several statuses that a survey looks at, up to a limit"],
  [/json_each/, "the runs that a survey looks at, up to a limit"],
  [/session_id <> run_id/, "the runs of one session"],
  [/parent IN \(\?, \?/, "the runs below several ones"],
  [
    /INDEXED BY cadenza_runs_by_owner WHERE finished_at IS NULL AND owner IS NOT NULL/,
    "runs that processes execute, in lists",
  ],
  [
    /\) WHERE .*ORDER BY created_at DESC, id DESC LIMIT \? \+ 0$/,
    "runs of a time that another index gives, up to a limit",
  ],
  [/cadenza_runs_by_time .*ORDER BY id DESC LIMIT \? \+ 0$/, "few runs of the tenant without a name, up to a limit"],
  [/ORDER BY k\.key$/, "a page of keys of slots"],
];

/** Makes every query that runtimes make. */
async function askEverything(): Promise<void> {
  const key = await create(store, RUNS + 2, {
    idempotencyKey: "key",
    created: { labels: { order: "1" } },
    slot: { key: "free", max: 9 },
    head: head({ holds_slot: true, owner: "dead" }),
  });
  await store.append(key, { epoch: 1, position: 1 }, write([created(1)], { wake: runKey(0) }));
  await store.post(key, { entries: parts("a"), due: "work" });
  await create(store, RUNS + 5, { priority: 1, head: head({ owner: "dead" }) });
  await create(store, RUNS + 6, { priority: -1, head: waiting(NOW) });
  await create(store, RUNS + 3, { slot: { key: "full", max: 1 }, head: waiting(NOW) });
  await store.claim(key, { epoch: 1, position: 2 }, head({ epoch: 2, owner: "dead" }));
  await look(store, key, sessionKey(1));
  store.sessionHead(sessionKey(1));
  await create(store, RUNS + 4, { created: { version: "2" }, head: waiting(ASIDE_MS) });
  await store.pause({ tenant: "other" }, null);
  await store.comeBack(9);
  await store.resume({ tenant: "other" });
  await store.makeSession(sessionKey(1), { history: [], state: null }, NOW);
  await store.putSession(sessionKey(1), { history: [], state: null }, NOW);
  store.moved([{ key, epoch: 1, position: 1 }]);
  store.blocked({ agents: [echo], limit: 9, after: key });
  for (const query of [
    { statuses: ["completed"] },
    { statuses: ["awaiting"] },
    { statuses: ["awaiting"], roots: true },
    { statuses: ["in-progress"] },
    { statuses: ["cancelling"], roots: true },
    { session_id: sessionId(1) },
    { agent_name: "echo" },
    { statuses: ["created", "awaiting", "in-progress", "cancelling"] },
    { statuses: ["awaiting", "completed"] },
    { labels: { order: "1" } },
    { labels: { order: "1", team: "a", x: "y" }, statuses: ["awaiting"], agent_name: "echo", roots: true },
    { labels: { order: "1" }, session_id: sessionId(1) },
    { parents: [runId(1)] },
    { parents: [runId(1)], statuses: ["awaiting", "completed"] },
    { parents: [runId(1)], session_id: sessionId(1) },
    { parents: [runId(1), runId(2)] },
    { createdAfter: NOW },
    { createdBefore: NOW, after: runId(3), statuses: ["completed"] },
    { createdAfter: NOW, createdBefore: NOW + 9, agent_name: "echo", roots: true },
    { createdAfter: NOW, statuses: ["awaiting"] },
    { createdBefore: NOW, labels: { order: "1" } },
    { createdBefore: NOW, parents: [runId(1)] },
  ] as const) {
    for (const tenant of ["acme", ""]) store.list({ tenant, limit: 9, offset: 0, ...query });
  }
  for (const query of [{}, { tenant: "acme" }, { statuses: ["failed", "awaiting"] }, { idPrefix: runId(1) }] as const)
    store.survey({ limit: 9, roots: true, createdAfter: 1, version: null, ...query });
  store.survey({ tenant: "acme", labels: { order: "1", team: "a" }, limit: 9, after: 7 });
  store.tails([key], 3);
  store.census();
  store.workers();
  store.lines({ limit: 9 });
  await store.take({ ...request, cancelledForMs: 5, suspects: { takeovers: 2, limit: 1 } });
  for (const n of [RUNS + 5, RUNS + 6])
    await store.append(runKey(n), { epoch: 2, position: 1 }, write([], { head: over(NOW, { epoch: 3 }) }));
  await askAtGate();
  await store.renew("dead", 1);
  const end = { head: over(NOW, { epoch: 4 }), session: { session_id: sessionId(1), create: true, at: NOW } };
  await store.append(key, { epoch: 3, position: 3 }, write([ended()], end));
  await store.prune({ maxRuns: RUNS, endedBefore: 5, sessionsBefore: 5 });
  await store.delete([key]);
  await store.deleteSession(sessionKey(1));
  await store.release("dead");
}

/** Takes runs at a gate, and lets others through. */
async function askAtGate(): Promise<void> {
  const keys = Array.from({ length: MOST_THROUGH + 2 }, (_, n) => runKey(RUNS + 100 + n));
  const gated = { gate: "~gated", created: { agent_name: "gated" }, head: waiting(NOW) };
  for (const [n] of keys.entries()) await create(store, RUNS + 100 + n, { slot: { key: "gated", max: 2 }, ...gated });
  for (const key of keys.slice(2, 40)) await store.append(key, { epoch: 1, position: 1 }, write([], { head: over() }));
  await store.take({ ...request, agents: [{ agent_name: "gated", version: null }], limit: 1 });
  for (const key of keys) {
    const { head: last, position } = store.find(key) ?? expect.fail();
    await store.append(key, { epoch: last.epoch, position }, write([], { head: over(NOW, { epoch: last.epoch }) }));
  }
}

/** How a step of a plan reads runs and entries: an index with the columns of the search, or a scan. */
function readingOf(step: string): readonly string[] {
  const [, whole] =
    /^SCAN (?:cadenza_runs USING (?:COVERING )?INDEX )?((?:cadenza_(?:runs|entries)|[reb]\b)\w*)/.exec(step) ?? [];
  if (whole !== undefined) return [`SCAN ${whole}`];
  const [, index] = /INDEX (cadenza_(?:runs|labels)_\w+ \(.*\))/.exec(step) ?? [];
  if (index !== undefined) return [index];
  const [, label] = /^SEARCH cadenza_labels USING PRIMARY KEY \((.*)\)/.exec(step) ?? [];
  if (label !== undefined) return [`labels (${label})`];
  const [, table = "", ids] = /^SEARCH (\w+) USING INTEGER PRIMARY KEY \((.*)\)/.exec(step) ?? [];
  return ids === undefined ? [] : [`${/^[eb]$/.test(table) ? "entries" : "runs"} (${ids})`];
}

function page(query: Partial<RunQuery> & Pick<RunQuery, "tenant">): RunQuery {
  return { limit: 9, offset: 0, ...query };
}

/** A statement, and its plan. */
interface Plan {
  readonly sql: string;
  readonly steps: readonly string[];
}

/** The plan of each statement that is run. */
async function plansOf(ask: () => Promise<unknown>): Promise<readonly Plan[]> {
  db.statements.length = 0;
  await ask();
  const asked = [...new Set(db.statements)].filter((sql) => /^\s*(SELECT|WITH|UPDATE|DELETE)/.test(sql));
  return asked.map((sql) => ({ sql, steps: explain(sql) }));
}

function explain(sql: string): readonly string[] {
  const values = [...sql].filter((letter) => letter === "?").map(() => (sql.includes("json_each") ? "[]" : 1));
  const other = openDatabase(join(folder.path, "runs.db"));
  const plan = other.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...values);
  other.close();
  return plan.map((row) => (row as { detail: string }).detail);
}

function updates(): readonly string[] {
  return db.statements.filter((sql) => sql.startsWith("UPDATE"));
}

function owners(): readonly string[] {
  const rows = raw.prepare("SELECT owner FROM cadenza_leases ORDER BY owner").all();
  return rows.map((row) => (row as { owner: string }).owner);
}

/**
 * Inserts runs that wait, that are in progress, that have ended, and that wait for a full slot. None of them needs
 * work.
 */
function fill(): void {
  const first = `${JSON.stringify(created(1))}\n`;
  raw.exec("BEGIN");
  raw
    .prepare(
      `WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${RUNS - 1})
       INSERT INTO cadenza_runs (tenant, run_id, agent_name, session_id, slot, slot_max, line, turn, status, epoch, owner, due_at,
         holds_slot, finished_at, takeovers, position, created_at)
       SELECT 'acme', printf('00000000-0000-4000-8000-%012d', n), 'echo', printf('00000000-0000-4000-8000-%012d', n),
         CASE WHEN n % 5 = 4 THEN 'full' END, CASE WHEN n % 5 = 4 THEN 1 END,
         CASE WHEN n % 5 = 4 AND n > 4 THEN 'full' END, CASE WHEN n % 5 = 4 AND n > 4 THEN n END,
         CASE n % 5 WHEN 0 THEN 'awaiting' WHEN 1 THEN 'awaiting' WHEN 2 THEN 'in-progress' WHEN 3 THEN 'completed' ELSE 'created' END,
         1, CASE WHEN n % 5 = 2 OR n = 4 THEN 'alive' END,
         CASE n % 5 WHEN 0 THEN ${NOW} + 1000000 + n WHEN 4 THEN ${NOW} - n END,
         n = 4, CASE WHEN n % 5 = 3 THEN ${NOW} END, 0, 1, ${NOW} + n FROM numbers`,
    )
    .run();
  raw.prepare(`INSERT INTO cadenza_entries (id, lines) SELECT ${firstId("id")}, ? FROM cadenza_runs`).run(first);
  raw.exec("INSERT INTO cadenza_slots (key, held) VALUES ('full', 1); COMMIT");
}

it("a take reads few of the cancelled runs whose code no process has, however many there are", async () => {
  const recorded = new RecordingDatabase(openDatabase(":memory:"));
  const cancelled = new SqliteStore(recorded, { clock, closeDatabase: true });
  await cancelled.renew("taker", Number.POSITIVE_INFINITY);
  const at = clock.now();
  const gone = head({ status: "cancelling", owner: null, due_at: at - 50 });
  for (let n = 0; n < 500; n++)
    await create(cancelled, n, {
      created: { agent_name: "other", ...(n % 2 === 0 && { version: "1" }) },
      head: n % 5 === 0 ? { ...gone, owner: "dead" } : gone,
      priority: n % 3,
    });
  recorded.rows = 0;
  const taken = await cancelled.take({ ...request, cancelledForMs: 5 });
  expect(taken).toHaveLength(request.limit);
  expect(taken.map(({ key }) => Number(key.run_id.slice(-3)) % 3)).toEqual(taken.map(() => 2));
  expect(recorded.rows).toBeLessThan(600);
  cancelled.close();
});
