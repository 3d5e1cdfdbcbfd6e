import type { RunKey, RunWrite, SessionKey, Store, StoredRun } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { StoreCheck } from "./check.ts";
import { check, expectSame, NOW } from "./check.ts";
import {
  counters,
  create,
  created,
  ended,
  head,
  message,
  over,
  parts,
  runId,
  sessionId,
  tryCreate,
  waiting,
  write,
} from "./samples.ts";

/** How many runs a tenant has. */
const RUNS = 6;
/** After so many steps everything is read. */
const LOOK_EVERY = 6;
/** How far a tenant is ahead of the next one. */
const AHEAD = 5;

/** What a tenant does in a store. It gives what the store answers, in the tenant's own names. */
type Step = (store: Store) => MaybePromise<unknown>;

/** The separation of tenants that use the same names. */
export const tenantChecks: readonly StoreCheck[] = [
  check("tenants: what one reads and writes does not depend on others with the same names", async ({ first }) => {
    const alone = new Names("alone", (n) => n);
    const expected: unknown[] = [];
    for (const step of stepsOf(alone)) expected.push(await step(first));
    // What is the first run of one tenant is the last one of another, and has other labels, keys and sessions.
    const tenants = [
      new Names("", (n) => n),
      new Names("other", (n) => RUNS - 1 - n),
      new Names("third", (n) => (n + 2) % RUNS),
    ];
    const scripts = tenants.map((names) => ({ names, steps: stepsOf(names), at: 0 }));
    const [leader] = scripts;
    const last = (leader?.steps.length ?? 0) + AHEAD * (scripts.length - 1);
    for (let round = 0; round < last; round++) {
      for (const [index, script] of scripts.entries()) {
        const step = script.steps[script.at];
        if (step === undefined || round < index * AHEAD) continue;
        const label = `answer ${script.at} for tenant ${JSON.stringify(script.names.tenant)}`;
        expectSame(await step(first), expected[script.at], label);
        script.at += 1;
      }
    }
  }),
  check("tenants: keys and sessions that others use under the same names are free", async ({ first }) => {
    const tenants = ["", "other", "third"];
    for (const [n, tenant] of tenants.entries()) await create(first, n, { tenant, idempotencyKey: "key" });
    for (const [n, tenant] of tenants.entries()) {
      const conflict = await tryCreate(first, 5, { tenant, idempotencyKey: "key" });
      expectSame(conflict, { conflict: "key_used", run_id: runId(n) }, `the key of tenant ${JSON.stringify(tenant)}`);
    }
    // The last tenant alone has no live run in the session.
    const session_id = sessionId(1);
    for (const tenant of tenants) await first.makeSession({ tenant, session_id }, { history: [], state: null }, NOW);
    for (const tenant of tenants.slice(0, -1)) await create(first, 6, { tenant, created: { session_id } });
    const isGone: boolean[] = [];
    for (const tenant of tenants) isGone.push(await first.deleteSession({ tenant, session_id }));
    expectSame(isGone, [false, false, true], "whether the session of each tenant is deleted");
  }),
];

/** The names that a tenant uses. All tenants use the same ones, each for something else. */
class Names {
  readonly tenant: string;
  readonly #order: (n: number) => number;

  constructor(tenant: string, order: (n: number) => number) {
    this.tenant = tenant;
    this.#order = order;
  }

  run(n: number): RunKey {
    return { tenant: this.tenant, run_id: runId(this.#order(n)) };
  }

  session(n: number): SessionKey {
    return { tenant: this.tenant, session_id: sessionId(this.#order(n)) };
  }

  key(n: number): string {
    return `key ${this.#order(n)}`;
  }

  label(n: number): string {
    return `label ${this.#order(n)}`;
  }

  /** A value that only this tenant writes. */
  mark(text: string | number): string {
    return `${text} of ${this.tenant}`;
  }

  /** The value without the tenant. Fails for a value of another one. */
  read(text: string): string {
    const [begin = "", of] = text.split(" of ");
    return of === this.tenant ? begin : `${text}, read by ${this.tenant}`;
  }

  /** A run in the names of the tenant. */
  found(run: StoredRun | undefined | null): unknown {
    if (run === undefined || run === null) return run;
    const { key, created: first, head: its, position } = run;
    const numbers = Array.from({ length: RUNS }, (_, n) => n);
    const n = numbers.find((one) => this.run(one).run_id === key.run_id);
    const { principal } = first;
    return {
      run: n ?? key.run_id,
      isOwn: key.tenant === this.tenant,
      says: this.read(String(principal)),
      position,
      status: its.status,
      epoch: its.epoch,
      isDue: its.due_at !== null,
    };
  }
}

function stepsOf(names: Names): readonly Step[] {
  const steps = changesOf(names);
  return steps.flatMap((step, index) => (index % LOOK_EVERY === LOOK_EVERY - 1 ? [step, ...looksOf(names)] : [step]));
}

function changesOf(names: Names): readonly Step[] {
  const { tenant } = names;
  const entered = (n: number, says: string) => ({
    ...names.session(n),
    create: true,
    messages: () => [message(names.mark(says))],
    state: { value: names.mark(says) },
    at: NOW,
  });
  const make = (
    n: number,
    changes: Parameters<typeof created>[1],
    more: Partial<RunWrite> = {},
    key?: string,
  ): Step => {
    const { run_id } = names.run(n);
    const first = created(n, { session_id: run_id, principal: names.mark(n), ...changes });
    return (store) => renamed(names, store.create(names.run(n), write([first], more), key ?? null));
  };
  const append = (n: number, epoch: number, position: number, change: RunWrite): Step => {
    return (store) => store.append(names.run(n), { epoch, position }, change);
  };
  const [order, team] = [{ order: names.label(0) }, { order: names.label(0), team: "a" }];
  const shared = names.session(0).session_id;
  const end = (at: number): RunWrite => write([ended(at)], { head: over(at), counters: counters({ completed: 1 }) });
  return [
    make(0, { session_id: shared, labels: team }, { session: entered(0, "first") }, names.key(0)),
    make(
      1,
      { labels: order, parent: { run_id: names.run(0).run_id, key: "run:echo#1", depth: 1 } },
      { head: waiting() },
    ),
    make(2, { labels: { order: names.label(1), team: "a" } }, { head: waiting() }, names.key(1)),
    make(3, { session_id: shared }, { head: waiting(), session: entered(0, "second") }),
    make(4, { session_id: names.session(1).session_id, labels: team }),
    // Neither an id nor a key is free that the tenant has used, and the keys of others are.
    make(4, {}, {}, names.key(2)),
    make(5, {}, {}, names.key(0)),
    append(0, 1, 1, write(parts(names.mark("emitted")), { wake: names.run(1) })),
    append(4, 1, 1, write(parts(names.mark("emitted")), { wake: names.run(0) })),
    // The owner does not know that the run was woken.
    append(0, 1, 2, write([], { head: waiting() })),
    (store) => store.post(names.run(3), { entries: parts(names.mark("posted")), due: "work" }),
    (store) => store.claim(names.run(2), { epoch: 1, position: 1 }, head({ epoch: 2 })),
    (store) =>
      store.makeSession(names.session(1), { history: [message(names.mark("made"))], state: names.mark(1) }, NOW),
    (store) => store.makeSession(names.session(0), { history: [], state: null }, NOW),
    append(4, 1, 2, write([], { session: { ...entered(1, "changed"), create: false } })),
    append(
      3,
      1,
      2,
      write([], { head: waiting(), session: { ...names.session(2), create: false, at: NOW, state: { value: 1 } } }),
    ),
    (store) =>
      store.putSession(names.session(2), { history: [message(names.mark("put"))], state: names.mark("put") }, NOW),
    make(
      5,
      { session_id: names.run(2).run_id },
      { session: { ...entered(0, "own"), session_id: names.run(2).run_id } },
    ),
    append(4, 1, 2, end(NOW)),
    // Sessions that live runs use stay, and so do runs that have not ended.
    (store) => store.deleteSession(names.session(0)),
    (store) => store.deleteSession({ tenant, session_id: names.run(2).run_id }),
    (store) => store.delete([names.run(4), names.run(0), names.run(1)]),
    make(4, {}, { head: waiting() }),
    append(0, 1, 2, end(NOW)),
    append(3, 1, 2, end(NOW)),
    (store) => store.deleteSession(names.session(0)),
    (store) => store.deleteSession(names.session(1)),
    append(2, 2, 1, end(NOW)),
    (store) => store.deleteSession({ tenant, session_id: names.run(2).run_id }),
    append(5, 1, 1, end(NOW)),
    (store) => store.deleteSession({ tenant, session_id: names.run(2).run_id }),
    (store) => store.delete([names.run(0), names.run(2)]),
    make(0, {}, { head: waiting() }, names.key(0)),
    (store) => store.delete([names.run(3), names.run(5)]),
  ];
}

/** Everything that a tenant can read. */
function looksOf(names: Names): readonly Step[] {
  const { tenant } = names;
  const numbers = Array.from({ length: RUNS }, (_, n) => n);
  const list =
    (query: Partial<RunQuery>): Step =>
    async (store) =>
      (await store.list({ tenant, limit: 100, offset: 0, ...query })).map((run) => names.found(run as StoredRun));
  const survey =
    (query: object): Step =>
    async (store) =>
      (await store.survey({ tenant, limit: 100, ...query })).runs.map((run) => names.found(run as StoredRun));
  const inSession = (key: SessionKey): readonly Step[] => [
    async (store) => {
      const session = await store.session(key);
      return (
        session && {
          history: session.history.map(({ parts: its }) => names.read(its[0]?.content ?? "")),
          state: session.state === null ? null : names.read(String(session.state)),
        }
      );
    },
    async (store) => {
      const head = await store.sessionHead(key);
      return head && { ...head, state: head.state === null ? null : names.read(String(head.state)) };
    },
  ];
  return [
    ...numbers.flatMap((n): Step[] => [
      async (store) => names.found(await store.find(names.run(n))),
      async (store) => {
        const log = await store.read(names.run(n), 0, 100);
        return log?.map((entry) => {
          if (entry.type === "created") return names.read(String(entry.principal));
          return entry.type === "emitted" && entry.kind === "part" ? names.read(entry.part.content ?? "") : entry.type;
        });
      },
      async (store) => {
        const log = await store.read(names.run(n), 1, 1);
        return log?.map((entry) =>
          entry.type === "emitted" && entry.kind === "part" ? names.read(entry.part.content ?? "") : entry.type,
        );
      },
      async (store) => names.found(await store.findByIdempotencyKey(tenant, names.key(n))),
      ...inSession(names.session(n)),
      ...inSession({ tenant, session_id: names.run(n).run_id }),
      list({ session_id: names.session(n).session_id }),
      list({ session_id: names.run(n).run_id }),
      list({ labels: { order: names.label(n) } }),
      list({ labels: { order: names.label(n), team: "a" } }),
      list({ parents: [names.run(n).run_id] }),
      list({ after: names.run(n).run_id }),
      list({ after: names.run(n).run_id, createdAfter: NOW }),
      survey({ labels: { order: names.label(n) } }),
      survey({ labels: { order: names.label(n), team: "a" } }),
      survey({ idPrefix: names.run(n).run_id }),
    ]),
    list({}),
    list({ roots: true }),
    list({ statuses: ["awaiting"] }),
    list({ statuses: ["in-progress"] }),
    list({ statuses: ["in-progress", "awaiting"], agent_name: "echo" }),
    list({ statuses: ["completed"] }),
    list({ createdAfter: NOW }),
    survey({}),
    survey({ statuses: ["awaiting"] }),
    survey({ statuses: ["completed", "in-progress"] }),
    async (store) => {
      const tails = await store.tails(
        numbers.map((n) => names.run(n)),
        1,
      );
      return tails.map((tail) => tail?.from);
    },
    async (store) => {
      const known = numbers.map((n) => ({ key: names.run(n), epoch: 1, position: 1 }));
      const moved = await store.moved(known);
      return numbers.map((n) => {
        const its = moved.filter(({ key }) => key.run_id === names.run(n).run_id);
        return its.map(({ key, epoch, position }) => [key.tenant === tenant, epoch, position]);
      });
    },
  ];
}

/** The answer of a creation, with the run that has the key in the names of the tenant. */
async function renamed(names: Names, answer: ReturnType<Store["create"]>): Promise<unknown> {
  const conflict = await answer;
  if (conflict?.conflict !== "key_used") return conflict;
  return {
    ...conflict,
    run_id: Array.from({ length: RUNS }, (_, n) => n).find((n) => names.run(n).run_id === conflict.run_id),
  };
}
