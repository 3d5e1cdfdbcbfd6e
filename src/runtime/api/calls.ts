import { inBackground } from "../../core/background.ts";
import { sameJson } from "../../core/json.ts";
import type { RunKey } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { runRecord } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, isFinal } from "../../core/state.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Run } from "../../protocol/run.ts";
import type { Answer } from "../agent/answer.ts";
import { badArgument, checkObject, readGiven, readId } from "../agent/check.ts";
import type { RunElsewhere } from "../agent/new-run.ts";
import { unlessAborted } from "../execution/unless-aborted.ts";
import type { LogSource, StreamStart } from "../log/events.ts";
import { isLost, notLoadedError, refusalError } from "../log/refusals.ts";
import type { Answered } from "../runs/answer-router.ts";
import { AnswerRouter } from "../runs/answer-router.ts";
import type { AuditedObjects, Ended, Trail } from "../runs/audit.ts";
import { told } from "../runs/audit.ts";
import type { LiveRun } from "../runs/live-run.ts";
import { unlessLost } from "../runs/remote-runs.ts";
import type {
  CancelOptions,
  CreateRunOptions,
  CreateRunRequest,
  ResumeOptions,
  ResumeRequest,
} from "../runs/requests.ts";
import { checkOptions, noOptions, readAwaitId, readMode, readReply } from "../runs/requests.ts";
import type { RunReader } from "../runs/run-reader.ts";
import type { Runs } from "../runs/runs.ts";
import type { ForkOptions } from "./forks.ts";
import { beginFork, Forks } from "./forks.ts";
import { readNewRun } from "./read-new-run.ts";

/** Starts and answers the runs of a scope, and waits for them as the mode of each call says. */
export class Calls {
  readonly #runs: Runs;
  readonly #reader: RunReader;
  readonly #answers: AnswerRouter;
  readonly #forks: Forks;
  readonly #tenant: string;
  readonly #principal: JsonValue;
  readonly #trail: Trail | undefined;

  constructor(runs: Runs, reader: RunReader, tenant: string, principal: JsonValue, trail: Trail | undefined) {
    this.#runs = runs;
    this.#reader = reader;
    this.#answers = new AnswerRouter(runs, reader);
    this.#forks = new Forks(runs, reader);
    this.#tenant = tenant;
    this.#principal = principal;
    this.#trail = trail;
  }

  /** Who acts, as logs have it: left out for null. */
  get #by(): JsonValue | undefined {
    return this.#principal ?? undefined;
  }

  /** In mode `sync` or `async`. */
  async create(request: CreateRunRequest, options: CreateRunOptions): Promise<Run> {
    const mode = readGiven("request", () => readMode(request));
    const creating = this.#accept(request, options);
    const created = isPromise(creating) ? await creating : creating;
    const letGo = this.#runs.shared.hold();
    try {
      if ("elsewhere" in created) {
        if (mode === "async") return await this.#reader.recordOf(created.elsewhere);
        return await unlessAborted(this.#reader.rest(created.elsewhere), options.signal);
      }
      const { run } = created;
      if (mode === "async") return await this.#acknowledge(run, () => run.begin());
      run.begin();
      const rest = this.#reader.restOf(run);
      return await (options.signal === undefined ? rest : unlessAborted(rest, options.signal));
    } finally {
      letGo();
    }
  }

  /** Accepts a run and says so, before its agent begins. */
  async #acknowledge(run: LiveRun, begin: () => void): Promise<Run> {
    const record = runRecord(run.log.state);
    const { clock, logger } = this.#runs.shared;
    try {
      const committed = run.log.acknowledge();
      if (committed !== undefined) await committed;
    } finally {
      // The answer leaves before the agent begins, which may take the processor for a while.
      inBackground(logger, clock.turn().then(begin));
    }
    return record;
  }

  /** Makes a fork of a run. */
  async fork(key: RunKey, options: ForkOptions): Promise<Run> {
    const letGo = this.#runs.shared.hold();
    try {
      const { run_id } = key;
      const make = () => this.#reader.ifSeen(key, () => this.#forks.make(key, options, this.#principal));
      const made = await told(this.#trail, "fork", { run_id }, make, endOfFork, commitOf);
      const isAsync = options.mode === "async";
      if ("elsewhere" in made) {
        if (isAsync) return await this.#reader.recordOf(made.elsewhere);
        return await unlessAborted(this.#reader.rest(made.elsewhere), options.signal);
      }
      if (isAsync) return await this.#acknowledge(made.run, () => beginFork(made));
      beginFork(made);
      return await unlessAborted(Promise.resolve(this.#reader.restOf(made.run)), options.signal);
    } finally {
      letGo();
    }
  }

  /** In mode `stream`. */
  createStream(request: CreateRunRequest, options: CreateRunOptions): MaybePromise<StreamStart> {
    readGiven("request", () => readMode(request));
    const created = this.#accept(request, options);
    if (isPromise(created)) return created.then((later) => this.#begun(later));
    return this.#begun(created);
  }

  #begun(created: { readonly run: LiveRun } | { readonly elsewhere: RunKey }): MaybePromise<StreamStart> {
    if ("elsewhere" in created)
      return this.#reader.source(created.elsewhere).then((source) => ({ source, after: 0, until: "rest" }));
    const { run } = created;
    run.begin();
    return whenCommitted(run, { source: run.log, after: 0, until: "next-rest" });
  }

  #accept(request: CreateRunRequest, options: CreateRunOptions): ReturnType<Runs["create"]> {
    const run = readGiven("request", () =>
      readNewRun(request, options, this.#tenant, this.#principal, this.#reader.onlyOf),
    );
    options.signal?.throwIfAborted();
    const trail = this.#trail;
    if (trail === undefined) return this.#runs.create(run);
    const { agent_name, session_id } = run;
    return trail.follow("create", { agent_name, session_id }, () => this.#runs.create(run), endOfCreate, commitOf);
  }

  /** In mode `sync` or `async`. */
  async resume(request: ResumeRequest, options: ResumeOptions): Promise<Run> {
    const mode = readGiven("request", () => readMode(request));
    const answering = this.#answer(request, options);
    const letGo = this.#runs.shared.hold();
    try {
      const { run, key, record } = isPromise(answering) ? await answering : answering;
      if (mode === "async") return record ?? (await this.#reader.current(key));
      const rest = run === undefined ? this.#reader.rest(key) : this.#reader.restOf(run);
      return await unlessAborted(rest, options.signal);
    } finally {
      letGo();
    }
  }

  /** In mode `stream`. */
  async resumeStream(request: ResumeRequest, options: ResumeOptions): Promise<StreamStart> {
    readGiven("request", () => readMode(request));
    const { run, key, after } = await this.#answer(request, options);
    const source: LogSource = run === undefined ? await this.#reader.source(key) : run.log;
    return { source, after, until: "next-rest" };
  }

  /** Cancels a run, and waits for its end if that is asked for. */
  async cancel(key: RunKey, options: CancelOptions): Promise<Run> {
    checkOptions(options, ["wait", "signal"]);
    const { wait = false, signal } = options;
    if (typeof wait !== "boolean") throw badArgument("options.wait", "true or false", wait);
    const { run_id } = key;
    const { run } = await told(
      this.#trail,
      "cancel",
      { run_id },
      () => this.#reader.ifSeen(key, () => this.#cancelHere(key)),
      endOfCancel,
    );
    if (!wait || isFinal(run.status)) return run;
    const letGo = this.#runs.shared.hold();
    try {
      return await unlessAborted(this.#reader.end(key), signal);
    } finally {
      letGo();
    }
  }

  async #cancelHere(key: RunKey): Promise<Cancelled> {
    const live = this.#runs.find(key);
    try {
      if (live !== undefined) return await this.#cancelLive(live);
    } catch (error) {
      if (!isLost(error)) throw error;
    }
    return unlessLost(() => this.#cancelStored(key));
  }

  async #cancelLive(live: LiveRun): Promise<Cancelled> {
    const before = live.log.state.cancelled;
    const run = await live.cancel(this.#by);
    return { run, repeated: before !== null || !this.#isMine(live.log.state) };
  }

  /** Stops a run that is not at work here: it was evicted, is executed elsewhere, or has ended. */
  async #cancelStored(key: RunKey): Promise<Cancelled> {
    const { remote } = this.#runs;
    const stored = await this.#reader.stored(key);
    const { status } = stored.head;
    if (status === "cancelled") return { run: await this.#reader.record(stored), repeated: true };
    if (isFinal(status)) throw refusalError({ refused: "run_finished" }, key.run_id);
    if (remote === undefined) throw notLoadedError(key.run_id);
    const live = await remote.load(key);
    if (live !== undefined) return this.#cancelLive(live);
    const state = await remote.cancel(key, this.#by);
    return { run: runRecord(state), repeated: status === "cancelling" || !this.#isMine(state) };
  }

  /** Whether the cancel in a log is by this principal. Another process may have written one first. */
  #isMine({ cancelled }: RunState): boolean {
    return sameJson(cancelled?.by ?? null, this.#principal);
  }

  /** Gives the answer to the run, at once where the run is at work here. `after`: the number of the event that showed the question. */
  #answer(request: ResumeRequest, options: ResumeOptions): MaybePromise<Answered> {
    const { key, answer } = readGiven("request", () => this.#readAnswer(request, options));
    const trail = this.#trail;
    if (trail === undefined) return this.#give(key, answer);
    const asked = { run_id: key.run_id, await_id: answer.await_id ?? undefined };
    return trail.follow(
      "answer" in answer.reply ? "answer" : "decline",
      asked,
      () => this.#give(key, answer),
      endOfAnswer,
    );
  }

  #give(key: RunKey, answer: Answer): MaybePromise<Answered> {
    return this.#reader.ifSeen(key, () => this.#answers.answer(key, answer));
  }

  #readAnswer(request: ResumeRequest, options: ResumeOptions): { readonly key: RunKey; readonly answer: Answer } {
    checkObject("request", request);
    if (options !== noOptions) checkOptions(options, ["idempotencyKey", "signal", "admit"]);
    const { admit } = options as ResumeOptions;
    if (admit !== undefined && typeof admit !== "function") throw badArgument("options.admit", "a function", admit);
    const key: RunKey = { tenant: this.#tenant, run_id: readId("run_id", request.run_id) };
    const answer: Answer = {
      await_id: readAwaitId(request.await_id),
      reply: readReply(request),
      by: this.#by,
      idempotency_key: options.idempotencyKey ?? null,
      mode: readMode(request),
      admit,
    };
    return { key, answer };
  }
}

/** A run that was asked to stop. `repeated`: it had been asked before. */
interface Cancelled {
  readonly run: Run;
  readonly repeated: boolean;
}

// What the application is told of calls that are done: see `Trail`.

type Created = Awaited<ReturnType<Runs["create"]>>;

function endOfCreate(created: Created): Ended {
  return { ...aboutNew(created), repeated: isRepeated(created) };
}

function endOfFork(made: Created): Ended {
  const { run_id, ...others } = aboutNew(made);
  return { ...others, fork_run_id: run_id, repeated: isRepeated(made) };
}

function aboutNew(created: Created): AuditedObjects {
  if ("elsewhere" in created) return { run_id: created.elsewhere.run_id, ...objectsOf(created.of) };
  const { key, state } = created.run.log;
  return { run_id: key.run_id, ...objectsOf(createdEntry(state)) };
}

function isRepeated(created: Created): true | undefined {
  return "elsewhere" in created ? created.repeated : undefined;
}

/** What the store does not have yet of a run that was accepted. It is asked after the run was let begin. */
function commitOf(created: Created): undefined | Promise<void> {
  return "run" in created ? Promise.resolve().then(() => created.run.log.acknowledge()) : undefined;
}

function endOfCancel({ run: { agent_name, session_id }, repeated }: Cancelled): Ended {
  return { agent_name, session_id, repeated: repeated || undefined };
}

function endOfAnswer({ of, await_id, repeated }: Answered): Ended {
  return { ...objectsOf(of), await_id: await_id ?? undefined, repeated: repeated || undefined };
}

function objectsOf({ agent_name, session_id }: RunElsewhere["of"]): AuditedObjects {
  return { agent_name, session_id };
}

/** A stream begins when the store has taken the run. */
function whenCommitted(run: LiveRun, start: StreamStart): MaybePromise<StreamStart> {
  const committed = run.log.acknowledge();
  return committed === undefined ? start : committed.then(() => start);
}
