import { MemoryStore } from "cadenza";
import type {
  LiveCount,
  RunHead,
  RunPosition,
  RunQuery,
  RunWrite,
  Store,
  StoredRun,
  SurveyQuery,
  TakeRequest,
  WorkerLease,
} from "cadenza/store";
import * as fc from "fast-check";
import { expect } from "vitest";
import { CheckClock } from "../../src/stores/contract/check.ts";
import {
  counters,
  created,
  head,
  message,
  over,
  part,
  plainlyCreated,
  runId,
  runKey,
  sessionId,
  sorted,
  waiting,
} from "../../src/stores/contract/samples.ts";
import type { AgentVersion, FeedOptions, MaybePromise, WatchedEvent } from "./internals.ts";
import { MOST_THROUGH, sameJson } from "./internals.ts";
import { withMembers } from "./port-proxy.ts";
import { forgotten, SlotJudge, unservedLines } from "./slot-judge.ts";

const TENANTS = ["", "acme"];
const SESSIONS = [sessionId(1), sessionId(2), runId(1)];
const AGENTS = ["echo", "ask"];
const VERSIONS = [null, "1"];
const KEYS = ["key", ""];
const PARENTS = [runId(1), runId(99)];
const LABELS = [{ a: "1" }, { b: "1" }, { a: "1", b: "1" }, { b: "2", a: "1" }];
const STATUSES = [
  ["in-progress"],
  ["awaiting"],
  ["completed"],
  ["awaiting", "created"],
  ["cancelling", "failed"],
  [],
] as const;
const SLOTS = ["slot-1", "slot-2"];
/** Each of these has one rate: the judge counts what it gives. */
const RATES = [
  { key: "rate-1", rate: { count: 2, perMs: 5 } },
  { key: "rate-2", rate: { count: 1, perMs: 20 } },
] as const;
const GATES = ["a", "b"] as const;
const PRIORITIES = [0, 0, 0, 0, 1, -1, 10];
/** Runs beside the others, of one gate. The last of them are behind it. */
const CROWD = MOST_THROUGH + 6;
/** Where their numbers begin, by the gate. */
const CROWDS = { a: 1_000, b: 2_000 };
const EVENTS: readonly (readonly WatchedEvent[])[] = [
  [{ type: "run.awaiting", await_id: "ask#1", of: null }],
  [{ type: "question.settled", await_id: "ask#1", how: "answer", of: null }, { type: "run.completed" }],
];
/** The agreement is about what is kept: a store in memory deletes old events sooner than others. */
const FEED = { keepMs: Number.POSITIVE_INFINITY };
const OWNERS = ["owner-1", "owner-2", "owner-3"];
const everyAgent = AGENTS.flatMap((agent_name) => VERSIONS.map((version) => ({ agent_name, version })));
/** More runs than a script makes. */
const ALL = 1_000;
const mismatch = { position: 1, expected: "ask#1", asked: "step#1" };

/** The time that is given to a store, which only increases, and the time of its own clock. */
interface Moment {
  readonly at: number;
  readonly now: number;
}

/** A call to a store, which gives the store's answer. */
interface Command {
  run(store: Store, moment: Moment): unknown;
  /** By how much the clock changes after it; it may go backwards. */
  readonly passes: number;
  toString(): string;
}

const tenant = fc.constantFrom(...TENANTS);
const few = fc.nat(4);
/** Mostly one of few runs, and some of a crowd. */
const n = fc.oneof(
  { arbitrary: few, weight: 12 },
  fc.constantFrom(...[0, 30, 60, 64, 65, 69].map((at) => CROWDS.a + at)),
);
/** A limit of the runs of one gate. Two gates with one line may be opened in any order. */
const slotOfGate = fc.option(
  fc.record({
    max: fc.integer({ min: 1, max: 2 }),
    rate: fc.constantFrom(undefined, undefined, { count: 3, perMs: 5 }),
  }),
);
/** Limits with and without rates, in the order of their keys. */
const slotsOf = fc.oneof(
  fc.constant(undefined),
  fc.tuple(fc.record({ key: fc.constantFrom(...SLOTS), max: fc.integer({ min: 1, max: 2 }) })),
  fc
    .tuple(
      ...RATES.map((rated) =>
        fc.option(fc.record({ max: fc.constantFrom(undefined, 1) }).map((own) => ({ ...rated, ...own }))),
      ),
      ...SLOTS.map((key) => fc.option(fc.record({ key: fc.constant(key), max: fc.integer({ min: 1, max: 2 }) }))),
    )
    .map((limits) => limits.filter((limit) => limit !== null)),
);
const owner = fc.constantFrom(...OWNERS);
/** By how much the position of a write is wrong: mostly it is right. */
const off = fc.constantFrom(0, 0, 0, 0, 0, 0, 1, -1);
const writePlan = fc.record({
  status: fc.constantFrom("created", "in-progress", "awaiting", "awaiting", "cancelling", "completed", "failed"),
  owner: fc.option(owner),
  wait: fc.option(fc.integer({ min: -1, max: 9 })),
  isBlocked: fc.boolean(),
  holdsSlot: fc.boolean(),
  asks: fc.boolean(),
  takeovers: fc.nat(2),
  wake: fc.option(fc.record({ tenant, n })),
  texts: fc.array(fc.string(), { maxLength: 3 }),
  feed: fc.constantFrom(undefined, ...EVENTS),
  session: fc.option(
    fc.record({
      session_id: fc.constantFrom(...SESSIONS),
      create: fc.boolean(),
      texts: fc.array(fc.constantFrom("a", "b"), { maxLength: 2 }),
      state: fc.constantFrom(undefined, null, 1),
      replaces: fc.constantFrom(undefined, undefined, true as const),
      generation: fc.constantFrom(undefined, "g", "h \u0000"),
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
    version: fc.constantFrom(...VERSIONS),
    slots: slotsOf,
    priority: fc.constantFrom(...PRIORITIES),
    gated: fc.option(fc.record({ gate: fc.constantFrom(...GATES), slot: slotOfGate }), { freq: 2 }),
    session_id: fc.option(fc.constantFrom(...SESSIONS)),
    idempotencyKey: fc.constantFrom(null, null, ...KEYS),
    parent: fc.constantFrom(undefined, ...PARENTS),
    labels: fc.constantFrom(undefined, ...LABELS),
    isPlain: fc.boolean(),
    write: writePlan,
  }),
  (
    store,
    moment,
    {
      tenant,
      n,
      agent_name,
      version,
      slots,
      priority,
      gated,
      session_id,
      idempotencyKey,
      parent,
      labels,
      isPlain,
      write,
    },
  ) => {
    const subRun = parent === undefined ? {} : { parent: { run_id: parent, key: "run:echo#1", depth: 1 } };
    const own = { agent_name, session_id: session_id ?? runId(n), at: moment.at, ...subRun, ...(labels && { labels }) };
    // What a plain run has begun may be deleted before it.
    const firstOf = isPlain && !PARENTS.includes(runId(n)) ? plainlyCreated : created;
    const first = firstOf(n, { ...own, ...(version !== null && { version }) });
    const { entries, ...rest } = writeOf(write, 1, moment);
    const limits = gated === null ? slots : gated.slot && [{ key: `crowd-${gated.gate}`, ...gated.slot }];
    const gate = gated === null ? undefined : gateOf(gated.gate, agent_name, version, priority);
    const whole = { ...rest, entries: [first, ...entries], slots: limits ?? undefined, priority, gate };
    return store.create(runKey(n, tenant), whole, idempotencyKey);
  },
);

/** The runs of one gate are of one agent, version and priority. */
function gateOf(gate: (typeof GATES)[number], ...of: readonly (string | number | null)[]): string {
  return `~${JSON.stringify([...of, gate])}`;
}

/** Creates many runs of one gate. */
const crowd = commands(
  "crowd",
  fc.record({ tenant, gate: fc.constantFrom(...GATES), priority: fc.constantFrom(0, 0, 1), slot: slotOfGate }),
  async (store, { at, now }, { tenant, gate, priority, slot }) => {
    const slots = slot ? [{ key: `crowd-${gate}`, ...slot }] : undefined;
    const due = head({ status: "created", owner: null, due_at: now });
    const answers: unknown[] = [];
    for (let one = CROWDS[gate]; one < CROWDS[gate] + CROWD; one++) {
      const write = { entries: [created(one, { at })], head: due, slots, priority };
      answers.push(
        await store.create(runKey(one, tenant), { ...write, gate: gateOf(gate, "echo", null, priority) }, null),
      );
    }
    return answers;
  },
);

/** Ends the first of many runs. Then all that are due are taken: when a store looks at other gates is its own affair. */
const cull = commands(
  "cull",
  fc.record({ tenant, gate: fc.constantFrom(...GATES), count: fc.constantFrom(1, 31, 33, MOST_THROUGH), owner }),
  async (store, { at }, { tenant, gate, count, owner }) => {
    for (let one = CROWDS[gate]; one < CROWDS[gate] + count; one++) {
      const run = await store.find(runKey(one, tenant));
      if (run === undefined || run.head.finished_at !== null) continue;
      const { head: before, position } = run;
      const end = { entries: [], head: over(at, { epoch: before.epoch + 1 }), takes: "all" } as const;
      await store.append(run.key, { epoch: before.epoch, position, wakes: 99 }, end);
    }
    return store.take({ owner, agents: everyAgent, limit: 1_000 });
  },
);

const append = commands(
  "append",
  fc.record({
    tenant,
    n,
    epoch: off,
    position: off,
    owner: fc.constantFrom(undefined, undefined, "same", "other", null),
    wakes: fc.constantFrom(undefined, 0, 1),
    raise: fc.nat(1),
    takes: fc.constantFrom(undefined, "first", "rest", "each", "all"),
    write: writePlan,
  }),
  async (store, moment, { tenant, n, epoch, position, owner, wakes, raise, takes, write }) => {
    const run = await store.find(runKey(n, tenant), "with inbox");
    const present = run?.head.epoch ?? 0;
    // A run that has ended gets no more writes: such a write comes too late.
    const late = run !== undefined && run.head.finished_at !== null ? -1 : position;
    const expectedOwner = owner === "same" ? run?.head.owner : owner;
    const expected = { epoch: present + epoch, position: (run?.position ?? 0) + late, owner: expectedOwner, wakes };
    const ids = run?.inbox?.map(({ id }) => id) ?? [];
    const taken = { all: "all", first: ids.slice(0, 1), rest: ids.slice(1), each: ids, none: undefined } as const;
    const whole = { ...writeOf(write, present + raise, moment), takes: taken[takes ?? "none"] };
    const answer = await store.append(runKey(n, tenant), expected, whole);
    return answer?.conflict === undefined && answer !== undefined ? withoutIds([answer]) : answer;
  },
);

const post = commands(
  "post",
  fc.record({
    tenant,
    n,
    text: fc.constantFrom("p", "q"),
    isCancel: fc.boolean(),
    unlessCancelling: fc.boolean(),
    unblocks: fc.boolean(),
    due: fc.constantFrom(undefined, "work", "look"),
    feed: fc.constantFrom(undefined, ...EVENTS),
  }),
  (store, { at }, { tenant, n, text, isCancel, unlessCancelling, unblocks, due, feed }) =>
    store.post(runKey(n, tenant), {
      entries: [part(text, at)],
      unlessCancelling,
      unblocks,
      due,
      feed,
      status: isCancel ? "cancelling" : undefined,
    }),
);

const claim = commands(
  "claim",
  fc.record({ tenant, n, epoch: off, position: off, owner, holds_slot: fc.boolean() }),
  async (store, _moment, { tenant, n, epoch, position, owner, holds_slot }) => {
    const run = await store.find(runKey(n, tenant));
    const expected = { epoch: (run?.head.epoch ?? 0) + epoch, position: (run?.position ?? 0) + position };
    return store.claim(runKey(n, tenant), expected, head({ owner, holds_slot, epoch: expected.epoch + 1 }));
  },
);

const take = commands(
  "take",
  fc.record({
    owner,
    agents: fc.array(
      fc.record<AgentVersion>({ agent_name: fc.constantFrom(...AGENTS), version: fc.constantFrom(...VERSIONS) }),
      { maxLength: 4 },
    ),
    limit: fc.constantFrom(0, 1, 2, 100),
    suspects: fc.option(fc.record({ takeovers: fc.constantFrom(1, 2), limit: fc.nat(2) }), { nil: undefined }),
    cancelledForMs: fc.constantFrom(undefined, undefined, 0, 3),
    unusedForMs: fc.constantFrom(undefined, undefined, 0),
  }),
  (store, _moment, request) => store.take(request),
);

const pause = commands(
  "pause",
  fc.record({
    agent_name: fc.constantFrom(...AGENTS),
    version: fc.constantFrom(undefined, ...VERSIONS),
    isResumed: fc.boolean(),
  }),
  (store, _moment, { isResumed, ...runs }) => (isResumed ? store.resume(runs) : store.pause(runs, null)),
);

const moved = commands(
  "moved",
  fc.array(fc.record({ tenant, n, epoch: fc.nat(3), position: fc.nat(4) }), { maxLength: 6 }),
  async (store, _moment, known) => {
    const positions = known.map(({ tenant, n, epoch, position }) => ({ key: runKey(n, tenant), epoch, position }));
    return sorted(withoutIds(await store.moved(positions)));
  },
);

const inbox = commands("inbox", fc.record({ tenant, n }), async (store, _moment, { tenant, n }) => {
  const run = await store.find(runKey(n, tenant), "with inbox");
  return run && withoutIds([run]);
});

/** Stores give other ids. */
function withoutIds<Run extends Pick<RunPosition, "inbox">>(runs: readonly Run[]): readonly object[] {
  return runs.map((run) => ({ ...run, inbox: run.inbox?.map(({ entries }) => entries) }));
}

const blocked = commands(
  "blocked",
  fc.record({
    agents: fc.option(
      fc.array(fc.record({ agent_name: fc.constantFrom(...AGENTS), version: fc.constantFrom(...VERSIONS) })),
      { nil: undefined },
    ),
    after: fc.option(fc.record({ tenant, n }), { nil: undefined }),
    limit: fc.constantFrom(0, 1, 100),
  }),
  (store, _moment, { after, ...query }) => store.blocked({ ...query, after: after && runKey(after.n, after.tenant) }),
);

const lease = commands(
  "lease",
  fc.record({ owner, forMs: fc.option(fc.nat(9)) }),
  async (store, _moment, { owner, forMs }) => {
    // A renewal may tell the time.
    await (forMs === null ? store.release(owner) : store.renew(owner, forMs));
  },
);

const makeSession = commands(
  "makeSession",
  fc.record({ tenant, session_id: fc.constantFrom(...SESSIONS), isMade: fc.boolean() }),
  (store, { at }, { tenant, session_id, isMade }) => {
    const session = { history: [message("m")], state: at, generation: `made at ${at}` };
    const key = { tenant, session_id };
    return isMade ? store.makeSession(key, session, at) : store.putSession(key, session, at);
  },
);

const most = fc.constantFrom(0, 1, 3, Number.POSITIVE_INFINITY);

const prune = commands(
  "prune",
  fc.record({
    // Between these a store may choose the tenants.
    maxRuns: fc.constantFrom(0, Number.POSITIVE_INFINITY),
    age: fc.constantFrom(0, 5, 1_000),
    sessions: fc.boolean(),
    perTenant: fc.option(fc.record({ tenants: fc.subarray([...TENANTS, "none"]), maxRuns: most, maxSessions: most }), {
      nil: undefined,
    }),
    rules: fc.option(
      fc.array(
        fc.record({
          agent_name: fc.constantFrom(undefined, ...AGENTS),
          tenant: fc.constantFrom(undefined, ...TENANTS),
          labels: fc.constantFrom(undefined, ...LABELS),
          age: fc.constantFrom(0, 5, 1_000),
          maxRuns: most,
        }),
        { maxLength: 3 },
      ),
      { nil: undefined },
    ),
  }),
  (store, { at }, { age, sessions, rules, ...numbers }) =>
    store.prune({
      ...numbers,
      endedBefore: at - age,
      sessionsBefore: sessions ? at - 4 : Number.NEGATIVE_INFINITY,
      rules: rules?.map(({ age, ...rule }) => ({ ...rule, endedBefore: at - age })),
    }),
);

const remove = commands(
  "delete",
  fc.record({ tenant, ns: fc.array(n, { maxLength: 3 }), session_id: fc.constantFrom(undefined, ...SESSIONS) }),
  (store, _moment, { tenant, ns, session_id }) =>
    session_id === undefined
      ? store.delete([...new Set(ns)].map((one) => runKey(one, tenant)))
      : store.deleteSession({ tenant, session_id }),
);

const read = commands(
  "read",
  fc.record({ tenant, n, from: fc.nat(6), limit: fc.constantFrom(0, 1, 3, Number.POSITIVE_INFINITY) }),
  (store, _moment, { tenant, n, from, limit }) => store.read(runKey(n, tenant), from, limit),
);

const list = commands(
  "list",
  fc.record<RunQuery>({
    tenant,
    agent_name: fc.constantFrom(undefined, ...AGENTS),
    session_id: fc.constantFrom(undefined, ...SESSIONS),
    statuses: fc.constantFrom(undefined, ...STATUSES),
    labels: fc.constantFrom(undefined, undefined, {}, ...LABELS),
    parents: fc.option(fc.subarray([...PARENTS]), { nil: undefined }),
    roots: fc.constantFrom(undefined, false, true),
    createdAfter: fc.constantFrom(undefined, undefined, 2, 5),
    createdBefore: fc.constantFrom(undefined, undefined, 4, 8),
    limit: fc.constantFrom(1, 2, 100),
    offset: fc.nat(2),
  }),
  (store, _moment, query) => store.list(query),
);

const survey = commands(
  "survey",
  fc.record<Omit<SurveyQuery, "after">>({
    tenant: fc.constantFrom(undefined, ...TENANTS),
    agent_name: fc.constantFrom(undefined, undefined, ...AGENTS),
    version: fc.constantFrom(undefined, undefined, ...VERSIONS),
    statuses: fc.constantFrom(undefined, ...STATUSES),
    labels: fc.constantFrom(undefined, undefined, ...LABELS),
    idPrefix: fc.constantFrom(undefined, undefined, "", "0000", runId(1)),
    roots: fc.constantFrom(undefined, true),
    createdAfter: fc.constantFrom(undefined, undefined, 2, 5),
    createdBefore: fc.constantFrom(undefined, undefined, 4, 8),
    limit: fc.constantFrom(1, 2, 100),
  }),
  async (store, _moment, query) => {
    // Places differ from store to store, and so does how many runs a store looks at for a page.
    const found: unknown[] = [];
    for (let after: number | undefined; ; ) {
      const { runs, next } = await store.survey({ ...query, after });
      expect(runs.length).toBeLessThanOrEqual(query.limit);
      found.push(...runs);
      if (next === null) return found;
      after = next;
    }
  },
);

const command = fc.oneof(
  { arbitrary: create, weight: 7 },
  { arbitrary: crowd, weight: 1 },
  { arbitrary: cull, weight: 1 },
  { arbitrary: append, weight: 8 },
  { arbitrary: post, weight: 3 },
  { arbitrary: claim, weight: 3 },
  { arbitrary: take, weight: 4 },
  { arbitrary: lease, weight: 3 },
  { arbitrary: pause, weight: 1 },
  { arbitrary: makeSession, weight: 1 },
  { arbitrary: prune, weight: 2 },
  { arbitrary: remove, weight: 2 },
  { arbitrary: read, weight: 1 },
  { arbitrary: moved, weight: 1 },
  { arbitrary: inbox, weight: 2 },
  { arbitrary: blocked, weight: 1 },
  { arbitrary: list, weight: 2 },
  { arbitrary: survey, weight: 2 },
);

/** A time at which all runs that have a time are due. */
const AFTER_ALL = 1_000_000;
/** The owner that takes everything at the end of a script. */
const LAST_OWNER = "owner-9";
/** Asks for work, and takes none. */
const lookOnly: TakeRequest = { owner: LAST_OWNER, agents: [], limit: 1, suspects: { takeovers: 0, limit: 0 } };
/** How long scripts are made at most, in milliseconds. */
const TIME_MS = 15_000;

/** A store that is compared. */
interface Compared {
  readonly store: Store;
  /** What is wrong with what the store keeps and does not show. Asked after each call. */
  complaints?(): MaybePromise<readonly unknown[]>;
  close(): MaybePromise<void>;
}

/**
 * Does random things to a store and to one in memory, and compares all that they answer. In the end each of them gives
 * all runs that are due. `open` gives an empty store. `setsBack`: whether the clock is set back, also in scripts with gates.
 */
export async function expectAgreement(
  open: (options: { readonly clock: CheckClock; readonly feed: FeedOptions }) => MaybePromise<Compared>,
  numRuns: number,
  setsBack: "always" | "without gates" = "always",
): Promise<void> {
  // What makes tables does so before the time begins.
  await (await open({ clock: new CheckClock(0), feed: FEED })).close();
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 10, maxLength: 60, size: "max" }), async (script) => {
      const clock = new CheckClock(0);
      const compared = await open({ clock, feed: FEED });
      const { store } = compared;
      const memory = new MemoryStore({ clock, feed: FEED });
      const judge = new SlotJudge();
      const judged = watched(memory, judge, clock);
      const goesOn = setsBack === "without gates" && script.some((step) => String(step).includes('"gate":'));
      try {
        for (const [at, step] of script.entries()) {
          const moment = { at, now: clock.now() };
          // Where time alone lets a rate give again, a store may see it before it is asked for work.
          for (const one of [store, memory]) expect(await one.take(lookOnly)).toEqual([]);
          agree(await step.run(store, moment), await step.run(judged, moment));
          agree(await everything(store), await everything(memory));
          expect(judge.complaints(runsOf(memory), moment.now)).toEqual([]);
          expect(unservedLines(memory.lines({ limit: 99 }))).toEqual([]);
          expect((await compared.complaints?.()) ?? []).toEqual([]);
          clock.set(moment.now + (goesOn ? Math.abs(step.passes) : step.passes));
        }
        clock.set(AFTER_ALL);
        for (const one of [store, memory]) expect(await forgottenBy(one, clock)).toEqual([]);
      } finally {
        await compared.close();
      }
    }),
    { numRuns, interruptAfterTimeLimit: TIME_MS },
  );
}

/** The store, of which a judge is told the slots of the runs. */
function watched(memory: MemoryStore, judge: SlotJudge, clock: CheckClock): Store {
  return withMembers<Store>(memory, {
    create(key, write, idempotencyKey) {
      const answer = memory.create(key, write, idempotencyKey);
      if (answer === undefined) judge.onCreated(key, write.slots);
      return answer;
    },
    prune(retention) {
      judge.onPruned(clock.now());
      return memory.prune(retention);
    },
  });
}

function runsOf(memory: MemoryStore): readonly StoredRun[] {
  return TENANTS.flatMap((tenant) => memory.list({ tenant, limit: ALL, offset: 0 }));
}

async function forgottenBy(store: Store, clock: CheckClock): Promise<readonly string[]> {
  const live = async () => {
    const lists = await Promise.all(TENANTS.map((tenant) => store.list({ tenant, limit: ALL, offset: 0 })));
    return lists.flat().filter(({ head }) => head.finished_at === null);
  };
  return forgotten(store, live, async () => {
    // The rates give again.
    clock.set(clock.now() + 100);
    await store.renew(LAST_OWNER, 1_000);
    return store.take({ owner: LAST_OWNER, agents: everyAgent, limit: 9 });
  });
}

/** A command for each plan; a script that fails is printed as names and plans. */
function commands<Plan>(
  name: string,
  plans: fc.Arbitrary<Plan>,
  run: (store: Store, moment: Moment, plan: Plan) => unknown,
): fc.Arbitrary<Command> {
  const passes = fc.constantFrom(1, 1, 1, 1, 0, 3, 20, -2, -30);
  return fc.tuple(plans, passes).map(([plan, passes]) => ({
    run: (store, moment) => run(store, moment, plan),
    passes,
    toString: () => `${name} ${fc.stringify(plan)}, then ${passes}`,
  }));
}

function writeOf(plan: WritePlan, epoch: number, { at, now }: Moment): RunWrite {
  const { status, owner, wait, isBlocked, holdsSlot, asks, takeovers, wake, texts, session, feed } = plan;
  const due_at = wait === null ? null : now + wait;
  const live = { owner, epoch, due_at, takeovers, holds_slot: holdsSlot, blocked: isBlocked ? mismatch : null };
  const heads: Record<WritePlan["status"], RunHead> = {
    created: head({ ...live, status: "created" }),
    "in-progress": head(live),
    awaiting: waiting(due_at, live),
    cancelling: head({ ...live, status: "cancelling" }),
    completed: over(at, { epoch }),
    failed: over(at, { status: "failed", epoch }),
  };
  return {
    entries: texts.map((text) => part(text, at)),
    head: heads[status],
    feed,
    asks: asks && heads[status].owner !== null && !holdsSlot ? true : undefined,
    wake: wake === null ? undefined : runKey(wake.n, wake.tenant),
    session:
      session === null
        ? undefined
        : {
            session_id: session.session_id,
            create: session.create,
            messages: () => session.texts.map(message),
            state: session.state === undefined ? undefined : { value: session.state },
            replaces: session.replaces,
            generation: session.generation,
            at,
          },
    counters: heads[status].finished_at === null ? undefined : counters({ [status]: 1, active_ms: at }),
  };
}

async function everything(store: Store): Promise<unknown> {
  const of = async (tenant: string) => ({
    runs: await store.list({ tenant, limit: ALL, offset: 0 }),
    sessions: await Promise.all(SESSIONS.map((session_id) => store.session({ tenant, session_id }))),
    heads: await Promise.all(SESSIONS.map((session_id) => store.sessionHead({ tenant, session_id }))),
    keys: await Promise.all(KEYS.map((key) => store.findByIdempotencyKey(tenant, key))),
  });
  return {
    feed: await feedOf(store),
    tenants: await Promise.all(TENANTS.map(of)),
    counters: await Promise.all(AGENTS.map((agent) => store.counters(agent))),
    owned: await Promise.all(OWNERS.map((owner) => store.owned(owner, 3))),
    blocked: await store.blocked({ limit: 3 }),
    backlog: sorted(await store.backlog()),
    // Since when a run with an owner waits is the store's own time.
    lines: (await store.lines({ limit: 9 })).map(({ first, ...line }) => ({ ...line, first: first.key })),
    census: countsOf(await store.census()),
    leases: leasesOf(await store.workers()),
    tails: await store.tails(
      TENANTS.flatMap((tenant) => [0, 1, 2, 3, 4].map((n) => runKey(n, tenant))),
      2,
    ),
  };
}

/** The whole feed, in pages. A transaction beside the test may hold events back for a moment. */
async function feedOf(store: Store): Promise<readonly unknown[]> {
  const found: unknown[] = [];
  for (let from = "start"; ; ) {
    const page = await store.readFeed?.({ from, limit: 3 });
    if (page === undefined) throw new Error("The store keeps no feed.");
    for (const { position: _, ...item } of page.items) found.push(item);
    if (page.more === null) return found;
    from = page.position;
  }
}

function countsOf(census: readonly LiveCount[]): readonly unknown[] {
  return sorted(census.map(({ agent_name, version, status, runs }) => ({ agent_name, version, status, runs })));
}

/** Expired owners without runs may be forgotten. */
function leasesOf(leases: readonly WorkerLease[]): readonly unknown[] {
  const kept = leases.filter(({ is_alive, runs }) => is_alive || runs > 0);
  return sorted(kept.map(({ owner, is_alive, runs }) => ({ owner, is_alive, runs })));
}

function agree(given: unknown, memory: unknown): void {
  const [one, other] = [plain(given), plain(memory)];
  // The usual case is compared in a fast way.
  if (!sameJson(one, other)) expect(one).toEqual(other);
}

function plain(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}
