import { decide, isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import type { FoundRun, RunKey, StoredRun } from "../core/ports.ts";
import type { StreamedEvent } from "../core/project.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import { runRecord, transcript } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { initialState, isFinal } from "../core/state.ts";
import { agentStatus, noCounters } from "../core/statistics.ts";
import type { AgentManifest } from "../protocol/agent.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Run } from "../protocol/run.ts";
import { runStatusSchema } from "../protocol/run.ts";
import { badArgument, checkCount, checkKeys, checkObject, checkText, read } from "./check.ts";
import type { LogSource, StreamHost, StreamStart } from "./events.ts";
import { EventStream } from "./events.ts";
import { foldLog } from "./fold-log.ts";
import { readInput } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import type { NewRun } from "./new-run.ts";
import type { Settings } from "./options.ts";
import type { Answer } from "./questions.ts";
import { closedError, isLost, refusalError } from "./refusals.ts";
import type { Registry } from "./registry.ts";
import { manifestOf } from "./registry.ts";
import type {
  CreateRunOptions,
  CreateRunRequest,
  EventsOptions,
  ListRunsQuery,
  ResumeOptions,
  ResumeRequest,
  RunDetails,
  Session,
} from "./requests.ts";
import { checkOptions, noOptions, readAnswer, readAwaitId, readId, readMode, readSession } from "./requests.ts";
import type { Runs } from "./runs.ts";
import { StoredLog } from "./stored-log.ts";

/** What the runs of one tenant share with all others. */
export interface ScopeParts {
  readonly settings: Settings;
  readonly registry: Registry;
  readonly runs: Runs;
}

/** The runs and sessions of one tenant, in the name of one principal. */
export class Scope {
  readonly #parts: ScopeParts;
  readonly #tenant: string;
  readonly #principal: JsonValue;
  readonly #readers: StreamHost = {
    find: (key) => this.#findAgain(key),
    waitsForCode: false,
    hold: () => this.#parts.runs.hold(),
  };

  constructor(parts: ScopeParts, tenant: string, principal: JsonValue) {
    this.#parts = parts;
    this.#tenant = tenant;
    this.#principal = principal;
  }

  /**
   * Starts a run. In mode `sync` the promise is the run when it rests: completed, failed,
   * cancelled or awaiting; in mode `async` the run as it was accepted; in mode `stream` the answer is its events, and the
   * run goes on whether they are read or not. Refused with `invalid_argument`, `agent_not_found`, `limit_reached`, `idempotency_conflict` or `runtime_closed`.
   */
  createRun(
    request: CreateRunRequest & { readonly mode: "stream" },
    options?: CreateRunOptions,
  ): AsyncIterableIterator<StreamedEvent>;
  createRun(
    request: CreateRunRequest & { readonly mode?: "sync" | "async" | null | undefined },
    options?: CreateRunOptions,
  ): Promise<Run>;
  createRun(request: CreateRunRequest, options?: CreateRunOptions): Promise<Run> | AsyncIterableIterator<StreamedEvent>;
  createRun(
    request: CreateRunRequest,
    options: CreateRunOptions = noOptions,
  ): Promise<Run> | AsyncIterableIterator<StreamedEvent> {
    if (request?.mode === "stream") return this.#stream(() => this.#createStream(request, options));
    return this.#create(request, options);
  }

  /**
   * Answers what a run asks. Refused with `run_not_found`, `not_awaiting`, `run_cancelling`, `answer_rejected` when the
   * answer does not fit (the run goes on waiting), `answer_conflict` when the question has another answer already, or `runtime_closed` for a
   * run that would have to be brought back.
   */
  resume(
    request: ResumeRequest & { readonly mode: "stream" },
    options?: ResumeOptions,
  ): AsyncIterableIterator<StreamedEvent>;
  resume(
    request: ResumeRequest & { readonly mode?: "sync" | "async" | null | undefined },
    options?: ResumeOptions,
  ): Promise<Run>;
  resume(request: ResumeRequest, options?: ResumeOptions): Promise<Run> | AsyncIterableIterator<StreamedEvent>;
  resume(
    request: ResumeRequest,
    options: ResumeOptions = noOptions,
  ): Promise<Run> | AsyncIterableIterator<StreamedEvent> {
    if (request?.mode === "stream") return this.#stream(() => this.#resumeStream(request, options));
    return this.#resume(request, options);
  }

  /**
   * Stops a run: gives it as it is while it is being cancelled, and again when asked again. Refused with `run_not_found`, or with
   * `run_finished` when it has completed or failed.
   */
  async cancel(run_id: string): Promise<Run> {
    const key = this.#key(run_id);
    const cancelling = this.#parts.runs.find(key)?.cancel();
    try {
      if (cancelling !== undefined) return await cancelling;
    } catch (error) {
      if (!isLost(error)) throw error;
    }
    return unlessLost(() => this.#cancelStored(key));
  }

  /** Stops a run that is not at work here: it sleeps, is executed elsewhere, or has ended. */
  async #cancelStored(key: RunKey): Promise<Run> {
    const { loader } = this.#parts.runs;
    const stored = await this.#stored(key);
    if (stored.head.status === "cancelled") return this.#record(stored);
    if (isFinal(stored.head.status)) throw refusalError({ refused: "run_finished" }, key.run_id);
    const run = await loader.load(key);
    return run === undefined ? runRecord(await loader.cancel(key)) : run.cancel();
  }

  /** The run as it is now. Refused with `run_not_found`. */
  async getRun(run_id: string): Promise<Run> {
    const key = this.#key(run_id);
    const run = this.#parts.runs.find(key);
    if (run === undefined) return this.#recordOf(key);
    await this.#refresh(run);
    return run.log.lost ? this.#recordOf(key) : run.log.record();
  }

  /** What was decided here is stored, as far as the store takes it; what other processes have written to a run without an owner is read. */
  async #refresh({ log }: LiveRun): Promise<void> {
    // A store that cannot write shows what it has.
    if (log.head === undefined || !log.isRetrying) {
      try {
        await log.commit(true);
      } catch (error) {
        if (log.head === undefined) throw error;
      }
    }
    if (log.head?.owner === null && this.#parts.settings.store.persistent) await log.catchUp();
  }

  /** Whose sub-run the run is, if it is one. Refused with `run_not_found`. */
  async details(run_id: string): Promise<RunDetails> {
    const key = this.#key(run_id);
    const parent = await this.#parentOf(key);
    if (parent === undefined) throw notFound(key);
    let root = key.run_id;
    let above: string | null | undefined = parent;
    // A run above it that has been forgotten is the last one that is known.
    while (typeof above === "string") {
      root = above;
      above = await this.#parentOf({ ...key, run_id: root });
    }
    return { run_id: key.run_id, parent_run_id: parent, root_run_id: root };
  }

  /** The run that has started this one. Null: there is none. Undefined: there is no such run. */
  async #parentOf(key: RunKey): Promise<string | null | undefined> {
    const live = this.#parts.runs.find(key);
    const created = live?.log.state.created ?? (await this.#parts.settings.store.find(key))?.created;
    return created && (created.parent?.run_id ?? null);
  }

  /** A page of runs, the newest first. */
  async listRuns(query: ListRunsQuery = {}): Promise<readonly Run[]> {
    checkObject("query", query);
    checkKeys("query", query, ["agent_name", "session_id", "status", "roots", "limit", "offset"]);
    const { agent_name, session_id, status, roots = status === "awaiting", limit = 100, offset = 0 } = query;
    if (agent_name !== undefined) checkText("query.agent_name", agent_name);
    if (typeof roots !== "boolean") throw badArgument("query.roots", "true or false", roots);
    checkCount("query.limit", limit);
    checkCount("query.offset", offset);
    if (status !== undefined) read("query.status", runStatusSchema, status);
    await this.#parts.runs.settled(this.#tenant);
    const found = await this.#parts.settings.store.list({
      tenant: this.#tenant,
      agent_name,
      session_id: session_id === undefined ? undefined : readId("query.session_id", session_id),
      status,
      roots,
      limit,
      offset,
    });
    const records = await Promise.all(found.map((one) => this.#recordOrDamage(one)));
    return records.filter((record) => record !== undefined);
  }

  /** A run that cannot be read harms no other: it is left out, and reported. */
  async #recordOrDamage(found: FoundRun): Promise<Run | undefined> {
    try {
      if (found.created !== null) return await this.#record(found);
      throw found.error;
    } catch (error) {
      const { run_id } = found.key;
      this.#parts.settings.logger.error(`Run ${run_id} cannot be read, and is left out of a list.`, { run_id, error });
      return undefined;
    }
  }

  /** What happened in a run: everything so far, then live. Leaving the loop detaches. The first `next` rejects with `run_not_found`. */
  events(run_id: string, options: EventsOptions = {}): AsyncIterableIterator<StreamedEvent> {
    return this.#stream(async () => {
      checkObject("options", options);
      checkKeys("options", options, ["after", "until"]);
      const { after = 0, until = "rest" } = options;
      checkCount("options.after", after);
      if (until !== "now" && until !== "rest" && until !== "end")
        throw badArgument("options.until", '"now", "rest" or "end"', until);
      return { source: await this.#source(this.#key(run_id)), after, until };
    });
  }

  /** An agent's manifest with its live statistics. Refused with `agent_not_found`. */
  async getAgent(name: string): Promise<AgentManifest> {
    checkText("name", name);
    const agent = this.#parts.registry.get(name);
    const counters = await this.#parts.settings.store.counters(name);
    return manifestOf(agent, agentStatus(counters ?? noCounters));
  }

  /** All agents that take new runs. */
  async listAgents(): Promise<readonly AgentManifest[]> {
    return Promise.all(this.#parts.registry.all().map(({ name }) => this.getAgent(name)));
  }

  /** A session with its messages. Refused with `session_not_found`. */
  async getSession(session_id: string): Promise<Session> {
    const id = readId("session_id", session_id);
    const session = await this.#parts.settings.store.session({ tenant: this.#tenant, session_id: id });
    if (session !== undefined) return { id, ...session };
    const key = { tenant: this.#tenant, run_id: id };
    const stored = await this.#parts.settings.store.find(key);
    if (stored === undefined || stored.created.session_id !== id) {
      throw new CadenzaError("session_not_found", `There is no session ${id}.`, { session_id: id });
    }
    // The session of a run that named none has no record of its own until somebody joins it.
    const state = await foldLog(this.#parts.settings.store, key, initialState(id), stored.position);
    return { id, history: state?.status === "completed" ? transcript(state) : [], state: null };
  }

  #stream(open: () => MaybePromise<StreamStart>): EventStream {
    let opening: MaybePromise<StreamStart>;
    try {
      opening = open();
    } catch (error) {
      opening = Promise.reject(error);
    }
    return new EventStream(opening, this.#readers);
  }

  async #create(request: CreateRunRequest, options: CreateRunOptions): Promise<Run> {
    const mode = readMode(request);
    const creating = this.#accept(request, options);
    const created = isPromise(creating) ? await creating : creating;
    const letGo = this.#parts.runs.hold();
    try {
      if ("repeated" in created) {
        if (mode === "async") return await this.#recordOf(created.repeated);
        return await waiting(this.#rest(created.repeated), options.signal);
      }
      const { run } = created;
      if (mode === "async") return await this.#acknowledge(run);
      run.begin();
      const rest = this.#restOf(run);
      return await (options.signal === undefined ? rest : waiting(rest, options.signal));
    } finally {
      letGo();
    }
  }

  /** Accepts a run and says so, before its agent begins. */
  async #acknowledge(run: LiveRun): Promise<Run> {
    const record = runRecord(run.log.state);
    const { clock } = this.#parts.settings;
    try {
      const committed = run.log.commit(true);
      if (committed !== undefined) await committed;
    } finally {
      // The answer leaves before the agent begins, which may take the processor for a while.
      void clock.turn().then(() => run.begin());
    }
    return record;
  }

  #createStream(request: CreateRunRequest, options: CreateRunOptions): MaybePromise<StreamStart> {
    readMode(request);
    const created = this.#accept(request, options);
    if (isPromise(created)) return created.then((later) => this.#begun(later));
    return this.#begun(created);
  }

  #begun(created: { readonly run: LiveRun } | { readonly repeated: RunKey }): MaybePromise<StreamStart> {
    if ("repeated" in created)
      return this.#source(created.repeated).then((source) => ({ source, after: 0, until: "rest" }));
    const { run } = created;
    run.begin();
    return whenCommitted(run, { source: run.log, after: 0, until: "next-rest" });
  }

  #accept(request: CreateRunRequest, options: CreateRunOptions): ReturnType<Runs["create"]> {
    checkObject("request", request);
    checkText("agent_name", request.agent_name);
    if (options !== noOptions) checkOptions(options, ["idempotencyKey", "signal", "timeoutMs", "session"]);
    options.signal?.throwIfAborted();
    const { agent_name, session_id } = request;
    const created: NewRun = {
      tenant: this.#tenant,
      principal: this.#principal,
      agent_name,
      input: readInput(request.input),
      session_id: session_id === undefined || session_id === null ? undefined : readId("session_id", session_id),
      idempotencyKey: options.idempotencyKey,
      timeoutMs: options.timeoutMs,
      session: readSession(options.session),
    };
    return this.#parts.runs.create(created);
  }

  async #resume(request: ResumeRequest, options: ResumeOptions): Promise<Run> {
    const mode = readMode(request);
    const answering = this.#answer(request, options);
    const letGo = this.#parts.runs.hold();
    try {
      const { run, key, record } = isPromise(answering) ? await answering : answering;
      if (run === undefined) return await this.#recordOf(key);
      if (mode === "async" && record !== undefined) return record;
      return await waiting(this.#restOf(run), options.signal);
    } finally {
      letGo();
    }
  }

  /** A caller that waits for a run to rest follows it where it has gone. Any other error stays as it is. */
  #restOf(run: LiveRun): MaybePromise<Run> {
    const rest = run.rest();
    if (!isPromise(rest)) return rest;
    return rest.catch((error: unknown) => {
      if (!isLost(error) || this.#parts.runs.isClosed) throw error;
      return this.#restElsewhere(run.log.key);
    });
  }

  async #resumeStream(request: ResumeRequest, options: ResumeOptions): Promise<StreamStart> {
    readMode(request);
    const { run, key, after } = await this.#answer(request, options);
    const source: LogSource = run === undefined ? await this.#source(key) : run.log;
    return { source, after, until: "next-rest" };
  }

  /** Gives the answer to the run, at once where the run is at work here. `after`: the number of the event that showed the question. */
  #answer(request: ResumeRequest, options: ResumeOptions): MaybePromise<Answered> {
    checkObject("request", request);
    if (options !== noOptions) checkOptions(options, ["idempotencyKey", "signal"]);
    const key = this.#key(request.run_id);
    const answer: Answer = {
      await_id: readAwaitId(request.await_id),
      answer: readAnswer(request.await_resume),
      idempotency_key: options.idempotencyKey ?? null,
      mode: readMode(request),
    };
    const live = this.#parts.runs.find(key);
    if (live === undefined) return this.#answerAnywhere(key, answer);
    const answering = this.#answerLive(live, key, answer);
    if (!isPromise(answering)) return answering;
    return answering.catch((error: unknown) => {
      if (isLost(error)) return this.#answerAnywhere(key, sameQuestion(answer, error));
      throw error;
    });
  }

  #answerAnywhere(key: RunKey, answer: Answer): Promise<Answered> {
    let bound = answer;
    return unlessLost(async () => {
      try {
        return await this.#answerRun(key, bound);
      } catch (error) {
        bound = sameQuestion(bound, error);
        throw error;
      }
    });
  }

  #answerLive(run: LiveRun, key: RunKey, answer: Answer): MaybePromise<Answered> {
    const after = askedAt(run.log.state, answer);
    const record = run.answer(answer);
    return isPromise(record)
      ? record.then((later) => ({ run, key, record: later, after }))
      : { run, key, record, after };
  }

  async #answerRun(key: RunKey, answer: Answer): Promise<Answered> {
    const run = this.#parts.runs.find(key) ?? (await this.#parts.runs.loader.load(key));
    if (run === undefined) {
      const state = await foldLog(this.#parts.settings.store, key, initialState(key.run_id), Number.POSITIVE_INFINITY);
      if (state === undefined) throw notFound(key);
      const decision = decide(state, { ...answer, type: "resume", at: this.#parts.settings.clock.now() });
      if (isRefusal(decision)) throw refusalError(decision, key.run_id, answer.await_id);
      if (decision.length > 0) throw this.#parts.runs.loader.unavailable(state, (await this.#stored(key)).head);
      return { run: undefined, key, record: undefined, after: askedAt(state, answer) };
    }
    return this.#answerLive(run, key, answer);
  }

  #key(runId: string): RunKey {
    return { tenant: this.#tenant, run_id: readId("run_id", runId) };
  }

  async #stored(key: RunKey): Promise<StoredRun> {
    const stored = await this.#parts.settings.store.find(key);
    if (stored === undefined) throw notFound(key);
    return stored;
  }

  /** The record of a run that the store has found. A live run may be further than that. */
  async #record(stored: StoredRun): Promise<Run> {
    const live = this.#parts.runs.find(stored.key);
    if (live !== undefined && stored.position > live.log.committed) await live.log.catchUp();
    if (live !== undefined && !live.log.lost) return live.log.record();
    const state = await foldLog(
      this.#parts.settings.store,
      stored.key,
      initialState(stored.key.run_id),
      stored.position,
    );
    if (state === undefined || state.created === null) throw notFound(stored.key);
    return runRecord(state);
  }

  async #recordOf(key: RunKey): Promise<Run> {
    return this.#record(await this.#stored(key));
  }

  /** The run when it rests, wherever it is executed. */
  async #rest(key: RunKey): Promise<Run> {
    const live = this.#parts.runs.find(key);
    return live === undefined ? this.#restElsewhere(key) : this.#restOf(live);
  }

  async #restElsewhere(key: RunKey): Promise<Run> {
    for await (const _ of this.events(key.run_id)) {
      // Reading to the end is the waiting.
    }
    return this.#recordOf(key);
  }

  #find(key: RunKey): MaybePromise<LogSource | undefined> {
    const live = this.#parts.runs.find(key);
    if (live !== undefined && !live.log.lost) return live.log;
    const stored = this.#parts.settings.store.find(key);
    return isPromise(stored) ? stored.then((run) => this.#logOf(run)) : this.#logOf(stored);
  }

  #logOf(stored: StoredRun | undefined): MaybePromise<LogSource | undefined> {
    const { runs } = this.#parts;
    if (stored === undefined) return undefined;
    // Whether a run is still blocked shows when the code that was registered last has been tried.
    const trying = stored.head.blocked === null ? undefined : runs.loader.tried(stored.created.agent_name);
    return trying === undefined ? new StoredLog(runs, stored) : trying.then(() => this.#find(stored.key));
  }

  /** The log of a run that is not here any more, for a reader that waits for more of it. */
  #findAgain(key: RunKey): MaybePromise<LogSource | undefined> {
    if (this.#parts.runs.isOver) throw closedError();
    return this.#find(key);
  }

  async #source(key: RunKey): Promise<LogSource> {
    const source = await this.#find(key);
    if (source === undefined) throw notFound(key);
    return source;
  }
}

/** A run that was answered; without the run itself where it has ended. */
interface Answered {
  readonly run: LiveRun | undefined;
  readonly key: RunKey;
  /** The run as it was when the answer was accepted, in mode `async`. */
  readonly record: Run | undefined;
  readonly after: number;
}

/** The number of the event that showed the question which is answered: now, or when the answer came first. */
function askedAt(state: RunState, { await_id, idempotency_key }: Answer): number {
  const exchanges = state.exchanges ?? [];
  const byKey = exchanges.find((one) => idempotency_key !== null && one.idempotency_key === idempotency_key);
  if (byKey !== undefined) return byKey.event;
  const shown = state.shown?.await_id;
  const id = await_id ?? shown;
  if (id !== undefined && id === shown) return state.shown_event;
  const before = exchanges.findLast((one) => (id === undefined ? one.answer !== null : one.asked.await_id === id));
  return before?.event ?? state.events;
}

/** Waits until a signal says to stop waiting. */
async function waiting<T>(promise: MaybePromise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined || !isPromise(promise)) return promise;
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    const done = (): void => signal.removeEventListener("abort", stop);
    promise.then(
      (value) => {
        done();
        resolve(value);
      },
      (error: unknown) => {
        done();
        reject(error);
      },
    );
  });
}

/** A stream shows nothing of a run that its store has not taken. */
function whenCommitted(run: LiveRun, start: StreamStart): MaybePromise<StreamStart> {
  const committed = run.log.commit(true);
  return committed === undefined ? start : committed.then(() => start);
}

const MAX_MOVES = 5;

/** Does something to a run that may change hands meanwhile: then it is done again, wherever the run is now. */
async function unlessLost<T>(act: () => Promise<T>): Promise<T> {
  for (let move = 1; ; move++) {
    try {
      return await act();
    } catch (error) {
      if (!isLost(error) || move === MAX_MOVES) throw error;
    }
  }
}

/** An answer that is given again, since the run has changed hands: for the question that it was given to before. */
function sameQuestion(answer: Answer, error: unknown): Answer {
  if (!CadenzaError.is(error) || error.await_id === undefined) return answer;
  return { ...answer, await_id: error.await_id };
}

function notFound({ run_id }: RunKey): CadenzaError {
  return new CadenzaError("run_not_found", `There is no run ${run_id}.`, { run_id });
}
