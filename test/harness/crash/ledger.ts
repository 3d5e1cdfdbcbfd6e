import type { StreamedEvent } from "cadenza";
import type { Mail, Reply } from "../answers.ts";
import { NO_ANSWER, replyBelow } from "../answers.ts";
import { BodyJudge } from "../body-judge.ts";
import { textOf } from "../program-player.ts";
import type { Disturbance } from "../time-judge.ts";
import type { Report } from "./messages.ts";
import { machineTime } from "./messages.ts";

/** What the driver knows of one run: what it has asked for, and what was acknowledged. */
export interface RunRecord {
  readonly name: string;
  readonly session_id: string | null;
  readonly stream: boolean;
  run_id: string | undefined;
  /** The events that a reader was shown, in the order of their numbers. */
  readonly seen: StreamedEvent[];
  /** The question that is shown and not answered yet. */
  question: string | undefined;
  /** The acknowledged replies, by the ids of the questions. */
  readonly replies: Map<string, Reply>;
  cancel: "no" | "asked" | "accepted";
  ended: boolean;
  /** When a reader last got an event of it. */
  newsAt: number;
  /** The worker that was last given an order for the run. */
  worker: string | undefined;
}

/** What was acknowledged, in numbers. */
export interface Figures {
  readonly runs: number;
  readonly events: number;
  readonly steps: number;
  readonly answers: number;
  readonly messages: number;
  readonly cancels: number;
  /** Orders that a store failed to carry out in time, and that were repeated. */
  readonly unanswered: number;
}

/** Everything that worker processes have reported, and what was wrong with the reports themselves. */
export class Ledger {
  readonly runs = new Map<string, RunRecord>();
  /** The acknowledged messages, by the run that they were sent to. */
  readonly sent = new Map<string, Mail[]>();
  /** When the store has taken the entries of each run, as far as the processes have lived to report it. */
  readonly taken = new Map<string, number[]>();
  /** When processes were killed. Undefined: delays are not judged, since a busy machine has them too. */
  disturbances: Disturbance[] | undefined;
  /** Whether the store's clock is set again and again. */
  isClockSet = false;
  readonly wrong: string[] = [];
  readonly bodies = new BodyJudge(this.wrong);
  readonly said: string[] = [];
  unanswered = 0;
  readonly #open = new Set<RunRecord>();
  readonly #byId = new Map<string, RunRecord>();
  /** What to tell the judge of bodies, and when it was. Reports of two processes come in any order. */
  readonly #untold: { readonly at: number; tell(): void }[] = [];
  /** The command that runs the program with this name alone. */
  readonly again: (name: string) => string;

  constructor(again: (name: string) => string) {
    this.again = again;
  }

  add(name: string, session_id: string | null, stream: boolean): RunRecord {
    const run: RunRecord = {
      name,
      session_id,
      stream,
      run_id: undefined,
      seen: [],
      question: undefined,
      replies: new Map(),
      cancel: "no",
      ended: false,
      newsAt: Date.now(),
      worker: undefined,
    };
    this.runs.set(name, run);
    this.#open.add(run);
    return run;
  }

  find(run_id: string): RunRecord | undefined {
    return this.#byId.get(run_id);
  }

  /** How many runs have not ended, as far as the reports tell. */
  get open(): number {
    return this.#open.size;
  }

  /** Whether the message was acknowledged. */
  wasSent(run_id: string, { idempotencyKey }: Mail): boolean {
    return this.sent.get(run_id)?.some((mail) => mail.idempotencyKey === idempotencyKey) === true;
  }

  openRuns(): RunRecord[] {
    return [...this.#open];
  }

  get figures(): Figures {
    const runs = [...this.runs.values()];
    return {
      runs: runs.length,
      events: runs.reduce((sum, { seen }) => sum + seen.length, 0),
      steps: this.bodies.steps,
      answers: runs.reduce((sum, { replies }) => sum + replies.size, 0),
      messages: [...this.sent.values()].reduce((sum, mails) => sum + mails.length, 0),
      cancels: runs.filter(({ cancel }) => cancel === "accepted").length,
      unanswered: this.unanswered,
    };
  }

  /** Takes a report of the worker with this name. Answers whether a reader has got a new event. */
  hear(worker: string, report: Report): boolean {
    if (report.is === "event") return this.#event(report.run_id, report.event);
    this.#note(worker, report);
    return false;
  }

  #note(worker: string, report: Report): void {
    switch (report.is) {
      case "created":
        this.#created(report.name, report.run_id);
        return;
      case "answered": {
        const { run_id, await_id } = report;
        const run = this.#byId.get(run_id);
        run?.replies.set(await_id, replyBelow(run.name, await_id));
        return;
      }
      case "sent":
        this.#sent(report.run_id, report.mail);
        return;
      case "cancelled": {
        const run = this.#byId.get(report.run_id);
        if (run !== undefined) run.cancel = "accepted";
        return;
      }
      case "stored": {
        const taken = this.taken.get(report.run_id) ?? [];
        for (let index = 0; index < report.count; index++) taken[report.from + index] = report.at;
        this.taken.set(report.run_id, taken);
        break;
      }
      case "began":
        this.#tellAt(report.at, () => this.bodies.began({ process: worker, log: report.position, ...report }));
        return;
      case "ended":
        this.#tellAt(report.at, () => this.bodies.ended({ process: worker, ...report }));
        return;
      case "got":
        this.#tellAt(report.at, () => this.bodies.got({ process: worker, ...report }));
        return;
      case "blocked":
        this.wrong.push(`${report.run_id} is blocked: expected ${report.expected}, asked ${report.asked}`);
        return;
      case "said":
        this.said.push(`${worker}: ${report.message} ${report.error}`);
        return;
    }
  }

  /** A worker is dead: it executes nothing any more. */
  died(worker: string): void {
    this.#tellAt(machineTime(), () => this.bodies.left(worker));
  }

  /** Judges what is reported of the bodies of steps, in the order in which it happened. */
  judgeBodies(): void {
    const inOrder = this.#untold.splice(0).toSorted((one, other) => one.at - other.at);
    for (const { tell } of inOrder) tell();
  }

  #tellAt(at: number, tell: () => void): void {
    this.#untold.push({ at, tell });
  }

  #sent(run_id: string, mail: Mail): void {
    if (!this.wasSent(run_id, mail)) this.sent.set(run_id, [...(this.sent.get(run_id) ?? []), mail]);
  }

  #created(name: string, run_id: string): void {
    const run = this.runs.get(name);
    if (run === undefined) return;
    if (run.run_id !== undefined && run.run_id !== run_id)
      this.wrong.push(`${name} was created twice: as ${run.run_id} and as ${run_id}`);
    run.run_id = run_id;
    this.#byId.set(run_id, run);
  }

  #event(run_id: string, event: StreamedEvent): boolean {
    const run = this.#byId.get(run_id);
    if (run === undefined) return false;
    const last = run.seen.at(-1)?.id ?? 0;
    if (event.type === "error") this.wrong.push(`a reader of ${run_id} was given an error: ${event.error.message}`);
    else if (event.id > last + 1) this.wrong.push(`a reader of ${run_id} was given ${event.id} after ${last}`);
    // Another reader may be ahead of this one.
    if (event.type === "error" || event.id !== last + 1) return false;
    run.seen.push(event);
    run.newsAt = Date.now();
    // A run may emit more while it waits.
    if (event.type.startsWith("run.")) run.question = undefined;
    if (event.type === "run.awaiting" && event.run.await_request !== null) {
      const { await_id, message } = event.run.await_request;
      if (!textOf([message]).startsWith(NO_ANSWER)) run.question = await_id;
    }
    run.ended = event.type === "run.completed" || event.type === "run.failed" || event.type === "run.cancelled";
    if (run.ended) this.#open.delete(run);
    return true;
  }
}
