import { readFileSync } from "node:fs";
import pg from "pg";
import type { ClientOptions } from "../crash/client.ts";
import { Client } from "../crash/client.ts";
import { inspect } from "../crash/inspection.ts";
import type { Figures } from "../crash/ledger.ts";
import type { Order, Report, WorkerSettings } from "../crash/messages.ts";
import { openPlace } from "../crash/place.ts";
import type { Server } from "../postgres-server.ts";
import { Random } from "../random.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { WorkerProcess } from "../worker-process.ts";
import type { Losses } from "./lossy-pool.ts";
import type { Listening } from "./wire.ts";
import { Wire } from "./wire.ts";

/*
 * Processes run random programs on a PostgreSQL server that goes away for a while. No process dies, so no run may be
 * taken over, and each run has to come to the same end as one that was never interrupted.
 */

/** What happens to the server, or to the way to it. */
export interface Outage {
  /**
   * `crash`: the server ends at once, and is started again. `cut`: all connections are lost, again and again.
   * `half-open`: nothing arrives any more, and no connection is closed. `half-open one`: the same for one process.
   */
  readonly is: "crash" | "cut" | "half-open" | "half-open one";
  readonly ms: number;
}

export interface OutageOptions extends ClientOptions {
  readonly program: BuiltProgram;
  readonly server: Server;
  readonly processes: number;
  /** How many runs are open at once. */
  readonly atOnce: number;
  readonly leaseMs: number;
  /** One after the other, each under load. */
  readonly outages: readonly Outage[];
  /** How long there is load before, between and after the outages, in milliseconds. */
  readonly loadMs: number;
  /** Answers that are lost, beside the outages. They may lead to take-overs. */
  readonly losses?: Omit<Losses, "until"> | undefined;
  readonly onOutage?: ((healed: Healed) => void) | undefined;
}

/** How an outage ended: times in milliseconds after the server could be reached again. */
export interface Healed extends Outage {
  /** How many runs were open, and when the first, the middle and the last one of them went on. */
  readonly open: number;
  readonly first: number;
  readonly median: number;
  readonly last: number;
}

export interface OutageReport extends Figures {
  /** What was wrong, one sentence each; empty if nothing was. */
  readonly wrong: readonly string[];
  readonly healed: readonly Healed[];
  readonly takeovers: number;
  /** How long the last run took to end after the load and the losses were over, in milliseconds. */
  readonly endedAfterMs: number;
  /** How long the slowest process took to close, in milliseconds. */
  readonly closedAfterMs: number;
}

type Worker = WorkerProcess<WorkerSettings, Order, Report>;

/** Runs that make no progress for so long are stuck. */
const STUCK_MS = 30_000;
/** A run that needs work and does not get on for so long has no executor. */
const UNATTENDED_MS = 2_000;
/** How long processes may take to close. */
const CLOSE_MS = 20_000;
/** The time between two cuts of all connections. */
const CUT_EVERY_MS = 400;
const POLL_MS = 20;

let trials = 0;

/** A schema for a trial, in which each take-over of a run is noted. */
async function newPlace({ address }: Server): Promise<{ readonly place: Listening & { readonly schema: string } }> {
  if ("missing" in address) throw new Error(address.missing);
  const { host, port } = address;
  trials += 1;
  const place = { host, port, schema: `outages_${trials}` };
  await (await openPlace(place)).close();
  await ask(
    place,
    `CREATE TABLE ${place.schema}.takeovers (run_id text, from_owner text, to_owner text);
     CREATE FUNCTION ${place.schema}.note_takeover() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO ${place.schema}.takeovers VALUES (NEW.run_id, OLD.owner, NEW.owner); RETURN NULL; END $$;
     CREATE TRIGGER note_takeover AFTER UPDATE ON ${place.schema}.runs FOR EACH ROW
       WHEN (NEW.takeovers > OLD.takeovers) EXECUTE FUNCTION ${place.schema}.note_takeover();`,
  );
  return { place };
}

/** One statement, or several without parameters, on a connection of its own. */
async function ask({ host, port }: Listening, sql: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const client = new pg.Client({ host, port, user: "postgres", database: "postgres" });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

export async function underOutages(options: OutageOptions): Promise<OutageReport> {
  const { place } = await newPlace(options.server);
  return new Driver(options, place).drive();
}

class Driver {
  readonly #options: OutageOptions;
  readonly #place: Listening & { readonly schema: string };
  readonly #client: Client;
  readonly #random: Random;
  readonly #workers = new Map<string, { readonly worker: Worker; readonly wire: Wire }>();
  readonly #ready: Worker[] = [];
  readonly #wrong: string[] = [];
  readonly #healed: Healed[] = [];
  #isLoaded = false;
  #isClosing = false;
  #newsAt = Date.now();
  /** The runs with an event after the last outage, and when the first one came. */
  readonly #wentOn = new Map<string, number>();

  constructor(options: OutageOptions, place: Listening & { readonly schema: string }) {
    this.#options = options;
    this.#place = place;
    this.#random = new Random(options.seed);
    const send = (order: Order): string | undefined => {
      const worker = this.#ready.length === 0 ? undefined : this.#random.pick(this.#ready);
      worker?.order(order);
      return worker?.name;
    };
    const again = (program: string): string => `npm run stress -- outages --part outages --program ${program}`;
    this.#client = new Client(this.#random, options, again, send);
  }

  async drive(): Promise<OutageReport> {
    const { processes, atOnce, outages, loadMs, onOutage } = this.#options;
    const { ledger } = this.#client;
    const until = Date.now() + loadMs;
    const fill = setInterval(() => this.#isLoaded && this.#client.fill(atOnce), POLL_MS);
    for (let count = 1; count <= processes; count++) await this.#start(`process ${count}`, until);
    await this.#until(() => this.#ready.length === processes);
    const stopLooking = this.#client.attend();
    this.#isLoaded = true;
    await pause(until - Date.now());
    for (const outage of outages) {
      const healed = await this.#suffer(outage);
      this.#healed.push(healed);
      onOutage?.(healed);
      await pause(loadMs);
    }
    clearInterval(fill);
    const over = Date.now();
    this.#newsAt = over;
    if (this.#options.losses !== undefined) await this.#seekUnattended(over);
    await this.#until(() => ledger.open === 0 || Date.now() - this.#newsAt > STUCK_MS);
    const endedAfterMs = Date.now() - over;
    stopLooking();
    const closedAfterMs = await this.#close();
    const wrong = [...this.#wrong, ...(await inspect(this.#place, ledger))];
    const open = await ask(
      this.#place,
      `SELECT run_id, status, owner, epoch, due_at, position FROM ${this.#place.schema}.runs WHERE finished_at IS NULL`,
    );
    wrong.push(...open.map((run) => `a run has not ended: ${JSON.stringify(run)}`));
    const taken = await ask(this.#place, `SELECT * FROM ${this.#place.schema}.takeovers`);
    return { ...ledger.figures, wrong, healed: this.#healed, takeovers: taken.length, endedAfterMs, closedAfterMs };
  }

  async #start(name: string, until: number): Promise<void> {
    const { leaseMs, program, losses } = this.#options;
    const wire = new Wire(this.#place);
    await wire.open();
    const place = { ...this.#place, host: wire.host, ...(losses && { losses: { ...losses, until } }) };
    const settings: WorkerSettings = {
      place,
      name,
      synchronous: "NORMAL",
      leaseMs,
      heartbeatMs: 0.3 * leaseMs,
      scanMs: leaseMs / 10,
      evictAfterMs: this.#random.pick([50, 60_000]),
    };
    const worker: Worker = new WorkerProcess(program, settings, (report) => this.#hear(worker, report));
    this.#workers.set(name, { worker, wire });
    void worker.gone.then(() => {
      if (!this.#isClosing) this.#wrong.push(`${name} has ended`);
      this.#ready.splice(this.#ready.indexOf(worker), 1);
      this.#client.lost(name);
    });
  }

  #hear(worker: Worker, report: Report): void {
    if (report.is === "ready") this.#ready.push(worker);
    if (report.is === "late") this.#wrong.push(`${report.method} of ${worker.name} took ${report.ms} ms`);
    if (this.#client.hear(worker.name, report)) {
      this.#newsAt = Date.now();
      if (report.is === "event" && !this.#wentOn.has(report.run_id)) this.#wentOn.set(report.run_id, Date.now());
    }
  }

  /** Lets an outage begin and end, and waits until all runs that were open go on. */
  async #suffer({ is, ms }: Outage): Promise<Healed> {
    const { server } = this.#options;
    const wires = [...this.#workers.values()].map(({ wire }) => wire);
    const dead = is === "half-open one" ? wires.slice(0, 1) : is === "half-open" ? wires : [];
    const end = Date.now() + ms;
    if (is === "crash") await server.crash();
    for (const wire of dead) wire.fail();
    while (Date.now() < end) {
      if (is === "cut") for (const wire of wires) wire.cut();
      await pause(Math.min(CUT_EVERY_MS, end - Date.now()));
    }
    if (is === "crash") await server.restart();
    for (const wire of dead) wire.heal();
    const healedAt = Date.now();
    this.#wentOn.clear();
    const open = this.#client.ledger.openRuns().flatMap(({ run_id }) => run_id ?? []);
    const isStuck = (): boolean => Date.now() - healedAt > STUCK_MS;
    await this.#until(() => isStuck() || open.every((run_id) => this.#wentOn.has(run_id)));
    for (const run_id of open) {
      if (this.#wentOn.has(run_id)) continue;
      const { seen = [], question, worker } = this.#client.ledger.find(run_id) ?? {};
      const last = `${worker} follows it, which has told of ${seen.length} events`;
      this.#wrong.push(`${run_id} did not go on after ${is}: ${last}; its open question is ${question}`);
    }
    const after = open.map((run_id) => (this.#wentOn.get(run_id) ?? Number.POSITIVE_INFINITY) - healedAt);
    after.sort((one, other) => one - other);
    const at = (share: number): number => after[Math.floor(share * (after.length - 1))] ?? 0;
    return { is, ms, open: open.length, first: at(0), median: at(0.5), last: at(1) };
  }

  /** Three leases after the last loss, each run that needs work has an executor, with which it gets on. */
  async #seekUnattended(over: number): Promise<void> {
    const active = async (): Promise<readonly string[]> => {
      const runs = await ask(
        this.#place,
        `SELECT run_id, owner, epoch, position FROM ${this.#place.schema}.runs WHERE finished_at IS NULL
           AND (owner IS NOT NULL OR due_at <= extract(epoch FROM now()) * 1000)`,
      );
      return runs.map((run) => JSON.stringify(run));
    };
    await this.#until(() => this.#client.ledger.open === 0 || Date.now() - over > 3 * this.#options.leaseMs);
    if (this.#client.ledger.open === 0) return;
    const before = new Set(await active());
    await pause(UNATTENDED_MS);
    for (const run of await active()) if (before.has(run)) this.#wrong.push(`a run has no executor: ${run}`);
  }

  /** Closes all processes. Gives the time that the slowest of them takes. */
  async #close(): Promise<number> {
    this.#isClosing = true;
    const since = Date.now();
    const all = [...this.#workers.values()];
    const closed = Promise.all(all.map(({ worker }) => worker.gone));
    for (const { worker } of all) worker.order({ do: "close" });
    const late = setTimeout(() => {
      this.#wrong.push("a process did not close");
      for (const { worker } of all) worker.kill();
    }, CLOSE_MS);
    await closed;
    clearTimeout(late);
    for (const { wire } of all) await wire.close();
    return Date.now() - since;
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) await pause(POLL_MS);
  }
}

/**
 * What the log of a server says that it may not: a transaction that a client has begun, a deadlock, or a statement that
 * took longer than a deadline. It has to log all statements and durations.
 */
export function complaintsIn({ address }: Server): readonly string[] {
  if ("missing" in address) return [];
  const forbidden = /deadlock detected|(?:statement|execute [^:]*): *(?:BEGIN|START TRANSACTION)|duration: \d+/i;
  const lines = readFileSync(address.log, "utf8").split("\n");
  return lines.flatMap((line, index) => (forbidden.test(line) ? [`${line} ${sayWhose(lines, index)}`] : []));
}

/** What the process of a line has said before it. */
function sayWhose(lines: readonly string[], index: number): string {
  const [who] = /\[\d+\]/.exec(lines[index] ?? "") ?? [];
  if (who === undefined) return "";
  return `after: ${lines.slice(0, index).findLast((line) => line.includes(who)) ?? "nothing"}`;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(ms, 0)));
}
