import { inBackground } from "../../core/background.ts";
import { sameJson } from "../../core/json.ts";
import type { CreatedEntry } from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import type { StreamedEvent } from "../../core/project.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { runRecord } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, isFinal } from "../../core/state.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Run, RunMode } from "../../protocol/run.ts";
import type { AgentInput, AgentOutput, CallableAgent } from "../agent/agent-schemas.ts";
import type { Answer } from "../agent/answer.ts";
import { badArgument, checkObject, readGiven, readId } from "../agent/check.ts";
import type { NewRun, RunElsewhere } from "../agent/new-run.ts";
import { unlessAborted } from "../execution/unless-aborted.ts";
import type { LogSource, StreamStart } from "../log/event-stream.ts";
import { findStored } from "../log/fold-log.ts";
import { isLost, notLoadedError, refusalError } from "../log/refusals.ts";
import type { Answered } from "../runs/answer-router.ts";
import { AnswerRouter } from "../runs/answer-router.ts";
import type { AuditedObjects, Ended } from "../runs/audit.ts";
import { Trail, told } from "../runs/audit.ts";
import type { LiveRun } from "../runs/live-run.ts";
import { MessageRouter } from "../runs/message-router.ts";
import { unlessLost } from "../runs/remote-runs.ts";
import type {
  AgentName,
  CancelOptions,
  CreateRunOptions,
  CreateRunRequest,
  ResumeOptions,
  ResumeRequest,
  SendOptions,
  SendRequest,
} from "../runs/requests.ts";
import { checkOptions, noOptions, readAwaitId, readMessageToSend, readMode, readReply } from "../runs/requests.ts";
import { RunReader } from "../runs/run-reader.ts";
import type { Runs } from "../runs/runs.ts";
import type { CallOptions } from "./call-agent.ts";
import { callAgent } from "./call-agent.ts";
import type { ForkOptions } from "./forks.ts";
import { beginFork, Forks } from "./forks.ts";
import { readNewRun } from "./read-new-run.ts";
import type { ScopeParts } from "./scope-reads.ts";
import { keyOf, ScopeReads, streamOf } from "./scope-reads.ts";

/**
 * The runs and sessions of one tenant, in the name of one principal. A refused call changes nothing. Besides the codes
 * that its comment names, each call is refused with `invalid_argument` for an invalid argument, and with `store_failed`
 * if the store fails.
 */
export class Scope<Names extends string = never> extends ScopeReads<Names> {
  readonly #tenant: string;
  readonly #principal: JsonValue;
  readonly #reader: RunReader;
  readonly #runs: Runs;
  readonly #answers: AnswerRouter;
  readonly #forks: Forks;
  readonly #messages: MessageRouter;
  readonly #trail: Trail | undefined;

  /** `onlyOf`: the user of whom alone the runs and sessions exist. Undefined: all runs and sessions of the tenant exist. */
  constructor(parts: ScopeParts, tenant: string, principal: JsonValue, onlyOf?: string) {
    const reader = new RunReader(parts.settings, parts.runs, onlyOf);
    super(parts, tenant, reader);
    this.#tenant = tenant;
    this.#principal = principal;
    this.#reader = reader;
    this.#runs = parts.runs;
    const { onAudit, logger } = parts.settings;
    this.#trail = onAudit && new Trail(onAudit, logger, tenant, principal);
    this.#answers = new AnswerRouter(parts.runs);
    this.#forks = new Forks(parts.runs, parts.forks);
    this.#messages = new MessageRouter(parts.runs);
  }

  /**
   * Starts a run. In mode `sync`, the default, it resolves with the run when it rests: completed, failed, cancelled or
   * awaiting. In mode `async` it resolves with the run as it was accepted. In mode `stream` it returns the run's events
   * until it rests. The run continues whether they are read or not. Refused with `agent_not_found`, `limit_reached`,
   * `idempotency_conflict` or `runtime_closed`. A call that waits is also refused with `run_blocked` or
   * `lost_ownership`, if the run cannot go on here. A refused stream rejects its first `next`.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * const run = await runtime.createRun({ agent_name: "echo", input: "Hello" });
   * console.log(run.status); // → completed
   * const accepted = await runtime.createRun({ agent_name: "echo", input: "Hello", mode: "async" });
   * console.log(accepted.status); // → created
   * for await (const event of runtime.createRun({ agent_name: "echo", input: "Hello", mode: "stream" })) {
   *   if (event.type === "message.part") console.log(event.part.content); // → Hello
   * }
   * ```
   */
  createRun(
    request: CreateRunRequest<AgentName<Names>> & { readonly mode: "stream" },
    options?: CreateRunOptions,
  ): AsyncIterableIterator<StreamedEvent>;
  createRun(
    request: CreateRunRequest<AgentName<Names>> & { readonly mode?: "sync" | "async" | null | undefined },
    options?: CreateRunOptions,
  ): Promise<Run>;
  createRun(
    request: CreateRunRequest<AgentName<Names>>,
    options?: CreateRunOptions,
  ): Promise<Run> | AsyncIterableIterator<StreamedEvent>;
  createRun(
    request: CreateRunRequest,
    options: CreateRunOptions = noOptions,
  ): Promise<Run> | AsyncIterableIterator<StreamedEvent> {
    if (isStreamed(request)) return streamOf(() => this.#createStream(request, options), this.#reader, options);
    return this.#create(request, options);
  }

  /**
   * Creates a run of an agent and resolves with its output when it has completed: with an `output` schema the schema's
   * output, otherwise the messages of the run. It waits through questions. The input matches the agent's `input`
   * schema, if it has one. Rejects with `run_failed` or `run_cancelled` if the run ends so, each with the run, with
   * `invalid_input` or `invalid_output`, and with what {@link createRun} is refused with.
   *
   * @example
   * ```ts
   * import { AgentRuntime, defineAgent } from "cadenza";
   * import { z } from "zod";
   *
   * const approval = z.object({ approved: z.boolean() });
   * const refund = defineAgent("refund", { input: z.object({ cents: z.int() }), output: approval }).run(
   *   async ({ cents }, { ask }) => ask(`Refund ${cents} cents?`, { schema: approval }),
   * );
   * const runtime = new AgentRuntime({ agents: [refund] });
   * const answered = await runtime.call(refund, { cents: 4000 }, { onQuestion: () => ({ approved: true }) });
   * console.log(answered.approved); // → true
   * ```
   */
  async call<Called extends CallableAgent>(
    agent: Called,
    input: AgentInput<Called>,
    options: CallOptions = {},
  ): Promise<AgentOutput<Called>> {
    return (await callAgent(this, agent, input, options, this.#runs.shared)) as AgentOutput<Called>;
  }

  /**
   * Answers what a run asks. The modes are the same as in {@link createRun}. Refused with `run_not_found`, `not_awaiting` or
   * `run_cancelling`; with `answer_rejected` if the answer does not match the question's schema (the run continues
   * waiting); with `answer_conflict` if the question has another answer already; with `idempotency_conflict` if the key
   * has; with `run_blocked`, `lost_ownership` or `runtime_closed` if the run cannot go on here.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("booking", async (_input, { ask }) => ask("Book it?"));
   * const { run_id, status } = await runtime.createRun({ agent_name: "booking", input: "Berlin to Paris" });
   * console.log(status); // → awaiting
   * const run = await runtime.resume({ run_id, await_resume: { ok: true } });
   * console.log(run.status); // → completed
   * ```
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
    if (isStreamed(request)) return streamOf(() => this.#resumeStream(request, options), this.#reader, options);
    return this.#resume(request, options);
  }

  /**
   * Stops a run, and resolves with it when the store has the cancel. Its agent then has the runtime's `cancelGraceMs`
   * for its `finally` blocks. With `wait: true` it resolves when the run has ended. A cancel may be repeated. Refused
   * with `run_not_found`, or with `run_finished` if the run has completed or failed.
   *
   * @example
   * ```ts
   * import { setTimeout } from "node:timers/promises";
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime();
   * runtime.register("slow", (_input, { signal }) => setTimeout(60_000, "Done.", { signal }));
   * const { run_id } = await runtime.createRun({ agent_name: "slow", input: "", mode: "async" });
   * console.log((await runtime.cancel(run_id)).status); // → cancelling
   * console.log((await runtime.cancel(run_id, { wait: true })).status); // → cancelled
   * ```
   */
  async cancel(run_id: string, options: CancelOptions = {}): Promise<Run> {
    const key = keyOf(this.#tenant, run_id);
    checkOptions(options, ["wait", "signal"]);
    const { wait = false, signal } = options;
    if (typeof wait !== "boolean") throw badArgument("options.wait", "true or false", wait);
    const { run } = await told(
      this.#trail,
      "cancel",
      { run_id },
      () => this.#reader.ifSeen(key, () => this.#cancelHere(key)),
      endOfCancel,
    );
    if (!wait || isFinal(run.status)) return run;
    return this.#held(this.#reader.end(key, signal), signal);
  }

  /**
   * Makes a new run that begins with what a durable run has recorded, and continues from there: "try again". The run
   * itself stays as it is. Recorded results are not computed again, and the idempotency keys of the steps are the same.
   * Operations without a result begin again: a step as its next attempt, questions, sleeps and receives with new
   * deadlines, sub-runs as new runs. The fork is a run of its own, without a parent, in the session of the run. Resolves
   * with the fork when it rests, or with `mode: "async"` when it is accepted. Refused with `run_not_found`; with
   * `not_forkable` for a run of an agent or a store that is not durable, or if the run was stopped before that operation;
   * with `agent_not_found`, `invalid_input`, `limit_reached`, `idempotency_conflict` or `runtime_closed`.
   *
   * @example
   * ```ts
   * import { AgentRuntime, MemoryStore } from "cadenza";
   * import { durable } from "cadenza/store";
   *
   * let isUp = false;
   * const runtime = new AgentRuntime({ store: durable(new MemoryStore()) });
   * runtime.register("refund", { durable: true }, async (_input, { step }) => {
   *   const cents = await step("look up", () => 4000);
   *   return step("pay", () => (isUp ? `Paid ${cents}.` : Promise.reject(new Error("The bank is down."))));
   * });
   * const failed = await runtime.createRun({ agent_name: "refund", input: "" });
   * isUp = true;
   * const fork = await runtime.fork(failed.run_id);
   * console.log(failed.status, fork.status); // → failed completed
   * await runtime.close();
   * ```
   */
  async fork(run_id: string, options: ForkOptions = {}): Promise<Run> {
    const key = keyOf(this.#tenant, run_id);
    this.#runs.shared.hold();
    try {
      const make = () => this.#reader.ifSeen(key, () => this.#forks.make(key, options, this.#principal));
      const made = await told(this.#trail, "fork", { run_id }, make, endOfFork, commitOf);
      return await this.#begin(made, beginFork, options.mode, options.signal);
    } finally {
      this.#runs.shared.letGo();
    }
  }

  /**
   * Sends a message to a run, whose agent takes it with `receive`. Resolves with the run's id when the store has the
   * message: it is kept until the agent asks for it. A message that was sent after another one was acknowledged comes
   * after it. Refused with `run_not_found`; with `run_finished` or `run_cancelling` if the agent cannot receive any more;
   * with `limit_reached` if too many messages wait to be received; with `ambiguous` if several runs have the labels; with
   * `idempotency_conflict` if the key has another message.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("order", async (_input, { receive }) => receive("payment"));
   * const { run_id } = await runtime.createRun({ agent_name: "order", input: "", mode: "async" });
   * await runtime.send({ to: run_id, name: "payment", data: { cents: 4000 } }, { idempotencyKey: "payment-1" });
   * ```
   */
  async send(request: SendRequest, options: SendOptions = {}): Promise<{ readonly run_id: string }> {
    const message = readGiven("request", readMessageToSend, request, options, this.#principal);
    const { to, name: message_name } = message;
    const asked = { message_name, run_id: typeof to === "string" ? to : undefined };
    const send = () => this.#messages.send(this.#tenant, message, this.#reader.onlyOf);
    const sendSeen = () => (typeof to === "string" ? this.#reader.ifSeen(keyOf(this.#tenant, to), send) : send());
    const { run_id } = await told(this.#trail, "send", asked, sendSeen, (sent) => sent);
    return { run_id };
  }

  /**
   * Deletes a run that has ended, with its sub-runs and its idempotency key. What it has added to a session that a
   * caller named stays there, and so do statistics. Refused with `run_not_found`, or with `run_not_ended` if the run, a
   * run below it or its parent has not ended.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * const { run_id } = await runtime.createRun({ agent_name: "echo", input: "Hello" });
   * await runtime.delete(run_id);
   * console.log(await runtime.listRuns()); // → []
   * ```
   */
  async delete(run_id: string): Promise<void> {
    const key = keyOf(this.#tenant, run_id);
    const objectsOf = (created: CreatedEntry | null): AuditedObjects => {
      return { agent_name: created?.agent_name, session_id: created?.session_id };
    };
    const remove = () => this.#reader.ifSeen(key, () => this.#runs.delete(key));
    await told(this.#trail, "delete", { run_id: key.run_id }, remove, objectsOf);
  }

  /**
   * Deletes a session with its messages, its state and its runs, each as {@link delete} does. Refused with
   * `session_not_found`, or with `run_not_ended`.
   */
  async deleteSession(session_id: string): Promise<void> {
    const id = readId("session_id", session_id);
    const key = { tenant: this.#tenant, session_id: id };
    const remove = async () => {
      if (this.#reader.onlyOf !== undefined) await this.#reader.session(this.#tenant, id);
      return this.#runs.deleteSession(key);
    };
    await told(this.#trail, "deleteSession", { session_id: id }, remove);
  }

  // How runs are started.

  /** In mode `sync` or `async`. No async function, which would take as much memory as the log of a small run. */
  #create(request: CreateRunRequest, options: CreateRunOptions): Promise<Run> {
    try {
      const mode = readGiven("request", readMode, request);
      const created = this.#accept(request, options);
      if (isPromise(created)) return this.#beginLater(created, mode, options.signal);
      return this.#begin(created, beginRun, mode, options.signal);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async #beginLater(created: Promise<Created>, mode: RunMode, signal: AbortSignal | undefined): Promise<Run> {
    return this.#begin(await this.#runs.shared.holdFor(created), beginRun, mode, signal);
  }

  /** In mode `stream`. */
  #createStream(request: CreateRunRequest, options: CreateRunOptions): MaybePromise<StreamStart> {
    readGiven("request", readMode, request);
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
    const { onlyOf } = this.#reader;
    const run = readGiven("request", readNewRun, request, options, this.#tenant, this.#principal, onlyOf);
    options.signal?.throwIfAborted();
    return this.#trail === undefined ? this.#runs.create(run) : this.#createTold(this.#trail, run);
  }

  #createTold(trail: Trail, run: NewRun): ReturnType<Runs["create"]> {
    const { agent_name, session_id } = run;
    return trail.follow("create", { agent_name, session_id }, () => this.#runs.create(run), endOfCreate, commitOf);
  }

  /** Lets an accepted run begin, if it is here, and gives its record as the mode of the call says. */
  #begin<Accepted extends { readonly run: LiveRun }>(
    accepted: Accepted | RunElsewhere,
    begin: (accepted: Accepted) => void,
    mode: RunMode | null | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Run> {
    if ("elsewhere" in accepted) {
      if (mode === "async") return this.#held(this.#reader.recordOf(accepted.elsewhere));
      return this.#held(this.#reader.rest(accepted.elsewhere, signal), signal);
    }
    if (mode === "async") return this.#held(this.#acknowledge(accepted, begin));
    begin(accepted);
    return Promise.resolve(accepted.run.rest(this.#reader, signal));
  }

  /** The process stays open while a caller waits for a run. One that is at work here does so by itself. */
  #held(run: MaybePromise<Run>, signal?: AbortSignal): Promise<Run> {
    return isPromise(run) ? this.#runs.shared.holdFor(unlessAborted(run, signal)) : Promise.resolve(run);
  }

  /** Accepts a run and says so, before its agent begins. */
  async #acknowledge<Accepted extends { readonly run: LiveRun }>(
    accepted: Accepted,
    begin: (accepted: Accepted) => void,
  ): Promise<Run> {
    const { log } = accepted.run;
    const record = runRecord(log.state);
    const { clock, logger } = this.#runs.shared;
    try {
      const committed = log.acknowledge();
      if (committed !== undefined) await committed;
    } finally {
      // The answer leaves before the agent begins, which may take the processor for a while.
      inBackground(
        logger,
        clock.turn().then(() => begin(accepted)),
      );
    }
    return record;
  }

  // How they are answered.

  /** In mode `sync` or `async`. */
  #resume(request: ResumeRequest, options: ResumeOptions): Promise<Run> {
    try {
      const mode = readGiven("request", readMode, request);
      const answered = this.#answer(request, options);
      if (isPromise(answered)) return this.#restLater(answered, mode, options.signal);
      return this.#restAfter(answered, mode, options.signal);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async #restLater(answered: Promise<Answered>, mode: RunMode, signal: AbortSignal | undefined): Promise<Run> {
    return this.#restAfter(await this.#runs.shared.holdFor(answered), mode, signal);
  }

  #restAfter({ run, key, record }: Answered, mode: RunMode, signal: AbortSignal | undefined): Promise<Run> {
    if (mode === "async") return this.#held(record ?? this.#reader.current(key));
    return run === undefined
      ? this.#held(this.#reader.rest(key, signal), signal)
      : Promise.resolve(run.rest(this.#reader, signal));
  }

  /** In mode `stream`. */
  async #resumeStream(request: ResumeRequest, options: ResumeOptions): Promise<StreamStart> {
    readGiven("request", readMode, request);
    const { run, key, after, before } = await this.#answer(request, options);
    const source: LogSource = run === undefined ? await this.#reader.source(key) : run.log;
    const isBefore = before !== undefined && before.events <= after;
    const state = isBefore ? before : await this.#reader.stateBefore(source, after);
    return { source, after, until: "next-rest", state };
  }

  /** Gives the answer to the run, at once where the run is at work here. `after`: the number of the event that showed the question. */
  #answer(request: ResumeRequest, options: ResumeOptions): MaybePromise<Answered> {
    const { key, answer } = readGiven("request", readAnswer, request, options, this.#tenant, this.#by);
    return this.#trail === undefined ? this.#give(key, answer) : this.#giveTold(this.#trail, key, answer);
  }

  #giveTold(trail: Trail, key: RunKey, answer: Answer): MaybePromise<Answered> {
    const asked = { run_id: key.run_id, await_id: answer.await_id ?? undefined };
    const action = "answer" in answer.reply ? "answer" : "decline";
    return trail.follow(action, asked, () => this.#give(key, answer), endOfAnswer);
  }

  #give(key: RunKey, answer: Answer): MaybePromise<Answered> {
    return this.#reader.ifSeen(key, () => this.#answers.answer(key, answer));
  }

  // How they are stopped.

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
    const stored = await findStored(this.#runs.shared.store, key);
    const { status } = stored.head;
    if (status === "cancelled") return { run: await this.#reader.record(stored), repeated: true };
    if (isFinal(status)) throw refusalError({ refused: "run_finished" }, key.run_id);
    if (remote === undefined) throw notLoadedError(key.run_id);
    const live = await remote.load(key);
    if (live !== undefined) return this.#cancelLive(live);
    const state = await remote.post(key, { type: "cancel", by: this.#by });
    return { run: runRecord(state), repeated: status === "cancelling" || !this.#isMine(state) };
  }

  /** Whether the cancel in a log is by this principal. Another process may have written one first. */
  #isMine({ cancelled }: RunState): boolean {
    return sameJson(cancelled?.by ?? null, this.#principal);
  }

  /** Who acts, as logs have it: left out for null. */
  get #by(): JsonValue | undefined {
    return this.#principal ?? undefined;
  }
}

/** Reads an answer, and for which run it is. Throws `invalid_argument`. */
function readAnswer(
  request: ResumeRequest,
  options: ResumeOptions,
  tenant: string,
  by: JsonValue | undefined,
): { readonly key: RunKey; readonly answer: Answer } {
  checkObject("request", request);
  if (options !== noOptions) checkOptions(options, ["idempotencyKey", "signal", "admit"]);
  const { admit } = options as ResumeOptions;
  if (admit !== undefined && typeof admit !== "function") throw badArgument("options.admit", "a function", admit);
  const key: RunKey = { tenant, run_id: readId("run_id", request.run_id) };
  const answer: Answer = {
    await_id: readAwaitId(request.await_id),
    reply: readReply(request),
    by,
    idempotency_key: options.idempotencyKey ?? null,
    mode: readMode(request),
    admit,
  };
  return { key, answer };
}

function beginRun({ run }: { readonly run: LiveRun }): void {
  run.begin();
}

/** Whether a call gives a stream. A request that cannot be read is refused where it is read. */
function isStreamed(request: { readonly mode?: unknown }): boolean {
  try {
    return request?.mode === "stream";
  } catch {
    return false;
  }
}

/** A run that was asked to stop. `repeated`: it had been asked before. */
interface Cancelled {
  readonly run: Run;
  readonly repeated: boolean;
}

// What the application learns of calls that are done: see `Trail`.

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

/** What the store does not have yet of a run that was accepted. The run is let begin in the same turn. */
function commitOf(created: Created): undefined | Promise<void> {
  return "run" in created ? created.run.log.acknowledge("with what follows") : undefined;
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
