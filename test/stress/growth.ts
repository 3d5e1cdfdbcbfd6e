import { AgentError, AgentRuntime, CadenzaError } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { Store } from "cadenza/store";
import { command } from "../harness/commands/commands.ts";
import type { Report } from "../harness/commands/report.ts";
import type { GrownDatabase } from "../harness/growth/grown-stores.ts";
import { growOnPostgres, growOnSqlite } from "../harness/growth/grown-stores.ts";

const CALLS = 100;
const MAX_RATIO = 2;
/** What is faster than this, in milliseconds, is not compared. */
const SMALL_MS = 10;
const SMALL = 10_000;
const DAY_MS = 86_400_000;
/** All were created and ended so long ago, in milliseconds: each is a millisecond younger than the one before. */
const PAST_MS = 3_600_000;
/** A call that takes so long is not made again. */
const LONG_MS = 2_000;

/** The times of a call, in milliseconds. */
interface Times {
  readonly median: number;
  readonly p99: number;
  /** How many of the calls were refused, because they would look at too many runs. */
  readonly refused: number;
}

const none: Times = { median: 0, p99: 0, refused: 0 };

export const trial = command({
  about:
    "Measures each call of runtime and admin with 10,000 stored runs and with many. It is wrong if the 99th percentile of one is more than twice as high then.",
  options: {
    runs: { about: "How many runs are stored. A fifth of them wait.", default: 1_000_000 },
    store: { about: "Where they are stored.", oneOf: ["postgres", "sqlite", "both"], default: "both" },
  },
  async run({ runs, store }, report) {
    for (const name of ["postgres", "sqlite"] as const) {
      if (store !== "both" && store !== name) continue;
      const open = name === "postgres" ? growOnPostgres : growOnSqlite;
      const before = await timesWith(open, SMALL, report);
      const after = await timesWith(open, runs, report);
      for (const [call, times] of after) {
        const { p99 } = times;
        const first = before.get(call) ?? none;
        const said = `${name}, ${call}: ${show(first)} with ${SMALL} runs, ${show(times)} with ${runs}`;
        report.progress(said);
        report.check(p99 <= Math.max(SMALL_MS, MAX_RATIO * first.p99), said);
      }
    }
    return `each call, with ${runs} runs`;
  },
});

function show({ median, p99, refused }: Times): string {
  return `${median.toFixed(2)} ms (p99 ${p99.toFixed(2)}${refused === 0 ? "" : `, ${refused} refused`})`;
}

/** False: the call is refused, because it would look at too many runs. */
async function isAnswered(call: () => Promise<unknown>): Promise<boolean> {
  try {
    await call();
    return true;
  } catch (error) {
    if (CadenzaError.is(error) && error.limit === "maxExaminedRuns") return false;
    throw error;
  }
}

async function timesWith(
  open: () => Promise<GrownDatabase>,
  runs: number,
  report: Report,
): Promise<ReadonlyMap<string, Times>> {
  const grown = await open();
  const patterns = start(await grown.open());
  await makePatterns(patterns);
  await patterns.close({ drainMs: 0 });
  const past = ["created_at", "finished_at"].map((name) => `${name} = ${name} - ${PAST_MS}`);
  await grown.query(`UPDATE ${grown.prefix}runs SET ${past.join(", ")}`);
  await grown.multiply(runs);
  report.progress(`${runs} runs are stored`);
  const store = await grown.open();
  await countAll(store, 0.8 * runs, report);
  const runtime = start(store);
  const times = new Map<string, Times>();
  const [first] = await grown.query(`SELECT min(finished_at) AS at FROM ${grown.prefix}runs`);
  for (const [name, call] of calls(runtime, store, Number(first?.["at"]), 0.8 * runs)) {
    const taken: number[] = [];
    let refused = 0;
    while (taken.length < CALLS && (taken.at(-1) ?? 0) < LONG_MS) {
      const before = performance.now();
      if (!(await isAnswered(() => call(taken.length)))) refused += 1;
      taken.push(performance.now() - before);
    }
    taken.sort((one, other) => one - other);
    const p99 = taken[Math.ceil(0.99 * taken.length) - 1] ?? 0;
    times.set(name, { median: taken[taken.length >> 1] ?? 0, p99, refused });
    report.progress(`${name}: ${show(times.get(name) ?? none)}`);
  }
  await runtime.close({ drainMs: 0 });
  await grown.close();
  return times;
}

/** What one process does each hour, for all: the others find what it has counted. */
async function countAll(store: Store, ended: number, report: Report): Promise<void> {
  const before = performance.now();
  await store.prune({ ...keepsAll, maxRuns: ended });
  report.progress(`all ended runs are counted after ${(performance.now() - before).toFixed(0)} ms`);
}

function start(store: Store): AgentRuntime {
  const runtime = new AgentRuntime({
    store,
    retention: { maxRuns: Number.POSITIVE_INFINITY, maxAgeMs: Number.POSITIVE_INFINITY },
    limits: { maxLiveRuns: Number.POSITIVE_INFINITY },
  });
  const durable = { durable: true, version: "1" } as const;
  runtime.register("mail", durable, () => "sent");
  runtime.register("order", durable, (_input, { ask }) => ask("Refund 40 €?"));
  runtime.register("inbox", durable, async (_input, { receive }) => JSON.stringify(await receive("note")));
  runtime.register("later", durable, (_input, { sleep }) => sleep(10_000 * DAY_MS).then(() => "late"));
  runtime.register("failing", durable, () => Promise.reject(new AgentError("refused", "The bank refused.")));
  runtime.register("rare", durable, () => "rare");
  return runtime;
}

/** Forty ended and ten waiting runs, of two tenants: half of them are `acme`'s. */
async function makePatterns(runtime: AgentRuntime): Promise<void> {
  const of = async (agent_name: string, count: number, labels: Record<string, string>): Promise<void> => {
    const keepsOn = agent_name === "later" || agent_name === "inbox";
    for (let n = 0; n < count; n++) {
      const scope = runtime.scope({ tenant: n % 2 === 0 ? "acme" : "small" });
      const { run_id } = await scope.createRun({ agent_name, input: "hello", mode: "async" }, { labels });
      const isLeft = (status: string): boolean => status === "created" || (status === "in-progress" && !keepsOn);
      while (isLeft((await scope.getRun(run_id)).status)) await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await of("mail", 34, { kind: "common" });
  await of("failing", 4, { kind: "common" });
  await of("rare", 2, { kind: "common" });
  await of("order", 6, { kind: "open", customer: "one" });
  await of("inbox", 2, { kind: "open", mailbox: "one" });
  await of("later", 2, { kind: "open" });
}

const keepsAll = {
  maxRuns: Number.POSITIVE_INFINITY,
  endedBefore: Number.NEGATIVE_INFINITY,
  sessionsBefore: Number.NEGATIVE_INFINITY,
};

/** Fewer than have ended, but within the part that a store may keep beyond a number. */
function beyond(ended: number, n: number): number {
  return ended - 60 * (CALLS + n);
}

type Call = (n: number) => Promise<unknown>;

/** Each call by its name, the reading ones first. */
function calls(runtime: AgentRuntime, store: Store, oldest: number, ended: number): ReadonlyMap<string, Call> {
  const admin = createAdmin(runtime);
  const acme = runtime.scope({ tenant: "acme" });
  const waiting: string[] = [];
  const mailboxes: string[] = [];
  const openOf = async (agent_name: string, ids: string[], n: number): Promise<string> => {
    if (ids.length === 0)
      for (const { run_id } of await acme.listRuns({ agent_name, status: ["awaiting", "in-progress"], limit: 500 }))
        ids.push(run_id);
    return ids[n] ?? "";
  };
  const list: readonly (readonly [string, Parameters<typeof acme.listRuns>[0]])[] = [
    ["listRuns()", {}],
    ["listRuns({ agent_name }), common", { agent_name: "mail" }],
    ["listRuns({ agent_name }), rare", { agent_name: "rare" }],
    ["listRuns({ agent_name }), unknown", { agent_name: "none" }],
    ["listRuns({ status: awaiting })", { status: "awaiting" }],
    ["listRuns({ status: failed })", { status: "failed" }],
    ["listRuns({ status: cancelled })", { status: "cancelled" }],
    ["listRuns({ labels }), common", { labels: { kind: "common" } }],
    ["listRuns({ labels }), rare", { labels: { customer: "one7" } }],
    ["listRuns({ labels, status }), common", { labels: { kind: "common" }, status: "failed" }],
    ["listRuns({ roots })", { roots: true }],
    ["listRuns({ createdAfter })", { createdAfter: Date.now() - DAY_MS }],
  ];
  const pages: readonly (readonly [string, Parameters<typeof admin.runs>[0]])[] = [
    ["()", {}],
    ["({ tenant })", { tenant: "acme" }],
    ["({ tenant }), unknown", { tenant: "none" }],
    ["({ agent_name }), rare", { agent_name: "rare" }],
    ["({ agent_name }), unknown", { agent_name: "none" }],
    ["({ version }), unknown", { version: "2" }],
    ["({ status: awaiting })", { status: "awaiting" }],
    ["({ status: cancelling })", { status: "cancelling" }],
    ["({ tenant, labels }), common", { tenant: "acme", labels: { kind: "common" } }],
    ["({ tenant, labels }), rare", { tenant: "acme", labels: { customer: "one7" } }],
    ["({ labels }), rare", { labels: { customer: "one7" } }],
    ["({ id }), a beginning", { id: "0000002a" }],
    ["({ id }), whole", { id: "00000001-0000-4000-8000-000000000007" }],
    ["({ roots, createdAfter })", { roots: true, createdAfter: Date.now() - DAY_MS }],
  ];
  return new Map<string, Call>([
    ...list.map(([name, query]): [string, Call] => [name, () => acme.listRuns(query)]),
    ...pages.map(([name, query]): [string, Call] => [`admin.runs${name}`, () => admin.runs(query)]),
    ["admin.questions()", () => admin.questions()],
    ["admin.failures()", () => admin.failures()],
    ["admin.blocked()", () => admin.blocked()],
    ["admin.unregistered()", () => admin.unregistered()],
    ["admin.backlog()", () => admin.backlog()],
    ["admin.lines()", () => admin.lines()],
    ["admin.versions()", () => admin.versions()],
    ["admin.workers()", () => admin.workers()],
    ["stats()", () => runtime.stats()],
    ["getAgent()", async () => runtime.getAgent("mail")],
    [
      "store.take(), nothing due",
      async () => store.take({ owner: "other", agents: [{ agent_name: "mail", version: "1" }], limit: 8 }),
    ],
    ["getRun()", async (n) => acme.getRun(await openOf("order", waiting, n))],
    ["createRun()", () => acme.createRun({ agent_name: "mail", input: "hello" })],
    [
      "createRun({ labels })",
      () => acme.createRun({ agent_name: "mail", input: "hello" }, { labels: { kind: "common" } }),
    ],
    ["resume()", async (n) => acme.resume({ run_id: await openOf("order", waiting, n), await_resume: { ok: true } })],
    ["send(), by id", async (n) => acme.send({ to: await openOf("inbox", mailboxes, n), name: "note", data: n })],
    [
      "send(), by labels",
      (n) =>
        runtime
          .scope({ tenant: `small-${n % 100}` })
          .send({ to: { labels: { mailbox: `one${(n % 100) + 100}` } }, name: "note", data: n }),
    ],
    ["cancel()", async (n) => acme.cancel(await openOf("order", waiting, 200 + n))],
    ["delete()", async (n) => acme.delete(await openOf("order", waiting, n))],
    ["store.prune(), by age", async (n) => store.prune({ ...keepsAll, endedBefore: oldest + n })],
    ["store.prune(), by number", async (n) => store.prune({ ...keepsAll, maxRuns: beyond(ended, n) })],
  ]);
}
