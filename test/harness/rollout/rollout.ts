import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import pg from "pg";
import type { Report } from "../commands/report.ts";
import type { NewPlace, Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import { Random } from "../random.ts";
import { openDatabase, temporaryFolder } from "../sqlite-files.ts";
import type { BuiltProgram } from "../worker-process.ts";
import type { Member } from "./fleet.ts";
import { Fleet } from "./fleet.ts";
import type { Stop } from "./judge.ts";
import { judge, readLines } from "./judge.ts";
import { PRESENT } from "./libraries.ts";
import { Load } from "./load.ts";
import { durability } from "./messages.ts";

/** How many processes of a library work. */
const PROCESSES = 2;
/** A process that is killed while it opens the store lives for so many milliseconds at most. */
const OPENING_MS = 500;
/** How long nothing may change while the trial waits for runs to end, in milliseconds. */
const PATIENCE_MS = 60_000;
const LOOK_MS = 200;
/** What the library says of a store that a newer one has written. */
const NEWER = /store_failed: .*newer one has written it\. Update cadenza/;

export interface RolloutOptions {
  readonly seed: number;
  /** How long the libraries work beside each other, in seconds. */
  readonly seconds: number;
  /** How many processes are killed while they open a store of an older library, and how many of each library at work. */
  readonly kills: number;
}

/** A library that takes part. */
export interface Library {
  readonly name: string;
  readonly program: BuiltProgram;
  /** Whether its processes go on where a newer library has opened the store. */
  readonly goesOn: boolean;
  /** A higher number: a newer one. */
  readonly age: number;
}

/**
 * Rolls libraries out on one store, one after the other: the processes of each begin beside those of the one before, which
 * are then stopped. At the end the earlier ones are started once more. Meanwhile runs are made and answered, and processes are
 * killed, at work and while they open the store. Reports what is wrong with any run.
 */
export async function tryRollout(
  { place, remove }: NewPlace,
  libraries: readonly Library[],
  options: RolloutOptions,
  report: Report,
): Promise<void> {
  const folder = temporaryFolder(tmpdir());
  const rollout = new Rollout(place, join(folder.path, "witness"), libraries, options, report);
  try {
    await rollout.play();
  } finally {
    await rollout.end();
    rmSync(folder.path, { recursive: true, force: true });
    remove();
  }
}

class Rollout {
  readonly #place: Place;
  readonly #witness: string;
  readonly #libraries: readonly Library[];
  readonly #options: RolloutOptions;
  readonly #report: Report;
  readonly #random: Random;
  readonly #fleet: Fleet;
  readonly #load: Load;
  readonly #counting: Counting;
  /** The libraries that a newer one has stopped, by their names. */
  readonly #stopped = new Map<string, Stop>();
  /** The newest library that has opened the store. */
  #newest: Library | undefined;

  constructor(place: Place, witness: string, libraries: readonly Library[], options: RolloutOptions, report: Report) {
    this.#place = place;
    this.#witness = witness;
    this.#libraries = libraries;
    this.#options = options;
    this.#report = report;
    this.#random = new Random(options.seed);
    const programs = new Map(libraries.map(({ name, program }) => [name, program]));
    this.#fleet = new Fleet({ place, witness, programs, random: this.#random });
    this.#counting = new Counting(place);
    this.#load = new Load(this.#fleet, this.#random, () => this.#counting.openRuns());
  }

  async play(): Promise<void> {
    this.#load.begin();
    let before: Library | undefined;
    for (const library of this.#libraries) {
      if (before !== undefined && this.#mayOpen(library)) {
        for (const { name, age, goesOn } of this.#libraries)
          if (age < library.age && !goesOn && !this.#stopped.has(name))
            this.#stopped.set(name, { from: Date.now(), by: Number.POSITIVE_INFINITY });
        await this.#killOpening(library);
      }
      const works = await this.#startSome(library);
      await this.#workFor(this.#options.seconds);
      if (!works) continue;
      if (before !== undefined) await this.#rollOut(before);
      before = library;
    }
    for (const library of this.#libraries) {
      if (library === before) continue;
      this.#report.say(`  ${library.name} is started once more`);
      await this.#startSome(library);
    }
    await this.#workFor(this.#options.seconds);
    this.#load.stopMaking();
    await this.#allEnded();
    this.#load.end();
    await this.#fleet.end();
    await this.#judge();
  }

  async end(): Promise<void> {
    this.#load.end();
    await this.#fleet.end();
    await this.#counting.close();
  }

  /** Whether the store is one that the library knows. */
  #mayOpen(library: Library): boolean {
    return this.#newest === undefined || library.age >= this.#newest.age;
  }

  async #killOpening(library: Library): Promise<void> {
    for (let killed = 0; killed < this.#options.kills; killed++)
      await this.#fleet.startAndKill(library.name, this.#random.below(OPENING_MS));
  }

  /** Starts the processes of a library. Resolves with whether they work, which is wrong if it is not expected. */
  async #startSome(library: Library): Promise<boolean> {
    const { name } = library;
    const mayOpen = this.#mayOpen(library);
    const members = Array.from({ length: PROCESSES }, () => this.#fleet.start(name));
    await Promise.all(members.map((member) => this.#fleet.opened(member)));
    const working = members.filter(({ state }) => state === "works").length;
    this.#report.check(
      working === (mayOpen ? PROCESSES : 0) && members.every((one) => mayOpen || NEWER.test(one.refusal ?? "")),
      `${working} of ${PROCESSES} processes of ${name} have opened the store${refusals(members)}`,
    );
    if (!mayOpen || working === 0) return working > 0;
    if (this.#newest === undefined || this.#newest.age < library.age) this.#newest = library;
    for (const [older, { from, by }] of this.#stopped) this.#stopped.set(older, { from, by: Math.min(by, Date.now()) });
    return true;
  }

  /** Lets the processes work, and kills and replaces some of each library. */
  async #workFor(seconds: number): Promise<void> {
    const { kills } = this.#options;
    for (let killed = 0; killed <= kills; killed++) {
      await pause((1_000 * seconds) / (kills + 1));
      if (killed === kills) return;
      const names = [...new Set(this.#fleet.working().map(({ library }) => library))];
      for (const name of names) {
        const library = this.#libraries.find((one) => one.name === name);
        const isReplaced = library !== undefined && this.#mayOpen(library);
        const working = this.#fleet.working(name);
        // One is left to be closed.
        if (!isReplaced && working.length < 2) continue;
        await this.#fleet.kill(this.#random.pick(working));
        if (isReplaced) await this.#fleet.opened(this.#fleet.start(name));
      }
    }
  }

  /** Ends the processes of a library, some as a deployment does and some at once. */
  async #rollOut({ name }: Library): Promise<void> {
    const members = this.#fleet.working(name);
    const [first, ...others] = members;
    await Promise.all(others.map((member) => this.#fleet.kill(member)));
    const closed = first === undefined || (await this.#fleet.close(first));
    this.#report.say(
      `  ${members.length} processes of ${name} are stopped${closed ? "" : ", one of them does not close"}`,
    );
  }

  async #allEnded(): Promise<void> {
    let last = -1;
    for (let since = Date.now(); ; await pause(LOOK_MS)) {
      const open = await this.#counting.openRuns();
      if (open === 0 && this.#load.pending === 0) return;
      const left = (open ?? 0) + this.#load.pending;
      if (left !== last) since = Date.now();
      last = left;
      this.#report.progress(`${open} runs are open, ${this.#load.pending} are not acknowledged`);
      if (Date.now() - since < PATIENCE_MS) continue;
      this.#report.wrong(`${open} runs have not ended, and ${this.#load.pending} are not acknowledged`);
      return;
    }
  }

  async #judge(): Promise<void> {
    const { members, said } = this.#fleet;
    for (const { name, isEnded, state } of members)
      if (!isEnded && state !== "refused") this.#report.wrong(`process ${name} has ended by itself`);
    const store = await openPlace(this.#place, { durability });
    const lines = readLines(this.#witness);
    const runs = [...this.#load.runs.values()];
    const { wrong, figures } = await judge({ store, runs, members, lines, stopped: this.#stopped });
    for (const what of wrong) this.#report.wrong(what);
    const bodies: Record<string, number> = {};
    for (const { is, process } of lines) {
      const name = process.slice(process.indexOf("-") + 1);
      if (is === "began") bodies[name] = (bodies[name] ?? 0) + 1;
    }
    this.#report.say({ ...figures, processes: members.length, "bodies by": bodies });
    for (const [line, times] of [...said].toSorted(([, one], [, other]) => other - one).slice(0, 12))
      this.#report.say(`  ${times} × ${line}`);
  }
}

function refusals(members: readonly Member[]): string {
  const refusal = members.find((one) => one.refusal !== undefined)?.refusal;
  return refusal === undefined ? "" : ` (${refusal})`;
}

/** Counts the open runs of a store of any version, beside its processes. */
class Counting {
  readonly #place: Place;
  readonly #pool: pg.Pool | undefined;

  constructor(place: Place) {
    this.#place = place;
    if ("file" in place) return;
    const { host, port } = place;
    this.#pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 1 });
    this.#pool.on("error", () => undefined);
  }

  /** Undefined: there is no table yet, or it is being changed. */
  async openRuns(): Promise<number | undefined> {
    const sql = (table: string) => `SELECT count(*) AS open FROM ${table} WHERE finished_at IS NULL`;
    try {
      if ("file" in this.#place) {
        const database = openDatabase(this.#place.file);
        const row = database.prepare(sql("cadenza_runs")).get() as { readonly open: number };
        database.close?.();
        return Number(row.open);
      }
      const counted = await this.#pool?.query(sql(`${this.#place.schema}.runs`));
      return Number(counted?.rows[0].open);
    } catch {
      return undefined;
    }
  }

  async close(): Promise<void> {
    await this.#pool?.end();
  }
}

/** The libraries of an order by their names, from the oldest to the newest in the history. */
export function librariesOf(
  order: readonly string[],
  history: readonly { readonly name: string; readonly goesOn: boolean }[],
  programs: ReadonlyMap<string, BuiltProgram>,
): readonly Library[] {
  return order.map((name) => {
    const age = history.findIndex((one) => one.name === name);
    const program = programs.get(name);
    if (program === undefined) throw new Error(`There is no program with ${name}.`);
    return { name, program, age, goesOn: history[age]?.goesOn ?? name === PRESENT };
  });
}
