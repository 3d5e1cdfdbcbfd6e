import { nextTick } from "node:process";
import type { CreateInfo, Interceptor, Scope, StreamedEvent } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Store } from "cadenza/store";
import { isPromise } from "../internals.ts";
import type { Block, Program, Statement } from "../program.ts";
import { CHILD, parseInput, print } from "../program.ts";
import { agentOf, textOf } from "../program-player.ts";
import { Random } from "../random.ts";
import { hookedStore } from "../store-proxy.ts";
import { markOf, othersIn, TENANTS } from "../tenants.ts";
import { WakeQueue } from "../wake-queue.ts";
import { playerIn } from "./bodies.ts";
import type { Played, Script } from "./play.ts";
import { Play } from "./play.ts";
import type { Findings, Trial, Trouble } from "./trials.ts";
import { disturb, durabilityIn, noFindings, programOf, scriptOf, sumOf, troubles } from "./trials.ts";
import type { Process } from "./world.ts";
import { atOnce, scopeIn, World } from "./world.ts";

/*
 * Random programs of eight tenants in one world. Their runs and sub-runs have the same ids, and so have their sessions,
 * idempotency keys, labels and questions. What a tenant reads, what its agents read, what its steps do and what is told
 * of its runs may hold its own values alone. A stranger, who has no runs, asks for these ids too, and finds nothing.
 */

const SESSION = "00000000-0000-4000-8000-0000000c4a70";
const LABELS = { order: "O-17" } as const;
const KEY = "the run";
const STRANGER = "stranger";
/** How likely a reader asks for something between two events. */
const READS = 0.05;
/** For how long the logs of a tenant cannot be read at most, in milliseconds. */
const DAMAGED_MS = 3_000;
/** How often that happens at most: the pauses before a run is read again grow. */
const MAX_DAMAGES = 8;
/** After how long another process takes a run whose owner has not learnt of it, in milliseconds. */
const LEASE_MS = 1_000;
/** A world that takes more steps is stuck. Most take 1,000 to 10,000. */
const MAX_STEPS = 100_000;
/** How likely the answer is lost that gives runs to a process. */
const LOST_TAKES = 0.3;

/** Hands out the same ids to each tenant, as far as it can know for whom an id is. */
class SameIds {
  /** Whether the runs are being created that have no parent. */
  isCreating = true;
  readonly #counts = new Map<string, number>();
  #tenant: string | undefined;
  #isRoot = false;

  /** How many ids more than one tenant has got. */
  get shared(): number {
    return [...this.#counts.values()].toSorted((one, other) => other - one)[1] ?? 0;
  }

  /** Undefined: it is not known for whom it is. */
  next(): string | undefined {
    if (this.#tenant === undefined) return this.#isRoot ? idOf(0) : undefined;
    const count = (this.#counts.get(this.#tenant) ?? 0) + 1;
    this.#counts.set(this.#tenant, count);
    return idOf(count);
  }

  /** The tenant's agent begins a sub-run, which gets its id at once unless the agent is replayed. */
  begin<T>(tenant: string | undefined, call: () => T): T {
    this.#tenant = tenant;
    try {
      return call();
    } finally {
      this.#tenant = undefined;
    }
  }

  /** The run with the key has not been found. So it is created now, and gets its id before anything else happens. */
  afterSearch(): void {
    this.#isRoot = this.isCreating;
    nextTick(() => {
      this.#isRoot = false;
    });
  }
}

function idOf(count: number): string {
  return `11111111-0000-4000-8000-${count.toString(16).padStart(12, "0")}`;
}

/** What goes wrong between tenants. */
class Watch {
  readonly #world: () => World;

  constructor(world: () => World) {
    this.#world = world;
  }

  /** A tenant has got a value. */
  gets(tenant: string, value: unknown, what: string): void {
    for (const other of othersIn(tenant, value))
      this.#world().violations.push(`${tenant} gets a value of ${other}: ${what}: ${JSON.stringify(value)}`);
  }

  /** Something is said to be of a run of a tenant. */
  isOf(tenant: string, info: Pick<CreateInfo, "input">, what: string): void {
    const { tenant: its } = parseInput(textOf(info.input));
    if (its !== tenant) this.#world().violations.push(`${what} of ${its} is taken for one of ${tenant}`);
  }

  get interceptor(): Interceptor {
    return {
      create: (info) => {
        this.isOf(info.tenant, info, "a new run");
        return { of: markOf(info.tenant) };
      },
      run: (info, next) => {
        this.isOf(info.tenant, info, "a run");
        this.gets(info.tenant, info.carrier, "what a run carries");
        return next();
      },
      step: async (info, next) => {
        const result = await next();
        this.gets(info.tenant, result, `the result of ${info.key}`);
        return result;
      },
      ask: (info, next) => {
        this.gets(info.tenant, info.parts, `the question ${info.await_id}`);
        return next();
      },
    };
  }

  register(process: Process, ids: SameIds): void {
    const { runtime } = process;
    const agent = agentOf({
      ...playerIn(process),
      read: ({ tenant = "", key, value }) => this.gets(tenant, value, `the agent, by ${key}`),
      begin: (tenant, call) => ids.begin(tenant, call),
    });
    for (const name of ["agent", CHILD]) {
      if (process.isWeb) runtime.declare({ name, durable: true, version: "1" });
      else runtime.register(name, { durable: true, version: "1" }, agent);
    }
    for (const type of announced)
      runtime.on(type, (event, { tenant }) => this.gets(tenant, event, `the listener of ${type}`));
  }
}

const announced: readonly StreamedEvent["type"][] = [
  "message.part",
  "generic",
  "run.awaiting",
  "run.completed",
  "run.failed",
];

/** What a tenant may ask for. */
const reads: Readonly<Record<string, (scope: Scope, run_id: string) => Promise<unknown>>> = {
  getRun: (scope, run_id) => scope.getRun(run_id),
  details: (scope, run_id) => scope.details(run_id),
  transcript: (scope, run_id) => scope.transcript(run_id),
  events: async (scope, run_id) => {
    const events: unknown[] = [];
    for await (const event of scope.events(run_id, { until: "now", detail: true })) events.push(event);
    return events;
  },
  findRun: (scope) => scope.findRun({ idempotencyKey: KEY }),
  "listRuns by labels": (scope) => scope.listRuns({ labels: LABELS, output: true }),
  "listRuns by session": (scope) => scope.listRuns({ session_id: SESSION, output: true }),
  "listRuns by parent": (scope, parent) => scope.listRuns({ parent, output: true }),
  "listRuns by status": (scope) => scope.listRuns({ status: ["awaiting", "in-progress"], output: true }),
  listRuns: (scope) => scope.listRuns({ output: true }),
  getSession: (scope) => scope.getSession(SESSION),
};

/** What only those may do to whom a run belongs. Each is refused to the stranger. */
const acts: Readonly<Record<string, (scope: Scope, run_id: string) => Promise<unknown>>> = {
  cancel: (scope, run_id) => scope.cancel(run_id),
  resume: (scope, run_id) =>
    scope.resume(
      { run_id, await_resume: { value: 1, of: STRANGER }, mode: "async" },
      { idempotencyKey: "answer ask#1" },
    ),
  send: (scope, run_id) =>
    scope.send({ to: run_id, name: "mail", data: { value: 1, of: STRANGER } }, { idempotencyKey: "mail 1" }),
  "send by labels": (scope) => scope.send({ to: { labels: LABELS }, name: "mail", data: { value: 1, of: STRANGER } }),
  fork: (scope, run_id) => scope.fork(run_id, { mode: "async" }),
  delete: (scope, run_id) => scope.delete(run_id),
  deleteSession: (scope) => scope.deleteSession(SESSION),
};

/** Reads and acts in the name of tenants, and looks at what they get. */
class Reader {
  readonly #world: World;
  readonly #watch: Watch;
  readonly #random: Random;

  constructor(world: World, watch: Watch, random: Random) {
    this.#world = world;
    this.#watch = watch;
    this.#random = random;
  }

  /** Asks a process for something, as a tenant or as the stranger. The world goes on meanwhile. */
  ask(): void {
    const random = this.#random;
    const process = random.pick(this.#world.working);
    const run_id = idOf(random.below(4));
    if (random.chance(0.3)) {
      const [what, call] = random.pick([...Object.entries(reads), ...Object.entries(acts)]);
      this.#asStranger(what, call(scopeIn(process, STRANGER), run_id));
    } else {
      const tenant = random.pick(TENANTS);
      const [what, call] = random.pick(Object.entries(reads));
      this.#asTenant(tenant, what, run_id, call(scopeIn(process, tenant), run_id));
    }
  }

  #asTenant(tenant: string, what: string, run_id: string, answer: Promise<unknown>): void {
    const isThere = (): boolean => atOnce(this.#world.store.find({ tenant, run_id })) !== undefined;
    const wasThere = isThere();
    answer.then(
      (value) => {
        this.#watch.gets(tenant, value, what);
        if (what.startsWith("listRuns") && (value as readonly unknown[]).length > this.#world.countOf(tenant))
          this.#world.violations.push(`${tenant} gets more runs than it has: ${what}`);
      },
      (error: unknown) => {
        this.#watch.gets(tenant, [String(error), error], what);
        if (!CadenzaError.is(error)) this.#world.violations.push(`${what} failed: ${String(error)}`);
        else if (error.code === "run_not_found" && isThere() && wasThere)
          this.#world.violations.push(`${tenant} does not find its run ${run_id}: ${what}`);
      },
    );
  }

  #asStranger(what: string, answer: Promise<unknown>): void {
    const nothing: readonly string[] = ["run_not_found", "session_not_found", "store_failed"];
    answer.then(
      (value) => {
        const isNothing = value === undefined || (Array.isArray(value) && value.length === 0);
        if (!isNothing) this.#world.violations.push(`a stranger gets something: ${what}: ${JSON.stringify(value)}`);
      },
      (error: unknown) => {
        this.#watch.gets(STRANGER, [String(error), error], what);
        if (!CadenzaError.is(error) || !nothing.includes(error.code))
          this.#world.violations.push(`a stranger learns something: ${what}: ${String(error)}`);
      },
    );
  }
}

/** What fails in the store for a while. */
class Damage {
  readonly #random: Random;
  readonly #losesTakes: boolean;
  readonly #ids: SameIds;
  readonly #world: () => World;
  #tenant = "";
  #until = 0;
  #count = 0;

  constructor(random: Random, losesTakes: boolean, ids: SameIds, world: () => World) {
    this.#random = random;
    this.#losesTakes = losesTakes;
    this.#ids = ids;
    this.#world = world;
  }

  /** The logs of one of the tenants cannot be read for a while. */
  begin(): void {
    if (++this.#count > MAX_DAMAGES) return;
    this.#tenant = this.#random.pick(TENANTS);
    const ms = this.#random.below(DAMAGED_MS);
    this.#until = this.#world().now + ms;
    this.#world().disturb(ms);
  }

  /** The store as a process sees it. */
  view(store: Store): Store {
    return hookedStore((call, method, [key]) => {
      if (method === "read" && this.#world().now < this.#until && (key as { tenant: string }).tenant === this.#tenant)
        throw new Error("The log cannot be read.");
      const answer = call();
      if (method === "findByIdempotencyKey" && this.#ids.isCreating)
        return Promise.resolve(answer).then((found) => {
          this.#ids.afterSearch();
          return found;
        });
      if (method !== "take" || !this.#losesTakes || !this.#random.chance(LOST_TAKES)) return answer;
      this.#world().disturb(LEASE_MS);
      return isPromise(answer) ? answer.then(() => []) : [];
    }, store);
  }
}

export interface IsolationTrial extends Trial {
  /** How many ids sub-runs of more than one tenant have had. */
  readonly shared: number;
}

export interface IsolationOptions {
  /** Replaces the store as each process sees it. */
  readonly view?: ((store: Store) => Store) | undefined;
}

/** Runs eight programs side by side, each of another tenant, with one kind of trouble, and judges each as if it were alone. */
export async function isolationTrial(
  seed: number,
  trouble: Trouble,
  { view = (store) => store }: IsolationOptions = {},
): Promise<IsolationTrial> {
  const random = new Random(seed ^ 0x7e4a);
  const counted = { crashes: 0 };
  const wrong: string[] = [];
  const ids = new SameIds();
  const watch: Watch = new Watch(() => world);
  const damage = new Damage(random, random.chance(0.3), ids, () => world);
  const isDamaging = random.chance(0.4);
  const world: World = new World({
    random,
    late: random.chance(0.4),
    reorders: seed % 2 === 1,
    tenants: TENANTS,
    maxSteps: MAX_STEPS,
    uuid: () => ids.next(),
    wakes: random.chance(0.3)
      ? new WakeQueue({ now: () => world.now, setTimeout: (callback, ms) => world.callAfter(ms, callback) })
      : undefined,
    plant: { view: (store) => damage.view(view(store)) },
    runtime: {
      durability: { ...durabilityIn(random), alwaysReplay: trouble === "always replay" },
      interceptors: [watch.interceptor],
    },
    register: (process) => watch.register(process, ids),
  });
  const reader = new Reader(world, watch, random);
  const programs = TENANTS.map((tenant, index) => programFor(tenant, seed * TENANTS.length + index));
  try {
    world.start(undefined, true);
    const plays = programs.map(
      ({ script }) =>
        new Play(script, {
          world,
          random,
          disturb: () => {
            if (world.violations.length > 0) throw new Error("A rule is broken.");
            if (random.chance(READS)) reader.ask();
            if (isDamaging && random.chance(READS / 10)) damage.begin();
            // Each of the plays asks for it.
            if (random.chance(1 / TENANTS.length)) disturb(world, trouble, random, counted);
          },
        }),
    );
    for (const one of plays) await one.begin();
    ids.isCreating = false;
    const played = await Promise.all(plays.map((one) => one.toTheEnd()));
    wrong.push(...world.violations);
    for (const [index, one] of programs.entries()) {
      const itsPlay = played[index];
      if (itsPlay !== undefined) wrong.push(...(await misjudgedAs(one, itsPlay)));
    }
  } catch (error) {
    wrong.push(...world.violations, error instanceof Error ? `${error.stack}` : String(error));
  }
  return { seed, trouble, crashes: counted.crashes, steps: world.steps, shared: ids.shared, wrong };
}

interface TenantProgram {
  readonly tenant: string;
  readonly program: Program;
  readonly script: Script;
}

/** A tenant's program and its client. Everything that has a name has the same one in each tenant. */
function programFor(tenant: string, seed: number): TenantProgram {
  const made = programOf(seed);
  // So that each tenant has a sub-run with the first id, which asks.
  const body: Block = [
    { does: "step", name: "prepare", ms: 10, failures: 0 },
    { does: "ask", schema: false },
  ];
  const first: Statement = { does: "run", agent: CHILD, program: { body, fails: false } };
  const program = { ...made, body: [first, ...made.body] };
  const script: Script = {
    ...scriptOf(program, seed, tenant, "program"),
    session: { id: SESSION, history: [`${markOf(tenant)}before`] },
    labels: LABELS,
  };
  return { tenant, program, script };
}

/** What is wrong with the run of a tenant, and with what the store has of the tenant. */
async function misjudgedAs({ tenant, program }: TenantProgram, played: Played): Promise<string[]> {
  const { world } = played;
  const wrong: string[] = [];
  const others = (what: string, value: unknown): void => {
    for (const other of othersIn(tenant, value)) wrong.push(`${what} has values of ${other}: ${JSON.stringify(value)}`);
  };
  for (const { key } of await world.store.list({ tenant, limit: 1_000, offset: 0 }))
    others(`the log of ${key.run_id}`, await world.log(key.run_id, tenant));
  others("the session", await world.store.session({ tenant, session_id: SESSION }));
  return wrong.length === 0 ? [] : [...wrong.map((what) => `${markOf(tenant)}${what}`), print(program)];
}

/** The command that repeats a trial. */
export function again({ seed }: Trial): string {
  return `npm run stress -- durable --part isolation --seed ${seed} --worlds 1`;
}

/** Tries so many worlds of eight programs each, from a seed on. */
export async function tryIsolation(from: number, count: number): Promise<Findings & { readonly shared: number }> {
  let findings: Findings = noFindings;
  let shared = 0;
  for (let seed = from; seed < from + count; seed++) {
    const one = await isolationTrial(seed, troubles[seed % troubles.length] ?? "none");
    shared += one.shared;
    const wrong = one.wrong.length > 0 ? [one] : [];
    findings = sumOf(findings, { programs: TENANTS.length, trials: 1, troubles: one.crashes, wrong });
  }
  return { ...findings, shared };
}
