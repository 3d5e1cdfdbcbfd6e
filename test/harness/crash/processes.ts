import { Random } from "../random.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { WorkerProcess } from "../worker-process.ts";
import type { ClientOptions } from "./client.ts";
import { Client } from "./client.ts";
import { inspect } from "./inspection.ts";
import type { KillFigures, KillReport } from "./kill-trial.ts";
import { holdTrial } from "./kill-trial.ts";
import type { Order, Report, WorkerSettings, WrongClock } from "./messages.ts";
import type { NewPlace, Place } from "./place.ts";
import { newFile } from "./place.ts";

/** The size of a trial. */
export interface ProcessesOptions extends ClientOptions {
  readonly processes: number;
  /** How many processes there are besides that execute nothing. They are killed too. Default: 0. */
  readonly webs?: number | undefined;
  readonly runs: number;
  /** How many runs are open at once. Default: 100. */
  readonly atOnce?: number | undefined;
  /**
   * After so many kills no process is killed any more, and no run is created once there were more than are open at once: on a slow
   * machine none may have ended by then. Default: no limit.
   */
  readonly kills?: number | undefined;
  /** Default: 3,000 on a file, and 8,000 on a server. */
  readonly leaseMs?: number | undefined;
  /** How much time passes between two kills, in milliseconds. It is more where the runs make too little progress. */
  readonly killEveryMs: number;
  /** No new runs are created after so many milliseconds. */
  readonly atMostMs: number;
  /** Where the runs are kept. Default: a new file. */
  readonly place?: NewPlace | undefined;
  /** Whether the clocks of the processes are up to an hour off, and jump: on a server each by itself, on a file all at once. Default: false. */
  readonly wrongClocks?: boolean | undefined;
  /** Whether delays are judged, which a busy machine has too. Default: false. */
  readonly punctual?: boolean | undefined;
  readonly onProgress?: ((figures: KillFigures) => void) | undefined;
}

const AT_ONCE = 100;
const LEASE_MS = 3_000;
/** A server may take 0.4 of the lease for an answer, and works on the same processors here. */
const SERVER_LEASE_MS = 8_000;
/** When a process is killed, this many others are ready. */
const MIN_LEFT = 1;
/** Runs that make no progress for so long are stuck. */
const STUCK_MS = 60_000;

/**
 * Lets several processes run random programs in one place, and kills one of them now and then. Each order goes to any of
 * them.
 */
export function manyProcesses(options: ProcessesOptions): Promise<KillReport> {
  return holdTrial(options.place ?? newFile(), (program, place) => new Driver(options, program, place).drive());
}

type Worker = WorkerProcess<WorkerSettings, Order, Report>;

class Driver {
  readonly #options: ProcessesOptions;
  readonly #program: BuiltProgram;
  readonly #place: Place;
  readonly #random: Random;
  readonly #client: Client;
  readonly #ready = new Map<string, Worker>();
  readonly #all = new Set<Worker>();
  #started = 0;
  #kills = 0;
  /**
   * How many events there were since the last kill: before the next there is one for each open run. On a busy machine
   * the processes would otherwise only start, and replay.
   */
  #news = 0;
  #total: number;
  /** When clocks that are wrong stay as they are, in milliseconds since 1970. */
  readonly #clocksSettleAt: number;
  #over = false;
  #finish: () => void = () => undefined;
  #stuck: NodeJS.Timeout | undefined;

  constructor(options: ProcessesOptions, program: BuiltProgram, place: Place) {
    this.#options = options;
    this.#program = program;
    this.#place = place;
    this.#total = options.runs;
    this.#clocksSettleAt = Date.now() + options.atMostMs;
    this.#random = new Random(options.seed);
    const again = (program: string): string => {
      const store = "file" in place ? "" : " --store postgres";
      const clocks = options.wrongClocks === true ? " --clocks wrong" : "";
      return `npm run stress -- processes --runs 100 --seconds 30${store}${clocks} --program ${program}`;
    };
    this.#client = new Client(this.#random, options, again, (order) => {
      const workers = [...this.#ready.values()];
      const worker = workers[this.#random.below(workers.length)];
      worker?.order(order);
      return worker?.name;
    });
  }

  async drive(): Promise<KillReport> {
    const { processes, webs = 0, killEveryMs, atMostMs } = this.#options;
    const finished = new Promise<void>((resolve) => {
      this.#finish = resolve;
    });
    if (this.#options.punctual === true) this.#client.ledger.disturbances = [];
    // A file has the clock of its processes.
    this.#client.ledger.isClockSet = this.#options.wrongClocks === true && "file" in this.#place;
    for (let count = 0; count < processes + webs; count++) this.#start(count < processes);
    this.#watch();
    const stopLooking = this.#client.attend();
    const killing = setInterval(() => this.#killOne(), killEveryMs);
    const stopping = setTimeout(() => {
      this.#total = 0;
    }, atMostMs);
    await finished;
    this.#over = true;
    stopLooking();
    clearInterval(killing);
    clearTimeout(stopping);
    clearTimeout(this.#stuck);
    for (const worker of this.#all) worker.kill();
    await Promise.all([...this.#all].map(({ gone }) => gone));
    const { ledger } = this.#client;
    const wrong = await inspect(this.#place, ledger);
    return { ...this.#figures, wrong, said: ledger.said };
  }

  get #figures(): KillFigures {
    return { kills: this.#kills, ...this.#client.ledger.figures };
  }

  #start(work: boolean): void {
    const name = `${work ? "process" : "web process"} ${++this.#started}`;
    if (!work) this.#client.ledger.bodies.webs.add(name);
    const worker = new WorkerProcess<WorkerSettings, Order, Report>(
      this.#program,
      {
        place: this.#place,
        name,
        synchronous: this.#random.pick(["FULL", "NORMAL"]),
        leaseMs: this.#options.leaseMs ?? ("file" in this.#place ? LEASE_MS : SERVER_LEASE_MS),
        heartbeatMs: 500,
        work,
        scanMs: 100,
        evictAfterMs: this.#random.pick([20, 60_000]),
        wrongClock: this.#wrongClockOf(name),
      },
      (report) => {
        if (report.is === "ready") this.#ready.set(name, worker);
        const isNews = this.#client.hear(name, report);
        // Orders that came while no process was ready are sent again.
        if (report.is === "ready") this.#client.lost("");
        this.#goOn();
        if (!isNews) return;
        this.#news += 1;
        this.#watch();
      },
    );
    this.#all.add(worker);
    void worker.gone.then(() => {
      this.#all.delete(worker);
      this.#ready.delete(name);
      this.#client.lost(name);
      if (!this.#over) this.#start(work);
    });
  }

  /** One machine has one clock, so the processes of a file have the same. */
  #wrongClockOf(name: string): WrongClock | undefined {
    const { seed, wrongClocks } = this.#options;
    if (wrongClocks !== true) return undefined;
    return { seed: "file" in this.#place ? seed : `${seed} ${name}`, until: this.#clocksSettleAt };
  }

  get #atOnce(): number {
    return this.#options.atOnce ?? AT_ONCE;
  }

  #goOn(): void {
    this.#client.fill(this.#atOnce, this.#total);
    if (this.#client.ledger.open === 0) this.#finish();
  }

  /** From now on the runs have some time to make progress. */
  #watch(): void {
    clearTimeout(this.#stuck);
    // A clock that is set back makes waits longer.
    const unsettledMs = this.#options.wrongClocks === true ? Math.max(this.#clocksSettleAt - Date.now(), 0) : 0;
    this.#stuck = setTimeout(() => this.#finish(), STUCK_MS + unsettledMs);
  }

  #killOne(): void {
    const { kills = Number.POSITIVE_INFINITY } = this.#options;
    const workers = [...this.#ready.values()];
    const worker = workers[this.#random.below(workers.length)];
    if (
      this.#kills >= kills ||
      worker === undefined ||
      workers.length <= MIN_LEFT ||
      this.#news < this.#client.ledger.open
    )
      return;
    this.#news = 0;
    // It gets no more orders; its earlier reports still arrive.
    this.#ready.delete(worker.name);
    worker.kill();
    this.#client.ledger.disturbances?.push({ from: Date.now(), to: Date.now() });
    this.#kills += 1;
    if (this.#kills >= kills) this.#total = Math.min(this.#total, this.#atOnce + 1);
    this.#options.onProgress?.(this.#figures);
  }
}
