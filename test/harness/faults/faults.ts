/*
 * A black-box test under faults.
 *
 * - **The world** is one file, to which every process appends the effects of its agents: each body of a step that
 *   begins or ends, each line after a question, each `finally`, each call of an agent function. The lines outlive their
 *   process (`witness.ts`).
 * - **The workers** are processes on one SQLite file, each with a runtime and the same agents, which follow random
 *   plans (`plans.ts`, `agents.ts`, `worker.ts`). They are killed, frozen for longer than their lease, and told to
 *   close under load. Their disk is slow, and answers of their store are lost (`faults-at-work.ts`,
 *   `../unreliable-store.ts`).
 * - **The client** creates runs, follows them, and answers or declines their questions, at the run that asks and at
 *   those above it: with valid and invalid answers, twice at once at two processes, close to the deadline, in every
 *   mode. It sends messages to runs and sub-runs. It cancels some runs, also through a process that lacks their code. It
 *   repeats requests that were not acknowledged (`client.ts`, `talk.ts`, `acknowledged.ts`).
 * - **The judge** compares at the end what the client was told, the logs, and the lines of the world. Nothing may be
 *   lost, doubled, changed, early, stuck or orphaned, and what was refused may have no effect (`judge*.ts`,
 *   `evidence.ts`).
 *
 * The test uses the public API only. All choices follow from the seed; the timing depends on the machine.
 */

import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Random } from "../random.ts";
import { temporaryFolder } from "../sqlite-files.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram } from "../worker-process.ts";
import { ACKNOWLEDGED } from "./acknowledged.ts";
import { Client } from "./client.ts";
import { Faults } from "./faults-at-work.ts";
import { Fleet } from "./fleet.ts";
import type { Anomaly } from "./judge.ts";
import { judge } from "./judge.ts";
import type { Report, WorkerSettings } from "./messages.ts";
import { Witness } from "./witness.ts";

export interface FaultOptions {
  readonly seed: string;
  readonly runs: number;
  readonly faults: number;
  readonly processes: number;
  /** The SQLite driver of the store. */
  readonly driver: string;
  /** The store's `synchronous` setting; `mixed`: another one in each process. */
  readonly synchronous: "FULL" | "NORMAL" | "mixed";
  /** How much time passes between two faults, on average. */
  readonly everyMs: number;
  readonly leaseMs: number;
  /** How many runs are open at once. */
  readonly atOnce: number;
  /** After this time there are no more runs and no more faults. */
  readonly atMostMs: number;
  readonly onProgress?: ((figures: FaultFigures) => void) | undefined;
  /** Keeps the folder with the store and the world. */
  readonly keep?: boolean | undefined;
}

export interface FaultFigures {
  readonly runs: number;
  readonly open: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly events: number;
  /** Replies and messages, as many as were acknowledged. */
  readonly answers: number;
  readonly declines: number;
  readonly messages: number;
  /** Replies and messages that were not. */
  readonly refused: number;
  readonly cancels: number;
  readonly swallowed: number;
  /** How many processes did not close in time. */
  readonly hungCloses: number;
}

export interface FaultReport {
  readonly figures: FaultFigures;
  readonly anomalies: readonly Anomaly[];
  /** What the library has logged, and how often. */
  readonly said: ReadonlyMap<string, number>;
  readonly folder: string;
}

/** Runs that do nothing for so long are stuck. */
const STUCK_MS = 30_000;
const UUID = /[0-9a-f]{8}-[0-9a-f-]{27}/g;

export async function underFaults(options: FaultOptions): Promise<FaultReport> {
  const folder = temporaryFolder(tmpdir());
  const program = await buildProgram(new URL("./worker.ts", import.meta.url));
  try {
    return await new Harness(options, program, folder.path).run();
  } finally {
    program.remove();
    if (options.keep !== true) rmSync(folder.path, { recursive: true, force: true });
  }
}

class Harness {
  readonly #options: FaultOptions;
  readonly #folder: string;
  readonly #random: Random;
  readonly #witness: Witness;
  readonly #fleet: Fleet;
  readonly #client: Client;
  readonly #faults: Faults;
  readonly #newProcesses = new Set<string>();
  readonly #said = new Map<string, number>();
  #areFaultsOver = false;
  #swallowed = 0;
  #total: number;
  #lastNews = Date.now();

  constructor(options: FaultOptions, program: BuiltProgram, folder: string) {
    const { seed, processes, leaseMs, everyMs, faults } = options;
    this.#options = options;
    this.#folder = folder;
    this.#total = options.runs;
    this.#random = new Random(seed);
    this.#witness = new Witness(this.#world, "harness");
    const random = new Random(`${seed} fleet`);
    this.#fleet = new Fleet({
      program,
      witness: this.#witness,
      random,
      count: processes,
      settings: (name, index) => this.#settings(name, index),
      onReady: () => this.#client.followAll(),
      onSilent: (name) => this.#client.lost(name),
      onReport: (name, report) => this.#hear(name, report),
    });
    this.#client = new Client(this.#random, seed, this.#fleet, ({ run_id }) => {
      if (run_id !== undefined) this.#witness.note({ is: "seen to end", run: run_id });
    });
    this.#faults = new Faults({
      fleet: this.#fleet,
      random: new Random(`${seed} faults`),
      leaseMs,
      everyMs,
      count: faults,
      onFault: () => options.onProgress?.(this.#figures),
    });
  }

  async run(): Promise<FaultReport> {
    const { atMostMs, faults, leaseMs } = this.#options;
    const startedAt = Date.now();
    this.#fleet.start();
    if (faults > 0) this.#faults.start();
    while (!this.#isOver) {
      if (Date.now() - startedAt > atMostMs) this.#total = 0;
      if ((this.#faults.isOver || this.#total === 0) && !this.#areFaultsOver) this.#stopFaults();
      this.#client.fill(this.#options.atOnce, this.#allowed);
      await pause(20);
    }
    // The sub-runs of a run that has just ended have some time to end.
    await pause(4 * leaseMs);
    const figures = this.#figures;
    await this.#fleet.end();
    this.#witness.close();
    const anomalies = await judge({
      file: this.#file,
      witness: this.#world,
      acknowledged: this.#client.acknowledged,
      leaseMs,
      newProcesses: this.#newProcesses,
    });
    return { figures, anomalies, said: this.#said, folder: this.#folder };
  }

  /** How many runs may exist by now: runs are created in proportion to the faults. */
  get #allowed(): number {
    const { runs, faults } = this.#options;
    const share = faults === 0 || this.#areFaultsOver ? 1 : (this.#faults.done + 1) / faults;
    return Math.min(this.#total, Math.ceil(runs * share));
  }

  get #isOver(): boolean {
    if (!this.#areFaultsOver && this.#options.faults > 0) return false;
    const { runs, open } = this.#client.acknowledged;
    if (runs.length < this.#total) return false;
    return open.length === 0 || Date.now() - this.#lastNews > STUCK_MS;
  }

  #stopFaults(): void {
    this.#areFaultsOver = true;
    this.#faults.stop();
    for (const name of this.#fleet.frozen) this.#fleet.thaw(name);
    this.#lastNews = Date.now();
  }

  #hear(name: string, report: Report): void {
    if (report.is === "event") {
      this.#lastNews = Date.now();
      this.#client.hear(report.run_id, report.event);
    } else if (report.is === "swallowed") this.#swallowed += 1;
    else if (report.is === "said") {
      const line = `${report.level}: ${report.message.replace(UUID, "…").replaceAll(name, "w…")}`;
      this.#said.set(line, (this.#said.get(line) ?? 0) + 1);
    }
  }

  #settings(name: string, index: number): WorkerSettings {
    const { leaseMs, driver, synchronous, faults } = this.#options;
    const isSpared = faults === 0 || this.#areFaultsOver;
    const random = this.#random;
    // There are always processes of both kinds.
    const isNew = index % 2 === 0;
    if (isNew) this.#newProcesses.add(name);
    return {
      name,
      file: this.#file,
      witness: this.#world,
      driver,
      synchronous: synchronous === "mixed" ? random.pick(["FULL", "NORMAL"]) : synchronous,
      leaseMs,
      heartbeatMs: leaseMs / 4,
      scanMs: leaseMs / 10,
      evictAfterMs: random.pick([30, 60_000]),
      drainMs: random.pick([0, 50, 1_500]),
      isNew,
      writeMs: !isSpared && random.chance(0.25) ? 25 : 0,
      loseOneIn: !isSpared && random.chance(0.3) ? 200 : 0,
      seed: `${this.#options.seed} ${name}`,
    };
  }

  get #figures(): FaultFigures {
    const { runs, open } = this.#client.acknowledged;
    const [answers, mails] = [runs.flatMap((run) => run.answers), runs.flatMap((run) => run.mails)];
    const isTaken = ({ outcomes }: { readonly outcomes: readonly string[] }) => outcomes.includes(ACKNOWLEDGED);
    const given = answers.filter(isTaken);
    const messages = mails.filter(isTaken).length;
    const declines = given.filter(({ is }) => is === "decline").length;
    return {
      runs: runs.length,
      open: open.length,
      faults: this.#faults.counts,
      events: runs.reduce((sum, { seen }) => sum + seen.length, 0),
      answers: given.length - declines,
      declines,
      messages,
      refused: answers.length - given.length + mails.length - messages,
      cancels: runs.filter(({ cancels }) => cancels.some(({ outcome }) => outcome === ACKNOWLEDGED)).length,
      swallowed: this.#swallowed,
      hungCloses: this.#fleet.hungCloses,
    };
  }

  get #file(): string {
    return join(this.#folder, "runs.db");
  }

  get #world(): string {
    return join(this.#folder, "world.jsonl");
  }
}
