import { setTimeout as pause } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import { quoteName } from "../internals.ts";
import type { Listening } from "../outages/wire.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram, WorkerProcess } from "../worker-process.ts";
import type { DrainReport, DrainSettings } from "./messages.ts";
import { STEPS } from "./messages.ts";

/*
 * Workers that get SIGTERM under load, one after the other. Triggers note each change of owner: how long a run that is
 * handed on has no owner, and whether it counts as taken over.
 */

export interface DrainOptions {
  readonly server: Listening;
  readonly schema: string;
  /** How many workers get SIGTERM. */
  readonly times: number;
  readonly drainMs: number;
  readonly onDrained?: ((times: number) => void) | undefined;
}

/** Times in milliseconds. */
export interface DrainTrial {
  readonly runs: number;
  /** How many times a run was handed on. */
  readonly handedOn: number;
  /** From SIGTERM to the next owner. */
  readonly median: number;
  readonly longest: number;
  /** From the release by the last owner to the next one. */
  readonly free: { readonly median: number; readonly longest: number };
  /** The steps that were at work at the end of a drain, and were begun again. */
  readonly interrupted: number;
  readonly wrong: string[];
}

/** A change of a run's owner. */
interface Change {
  readonly run_id: string;
  readonly before: string | null;
  readonly after: string | null;
  readonly is_taken_over: boolean;
  /** By the clock of the machine, which the server shares with this process. */
  readonly at: number;
}

type Worker = WorkerProcess<DrainSettings, never, DrainReport>;

const WORKERS = 3;
const FIRST_STEP = "tick#1";
/** How many runs are open at once. */
const AT_ONCE = 18;
/** How long a worker works before the next one gets SIGTERM, in milliseconds. */
const BETWEEN_MS = 150;
/** How much longer than its drain a worker may take to end, in milliseconds. */
const END_MS = 5_000;

export async function drains(options: DrainOptions): Promise<DrainTrial> {
  const { host, port } = options.server;
  const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 5 });
  const program = await buildProgram(new URL("./worker.ts", import.meta.url));
  const store = await openPostgresStore({ pool, schema: options.schema });
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
  readonly #options: DrainOptions;
  readonly #program: BuiltProgram;
  readonly #pool: pg.Pool;
  readonly #web: AgentRuntime;
  readonly #wrong: string[] = [];
  readonly #ready: Worker[] = [];
  #started = 0;
  #onReady: () => void = () => {};
  /** Called when the worker with this name begins a run. */
  #onBegin: { readonly name: string; readonly call: () => void } | undefined;
  /** When each worker got SIGTERM. */
  readonly #drainedAt = new Map<string, number>();
  /** The steps of which a body is at work, or was when its worker ended; and those of which one is done. */
  readonly #begun = new Map<string, string>();
  readonly #done = new Set<string>();
  #interrupted = 0;
  #isLoaded = true;

  constructor(options: DrainOptions, program: BuiltProgram, pool: pg.Pool, web: AgentRuntime) {
    this.#options = options;
    this.#program = program;
    this.#pool = pool;
    this.#web = web;
  }

  async drive(): Promise<DrainTrial> {
    const { times, onDrained } = this.#options;
    const schema = quoteName(this.#options.schema);
    await this.#pool.query(noting(schema));
    this.#web.declare({ name: "ticker", durable: true });
    for (let count = 0; count < WORKERS; count++) this.#start();
    await this.#untilReady(WORKERS);
    const load = Promise.all(Array.from({ length: AT_ONCE }, () => this.#load()));
    const ends: Promise<void>[] = [];
    for (let count = 1; count <= times; count++) {
      // The one that takes its place is there by then.
      this.#start();
      await this.#untilReady(WORKERS + 1);
      await pause(BETWEEN_MS);
      const [oldest] = this.#ready.splice(0, 1);
      if (oldest === undefined) throw new Error("No worker is ready.");
      await this.#untilBegins(oldest);
      ends.push(this.#drain(oldest));
      onDrained?.(count);
    }
    await Promise.all(ends);
    this.#isLoaded = false;
    const runs = (await load).reduce((sum, count) => sum + count);
    await Promise.all(this.#ready.map((worker) => this.#drain(worker)));
    const { rows } = await this.#pool.query<Change>(`SELECT * FROM ${schema}.owners ORDER BY n`);
    return { runs, interrupted: this.#interrupted, ...this.#judge(rows), wrong: this.#wrong };
  }

  /** Creates one run after the other, and reads each to its end. Gives how many. */
  async #load(): Promise<number> {
    let count = 0;
    for (; this.#isLoaded; count++) {
      const { run_id } = await this.#web.createRun({ agent_name: "ticker", input: "", mode: "async" });
      const parts: string[] = [];
      for await (const event of this.#web.events(run_id, { until: "end" }))
        if (event.type === "message.part") parts.push(event.part.content ?? "");
      const expected = Array.from({ length: STEPS }, (_, part) => `${part}`);
      if (String(parts) !== String(expected)) this.#wrong.push(`${run_id} has the parts ${parts}`);
      for (let n = 1; n <= STEPS; n++) this.#done.delete(`${run_id} tick#${n}`);
    }
    return count;
  }

  #start(): void {
    const { server, schema, drainMs } = this.#options;
    const name = `worker ${++this.#started}`;
    const settings = { ...server, schema, name, drainMs };
    const worker: Worker = new WorkerProcess(this.#program, settings, (report) => this.#hear(worker, report));
  }

  #hear(worker: Worker, report: DrainReport): void {
    if (report.is === "ready") {
      this.#ready.push(worker);
      this.#onReady();
      return;
    }
    if (report.is === "began" && report.key === FIRST_STEP && worker.name === this.#onBegin?.name) this.#onBegin.call();
    const step = `${report.run_id} ${report.key}`;
    if (report.is === "done") {
      this.#begun.delete(step);
      this.#done.add(step);
      return;
    }
    if (this.#done.has(step)) this.#wrong.push(`${worker.name} ran ${step} once more`);
    const other = this.#begun.get(step);
    if (other !== undefined && !this.#drainedAt.has(other))
      this.#wrong.push(`${worker.name} ran ${step} while ${other} was running it`);
    if (other !== undefined) this.#interrupted += 1;
    this.#begun.set(step, worker.name);
  }

  async #drain(worker: Worker): Promise<void> {
    this.#drainedAt.set(worker.name, Date.now());
    const hasEnded = await worker.endWithin(this.#options.drainMs + END_MS);
    if (!hasEnded) this.#wrong.push(`${worker.name} did not end`);
  }

  async #untilReady(count: number): Promise<void> {
    while (this.#ready.length < count)
      await new Promise<void>((resolve) => {
        this.#onReady = resolve;
      });
  }

  /** So that there is a run to hand on. */
  async #untilBegins({ name }: Worker): Promise<void> {
    await new Promise<void>((call) => {
      this.#onBegin = { name, call };
    });
    this.#onBegin = undefined;
  }

  #judge(changes: readonly Change[]): Pick<DrainTrial, "handedOn" | "median" | "longest" | "free"> {
    const left = new Map<string, Change>();
    const since: number[] = [];
    const free: number[] = [];
    for (const change of changes) {
      const { run_id, before, after, at } = change;
      if (change.is_taken_over) this.#wrong.push(`${run_id} was taken over from ${before} by ${after}`);
      if (after === null) left.set(run_id, change);
      const last = left.get(run_id);
      if (after === null || last === undefined) continue;
      left.delete(run_id);
      free.push(at - last.at);
      since.push(at - (this.#drainedAt.get(last.before?.split("/")[0] ?? "") ?? Number.NEGATIVE_INFINITY));
    }
    for (const { run_id } of left.values()) this.#wrong.push(`${run_id} was handed on to no worker`);
    const [all, unowned] = [spread(since), spread(free)];
    return { handedOn: since.length, ...all, free: unowned };
  }
}

function spread(times: readonly number[]): { readonly median: number; readonly longest: number } {
  const sorted = times.toSorted((one, other) => one - other);
  return { median: sorted[Math.floor(sorted.length / 2)] ?? 0, longest: sorted.at(-1) ?? 0 };
}

/** Notes each change of an owner, but not the end of a run. */
function noting(schema: string): string {
  return `
CREATE TABLE ${schema}.owners (n bigint GENERATED ALWAYS AS IDENTITY, run_id text, before text, after text,
  is_taken_over boolean, at float8);
CREATE FUNCTION ${schema}.note_owner() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO ${schema}.owners (run_id, before, after, is_taken_over, at) VALUES (NEW.run_id, OLD.owner, NEW.owner,
    NEW.takeovers > OLD.takeovers, round(extract(epoch FROM clock_timestamp()) * 1000));
  RETURN NULL;
END $$;
CREATE TRIGGER note_owner AFTER UPDATE ON ${schema}.runs FOR EACH ROW
  WHEN (NEW.owner IS DISTINCT FROM OLD.owner AND NEW.finished_at IS NULL) EXECUTE FUNCTION ${schema}.note_owner();`;
}
