import { setTimeout as pause } from "node:timers/promises";
import type { Place } from "../crash/place.ts";
import type { Random } from "../random.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { WorkerProcess } from "../worker-process.ts";
import type { RolloutOrder, RolloutReport, RolloutSettings } from "./messages.ts";

/** How long a process may take to open the store, or to close, in milliseconds. */
const OPEN_MS = 30_000;
const CLOSE_MS = 15_000;
const LOOK_MS = 20;

/** A process of one version of the library. */
export interface Member {
  readonly name: string;
  readonly library: string;
  readonly process: WorkerProcess<RolloutSettings, RolloutOrder, RolloutReport>;
  state: "opening" | "works" | "refused" | "closing" | "gone";
  /** Why the library has not opened the store. */
  refusal: string | undefined;
  /** Whether the trial has ended it. */
  isEnded: boolean;
  goneAt: number | undefined;
}

interface Ground {
  readonly place: Place;
  readonly witness: string;
  readonly programs: ReadonlyMap<string, BuiltProgram>;
  readonly random: Random;
}

/** The processes of all versions of the library that work on one store. */
export class Fleet {
  /** All of them, in the order in which they were started. */
  readonly members: Member[] = [];
  /** What the libraries have logged, and how often. */
  readonly said = new Map<string, number>();
  onDone: (report: Extract<RolloutReport, { readonly is: "done" }>) => void = () => undefined;
  readonly #ground: Ground;

  constructor(ground: Ground) {
    this.#ground = ground;
  }

  start(library: string): Member {
    const { place, witness, programs } = this.#ground;
    const program = programs.get(library);
    if (program === undefined) throw new Error(`There is no program with ${library}.`);
    const name = `${this.members.length}-${library}`;
    const member: Member = {
      ...{ name, library, state: "opening", refusal: undefined, isEnded: false, goneAt: undefined },
      process: new WorkerProcess(program, { name, place, witness }, (report: RolloutReport) => {
        if (report.is === "ready" && member.state === "opening") member.state = "works";
        if (report.is === "refused") {
          member.state = "refused";
          member.refusal = `${report.code}: ${report.message}`;
        }
        if (report.is === "done") this.onDone(report);
        if (report.is === "said") this.#hear(library, report.message);
      }),
    };
    const { gone } = member.process;
    gone.then(
      () => this.#hearEnd(member),
      () => this.#hearEnd(member),
    );
    this.members.push(member);
    return member;
  }

  /** Resolves when a process works, or does not. */
  async opened(member: Member): Promise<void> {
    for (const since = Date.now(); member.state === "opening"; await pause(LOOK_MS))
      if (Date.now() - since > OPEN_MS) throw new Error(`Process ${member.name} does not open the store.`);
  }

  /** Starts a process, and kills it so many milliseconds later. */
  async startAndKill(library: string, ms: number): Promise<void> {
    const member = this.start(library);
    await pause(ms);
    await this.kill(member);
  }

  async kill(member: Member): Promise<void> {
    member.isEnded = true;
    member.process.kill();
    await member.process.gone;
  }

  /** Has a process close its runtime. Resolves with whether it has ended by itself. */
  async close(member: Member): Promise<boolean> {
    member.isEnded = true;
    member.state = "closing";
    return member.process.endWithin(CLOSE_MS);
  }

  working(library?: string): readonly Member[] {
    return this.members.filter((one) => one.state === "works" && (library === undefined || one.library === library));
  }

  /** Sends an order to one of the processes that work. */
  order(order: RolloutOrder): void {
    const working = this.working();
    if (working.length > 0) this.#ground.random.pick(working).process.order(order);
  }

  async end(): Promise<void> {
    await Promise.all(this.members.map((one) => (one.goneAt === undefined ? this.kill(one) : undefined)));
  }

  #hearEnd(member: Member): void {
    if (member.state !== "refused") member.state = "gone";
    member.goneAt = Date.now();
  }

  #hear(library: string, message: string): void {
    // One line for all runs and times.
    const line = `${library}: ${message.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16,}\b/g, "…").slice(0, 300)}`;
    this.said.set(line, (this.said.get(line) ?? 0) + 1);
  }
}
