import type { Random } from "../random.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { WorkerProcess } from "../worker-process.ts";
import type { Order, Report, Task, Waiting, WorkerSettings } from "./messages.ts";
import type { Witness } from "./witness.ts";

/* The worker processes. When one is gone, another is started in its place. */

export type Worker = WorkerProcess<WorkerSettings, Order, Report>;

/** The outcome of an order. `unknown`: its process died, or did not answer in time. */
export type Outcome =
  | { readonly done: string; readonly waiting: Waiting | undefined }
  | { readonly refused: string; readonly message: string }
  | "unknown";

export interface FleetOptions {
  readonly program: BuiltProgram;
  readonly witness: Witness;
  readonly random: Random;
  readonly count: number;
  /** The settings of the next process with this index. */
  settings(name: string, index: number): WorkerSettings;
  /** Called when a process can be reached, and when it is gone or frozen. */
  onReady(name: string): void;
  onSilent(name: string): void;
  onReport(name: string, report: Report): void;
}

/** How long it waits before it looks for a process again. */
const AGAIN_MS = 50;
/** How long an order may take until its sender stops waiting, in milliseconds. */
const PATIENCE_MS = 5_000;
/** How long a process may take to close, in milliseconds. Then it is killed, and counted. */
const CLOSE_MS = 20_000;
/** How long a process goes on that waits for a lost answer of the store. */
const LEFT_ALONE_MS = 3_000;

interface Member {
  readonly worker: Worker;
  readonly index: number;
  state: "starting" | "ready" | "frozen" | "closing" | "dead";
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #members = new Map<string, Member>();
  readonly #waiting = new Map<number, { readonly name: string; readonly settle: (outcome: Outcome) => void }>();
  #started = 0;
  #orders = 0;
  #isOver = false;
  /** How many processes did not close in time. */
  hungCloses = 0;

  constructor(options: FleetOptions) {
    this.#options = options;
  }

  start(): void {
    for (let index = 0; index < this.#options.count; index++) this.#start(index);
  }

  /** The processes that can be reached, and are not about to end. */
  get ready(): readonly string[] {
    return this.#names("ready");
  }

  get frozen(): readonly string[] {
    return this.#names("frozen");
  }

  /**
   * Sends a task to a process, and waits for the outcome. `to`: which process; by default any, as soon as there is one.
   */
  async call(task: Task, to?: string): Promise<Outcome> {
    let member = this.#members.get(to ?? "");
    while (member === undefined) {
      if (this.#isOver) return "unknown";
      member = this.#members.get(this.pick() ?? "");
      if (member === undefined) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
    return this.#order(member, task);
  }

  #order(member: Member, task: Task): Promise<Outcome> {
    const id = ++this.#orders;
    return new Promise((resolve) => {
      const timer = setTimeout(() => settle("unknown"), PATIENCE_MS);
      const settle = (outcome: Outcome): void => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        resolve(outcome);
      };
      this.#waiting.set(id, { name: member.worker.name, settle });
      member.worker.order({ ...task, id });
    });
  }

  /** Lets a process read the events of a run after one. Gives its name; `onOver` is called when it stops reading. */
  follow(run_id: string, after: number, onOver: () => void): string | undefined {
    const [name] = this.#shuffled(this.ready);
    const member = name === undefined ? undefined : this.#members.get(name);
    if (name === undefined || member === undefined) return undefined;
    const id = ++this.#orders;
    const settle = (): void => {
      this.#waiting.delete(id);
      onOver();
    };
    this.#waiting.set(id, { name, settle });
    member.worker.order({ do: "follow", run_id, after, id });
    return name;
  }

  /** One of the processes; now and then one that is frozen or closing. */
  pick(): string | undefined {
    const { random } = this.#options;
    const others = random.chance(0.05) ? [...this.frozen, ...this.#names("closing")] : [];
    return this.#shuffled(others.length > 0 ? others : this.ready)[0];
  }

  /** Two of the processes that can be reached, as far as there are two. */
  pickTwo(): readonly string[] {
    return this.#shuffled(this.ready).slice(0, 2);
  }

  kill(name: string): void {
    this.#end(name, "dead", "killed", (worker) => worker.kill());
  }

  terminate(name: string): void {
    this.#end(name, "closing", "told to close", (worker) => worker.terminate());
    setTimeout(() => {
      if (this.#members.get(name)?.state !== "closing") return;
      this.hungCloses += 1;
      this.kill(name);
    }, CLOSE_MS);
  }

  freeze(name: string): void {
    this.#end(name, "frozen", "frozen", (worker) => worker.freeze());
  }

  thaw(name: string): void {
    const member = this.#members.get(name);
    if (member === undefined) return;
    this.#note("thawed", name);
    member.worker.thaw();
    if (member.state !== "frozen") return;
    member.state = "ready";
    this.#options.onReady(name);
  }

  /** Whether no process is started any more. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Ends all processes, for good. */
  async end(): Promise<void> {
    this.#isOver = true;
    const workers = [...this.#members.values()].map(({ worker }) => worker);
    for (const worker of workers) worker.kill();
    await Promise.all(workers.map(({ gone }) => gone));
  }

  #start(index: number): void {
    const { program, settings, onReport, onReady, onSilent } = this.#options;
    const name = `w${++this.#started}`;
    const worker: Worker = new WorkerProcess(program, settings(name, index), (report) => {
      if (report.is === "ready") {
        if (member.state !== "starting") return;
        member.state = "ready";
        onReady(name);
      } else if (report.is === "done" || report.is === "refused") this.#settle(report);
      else {
        if (report.is === "swallowed" && report.how === "is left alone")
          setTimeout(() => this.kill(name), LEFT_ALONE_MS);
        onReport(name, report);
      }
    });
    const member: Member = { worker, index, state: "starting" };
    this.#members.set(name, member);
    this.#note("started", name);
    void worker.gone.then(() => {
      this.#note("gone", name);
      this.#members.delete(name);
      this.#forget(name);
      onSilent(name);
      if (!this.#isOver) this.#start(index);
    });
  }

  #end(
    name: string,
    state: Member["state"],
    is: "killed" | "told to close" | "frozen",
    act: (worker: Worker) => void,
  ): void {
    const member = this.#members.get(name);
    if (member === undefined || member.state === "dead") return;
    this.#note(is, name);
    member.state = state;
    act(member.worker);
    this.#options.onSilent(name);
  }

  #settle(report: Extract<Report, { is: "done" | "refused" }>): void {
    const waiting = this.#waiting.get(report.id);
    if (report.is === "done") waiting?.settle({ done: report.run_id, waiting: report.waiting });
    else waiting?.settle({ refused: report.code, message: report.message });
  }

  #forget(name: string): void {
    for (const { name: other, settle } of [...this.#waiting.values()]) if (other === name) settle("unknown");
  }

  #names(state: Member["state"]): string[] {
    return [...this.#members].filter(([, member]) => member.state === state).map(([name]) => name);
  }

  #shuffled(names: readonly string[]): string[] {
    const at = this.#options.random.below(Math.max(names.length, 1));
    return [...names.slice(at), ...names.slice(0, at)];
  }

  #note(is: "started" | "killed" | "frozen" | "thawed" | "told to close" | "gone", process: string): void {
    this.#options.witness.note({ is, process });
  }
}
