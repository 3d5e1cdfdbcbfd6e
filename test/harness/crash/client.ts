import { mailTo, replyBelow } from "../answers.ts";
import { MAIL } from "../program.ts";
import type { Random } from "../random.ts";
import type { RunRecord } from "./ledger.ts";
import { Ledger } from "./ledger.ts";
import type { Order, Receiving, Report } from "./messages.ts";

/** Hands an order to a worker, and gives the worker's name; undefined if there is no worker. */
type Send = (order: Order) => string | undefined;

/** Refusals of what comes too late for the run. */
const LATE: Readonly<Partial<Record<Order["do"], readonly string[]>>> = {
  answer: ["not_awaiting", "run_cancelling", "run_finished"],
  send: ["run_cancelling", "run_finished"],
  cancel: ["run_finished"],
};
/** Refusals while the process that executes the run is dead, and its lease has not expired yet. */
const PASSING: readonly string[] = ["lost_ownership", "answer_pending"];
/** A server with much to do may not answer in time: whether the order was carried out is unknown, so it is repeated. */
const UNANSWERED = "store_failed";
/** How long a run makes no progress before the client looks at it, in milliseconds. It doubles with each look. */
const LOOK_MS = 100;
const MAX_LOOK_MS = 3_200;
/** How long a receive has to take the message that was sent to it, before another one is sent. */
const TAKES_MS = 500;
/** How long it waits before it repeats an order, in milliseconds. */
const AGAIN_MS = 20;
const UNANSWERED_MS = 500;
/** How long it waits at most before it answers or cancels, in milliseconds. */
const MAX_THOUGHT_MS = 20;

/** Which programs the runs execute. */
export interface ClientOptions {
  /** The names of the programs begin with it. */
  readonly seed: string;
  /** The name of the one program that each run executes. Default: each has a program of its own. */
  readonly oneProgram?: string | undefined;
}

/**
 * Creates runs, follows them, answers their questions and cancels some. Repeats the orders that no worker has
 * acknowledged.
 */
export class Client {
  readonly ledger: Ledger;
  readonly #random: Random;
  readonly #prefix: string;
  readonly #send: Send;
  /** When the receives were last sent a message. */
  readonly #mailed = new Map<string, number>();
  /** When each run without progress is looked at next, and how long it has waited for that. */
  readonly #looks = new Map<string, { readonly since: number; readonly at: number; readonly waitMs: number }>();

  /** `again`: the command that runs the program with this name alone. */
  constructor(random: Random, { seed, oneProgram }: ClientOptions, again: (program: string) => string, send: Send) {
    this.ledger = new Ledger((name) => `${again(name.split("@")[0] ?? name)} # one program, many times`);
    this.#random = random;
    this.#prefix = oneProgram === undefined ? seed : `${oneProgram}@`;
    this.#send = send;
  }

  /**
   * Takes a worker's report, and sends the orders that follow from it. Answers whether a run has made progress that no
   * reader has seen before.
   */
  hear(worker: string, report: Report): boolean {
    const isNews = this.ledger.hear(worker, report);
    if (report.is === "created") {
      const run = this.ledger.runs.get(report.name);
      if (run !== undefined) this.#follow(run);
    } else if (report.is === "event") {
      const run = this.ledger.find(report.run_id);
      if (run !== undefined && isNews) this.#react(run);
    } else if (report.is === "receives") {
      this.#sendMail(report.receives);
    } else if (report.is === "refused") this.#refused(report.order, report.code, report.message);
    return isNews;
  }

  /** Keeps `atOnce` runs open, and creates no more than `total` in all. */
  fill(atOnce: number, total = Number.POSITIVE_INFINITY): void {
    const random = this.#random;
    for (let open = this.ledger.open; open < atOnce && this.ledger.runs.size < total; open++) {
      const name = `${this.#prefix}-${this.ledger.runs.size}`;
      const session = random.chance(0.3) ? `00000000-0000-4000-8000-00000000000${random.below(10)}` : null;
      this.#takeUp(this.ledger.add(name, session, random.chance(0.3)));
    }
  }

  /** Looks now and then whether runs wait for messages, of which no event tells. Gives the function that ends it. */
  attend(): () => void {
    const looking = setInterval(() => {
      const now = Date.now();
      for (const { run_id, newsAt } of this.ledger.openRuns()) {
        if (run_id === undefined) continue;
        const last = this.#looks.get(run_id);
        const next = last?.since === newsAt ? last : { since: newsAt, at: newsAt + LOOK_MS, waitMs: LOOK_MS };
        if (now < next.at) continue;
        // Looks at the same pace, whatever the runs wait for, would be most of the load of the store.
        const waitMs = Math.min(2 * next.waitMs, MAX_LOOK_MS);
        this.#looks.set(run_id, { since: newsAt, at: now + waitMs, waitMs });
        this.#send({ do: "look", run_id });
      }
    }, LOOK_MS);
    return () => clearInterval(looking);
  }

  /** A worker is gone, and with it the orders that it has not carried out. */
  lost(worker: string): void {
    this.ledger.died(worker);
    for (const run of this.ledger.openRuns()) {
      if (run.worker === worker || run.worker === undefined) this.#takeUp(run);
      else this.#insist(run);
    }
  }

  /** Sends each order that the run still needs and that no worker has acknowledged. */
  #takeUp(run: RunRecord): void {
    const { name, session_id, stream, run_id } = run;
    if (run_id === undefined) {
      run.worker = this.#send({ do: "create", name, session_id, stream });
      return;
    }
    this.#follow(run);
    this.#insist(run);
  }

  #insist(run: RunRecord): void {
    if (run.cancel === "asked" && run.run_id !== undefined) this.#send({ do: "cancel", run_id: run.run_id });
    else this.#answer(run);
  }

  #follow(run: RunRecord): void {
    run.worker = this.#send({ do: "follow", run_id: run.run_id ?? "", after: run.seen.length });
  }

  #react(run: RunRecord): void {
    const { run_id = "", question, ended } = run;
    if (!ended && run.cancel === "no" && this.#random.chance(0.01)) {
      run.cancel = "asked";
      setTimeout(() => this.#send({ do: "cancel", run_id }), this.#random.below(MAX_THOUGHT_MS));
    } else if (question !== undefined) setTimeout(() => this.#answer(run), this.#random.below(MAX_THOUGHT_MS));
  }

  #answer({ name, run_id = "", question }: RunRecord): void {
    if (question === undefined) return;
    this.#send({ do: "answer", run_id, await_id: question, reply: replyBelow(name, question) });
  }

  /** Sends each receive the first message of its name that was neither acknowledged nor sent to another one just now. */
  #sendMail(receives: readonly Receiving[]): void {
    const last = new Map<string, number>();
    for (const { run_id, key } of receives) {
      if (Date.now() < (this.#mailed.get(`${run_id} ${key}`) ?? 0) + TAKES_MS) continue;
      this.#mailed.set(`${run_id} ${key}`, Date.now());
      const name = MAIL.find((one) => key.startsWith(`receive:${one}#`)) ?? "";
      let number = (last.get(`${run_id} ${name}`) ?? 0) + 1;
      while (this.ledger.wasSent(run_id, mailTo(run_id, name, number))) number += 1;
      last.set(`${run_id} ${name}`, number);
      this.#send({ do: "send", run_id, mail: mailTo(run_id, name, number) });
    }
  }

  #refused(order: Order, code: string, message: string): void {
    if (LATE[order.do]?.includes(code) === true || code === "runtime_closed") return;
    if (code === UNANSWERED) {
      this.ledger.unanswered += 1;
      setTimeout(() => this.#repeat(order), UNANSWERED_MS);
    } else if (PASSING.includes(code)) setTimeout(() => this.#repeat(order), AGAIN_MS);
    else this.ledger.wrong.push(`${JSON.stringify(order)} was refused: ${message}`);
  }

  #repeat(order: Order): void {
    if (order.do === "look") return;
    // The worker that gets the order may die with it.
    const run = this.#followedBy(order);
    if (run === undefined) this.#send(order);
    else if (!run.ended) this.#takeUp(run);
  }

  /** The run that a worker follows with this order. */
  #followedBy(order: Order): RunRecord | undefined {
    if (order.do === "create") return this.ledger.runs.get(order.name);
    return order.do === "follow" ? this.ledger.find(order.run_id) : undefined;
  }
}
