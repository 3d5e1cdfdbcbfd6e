import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { AdminAct } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import type { Entry, RunKey, Store } from "cadenza/store";
import { durable } from "cadenza/store";
import type { Report } from "../commands/report.ts";
import type { GrownDatabase } from "../growth/grown-stores.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram, WorkerProcess } from "../worker-process.ts";
import { registerBoth } from "./agents.ts";
import type { MovingReport, MovingSettings } from "./messages.ts";
import { durability } from "./messages.ts";

/** Its runs are copied as runs of the same tenant. */
const TENANT = "acme";
/** The agents of the runs that are copied. */
const PATTERNS = ["odd", "slow", ...new Array<string>(8).fill("order")];
/** How many runs are answered at a time. */
const ANSWERS_AT_ONCE = 32;
/** How many processes execute runs at a time. */
const PROCESSES = 2;
/** How often the driver looks how far it is, in milliseconds. */
const LOOK_MS = 200;
/** How long nothing may change while it waits for runs to end, in milliseconds. */
const PATIENCE_MS = 60_000;
/** How many runs are asked for together. */
const PAGE = 500;

export interface MovingOptions {
  /** How many open runs there are. */
  readonly runs: number;
  /** How many processes are killed during the move. */
  readonly kills: number;
}

/**
 * Moves all open runs of a database to another version while a share of them is answered and executed, kills processes that
 * execute runs and the move, and checks by the logs what has become of each run.
 */
export async function tryMove(grown: GrownDatabase, { runs, kills }: MovingOptions, report: Report): Promise<void> {
  const program = await buildProgram(new URL("./worker.ts", import.meta.url));
  await makePatterns(await grown.open());
  await grown.multiply(runs - PATTERNS.length);
  // The copies were created one after the other, after their patterns.
  await grown.query(`UPDATE ${grown.prefix}runs SET created_at = created_at - ${runs}`);
  const crew = new Crew(program, grown);
  const store = await grown.open();
  const web = new AgentRuntime({ store: durable(store, durability), work: false });
  try {
    for (let started = 0; started < PROCESSES; started++) await crew.start();
    await move({ web, store, crew, kills, report });
  } finally {
    await crew.end();
    await web.close({ drainMs: 0 });
    program.remove();
  }
  // Processes that were killed keep their leases for a while, and runs at work are kept until they are given back.
  report.say({ said: [...crew.said] });
}

async function makePatterns(store: Store): Promise<void> {
  const runtime = new AgentRuntime({ store: durable(store) });
  registerBoth(runtime, () => undefined);
  const scope = runtime.scope({ tenant: TENANT });
  for (const agent_name of PATTERNS) await scope.createRun({ agent_name, input: "" });
  await runtime.close();
  await store.close?.();
}

/** The processes that execute runs. */
class Crew {
  readonly said = new Map<string, number>();
  /** The bodies of steps that have begun, by run. */
  readonly #bodies = new Map<string, { readonly version: string; readonly at: number }[]>();
  readonly #program: BuiltProgram;
  readonly #grown: GrownDatabase;
  #started = 0;
  readonly #processes: WorkerProcess<MovingSettings, never, MovingReport>[] = [];

  constructor(program: BuiltProgram, grown: GrownDatabase) {
    this.#program = program;
    this.#grown = grown;
  }

  async start(): Promise<void> {
    await new Promise<void>((resolve) => {
      const settings = { name: `process ${this.#started++}`, place: this.#grown.place };
      const started = new WorkerProcess<MovingSettings, never, MovingReport>(this.#program, settings, (heard) => {
        if (heard.is === "ready") resolve();
        if (heard.is === "said") this.said.set(heard.message, (this.said.get(heard.message) ?? 0) + 1);
        if (heard.is !== "body") return;
        const { run_id, version, at } = heard;
        const bodies = this.#bodies.get(run_id) ?? [];
        this.#bodies.set(run_id, bodies);
        bodies.push({ version, at });
      });
      this.#processes.push(started);
    });
  }

  /** Whether a step of version 1 has begun after one of version 2. */
  beganLate(run_id: string): boolean {
    const bodies = (this.#bodies.get(run_id) ?? []).toSorted((one, other) => one.at - other.at);
    const second = bodies.findIndex(({ version }) => version === "2");
    return second !== -1 && bodies.slice(second).some(({ version }) => version === "1");
  }

  /** Kills the process that was started first, and starts another one. */
  async killOldest(): Promise<void> {
    const oldest = this.#processes.shift();
    oldest?.kill();
    await this.start();
    await oldest?.gone;
  }

  async end(): Promise<void> {
    for (const one of this.#processes) one.kill();
    for (const one of this.#processes) await one.gone;
  }
}

interface Trial extends Pick<MovingOptions, "kills"> {
  /** Executes nothing: it answers, and begins the move. */
  readonly web: AgentRuntime;
  readonly store: Store;
  readonly crew: Crew;
  readonly report: Report;
}

async function move({ web, store, crew, kills, report }: Trial): Promise<void> {
  const admin = createAdmin(web);
  const keys = await openRuns(store);
  const answers = new Answers(web, keys);
  const load = answers.begin();
  const began = performance.now();
  const act = await admin.moveToVersion({ version: "1" }, "2");
  let left = kills;
  let ended: AdminAct;
  for (;;) {
    ended = await admin.act(act);
    if (ended.finished_at !== null) break;
    const { matched, done, refused } = ended;
    report.progress(
      `${matched} found, ${done} moved, ${ended.left} left, ${refused} refused, ${answers.done} answered`,
    );
    const share = (matched + done + ended.left + refused) / (2 * keys.length);
    if (left > 0 && share >= 1 - left / (kills + 1)) {
      left -= 1;
      await crew.killOldest();
    }
    await pause(LOOK_MS);
  }
  report.say(
    `the move took ${((performance.now() - began) / 1_000).toFixed(0)} s, ${answers.done} runs were answered, ${kills - left} processes killed`,
  );
  answers.isOver = true;
  await load;
  const blocked = (await admin.blocked()).items.length;
  report.check(blocked === 0, `${blocked} runs are blocked after the move`);
  report.check((await admin.pauses()).length === 0, "the move has left no pause");
  const others = new Answers(web, keys);
  await others.begin(1);
  report.say({ "answers refused": answers.refused, afterwards: others.refused });
  await allEnded(store, keys.length, report);
  report.check((await admin.blocked()).items.length === 0, "no run is blocked at the end");
  await judge(ended, keys, store, crew, report);
}

async function openRuns(store: Store): Promise<readonly RunKey[]> {
  const keys: RunKey[] = [];
  for (let after: number | null | undefined; after !== null; ) {
    const page = await store.survey({ version: "1", statuses: ["awaiting"], limit: PAGE, after });
    keys.push(...page.runs.map(({ key }) => key));
    after = page.next;
  }
  return keys;
}

/** Answers runs: while the move is at work, every third one. */
class Answers {
  done = 0;
  isOver = false;
  /** How many answers were refused, by their codes: that of a run that was answered before, or that is at work. */
  readonly refused: Record<string, number> = {};
  readonly #scope: Pick<AgentRuntime, "resume">;
  readonly #keys: readonly RunKey[];
  #next = 0;

  constructor(web: AgentRuntime, keys: readonly RunKey[]) {
    this.#scope = web.scope({ tenant: TENANT });
    this.#keys = keys;
  }

  /** Resolves when all are answered, or it is over. */
  async begin(each = 3): Promise<void> {
    const answer = async (): Promise<void> => {
      for (let key = this.#take(each); key !== undefined && !this.isOver; key = this.#take(each))
        await this.#answer(key);
    };
    await Promise.all(Array.from({ length: ANSWERS_AT_ONCE }, answer));
  }

  #take(each: number): RunKey | undefined {
    const key = this.#keys[this.#next];
    this.#next += each;
    return key;
  }

  async #answer({ run_id }: RunKey): Promise<void> {
    try {
      await this.#scope.resume({ run_id, await_resume: { ok: true }, mode: "async" });
      this.done += 1;
    } catch (error) {
      if (!CadenzaError.is(error)) throw error;
      this.refused[error.code] = (this.refused[error.code] ?? 0) + 1;
    }
  }
}

async function allEnded(store: Store, runs: number, report: Report): Promise<void> {
  let last = -1;
  for (let since = performance.now(); ; ) {
    const census = await store.census();
    const open = census.filter(({ agent_name }) => PATTERNS.includes(agent_name));
    const left = open.reduce((sum, one) => sum + one.runs, 0);
    if (left === 0) return;
    if (left !== last) since = performance.now();
    last = left;
    report.progress(`${left} of ${runs} runs are open`);
    if (performance.now() - since > PATIENCE_MS) {
      report.wrong(`${left} runs have not ended: ${JSON.stringify(open)}`);
      return;
    }
    await pause(LOOK_MS);
  }
}

/** Each run was moved or named, or had ended by then. The results before its move are by version 1, those after it by version 2. */
async function judge(
  { status, matched, done, left, refused, errors, finished_at }: AdminAct,
  keys: readonly RunKey[],
  store: Store,
  crew: Crew,
  report: Report,
): Promise<void> {
  const over = Date.parse(finished_at ?? "");
  const named = new Set(errors.map(({ run_id }) => run_id));
  const codes: Record<string, number> = {};
  for (const { code } of errors) codes[code] = (codes[code] ?? 0) + 1;
  const found = { moved: 0, "of these between two steps": 0, named: 0, ended: 0 };
  const wrong = { missed: 0, open: 0, twice: 0, odd: 0, mixed: 0, late: 0 };
  for (const key of keys) {
    const stored = await store.find(key);
    if (stored === undefined) throw new Error(`Run ${key.run_id} is missing.`);
    const entries = (await store.read(key, 0, stored.position)) ?? [];
    const { status: its, finished_at: at } = stored.head;
    const moves = entries.filter(({ type }) => type === "moved").length;
    const isNamed = named.has(key.run_id);
    const untilMoved = entries.slice(0, entries.findIndex(({ type }) => type === "moved") + 1);
    if (untilMoved.filter(({ type }) => type === "step").length > 1) found["of these between two steps"] += 1;
    if (moves > 0) found.moved += 1;
    else if (isNamed) found.named += 1;
    else if (at !== null && at <= over) found.ended += 1;
    else wrong.missed += 1;
    if (its !== "completed") wrong.open += 1;
    if (moves > 1 || (moves > 0 && isNamed)) wrong.twice += 1;
    if (moves > 0 && stored.created.agent_name === "odd") wrong.odd += 1;
    if (isMixed(entries)) wrong.mixed += 1;
    if (crew.beganLate(key.run_id)) wrong.late += 1;
  }
  report.say({ ...found, "named with": codes });
  const figures = `${status}, ${matched} matched, ${done} moved, ${left} left, ${refused} refused`;
  report.check(status === "completed" && matched === done + left + refused, `the act: ${figures}`);
  report.check(done === found.moved && refused === named.size, "its figures are those of the logs and of the names");
  report.check(
    wrong.missed === 0,
    `${wrong.missed} runs were neither moved nor named, and were open when the move was over`,
  );
  report.check(wrong.open === 0, `${wrong.open} runs have not completed`);
  report.check(wrong.twice === 0, `${wrong.twice} runs were moved twice, or moved and named`);
  report.check(wrong.odd === 0, `${wrong.odd} runs were moved to code that does not match`);
  report.check(
    wrong.mixed === 0,
    `${wrong.mixed} runs have a result of version 1 after the move, or of version 2 before it`,
  );
  report.check(wrong.late === 0, `in ${wrong.late} runs a step of version 1 has begun after one of version 2`);
}

/** Whether a result is by another version than the one that executes the run there. */
function isMixed(entries: readonly Entry[]): boolean {
  const moved = entries.findIndex(({ type }) => type === "moved");
  return entries.some((entry, index) => {
    const version = moved !== -1 && index > moved ? "2" : "1";
    return entry.type === "step" && entry.result !== version;
  });
}
