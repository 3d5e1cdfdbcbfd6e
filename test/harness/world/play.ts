import type { AwaitRequest, AwaitResume, Message, Run, StreamedEvent } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Entry } from "../../../src/core/log.ts";
import { resultKey } from "../../../src/core/log.ts";
import { awaitRequest } from "../../../src/core/record.ts";
import type { RunState } from "../../../src/core/state.ts";
import { isFinal } from "../../../src/core/state.ts";
import { hashOf } from "../random.ts";
import type { Crash, Outcome, Process, WorldOptions } from "./world.ts";
import { World } from "./world.ts";

/** The agents, and what a client does with a run of them. */
export interface Script {
  /** Registers the agents; `agent` is the one that is run. */
  readonly register: (process: Process) => void;
  readonly input?: string;
  readonly session?: { readonly id: string; readonly history: readonly string[] };
  readonly timeoutMs?: number;
  /** Undefined: the question is not answered. Default: every question is answered with a number that belongs to it. */
  readonly answer?: (request: AwaitRequest, log: readonly Entry[]) => AwaitResume | undefined;
  /** The client cancels the run as soon as this holds. */
  readonly cancelWhen?: (state: RunState, log: readonly Entry[]) => boolean;
}

export interface PlayOptions extends Omit<WorldOptions, "register"> {
  /** When the first process dies, the second one, and so on. */
  readonly crashes?: readonly Crash[];
  /** Called between any two steps of the world. */
  readonly disturb?: (world: World) => void;
}

/** How the run ended, and what the client saw. */
export interface Played {
  readonly world: World;
  readonly run_id: string;
  readonly run: Run;
  readonly state: RunState;
  readonly log: readonly Entry[];
  /** The ending without times and ids, to compare it with that of another play. */
  readonly ending: Ending;
}

export interface Ending {
  readonly status: string;
  readonly error: unknown;
  readonly output: readonly string[];
  readonly usage: unknown;
  /** The session's messages, and its state. */
  readonly history: readonly string[];
  readonly session: unknown;
  readonly counted: unknown;
}

const TENANT = "";
/** A call that has given an answer, and waits for its outcome. */
interface Answering {
  readonly process: Process;
  readonly await_id: string;
  readonly answer: AwaitResume;
  outcome: Outcome<unknown> | undefined;
}

/** The refusals after which a client tries again. */
const passing: readonly string[] = ["lost_ownership", "not_awaiting", "run_cancelling"];

/** Plays a script to its end, whatever happens to the processes meanwhile. */
export async function play(script: Script, options: PlayOptions = {}): Promise<Played> {
  return new Play(script, options).toTheEnd();
}

class Play {
  readonly #script: Script;
  readonly #options: PlayOptions;
  readonly #world: World;
  readonly #answered = new Map<string, AwaitResume>();
  readonly #followed = new Set<Process>();
  readonly #seen: StreamedEvent[] = [];
  /** An answer whose caller waits until the run rests. */
  #answering: Answering | undefined;
  #cancelled = false;
  #runId = "";
  /** Whether no process is disturbed any more. */
  #isOver = false;

  constructor(script: Script, options: PlayOptions) {
    this.#script = script;
    this.#options = options;
    this.#world = new World({ ...options, register: script.register });
  }

  async toTheEnd(): Promise<Played> {
    const world = this.#world;
    this.#start();
    this.#runId = await this.#create();
    let position = -1;
    let state: RunState | undefined;
    let log: readonly Entry[] = [];
    for (;;) {
      const process = this.#process();
      this.#follow(process);
      const stored = await world.find(this.#runId);
      if (stored === undefined) throw new Error("An acknowledged run is gone.");
      if (isFinal(stored.head.status)) break;
      if (stored.position !== position || state === undefined) {
        position = stored.position;
        log = await world.log(this.#runId);
        state = await world.stateOf(this.#runId);
      }
      if (!(await this.#act(process, state, log))) {
        this.#options.disturb?.(world);
        await world.step();
      }
    }
    await this.#othersEnd();
    return this.#ended();
  }

  /** Does what the run needs. False: it needs nothing. */
  async #act(process: Process, state: RunState, log: readonly Entry[]): Promise<boolean> {
    const request = state.shown === null ? null : awaitRequest(state, state.shown);
    if (!this.#cancelled && this.#script.cancelWhen?.(state, log) === true) {
      const outcome = await this.#world.until(process.runtime.cancel(this.#runId), process);
      if (this.#accepted("cancel", outcome)) this.#cancelled = true;
      // A client that is refused repeats its call after the next event of the world.
      else await this.#world.step();
      return true;
    }
    if (await this.#isAnswering()) return false;
    if (request === null || this.#answered.has(request.await_id)) return false;
    const answer = this.#script.answer === undefined ? numberFor(request) : this.#script.answer(request, log);
    if (answer === undefined) return false;
    const { await_id } = request;
    const resume = { run_id: this.#runId, await_resume: answer, await_id };
    if (this.#options.random !== undefined && hashOf(`${await_id} ${log.length}`) % 3 === 0) {
      this.#answering = { process, await_id, answer, outcome: undefined };
      observe(process.runtime.resume({ ...resume, mode: "sync" }), this.#answering);
      return false;
    }
    const resuming = process.runtime.resume({ ...resume, mode: "async" });
    if (this.#accepted("resume", await this.#world.until(resuming, process))) await this.#onAnswered(await_id, answer);
    else await this.#world.step();
    return true;
  }

  /** Whether a call waits for the outcome of an answer, in a living process. */
  async #isAnswering(): Promise<boolean> {
    const answering = this.#answering;
    if (answering === undefined) return false;
    const { process, await_id, answer, outcome } = answering;
    if (outcome === undefined && process.state === "alive") return true;
    this.#answering = undefined;
    if (this.#accepted("resume", outcome)) await this.#onAnswered(await_id, answer);
    else await this.#world.step();
    return false;
  }

  /** Checks that an acknowledged answer is in the store: in the log of the run, or in that of the sub-run that asks. */
  async #onAnswered(awaitId: string, answer: AwaitResume): Promise<void> {
    let log = await this.#world.log(this.#runId);
    let isWritten = isResumed(log, awaitId);
    const path = awaitId.split("/");
    while (!isWritten && path.length > 1) {
      const key = path.shift();
      const begun = log.find((entry) => entry.type === "intent" && entry.key === key);
      log = begun?.type === "intent" && begun.run_id !== null ? await this.#world.log(begun.run_id) : [];
      isWritten = isResumed(log, path.join("/"));
    }
    if (isWritten) {
      this.#answered.set(awaitId, answer);
      return;
    }
    this.#world.violations.push(`the answer to ${awaitId} was acknowledged before it was written`);
    await this.#world.step();
  }

  #accepted(what: string, outcome: Outcome<unknown> | undefined): boolean {
    if (outcome === undefined || "value" in outcome) return outcome !== undefined;
    const { error } = outcome;
    if (!CadenzaError.is(error) || !(passing.includes(error.code) || error.code === "run_finished"))
      this.#world.violations.push(`${what} was refused: ${String(error)}`);
    return false;
  }

  async #create(): Promise<string> {
    const { input = "Go.", session, timeoutMs } = this.#script;
    for (;;) {
      const process = this.#process();
      const creating = process.runtime.createRun(
        { agent_name: "agent", input, mode: "async", ...(session && { session_id: session.id }) },
        {
          idempotencyKey: "the run",
          ...(timeoutMs !== undefined && { timeoutMs }),
          ...(session && { session: { history: session.history.map((content) => ({ parts: [{ content }] })) } }),
        },
      );
      const outcome = await this.#world.until(creating, process);
      if (outcome !== undefined && "value" in outcome) return outcome.value.run_id;
      if (outcome !== undefined) throw outcome.error;
    }
  }

  /** A living process. If there is none, one more is started. */
  #process(): Process {
    const { random } = this.#options;
    const { working } = this.#world;
    if (working.length === 0) {
      for (const frozen of this.#world.living) frozen.thaw();
      if (this.#world.living.length === 0) return this.#start();
    }
    const [first] = this.#world.working;
    if (first === undefined) throw new Error("There is no process.");
    return random === undefined ? first : random.pick(this.#world.working);
  }

  #start(): Process {
    return this.#world.start(this.#isOver ? undefined : this.#options.crashes?.[this.#world.processes.length]);
  }

  /** A client that reads the events of the run from a process. */
  #follow(process: Process): void {
    if (this.#followed.has(process)) return;
    this.#followed.add(process);
    const reading = async (): Promise<void> => {
      for await (const event of process.runtime.events(this.#runId, { until: "end" })) this.#seen.push(event);
    };
    reading().catch((error: unknown) => this.#world.violations.push(`a reader failed: ${String(error)}`));
  }

  /** Waits until the sub-runs have ended too. */
  async #othersEnd(): Promise<void> {
    const world = this.#world;
    const until = world.now + 60_000;
    const open = async (): Promise<boolean> => {
      const runs = await world.store.list({ tenant: TENANT, limit: 100, offset: 0 });
      return runs.some(({ head }) => !isFinal(head.status));
    };
    while (await open()) {
      this.#process();
      if (world.now > until) {
        world.violations.push("A sub-run does not end.");
        return;
      }
      await world.step();
    }
  }

  async #ended(): Promise<Played> {
    const world = this.#world;
    const runId = this.#runId;
    this.#isOver = true;
    for (const each of world.living) {
      each.crash = undefined;
      each.thaw();
      each.startClock();
    }
    // The other processes see the end after a while.
    await world.pass(1_000);
    const process = this.#process();
    const log = await world.log(runId);
    const state = await world.stateOf(runId);
    const run = await this.#ask(process.runtime.getRun(runId), process);
    const events = await this.#ask(collect(process.runtime.events(runId)), process);
    const session = await this.#ask(process.runtime.getSession(run.session_id), process);
    const { agents } = await this.#ask(process.runtime.stats(), process);
    this.#checkEvents(events);
    this.#checkLog(log, run);
    const { completed, failed, cancelled } = agents["agent"] ?? {};
    const ending: Ending = {
      status: run.status,
      error: neutral(run.error),
      output: run.output.map(textOf),
      usage: state.usage,
      history: session.history.map(textOf),
      session: session.state,
      counted: { completed, failed, cancelled },
    };
    return { world, run_id: runId, run, state, log, ending };
  }

  async #ask<T>(promise: Promise<T>, process: Process): Promise<T> {
    const outcome = await this.#world.until(promise, process);
    if (outcome === undefined) throw new Error("The process died.");
    if ("error" in outcome) throw outcome.error;
    return outcome.value;
  }

  #checkEvents(events: readonly StreamedEvent[]): void {
    const { violations } = this.#world;
    for (const seen of this.#seen) {
      const final = events[seen.id - 1];
      if (JSON.stringify(final) !== JSON.stringify(seen))
        violations.push(`event ${seen.id} was ${JSON.stringify(seen)} and is ${JSON.stringify(final)}`);
    }
    events.forEach(({ id }, index) => {
      if (id !== index + 1) violations.push(`event ${index + 1} has the number ${id}`);
    });
  }

  #checkLog(log: readonly Entry[], run: Run): void {
    const { violations } = this.#world;
    const results = log.map(resultKey).filter((key) => key !== undefined);
    if (new Set(results).size < results.length) violations.push(`results twice: ${results.join(", ")}`);
    const ends = log.filter(({ type }) => type === "ended").length;
    if (ends !== 1 || log.at(-1)?.type !== "ended") violations.push(`${ends} ends in the log`);
    for (const [awaitId, answer] of this.#answered) {
      const kept = log.find((entry) => entry.type === "resumed" && entry.await_id === awaitId);
      if (kept?.type !== "resumed" || contentOf(kept.answer) !== contentOf(answer))
        violations.push(`the answer to ${awaitId} is lost`);
    }
    if (this.#cancelled && run.status !== "cancelled") violations.push(`the run was cancelled, and is ${run.status}`);
  }
}

function observe(promise: Promise<unknown>, observer: { outcome: Outcome<unknown> | undefined }): void {
  promise.then(
    (value) => {
      observer.outcome = { value };
    },
    (error: unknown) => {
      observer.outcome = { error };
    },
  );
}

/** The answer that belongs to a question. */
function numberFor({ await_id }: AwaitRequest): AwaitResume {
  return { number: await_id.length % 7 };
}

async function collect(stream: AsyncIterable<StreamedEvent>): Promise<StreamedEvent[]> {
  const events: StreamedEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

function textOf({ role, parts }: Run["output"][number]): string {
  return `${role}: ${parts.map(({ content, content_url, name }) => `${name ?? ""}${content ?? content_url}`).join("|")}`;
}

/** An answer as text, in the same way whether it is given as an object or as a message with this object. */
function contentOf(answer: unknown): string {
  const { message } = answer as { readonly message?: Pick<Message, "parts"> };
  return message === undefined ? JSON.stringify(answer) : message.parts.map(({ content }) => content ?? "").join("");
}

/** The value without times and ids. */
function neutral(value: unknown): unknown {
  const text = JSON.stringify(value)
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "an id")
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "a time");
  return JSON.parse(text) as unknown;
}

function isResumed(log: readonly Entry[], awaitId: string): boolean {
  return log.some((entry) => entry.type === "resumed" && entry.await_id === awaitId);
}
