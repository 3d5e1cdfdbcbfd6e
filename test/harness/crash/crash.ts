import { Random } from "../random.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { WorkerProcess } from "../worker-process.ts";
import type { ClientOptions } from "./client.ts";
import { Client } from "./client.ts";
import { inspect } from "./inspection.ts";
import type { KillFigures, KillReport } from "./kill-trial.ts";
import { holdTrial } from "./kill-trial.ts";
import type { Order, Report, WorkerSettings } from "./messages.ts";
import type { Place } from "./place.ts";
import { newFile } from "./place.ts";

/** The size of a trial. */
export interface CrashOptions extends ClientOptions {
  readonly kills: number;
  readonly runs: number;
  /** See {@link WorkerSettings.replays}. */
  readonly replays?: boolean;
  readonly onProgress?: ((figures: KillFigures) => void) | undefined;
}

/** How many runs are open at once. */
const AT_ONCE = 30;
const LEASE_MS = 150;
/**
 * After this many short lives of the worker comes one in which every run makes progress: the library fails a run that
 * never does as a crash loop.
 */
const SHORT_LIVES = 2;
/** How long such a life may take. */
const LONG_LIFE_MS = 60_000;
/** Runs that make no progress for so long are stuck. */
const STUCK_MS = 60_000;

/** Lets a worker process run random programs, kills it at random moments, starts it again, and checks the logs. */
export function crash(options: CrashOptions): Promise<KillReport> {
  return holdTrial(newFile(), (program, place) => new Driver(options, program, place).drive());
}

function again(program: string): string {
  return `npm run stress -- crash --kills 30 --runs 100 --program ${program}`;
}

type Worker = WorkerProcess<WorkerSettings, Order, Report>;
type Life = "short" | "long" | "last";

class Driver {
  readonly #options: CrashOptions;
  readonly #program: BuiltProgram;
  readonly #place: Place;
  readonly #random: Random;
  readonly #client: Client;
  #worker: Worker | undefined;
  #lives = 0;
  #kills = 0;
  /** The runs that have to make progress before the worker is killed, and what is called then. */
  #behind = new Set<string>();
  #onAhead: () => void = () => undefined;
  #onProgress: () => void = () => undefined;

  constructor(options: CrashOptions, program: BuiltProgram, place: Place) {
    this.#options = options;
    this.#program = program;
    this.#place = place;
    this.#random = new Random(options.seed);
    this.#client = new Client(this.#random, options, again, (order) => {
      this.#worker?.order(order);
      return this.#worker?.name;
    });
  }

  async drive(): Promise<KillReport> {
    const { ledger } = this.#client;
    const stopLooking = this.#client.attend();
    for (let life = 1; this.#kills < this.#options.kills || ledger.runs.size < this.#options.runs; life++) {
      await this.#live(life % (SHORT_LIVES + 1) === 0 ? "long" : "short");
      this.#options.onProgress?.(this.#figures);
    }
    await this.#live("last");
    stopLooking();
    const wrong = await inspect(this.#place, ledger);
    return { ...this.#figures, wrong, said: ledger.said };
  }

  get #figures(): KillFigures {
    return { kills: this.#kills, ...this.#client.ledger.figures };
  }

  /** One life of the worker, until it is killed; the last one goes on until all runs have ended. */
  async #live(life: Life): Promise<void> {
    const random = this.#random;
    const worker = new WorkerProcess<WorkerSettings, Order, Report>(
      this.#program,
      {
        place: this.#place,
        name: `life ${++this.#lives}`,
        synchronous: random.chance(0.3) ? "FULL" : "NORMAL",
        leaseMs: LEASE_MS,
        heartbeatMs: 40,
        scanMs: 20,
        evictAfterMs: random.pick([10, 60_000]),
        replays: this.#options.replays === true,
      },
      (report) => this.#hear(worker, report, life),
    );
    this.#worker = worker;
    if (life === "short" && random.chance(0.1)) setTimeout(() => this.#kill(worker), random.below(120));
    const stopWatching = life === "last" ? this.#watch(worker) : undefined;
    await worker.gone;
    stopWatching?.();
    if (this.#worker === worker) this.#worker = undefined;
    this.#client.lost(worker.name);
  }

  #hear(worker: Worker, report: Report, life: Life): void {
    const client = this.#client;
    if (client.hear(worker.name, report)) this.#onProgress();
    if (report.is === "ready") {
      if (life !== "last") this.#killLater(worker, life);
      // The orders of the last worker are lost.
      client.lost("");
    } else if (report.is === "event") {
      this.#behind.delete(client.ledger.find(report.run_id)?.name ?? "");
      if (this.#behind.size === 0) this.#onAhead();
    }
    if (life !== "last") client.fill(AT_ONCE);
    else if (client.ledger.open === 0) worker.order({ do: "close" });
  }

  #kill(worker: Worker): void {
    if (worker !== this.#worker) return;
    this.#worker = undefined;
    if (this.#random.chance(0.05)) worker.order({ do: "close" });
    else {
      this.#kills += 1;
      worker.kill();
    }
  }

  #killLater(worker: Worker, life: "short" | "long"): void {
    const soon = this.#random.below(LEASE_MS + 150);
    if (life === "short") {
      setTimeout(() => this.#kill(worker), soon);
      return;
    }
    this.#behind = new Set(this.#client.ledger.openRuns().map(({ name }) => name));
    const late = setTimeout(() => this.#onAhead(), LONG_LIFE_MS);
    this.#onAhead = () => {
      clearTimeout(late);
      this.#onAhead = () => undefined;
      setTimeout(() => this.#kill(worker), soon);
    };
    if (this.#behind.size === 0) this.#onAhead();
  }

  /** Ends a worker whose runs make no progress any more. Gives the function that stops the watch. */
  #watch(worker: Worker): () => void {
    let timer: NodeJS.Timeout | undefined;
    this.#onProgress = () => {
      clearTimeout(timer);
      timer = setTimeout(() => worker.kill(), STUCK_MS);
    };
    this.#onProgress();
    return () => clearTimeout(timer);
  }
}
