import { setTimeout as pause } from "node:timers/promises";
import { AgentError, AgentRuntime } from "cadenza";
import type { AdminAct } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import type { Report } from "../commands/report.ts";
import type { GrownDatabase } from "../growth/grown-stores.ts";
import { ASIDE_MS, POSITION_BITS } from "../internals.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram, WorkerProcess } from "../worker-process.ts";
import type { ActingOrder, ActingReport, ActingSettings } from "./messages.ts";

/** How many runs are copied. */
const PATTERNS = 10;
/** How often the driver looks how far an act is, in milliseconds. */
const LOOK_MS = 100;
/** How often it looks whether the last runs have come back. */
const MAX_LOOKS = 100;
/** How long a run of another tenant may take while one is paused, in milliseconds. */
const MAX_OTHER_MS = 3_000;

const agentOf = { cancel: "order", retry: "failing", pause: "mail" } as const;
export type Acting = keyof typeof agentOf;

export interface ActingOptions {
  /** What is made of so many runs. */
  readonly runs: number;
  /** How many processes that act are killed. */
  readonly kills: number;
  /** How long a turn of the event loop may be, in milliseconds of processor time. */
  readonly longest: number;
}

/** Acts on many runs of a database, kills the processes that do so, and checks what has become of the runs. */
export async function tryAct(
  act: Acting,
  grown: GrownDatabase,
  { runs, kills, longest }: ActingOptions,
  report: Report,
): Promise<void> {
  const program = await buildProgram(new URL("./worker.ts", import.meta.url));
  const patterns = await grown.open();
  await makePatterns(patterns, agentOf[act]);
  await patterns.close?.();
  await grown.multiply(runs - PATTERNS);
  // The copies were created one after the other, after their patterns.
  await grown.query(`UPDATE ${grown.prefix}runs SET created_at = created_at - ${runs}`);
  const web = newRuntime(await grown.open(), false);
  const crew = new Crew(program, grown, act === "pause", longest, report);
  const trial: Trial = { web, grown, crew, runs, kills, report };
  try {
    await (act === "pause" ? pauseAll(trial) : actOnAll(act, trial));
  } finally {
    await crew.end();
    await web.close({ drainMs: 0 });
    program.remove();
  }
  for (const message of crew.said) report.wrong(`a process said: ${message}`);
  report.check(crew.turn <= longest, `the longest turn took ${crew.turn.toFixed(1)} ms of processor time`);
}

interface Trial extends Omit<ActingOptions, "longest"> {
  /** Executes nothing. */
  readonly web: AgentRuntime;
  readonly grown: GrownDatabase;
  readonly crew: Crew;
  readonly report: Report;
}

/** One process at a time. */
class Crew {
  readonly said = new Set<string>();
  /** The longest turn of all. */
  turn = 0;
  /** How many runs of each tenant have begun. */
  readonly began = new Map<string, number>();
  isResumed = false;
  readonly #program: BuiltProgram;
  readonly #grown: GrownDatabase;
  readonly #longest: number;
  readonly #report: Report;
  #executes: boolean;
  #started = 0;
  #process: WorkerProcess<ActingSettings, ActingOrder, ActingReport> | undefined;

  constructor(program: BuiltProgram, grown: GrownDatabase, executes: boolean, longest: number, report: Report) {
    this.#program = program;
    this.#grown = grown;
    this.#executes = executes;
    this.#longest = longest;
    this.#report = report;
  }

  /** Kills the process, if there is one, and starts the next. */
  async next(executes = this.#executes): Promise<void> {
    await this.end();
    this.#executes = executes;
    this.isResumed = false;
    await new Promise<void>((resolve) => {
      const settings = { name: `process ${this.#started++}`, place: this.#grown.place, executes };
      this.#process = new WorkerProcess(this.#program, settings, (heard) => {
        if (heard.is === "ready") resolve();
        else this.#hear(heard);
      });
    });
  }

  order(order: ActingOrder): void {
    this.#process?.order(order);
  }

  async end(): Promise<void> {
    this.#process?.kill();
    await this.#process?.gone;
    this.#process = undefined;
  }

  #hear(heard: ActingReport): void {
    if (heard.is === "said") this.said.add(heard.message);
    if (heard.is === "resumed") this.isResumed = true;
    if (heard.is === "began") this.began.set(heard.tenant, (this.began.get(heard.tenant) ?? 0) + 1);
    if (heard.is !== "turn" || heard.ms <= this.turn) return;
    this.turn = heard.ms;
    if (heard.ms <= this.#longest) return;
    const said = `a turn took ${heard.ms.toFixed(1)} ms, of which the collector up to ${heard.collected.toFixed(1)}`;
    this.#report.say(`process ${this.#started}: ${said}`);
  }
}

async function actOnAll(act: "cancel" | "retry", { web, grown, crew, runs, kills, report }: Trial): Promise<void> {
  const admin = createAdmin(web);
  const begin = () => (act === "cancel" ? admin.cancelMany : admin.retryMany).call(admin, { tenant: "acme" });
  const endOf = async (begun: AdminAct, killsLeft: number): Promise<AdminAct> => {
    let left = killsLeft;
    for (;;) {
      const now = await admin.act(begun);
      if (now.finished_at !== null) return now;
      // All runs are found before one is acted on.
      const share = (now.matched + now.done + now.left + now.refused) / (2 * runs);
      report.progress(`${act}: ${now.matched} found, ${now.done} done, ${now.left} left, ${now.refused} refused`);
      if (left > 0 && share >= 1 - left / (killsLeft + 1)) {
        left -= 1;
        await crew.next();
      }
      await pause(LOOK_MS);
    }
  };
  const check = async (ended: AdminAct, wanted: readonly number[], when: string): Promise<void> => {
    const { status, matched, done, left, refused } = ended;
    const figures = `${status}, ${matched} matched, ${done} done, ${left} left, ${refused} refused`;
    const isRight = status === "completed" && `${[matched, done, left, refused]}` === `${wanted}`;
    report.check(isRight, `${act} of ${runs} runs, ${when}: ${figures}`);
    report.check(
      `${await changesOf(act, grown)}` === `${[runs, runs]}`,
      `${when}, each run was changed once: ${(await changesOf(act, grown)).join(" changes of runs: ")}`,
    );
  };
  await crew.next();
  const began = performance.now();
  await check(await endOf(await begin(), kills), [runs, runs, 0, 0], `${kills} processes were killed`);
  report.say(`it took ${((performance.now() - began) / 1_000).toFixed(0)} s`);
  const again = act === "cancel" ? [0, 0, 0, 0] : [runs, 0, runs, 0];
  await check(await endOf(await begin(), 0), again, "tried again");
}

/** How many changes an act has made, and of how many runs. */
async function changesOf(act: "cancel" | "retry", { prefix, query }: GrownDatabase): Promise<readonly number[]> {
  const run = prefix === "cadenza_" ? `e.id >> ${POSITION_BITS}` : "e.run";
  const [row] = await query(
    act === "cancel"
      ? `SELECT count(*) AS changes, count(DISTINCT ${run}) AS runs FROM ${prefix}entries e WHERE e.lines LIKE '%"cancel-requested"%'`
      : `SELECT count(*) AS changes, count(DISTINCT idempotency_key) AS runs FROM ${prefix}runs WHERE idempotency_key LIKE 'cadenza:retry:%'`,
  );
  return [Number(row?.["changes"]), Number(row?.["runs"])];
}

async function pauseAll({ web, grown, crew, runs, kills, report }: Trial): Promise<void> {
  const admin = createAdmin(web);
  const { prefix, query } = grown;
  const countOf = async (condition: string): Promise<number> => {
    const [row] = await query(`SELECT count(*) AS runs FROM ${prefix}runs WHERE tenant = 'acme' AND ${condition}`);
    return Number(row?.["runs"]);
  };
  const aside = `due_at >= ${ASIDE_MS}`;
  const { changed } = await admin.pause({ tenant: "acme" });
  const again = await admin.pause({ tenant: "acme" });
  report.check(changed && !again.changed, "a pause that is tried again changes nothing");
  const other = web.scope({ tenant: "other" });
  let longest = 0;
  for (let kill = 0; kill <= kills; kill++) {
    await crew.next();
    for (let n = 0; n < 20; n++) {
      const began = performance.now();
      const { run_id } = await other.createRun({ agent_name: "mail", input: "other", mode: "async" });
      while ((await other.getRun(run_id)).finished_at === null) await pause(5);
      longest = Math.max(longest, performance.now() - began);
    }
  }
  const set = await countOf(aside);
  report.check(longest <= MAX_OTHER_MS, `a run of another tenant took ${longest.toFixed(0)} ms, ${set} are set aside`);
  report.check(!crew.began.has("acme"), `${crew.began.get("acme") ?? 0} runs of the paused tenant have begun`);
  await crew.next(false);
  for (let kill = 0; kill <= kills; kill++) {
    crew.order({ resume: "acme" });
    if (kill === kills) break;
    while (!crew.isResumed && (await countOf(aside)) > set * (1 - (kill + 1) / (kills + 1))) await pause(5);
    await crew.next();
  }
  while (!crew.isResumed) await pause(LOOK_MS);
  // The server may still be at the statement of a process that was killed.
  report.say(`${await countOf(aside)} runs are set aside when the tenant is resumed`);
  for (let looks = 0; looks < MAX_LOOKS && (await countOf(aside)) > 0; looks++) await pause(LOOK_MS);
  const back = await countOf(`due_at < ${ASIDE_MS} AND status = 'created'`);
  report.check(back === runs, `${back} of ${runs} runs are due again, ${kills} processes were killed`);
}

function newRuntime(store: Store, executes: boolean): AgentRuntime {
  const runtime = new AgentRuntime({
    store: durable(store),
    work: executes,
    limits: { maxLiveRuns: Number.POSITIVE_INFINITY },
  });
  const kind = { durable: true, version: "1" } as const;
  if (executes) {
    runtime.register("order", kind, (_input, { ask }) => ask("Refund 40 €?"));
    runtime.register("failing", kind, async (_input, { step }) => {
      await step("look up", () => 4_000);
      return step("pay", () => Promise.reject(new AgentError("refused", "The bank refused.")));
    });
  }
  // Its runs wait for the processes of the trial.
  for (const name of executes ? ["mail"] : ["mail", "order", "failing"]) runtime.declare({ name, ...kind });
  return runtime;
}

async function makePatterns(store: Store, agent_name: string): Promise<void> {
  const runtime = newRuntime(store, true);
  const scope = runtime.scope({ tenant: "acme" });
  for (let n = 0; n < PATTERNS; n++) {
    const { run_id } = await scope.createRun({ agent_name, input: "acme", mode: "async" });
    const isLeft = agent_name === "mail" ? [] : ["created", "in-progress"];
    while (isLeft.includes((await scope.getRun(run_id)).status)) await pause(1);
  }
  await runtime.close({ drainMs: 0 });
}
