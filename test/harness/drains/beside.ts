import { setTimeout as pause } from "node:timers/promises";
import type { AwaitResume } from "cadenza";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import { deferred } from "../promises.ts";
import { Random } from "../random.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram, WorkerProcess } from "../worker-process.ts";
import type { BesideReport, BesideSettings, BodyReport } from "./beside-messages.ts";
import { durability, MAX, STEPS } from "./beside-messages.ts";

/*
 * Workers that get SIGTERM during steps beside waits: questions, sleeps, receives and sub-runs. Each step takes less than
 * half of the drain. So it is done where it began, and begins nowhere else.
 */

export interface BesideOptions {
  readonly place: Place;
  readonly seed: string;
  /** How many workers get SIGTERM. */
  readonly times: number;
  readonly drainMs: number;
  readonly onDrained?: ((times: number) => void) | undefined;
}

export interface BesideTrial {
  readonly runs: number;
  readonly bodies: number;
  /** How many steps were at work when their process got its signal. */
  readonly drained: number;
  /** How many bodies were stopped, since their drain was over. */
  readonly stopped: number;
  /** How many runs were at work at once at most. */
  readonly most: number;
  /** How often the workers have logged each warning and error. */
  readonly said: Readonly<Record<string, number>>;
  readonly wrong: readonly string[];
}

type Worker = WorkerProcess<BesideSettings, never, BesideReport>;

/** A body of a step, as its worker has reported it. */
export interface Body {
  readonly worker: string;
  readonly began: BodyReport;
  ended: Extract<BesideReport, { readonly is: "done" | "stopped" }> | undefined;
}

const WORKERS = 3;
/** How many runs are open at once. */
const AT_ONCE = 12;
/** How long a worker works before the next one gets SIGTERM, in milliseconds. */
const BETWEEN_MS = 100;
/** How much longer than its drain a worker may take to end, in milliseconds. */
const END_MS = 10_000;
/** How long the last runs may take, in milliseconds. */
const LAST_MS = 120_000;
/** Timers may fire a little early. In milliseconds. */
const EARLY_MS = 5;
/** Refusals after which a client tries again. */
const passing: readonly string[] = ["lost_ownership", "answer_pending", "store_failed", "run_blocked"];
/** How long a client waits before it answers, at most, and before it tries again. In milliseconds. */
const THINKS_MS = 300;

export async function drainsBesideWaits(options: BesideOptions): Promise<BesideTrial> {
  const program = await buildProgram(new URL("./beside-worker.ts", import.meta.url));
  const web = new AgentRuntime({ store: await openPlace(options.place, { durability }), work: false });
  try {
    return await new Driver(options, program, web).drive();
  } finally {
    await web.close();
    program.remove();
  }
}

class Driver {
  readonly #options: BesideOptions;
  readonly #program: BuiltProgram;
  readonly #web: AgentRuntime;
  readonly #random: Random;
  readonly #wrong: string[] = [];
  readonly #ready: Worker[] = [];
  readonly #bodies: Body[] = [];
  readonly #said = new Map<string, number>();
  /** Rejects when a worker ends by itself. */
  readonly #died = deferred<never>();
  readonly #drainedAt = new Map<string, number>();
  #started = 0;
  #runs = 0;
  #onReady: () => void = () => {};
  /** Called when a worker begins a step that has not got its signal. */
  #onBegin: ((worker: Worker) => void) | undefined;
  #isLoaded = true;

  constructor(options: BesideOptions, program: BuiltProgram, web: AgentRuntime) {
    this.#options = options;
    this.#program = program;
    this.#web = web;
    this.#random = new Random(options.seed);
  }

  drive(): Promise<BesideTrial> {
    return Promise.race([this.#drive(), this.#died.promise]);
  }

  async #drive(): Promise<BesideTrial> {
    const { times, onDrained } = this.#options;
    this.#web.declare({ name: "beside", durable: true, concurrency: { max: MAX } });
    for (let count = 0; count < WORKERS; count++) this.#start();
    await this.#untilReady(WORKERS);
    const load = Promise.all(Array.from({ length: AT_ONCE }, () => this.#load()));
    // Those that are still read at the end are told that the runtime closes.
    load.catch((error: unknown) => this.#isLoaded && this.#wrong.push(String(error)));
    const ends: Promise<void>[] = [];
    for (let count = 1; count <= times; count++) {
      // The one that takes its place is there by then.
      this.#start();
      await this.#untilReady(WORKERS + 1);
      await pause(BETWEEN_MS);
      const next = await this.#nextBegin();
      this.#ready.splice(this.#ready.indexOf(next), 1);
      ends.push(this.#drain(next));
      onDrained?.(count);
    }
    await Promise.all(ends);
    this.#isLoaded = false;
    // The workers that are left execute the last runs to their ends.
    const stuck = new Promise<void>((resolve) => {
      setTimeout(() => resolve(this.#noteOpenRuns()), LAST_MS).unref();
    });
    await Promise.race([load, stuck]);
    await Promise.all(this.#ready.map((worker) => this.#drain(worker)));
    const { wrong, ...judged } = judgeBodies(this.#bodies, { drainMs: this.#options.drainMs, at: this.#drainedAt });
    const said = Object.fromEntries(this.#said);
    return { runs: this.#runs, ...judged, said, wrong: [...this.#wrong, ...wrong] };
  }

  /** Creates one run after the other, and talks to each to its end. */
  async #load(): Promise<void> {
    while (this.#isLoaded) {
      const input = `${this.#options.seed} ${this.#runs++}`;
      const { run_id } = await this.#web.createRun({ agent_name: "beside", input, mode: "async" });
      const parts: string[] = [];
      const talk: Promise<void>[] = [];
      for await (const event of this.#web.events(run_id, { until: "end", detail: true })) {
        if (event.type === "message.part") {
          parts.push(event.part.content ?? "");
          if (this.#random.chance(0.5))
            talk.push(this.#try(() => this.#web.send({ to: run_id, name: "news", data: 1 })));
        } else if (event.type === "question.asked") {
          const { await_id, message } = event.question;
          const isLate = message.parts[0]?.content === "Too late?" && this.#random.chance(0.5);
          if (!isLate) talk.push(this.#try(() => this.#answer(run_id, await_id)));
        } else if (event.type === "run.failed")
          this.#wrong.push(`${run_id} failed: ${JSON.stringify(event.run.error)}`);
      }
      await Promise.all(talk);
      const expected = Array.from({ length: STEPS }, (_, part) => `${part}`);
      if (String(parts) !== String(expected)) this.#wrong.push(`${run_id} has the parts ${parts}`);
    }
  }

  async #noteOpenRuns(): Promise<void> {
    for (const { run_id, status } of await this.#web.listRuns({ status: ["created", "in-progress", "awaiting"] })) {
      const { waits_for } = await this.#web.details(run_id);
      this.#wrong.push(`${run_id} does not end: it is ${status}, and waits for ${waits_for}`);
    }
  }

  #answer(run_id: string, await_id: string): Promise<unknown> {
    const await_resume: AwaitResume = {};
    return this.#web.resume({ run_id, await_id, await_resume, mode: "async" });
  }

  /** Calls after a while, and again after a passing refusal. A question that is not open any more needs no answer. */
  async #try(call: () => Promise<unknown>): Promise<void> {
    for (;;) {
      await pause(this.#random.below(THINKS_MS));
      try {
        await call();
        return;
      } catch (error) {
        if (!CadenzaError.is(error)) throw error;
        if (!passing.includes(error.code)) return;
      }
    }
  }

  #start(): void {
    const { place, drainMs } = this.#options;
    const name = `worker ${++this.#started}`;
    const settings = { name, place, drainMs, longestMs: 0.4 * drainMs };
    const worker: Worker = new WorkerProcess(this.#program, settings, (report) => this.#hear(worker, report));
    worker.gone.then(
      () => this.#drainedAt.has(name) || this.#died.reject(new Error(`${name} has ended before its signal.`)),
      (error: unknown) => this.#died.reject(error),
    );
  }

  #hear(worker: Worker, report: BesideReport): void {
    switch (report.is) {
      case "ready":
        this.#ready.push(worker);
        this.#onReady();
        break;
      case "said":
        this.#said.set(report.message, (this.#said.get(report.message) ?? 0) + 1);
        break;
      case "began":
        this.#bodies.push({ worker: worker.name, began: report, ended: undefined });
        if (!this.#drainedAt.has(worker.name)) this.#onBegin?.(worker);
        break;
      case "done":
      case "stopped": {
        const body = this.#bodies.findLast((one) => one.worker === worker.name && isSame(one.began, report));
        if (body !== undefined) body.ended = report;
      }
    }
  }

  async #drain(worker: Worker): Promise<void> {
    this.#drainedAt.set(worker.name, Number(process.hrtime.bigint()) / 1e6);
    const hasEnded = await worker.endWithin(this.#options.drainMs + END_MS);
    if (!hasEnded) this.#wrong.push(`${worker.name} did not end`);
  }

  async #untilReady(count: number): Promise<void> {
    while (this.#ready.length < count)
      await new Promise<void>((resolve) => {
        this.#onReady = resolve;
      });
  }

  /** The next worker that begins a step. */
  async #nextBegin(): Promise<Worker> {
    const worker = await new Promise<Worker>((resolve) => {
      this.#onBegin = resolve;
    });
    this.#onBegin = undefined;
    return worker;
  }
}

/** How many milliseconds a drain takes, and when each worker got its signal. */
export interface Drained {
  readonly drainMs: number;
  readonly at: ReadonlyMap<string, number>;
}

/**
 * What is wrong with the bodies of steps. Each step has one that was not stopped, and that was done before its drain was over
 * or has no other after it. One is stopped at the end of its drain at the earliest.
 */
export function judgeBodies(bodies: readonly Body[], { drainMs, at }: Drained): Omit<BesideTrial, "runs" | "said"> {
  const wrong: string[] = [];
  const bySteps = new Map<string, Body[]>();
  for (const body of bodies) {
    const step = `${body.began.run_id} ${body.began.key}`;
    bySteps.set(step, [...(bySteps.get(step) ?? []), body]);
  }
  let stopped = 0;
  let drained = 0;
  for (const [step, its] of bySteps) {
    const whole = its.filter(({ ended }) => ended?.is !== "stopped");
    // On a busy machine a body may end between the end of its drain and its stop. Then its result may be lost.
    const isLate = ({ worker, ended }: Body): boolean =>
      (ended?.at ?? 0) >= (at.get(worker) ?? Number.POSITIVE_INFINITY) + drainMs;
    if (whole.length === 0 || !whole.slice(0, -1).every(isLate))
      wrong.push(`${step} began ${its.length} times: ${its.map((one) => told(one, at)).join("; ")}`);
    for (const { worker, began, ended } of its) {
      const signalled = at.get(worker) ?? Number.POSITIVE_INFINITY;
      if (began.at < signalled && signalled < (ended?.at ?? Number.POSITIVE_INFINITY)) drained += 1;
      if (ended?.is !== "stopped") continue;
      stopped += 1;
      if (ended.afterMs < drainMs - EARLY_MS)
        wrong.push(`${step} was stopped by ${worker} ${ended.afterMs} ms after its signal`);
    }
  }
  const most = mostAtWork(bodies, wrong);
  return { bodies: bodies.length, drained, stopped, most, wrong };
}

/** What a worker has reported of a body, in milliseconds of the machine. */
function told({ worker, began, ended }: Body, at: Drained["at"]): string {
  const end = ended === undefined ? "never ended" : `${ended.is} at ${ended.at}`;
  return `attempt ${began.attempt} at ${began.at}, ${end}, by ${worker}, which got its signal at ${at.get(worker)}`;
}

/** How many runs that need a slot had a body at work at once. */
function mostAtWork(bodies: readonly Body[], wrong: string[]): number {
  const changes = bodies
    .filter(({ began }) => began.agent === "beside")
    .flatMap(({ began, ended }) => [
      { run_id: began.run_id, at: began.at, by: 1 },
      ...(ended === undefined ? [] : [{ run_id: began.run_id, at: ended.at, by: -1 }]),
    ])
    .sort((one, other) => one.at - other.at);
  const atWork = new Map<string, number>();
  let most = 0;
  for (const { run_id, by } of changes) {
    const count = (atWork.get(run_id) ?? 0) + by;
    if (count === 0) atWork.delete(run_id);
    else atWork.set(run_id, count);
    most = Math.max(most, atWork.size);
    if (by > 0 && atWork.size > MAX) wrong.push(`${atWork.size} runs are at work: ${[...atWork.keys()]}`);
  }
  return most;
}

function isSame(one: BodyReport, other: BodyReport): boolean {
  return one.run_id === other.run_id && one.key === other.key && one.attempt === other.attempt;
}
