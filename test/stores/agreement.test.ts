import * as fc from "fast-check";
import { expect, test } from "vitest";
import { sameJson } from "../../src/core/json.ts";
import type { RunHead, RunQuery, RunWrite, Store } from "../../src/core/ports.ts";
import { MemoryStore } from "../../src/stores/memory.ts";
import { SqliteStore } from "../../src/stores/sqlite.ts";
import {
  counters,
  created,
  head,
  message,
  over,
  part,
  runId,
  runKey,
  sessionId,
  waiting,
} from "../../src/testing/store-samples.ts";
import { openDatabase } from "./sqlite-files.ts";

const TENANTS = ["", "acme"];
const SESSIONS = [sessionId(1), sessionId(2), runId(1)];
const AGENTS = ["echo", "ask"];
const KEYS = ["key", ""];

/** Does something to a store at a time, and gives what it answered. */
interface Command {
  run(store: Store, now: number): unknown;
  toString(): string;
}

const tenant = fc.constantFrom(...TENANTS);
const n = fc.nat(4);
const owner = fc.constantFrom("owner-1", "owner-2");
/** How far a writer is off: mostly not at all. */
const off = fc.constantFrom(0, 0, 0, 0, 0, 0, 1, -1);
const writePlan = fc.record({
  status: fc.constantFrom("created", "in-progress", "awaiting", "awaiting", "completed", "failed"),
  owner: fc.option(owner),
  wait: fc.option(fc.integer({ min: -1, max: 9 })),
  texts: fc.array(fc.string(), { maxLength: 3 }),
  session: fc.option(
    fc.record({
      session_id: fc.constantFrom(...SESSIONS),
      create: fc.boolean(),
      texts: fc.array(fc.constantFrom("a", "b"), { maxLength: 2 }),
      state: fc.constantFrom(undefined, null, 1),
    }),
  ),
});
type WritePlan = typeof writePlan extends fc.Arbitrary<infer Plan> ? Plan : never;

const create = commands(
  "create",
  fc.record({
    tenant,
    n,
    agent_name: fc.constantFrom(...AGENTS),
    session_id: fc.option(fc.constantFrom(...SESSIONS)),
    idempotencyKey: fc.constantFrom(null, null, ...KEYS),
    isSubRun: fc.boolean(),
    write: writePlan,
  }),
  (store, now, { tenant, n, agent_name, session_id, idempotencyKey, isSubRun, write }) => {
    const parent = isSubRun ? { parent: { run_id: runId(99), key: "run:echo#1", depth: 1 } } : {};
    const first = created(n, { agent_name, session_id: session_id ?? runId(n), at: now, ...parent });
    const rest = writeOf(write, 1, now);
    return store.create(runKey(n, tenant), { ...rest, entries: [first, ...rest.entries] }, idempotencyKey);
  },
);

const append = commands(
  "append",
  fc.record({ tenant, n, epoch: off, position: off, raise: fc.nat(1), write: writePlan }),
  async (store, now, { tenant, n, epoch, position, raise, write }) => {
    const run = await store.find(runKey(n, tenant));
    const present = run?.head.epoch ?? 0;
    // What has ended is not written to any more: such a write is one that comes too late.
    const late = run !== undefined && run.head.finished_at !== null ? -1 : position;
    const expected = { epoch: present + epoch, position: (run?.position ?? 0) + late };
    return store.append(runKey(n, tenant), expected, writeOf(write, present + raise, now));
  },
);

const claim = commands(
  "claim",
  fc.record({ tenant, n, epoch: off, position: off, owner }),
  async (store, now, { tenant, n, epoch, position, owner }) => {
    const run = await store.find(runKey(n, tenant));
    if (run === undefined || run.head.finished_at !== null) return undefined;
    const expected = { epoch: run.head.epoch + epoch, position: run.position + position };
    return store.claim(runKey(n, tenant), expected, head({ owner, epoch: run.head.epoch + 1 }), now);
  },
);

const lease = commands("lease", fc.record({ owner, until: fc.option(fc.nat(9)) }), (store, now, { owner, until }) =>
  until === null ? store.release(owner) : store.renew(owner, now + until),
);

const putSession = commands(
  "putSession",
  fc.record({ tenant, session_id: fc.constantFrom(...SESSIONS), texts: fc.array(fc.constant("p"), { maxLength: 3 }) }),
  (store, now, { tenant, session_id, texts }) =>
    store.putSession({ tenant, session_id }, { history: texts.map(message), state: now }, now),
);

const prune = commands(
  "prune",
  fc.record({
    maxRuns: fc.constantFrom(0, 1, 3, Number.POSITIVE_INFINITY),
    age: fc.constantFrom(0, 5, 1_000),
    sessions: fc.boolean(),
  }),
  (store, now, { maxRuns, age, sessions }) =>
    store.prune({ maxRuns, endedBefore: now - age, sessionsBefore: sessions ? now - 4 : Number.NEGATIVE_INFINITY }),
);

const read = commands(
  "read",
  fc.record({ tenant, n, from: fc.nat(6), limit: fc.constantFrom(0, 1, 3, Number.POSITIVE_INFINITY) }),
  (store, _now, { tenant, n, from, limit }) => store.read(runKey(n, tenant), from, limit),
);

const due = commands(
  "due",
  fc.record({ later: fc.integer({ min: -3, max: 9 }), limit: fc.constantFrom(1, 2, 100) }),
  (store, now, { later, limit }) => store.due(now + later, limit),
);

const list = commands(
  "list",
  fc.record<RunQuery>({
    tenant,
    agent_name: fc.constantFrom(undefined, ...AGENTS),
    session_id: fc.constantFrom(undefined, ...SESSIONS),
    status: fc.constantFrom(undefined, "in-progress", "awaiting", "completed"),
    roots: fc.constantFrom(undefined, false, true),
    limit: fc.constantFrom(1, 2, 100),
    offset: fc.nat(2),
  }),
  (store, _now, query) => store.list(query),
);

const command = fc.oneof(
  { arbitrary: create, weight: 6 },
  { arbitrary: append, weight: 8 },
  { arbitrary: claim, weight: 3 },
  { arbitrary: lease, weight: 2 },
  { arbitrary: putSession, weight: 1 },
  { arbitrary: prune, weight: 2 },
  { arbitrary: read, weight: 1 },
  { arbitrary: due, weight: 3 },
  { arbitrary: list, weight: 2 },
);

test("both stores give the same answers, whatever is done to them", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 10, maxLength: 60, size: "max" }), async (script) => {
      const sqlite = new SqliteStore(openDatabase(":memory:"), { closeDatabase: true });
      const memory = new MemoryStore();
      for (const [now, step] of script.entries()) {
        agree(await step.run(sqlite, now), await step.run(memory, now));
        agree(await everything(sqlite, now), await everything(memory, now));
      }
      sqlite.close();
    }),
    { numRuns: 40, interruptAfterTimeLimit: 10_000 },
  );
});

/** A command for each plan; a script that fails is printed as names and plans. */
function commands<Plan>(
  name: string,
  plans: fc.Arbitrary<Plan>,
  run: (store: Store, now: number, plan: Plan) => unknown,
): fc.Arbitrary<Command> {
  return plans.map((plan) => ({
    run: (store, now) => run(store, now, plan),
    toString: () => `${name} ${fc.stringify(plan)}`,
  }));
}

function writeOf({ status, owner, wait, texts, session }: WritePlan, epoch: number, now: number): RunWrite {
  const heads: Record<WritePlan["status"], RunHead> = {
    created: head({ status: "created", owner, epoch }),
    "in-progress": head({ owner, epoch }),
    awaiting: waiting(wait === null ? null : now + wait, { owner, epoch }),
    completed: over(now, { epoch }),
    failed: over(now, { status: "failed", epoch }),
  };
  return {
    entries: texts.map((text) => part(text, now)),
    head: heads[status],
    session:
      session === null
        ? undefined
        : {
            session_id: session.session_id,
            create: session.create,
            messages: () => session.texts.map(message),
            state: session.state === undefined ? undefined : { value: session.state },
            at: now,
          },
    counters: heads[status].finished_at === null ? undefined : counters({ [status]: 1, active_ms: now }),
  };
}

async function everything(store: Store, now: number): Promise<unknown> {
  const of = async (tenant: string) => ({
    runs: await store.list({ tenant, limit: 100, offset: 0 }),
    sessions: await Promise.all(SESSIONS.map((session_id) => store.session({ tenant, session_id }))),
    keys: await Promise.all(KEYS.map((key) => store.findByIdempotencyKey(tenant, key))),
  });
  return {
    tenants: await Promise.all(TENANTS.map(of)),
    counters: await Promise.all(AGENTS.map((agent) => store.counters(agent))),
    due: await store.due(now, 100),
  };
}

function agree(sqlite: unknown, memory: unknown): void {
  const [one, other] = [plain(sqlite), plain(memory)];
  // The usual case is looked at in the quick way.
  if (!sameJson(one, other)) expect(one).toEqual(other);
}

function plain(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}
