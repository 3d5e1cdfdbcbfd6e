import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime, CadenzaError } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import { quoteName } from "../internals.ts";
import type { Listening } from "../outages/wire.ts";
import { Random } from "../random.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram, WorkerProcess } from "../worker-process.ts";
import type { Plan, WatchReport, WatchSettings } from "./messages.ts";
import { TEAM } from "./messages.ts";

/*
 * Two workers and a watcher on one server, which are killed one after the other, beside transactions that stay open. The
 * watcher notes each event, and mails each question. At the end the notes of each run are compared with what it did.
 */

export interface WatchOptions {
  readonly server: Listening;
  readonly schema: string;
  readonly seed: string | number;
  readonly runs: number;
  /** How many runs are open at once. */
  readonly atOnce: number;
  /** How many processes are killed at least, and after how many mails each. */
  readonly kills: number;
  readonly mailsBetweenKills: number;
  /** For how long a transaction stays open, in milliseconds. One follows the other. */
  readonly openMs: number;
  readonly onProgress?: ((runs: number, kills: number) => void) | undefined;
}

export interface WatchTrial {
  readonly runs: number;
  readonly events: number;
  readonly mails: number;
  /** Mails that a step gave to the mail service once more, which it knew by their key. */
  readonly repeated: number;
  readonly kills: number;
  /** How many transactions were left open. */
  readonly opened: number;
  readonly wrong: readonly string[];
}

type Process = WorkerProcess<WatchSettings, never, WatchReport>;

const CLIENT = { user: "postgres", database: "postgres" };
/** How often the driver looks for mails and notes, in milliseconds. */
const LOOK_MS = 20;

export async function watches(options: WatchOptions): Promise<WatchTrial> {
  const { host, port } = options.server;
  const pool = new pg.Pool({ ...CLIENT, host, port, max: 8 });
  const program = await buildProgram(new URL("./process.ts", import.meta.url));
  const store = await openPostgresStore({ pool, schema: options.schema, feed: { keepMs: Number.POSITIVE_INFINITY } });
  const web = new AgentRuntime({ store, work: false });
  try {
    return await new Driver(options, program, pool, web).drive();
  } finally {
    await web.close();
    await pool.end();
    program.remove();
  }
}

class Driver {
  readonly #options: WatchOptions;
  readonly #program: BuiltProgram;
  readonly #pool: pg.Pool;
  readonly #web: AgentRuntime;
  readonly #tables: string;
  readonly #random: Random;
  readonly #processes = new Map<Process, WatchSettings["is"]>();
  /** What each run has to tell. */
  readonly #expected = new Map<string, readonly string[]>();
  /** Called when a question was mailed to the whole team. */
  readonly #onMailed = new Map<string, () => void>();
  #started = 0;
  #kills = 0;
  #opened = 0;
  #isOver = false;
  readonly #wrong: string[] = [];

  constructor(options: WatchOptions, program: BuiltProgram, pool: pg.Pool, web: AgentRuntime) {
    this.#options = options;
    this.#program = program;
    this.#pool = pool;
    this.#web = web;
    this.#tables = quoteName(options.schema);
    this.#random = new Random(`${options.seed}`);
  }

  async drive(): Promise<WatchTrial> {
    const { runs, atOnce, kills, onProgress } = this.#options;
    const tables = this.#tables;
    await this.#pool.query(`
      CREATE TABLE ${tables}.mails (key text PRIMARY KEY, about text, recipient text, attempts integer DEFAULT 1);
      CREATE INDEX ON ${tables}.mails (about);
      CREATE TABLE ${tables}.notes (n bigint GENERATED ALWAYS AS IDENTITY, position text, run_id text,
        agent_name text, type text);
      CREATE TABLE ${tables}.positions (name text PRIMARY KEY, position text);
      INSERT INTO ${tables}.positions (name) VALUES ('mail'), ('note');`);
    this.#web.declare({ name: "asker", durable: true });
    for (const is of ["watcher", "worker", "worker"] as const) this.#start(is);
    const besides = [this.#readMails(), this.#leaveTransactionsOpen()];
    let begun = 0;
    const load = async (): Promise<void> => {
      // Killed processes are a part of the trial: it goes on until there were enough of them.
      for (; begun < runs || this.#kills < kills; ) {
        begun += 1;
        await this.#playRun();
        onProgress?.(begun, this.#kills);
      }
    };
    await Promise.all(Array.from({ length: atOnce }, load));
    // Nothing comes in front of a position that was read: when this run is noted, all before it are.
    await this.#untilNoted(await this.#playRun());
    this.#isOver = true;
    await Promise.all(besides);
    const events = await this.#judgeNotes();
    const mails = await this.#judgeMails();
    for (const process of [...this.#processes.keys()]) {
      this.#processes.delete(process);
      process.kill();
      await process.gone;
    }
    return {
      runs: this.#expected.size,
      events,
      ...mails,
      kills: this.#kills,
      opened: this.#opened,
      wrong: this.#wrong,
    };
  }

  /** Plays one run to its end: answers each question after it was mailed to the whole team, or cancels the run instead. */
  async #playRun(): Promise<string> {
    const plan: Plan = {
      questions: this.#random.pick([0, 1, 2, 3]),
      end: this.#random.chance(0.2) ? "failed" : "completed",
    };
    const isCancelled = plan.questions > 0 && this.#random.chance(0.2);
    const { run_id } = await this.#web.createRun({ agent_name: "asker", input: JSON.stringify(plan), mode: "async" });
    const expected: string[] = [];
    for (let n = 1; n <= plan.questions; n++) {
      const await_id = `ask#${n}`;
      expected.push(`run.awaiting ${await_id}`, `question.settled ${await_id}`);
      await new Promise<void>((resolve) => this.#onMailed.set(`${run_id} ${await_id}`, resolve));
      if (isCancelled && n === plan.questions) await this.#web.cancel(run_id);
      else await this.#answer(run_id, await_id);
    }
    expected.push(`run.${isCancelled ? "cancelled" : plan.end}`);
    for await (const _event of this.#web.events(run_id, { until: "end" }));
    this.#expected.set(run_id, expected);
    return run_id;
  }

  /** The worker that has the run may be killed at any time: the answer is sent again until it is known what became of it. */
  async #answer(run_id: string, await_id: string): Promise<void> {
    const answer = { run_id, await_id, await_resume: { ok: true }, mode: "async" } as const;
    for (;;) {
      try {
        await this.#web.resume(answer, { idempotencyKey: `${run_id} ${await_id}` });
        return;
      } catch (error) {
        if (!CadenzaError.is(error) || error.code !== "answer_pending") throw error;
      }
    }
  }

  #start(is: WatchSettings["is"]): void {
    const { server, schema } = this.#options;
    const settings: WatchSettings = { ...server, schema, name: `${is} ${++this.#started}`, is };
    const process: Process = new WorkerProcess(this.#program, settings, () => {});
    this.#processes.set(process, is);
    void process.gone.then(() => {
      if (!this.#processes.delete(process)) return;
      this.#wrong.push(`${process.name} has ended by itself`);
      if (!this.#isOver) this.#start(is);
    });
  }

  #killOne(): void {
    // The oldest first: each of the three has its turn.
    const [[process, is] = []] = this.#processes;
    if (process === undefined || is === undefined) return;
    this.#processes.delete(process);
    process.kill();
    this.#kills += 1;
    this.#start(is);
  }

  /**
   * Asks for the mails of the questions that are waited for, whenever they were sent: before this process knew of the
   * question, or under a number that another mail had passed when its transaction ended.
   */
  async #readMails(): Promise<void> {
    const { mailsBetweenKills } = this.#options;
    const mails = `${this.#tables}.mails`;
    for (let killAt = mailsBetweenKills; !this.#isOver; await pause(LOOK_MS)) {
      const { rows } = await this.#pool.query(
        `SELECT about FROM ${mails} WHERE about = ANY($1) GROUP BY about HAVING count(DISTINCT recipient) = $2`,
        [[...this.#onMailed.keys()], TEAM.length],
      );
      for (const { about } of rows) {
        this.#onMailed.get(about)?.();
        this.#onMailed.delete(about);
      }
      const counted = await this.#pool.query(`SELECT count(*)::integer AS count FROM ${mails}`);
      const { count } = counted.rows[0];
      if (count < killAt) continue;
      killAt = count + mailsBetweenKills;
      this.#killOne();
    }
  }

  async #leaveTransactionsOpen(): Promise<void> {
    const { server, openMs } = this.#options;
    while (!this.#isOver) {
      const client = new pg.Client({ ...CLIENT, host: server.host, port: server.port });
      await client.connect();
      await client.query("BEGIN");
      await client.query("SELECT pg_current_xact_id()");
      this.#opened += 1;
      for (let ms = 0; ms < openMs && !this.#isOver; ms += LOOK_MS) await pause(LOOK_MS);
      await client.query("COMMIT");
      await client.end();
    }
  }

  /** Waits for the note of the end of a run. */
  async #untilNoted(run_id: string): Promise<void> {
    for (;;) {
      const { rows } = await this.#pool.query(
        `SELECT FROM ${this.#tables}.notes WHERE run_id = $1 AND type IN ('run.completed', 'run.failed', 'run.cancelled')`,
        [run_id],
      );
      if (rows.length > 0) return;
      await pause(LOOK_MS);
    }
  }

  /** Gives how many events were noted. */
  async #judgeNotes(): Promise<number> {
    const { rows } = await this.#pool.query(
      `SELECT run_id, position, type FROM ${this.#tables}.notes WHERE agent_name = 'asker' ORDER BY n`,
    );
    const told = new Map<string, string[]>();
    const positions = new Set<string>();
    const { rows: failed } = await this.#pool.query(
      `SELECT run_id FROM ${this.#tables}.notes WHERE agent_name = 'mail' AND type <> 'run.completed'`,
    );
    for (const { run_id } of failed) this.#wrong.push(`the mail ${run_id} has failed`);
    for (const { run_id, position, type } of rows) {
      // A position is kept with its note, so that nothing is told twice.
      if (positions.has(position)) this.#wrong.push(`${position} was told twice`);
      positions.add(position);
      const its = told.get(run_id) ?? [];
      // What a cancel has settled is told by the process that posts it, and again at the end of the run.
      if (type.startsWith("question.settled") && its.includes(type)) continue;
      told.set(run_id, [...its, type]);
    }
    for (const [run_id, types] of this.#expected) {
      const its = told.get(run_id) ?? [];
      if (String(its) !== String(types)) this.#wrong.push(`${run_id} has told ${its}, and not ${types}`);
    }
    if (told.size !== this.#expected.size)
      this.#wrong.push(`${told.size} runs have told something, of ${this.#expected.size}`);
    return rows.length;
  }

  async #judgeMails(): Promise<Pick<WatchTrial, "mails" | "repeated">> {
    const { rows } = await this.#pool.query(
      `SELECT about, recipient, count(*)::integer AS mails, sum(attempts)::integer AS attempts
       FROM ${this.#tables}.mails GROUP BY about, recipient`,
    );
    let repeated = 0;
    for (const { about, recipient, mails, attempts } of rows) {
      if (mails !== 1) this.#wrong.push(`${recipient} got ${mails} mails about ${about}`);
      repeated += attempts - mails;
    }
    const asked = [...this.#expected.values()].flat().filter((type) => type.startsWith("run.awaiting")).length;
    if (rows.length !== asked * TEAM.length)
      this.#wrong.push(`${rows.length} mails were sent about ${asked} questions to ${TEAM.length} addresses`);
    return { mails: rows.length, repeated };
  }
}
