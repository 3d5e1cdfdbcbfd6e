import { DetailFold } from "../core/detail.ts";
import type { RunKey } from "../core/ports.ts";
import type { StreamedEvent } from "../core/project.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { RunSummary } from "../core/record.ts";
import { agentStatus, noCounters } from "../core/statistics.ts";
import type { AgentManifest } from "../protocol/agent.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { Run } from "../protocol/run.ts";
import type { AgentInput, AgentOutput, CallableAgent } from "./agent-schemas.ts";
import type { CallOptions } from "./call-agent.ts";
import { callAgent } from "./call-agent.ts";
import { Calls } from "./calls.ts";
import { badArgument, checkCount, checkKeys, checkObject, checkText } from "./check.ts";
import type { DetailedEvent, StreamStart } from "./events.ts";
import { EventStream } from "./events.ts";
import { MessageRouter } from "./message-router.ts";
import type { Settings } from "./options.ts";
import { readRunQuery } from "./read-run-query.ts";
import type { Registry } from "./registry.ts";
import { manifestOf } from "./registry.ts";
import type {
  AgentName,
  CancelOptions,
  CreateRunOptions,
  CreateRunRequest,
  EventsOptions,
  ListRunsQuery,
  ResumeOptions,
  ResumeRequest,
  RunDetails,
  SendOptions,
  SendRequest,
  Session,
} from "./requests.ts";
import { noOptions, readId, readMessageToSend } from "./requests.ts";
import { RunReader } from "./run-reader.ts";
import type { Runs } from "./runs.ts";

/** What the runs of one tenant share with all others. */
export interface ScopeParts {
  readonly settings: Settings;
  readonly registry: Registry;
  readonly runs: Runs;
}

/**
 * The runs and sessions of one tenant, in the name of one principal. A refused call changes nothing. Besides the codes
 * that its comment names, each call is refused with `invalid_argument` for an invalid argument, and with `store_failed`
 * if the store fails.
 */
export class Scope<Names extends string = never> {
  readonly #parts: ScopeParts;
  readonly #tenant: string;
  readonly #principal: JsonValue;
  readonly #reader: RunReader;
  readonly #calls: Calls;
  readonly #messages: MessageRouter;

  constructor(parts: ScopeParts, tenant: string, principal: JsonValue) {
    this.#parts = parts;
    this.#tenant = tenant;
    this.#principal = principal;
    this.#reader = new RunReader(parts.settings, parts.runs);
    this.#calls = new Calls(parts.runs, this.#reader, tenant, principal);
    this.#messages = new MessageRouter(parts.runs);
  }

  /**
   * Starts a run. In mode `sync`, the default, it resolves with the run when it rests: completed, failed, cancelled or
   * awaiting. In mode `async` it resolves with the run as it was accepted. In mode `stream` it returns the run's events
   * until it rests. The run goes on whether they are read or not. Refused with `agent_not_found`, `limit_reached`,
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
    if (request?.mode === "stream") return this.#stream(() => this.#calls.createStream(request, options));
    return this.#calls.create(request, options);
  }

  /**
   * Creates a run of an agent and resolves with its output when it has completed: with an `output` schema the schema's
   * output, otherwise the messages of the run. It waits through questions. The input is that of the agent's `input`
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
    return (await callAgent(this, agent, input, options)) as AgentOutput<Called>;
  }

  /**
   * Answers what a run asks. The modes are those of {@link createRun}. Refused with `run_not_found`, `not_awaiting` or
   * `run_cancelling`; with `answer_rejected` if the answer does not match the question's schema (the run goes on
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
    if (request?.mode === "stream") return this.#stream(() => this.#calls.resumeStream(request, options));
    return this.#calls.resume(request, options);
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
    return this.#calls.cancel(this.#key(run_id), options);
  }

  /**
   * Sends a message to a run, whose agent takes it with `receive`. Resolves with the run's id when the store has the
   * message: it is kept until the agent asks for it. A message that was sent after another one was acknowledged comes
   * after it. Refused with `run_not_found`; with `run_finished` or `run_cancelling` if the agent cannot receive any more;
   * with `ambiguous` if several runs have the labels; with `idempotency_conflict` if the key has another message.
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
    return this.#messages.send(this.#tenant, readMessageToSend(request, options, this.#principal));
  }

  /** The run as it is now. Refused with `run_not_found`. */
  async getRun(run_id: string): Promise<Run> {
    return this.#reader.current(this.#key(run_id));
  }

  /**
   * The facts about a run that its record has no field for, all of one moment. Refused with `run_not_found`.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * const { run_id } = await runtime.createRun({ agent_name: "echo", input: "Hello", mode: "async" });
   * const { status, usage, last_event_id } = await runtime.details(run_id);
   * console.log(status, usage, last_event_id); // → created null 1
   * for await (const event of runtime.events(run_id, { after: last_event_id })) {
   *   if (event.id === last_event_id + 1) console.log(event.type); // → run.in-progress
   * }
   * ```
   */
  async details(run_id: string): Promise<RunDetails> {
    return this.#reader.details(this.#key(run_id));
  }

  /**
   * What was said in a run so far, in order: its input, questions, answers and output. A run need not have completed.
   * Refused with `run_not_found`. A run that completes adds the same messages to its session.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("booking", (_input, { ask }) => ask("Book it?"));
   * const { run_id } = await runtime.createRun({ agent_name: "booking", input: "Berlin to Paris" });
   * const messages = await runtime.transcript(run_id);
   * console.log(messages.map(({ parts }) => parts[0]?.content)); // → [ 'Berlin to Paris', 'Book it?' ]
   * ```
   */
  async transcript(run_id: string): Promise<readonly Message[]> {
    return this.#reader.transcript(this.#key(run_id));
  }

  /**
   * A page of runs, the newest first: their records without the output, or with `output: true` the whole records. The
   * next page follows `after` the last run of this one. Runs that the store cannot read are left out.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("refund", (_input, { ask }) => ask("Refund 40 €?"));
   * await runtime.createRun({ agent_name: "refund", input: "" }, { labels: { order: "O-17" } });
   * const [run] = await runtime.listRuns({ labels: { order: "O-17" }, status: ["in-progress", "awaiting"] });
   * console.log(run?.status); // → awaiting
   * ```
   */
  listRuns(query: ListRunsQuery & { readonly output: true }): Promise<readonly Run[]>;
  listRuns(query?: ListRunsQuery): Promise<readonly RunSummary[]>;
  async listRuns(query: ListRunsQuery = {}): Promise<readonly RunSummary[]> {
    const read = readRunQuery(query, this.#tenant);
    await this.#parts.runs.settled(this.#tenant);
    const found = await this.#parts.settings.store.list(read);
    return query.output === true ? this.#reader.records(found) : this.#reader.summaries(found);
  }

  /**
   * The run that was created with an idempotency key; undefined if there is none.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("refund", () => "Refunded.");
   * await runtime.createRun({ agent_name: "refund", input: "40 €" }, { idempotencyKey: "refund-17" });
   * const run = await runtime.findRun({ idempotencyKey: "refund-17" });
   * console.log(run?.status); // → completed
   * ```
   */
  async findRun(by: { readonly idempotencyKey: string }): Promise<Run | undefined> {
    checkObject("by", by);
    checkKeys("by", by, ["idempotencyKey"]);
    checkText("by.idempotencyKey", by.idempotencyKey);
    await this.#parts.runs.settled(this.#tenant);
    const found = await this.#parts.settings.store.findByIdempotencyKey(this.#tenant, by.idempotencyKey);
    return found && this.#reader.record(found);
  }

  /**
   * What happened in a run: everything so far, then live, by default until the run rests. Leaving the loop detaches. The
   * first `next` rejects with `run_not_found`, and any `next` with `run_blocked`, `lost_ownership` or `runtime_closed`
   * if no event can follow here. If the store has deleted events before they are read, an `error` event ends the
   * stream.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime().register("echo", (input) => input);
   * const { run_id } = await runtime.createRun({ agent_name: "echo", input: "Hello", mode: "async" });
   * for await (const event of runtime.events(run_id, { until: "end" })) {
   *   console.log(event.id, event.type); // the ids are 1, 2, 3 and so on
   * }
   * for await (const event of runtime.events(run_id, { detail: true })) {
   *   if (event.type === "step.failed") console.log(event.name, event.attempt, event.error.message);
   * }
   * ```
   */
  events(run_id: string, options: EventsOptions & { readonly detail: true }): AsyncIterableIterator<DetailedEvent>;
  events(
    run_id: string,
    options?: EventsOptions & { readonly detail?: false | undefined },
  ): AsyncIterableIterator<StreamedEvent>;
  events(run_id: string, options?: EventsOptions): AsyncIterableIterator<DetailedEvent>;
  events(run_id: string, options: EventsOptions = {}): AsyncIterableIterator<DetailedEvent> {
    return this.#stream(async () => {
      checkObject("options", options);
      checkKeys("options", options, ["after", "until", "detail"]);
      const { after = 0, until = "rest", detail = false } = options;
      checkCount("options.after", after);
      if (until !== "now" && until !== "rest" && until !== "end")
        throw badArgument("options.until", '"now", "rest" or "end"', until);
      if (typeof detail !== "boolean") throw badArgument("options.detail", "true or false", detail);
      const source = await this.#reader.source(this.#key(run_id));
      const details = detail ? new DetailFold(this.#parts.settings.exposeErrors) : undefined;
      return { source, after, until, details };
    });
  }

  /** An agent's manifest with its live statistics. Refused with `agent_not_found`. */
  async getAgent(name: AgentName<Names>): Promise<AgentManifest> {
    checkText("name", name);
    const agent = this.#parts.registry.get(name);
    const counters = await this.#parts.settings.store.counters(name);
    return manifestOf(agent, agentStatus(counters ?? noCounters));
  }

  /** The manifests of all registered agents, with their live statistics. */
  async listAgents(): Promise<readonly AgentManifest[]> {
    return Promise.all(this.#parts.registry.all().map(({ name }) => this.getAgent(name)));
  }

  /** A session with its messages and its state. Refused with `session_not_found`. */
  async getSession(session_id: string): Promise<Session> {
    const id = readId("session_id", session_id);
    return this.#reader.session(this.#tenant, id);
  }

  #stream(open: () => MaybePromise<StreamStart>): AsyncIterableIterator<StreamedEvent> {
    let opening: MaybePromise<StreamStart>;
    try {
      opening = open();
    } catch (error) {
      opening = Promise.reject(error);
    }
    // Without `details` a stream has the events of the protocol only. With them `events` says so.
    return new EventStream(opening, this.#reader.streams) as AsyncIterableIterator<StreamedEvent>;
  }

  #key(runId: string): RunKey {
    return { tenant: this.#tenant, run_id: readId("run_id", runId) };
  }
}
