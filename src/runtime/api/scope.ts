import type { CreatedEntry } from "../../core/log.ts";
import type { StreamedEvent } from "../../core/project.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Run } from "../../protocol/run.ts";
import type { AgentInput, AgentOutput, CallableAgent } from "../agent/agent-schemas.ts";
import { readGiven, readId } from "../agent/check.ts";
import type { AuditedObjects } from "../runs/audit.ts";
import { Trail, told } from "../runs/audit.ts";
import { MessageRouter } from "../runs/message-router.ts";
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
import { noOptions, readMessageToSend } from "../runs/requests.ts";
import { RunReader } from "../runs/run-reader.ts";
import type { Runs } from "../runs/runs.ts";
import type { CallOptions } from "./call-agent.ts";
import { callAgent } from "./call-agent.ts";
import { Calls } from "./calls.ts";
import type { ForkOptions } from "./forks.ts";
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
  readonly #calls: Calls;
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
    this.#calls = new Calls(parts.runs, reader, tenant, principal, this.#trail);
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
    if (isStreamed(request)) return streamOf(() => this.#calls.createStream(request, options), this.#reader);
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
    return (await callAgent(this, agent, input, options, this.#runs.shared)) as AgentOutput<Called>;
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
    if (isStreamed(request)) return streamOf(() => this.#calls.resumeStream(request, options), this.#reader);
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
    return this.#calls.cancel(keyOf(this.#tenant, run_id), options);
  }

  /**
   * Makes a new run that begins with what a durable run has recorded, and goes on from there: "try again". The run
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
   * import { durable } from "cadenza/durable";
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
    return this.#calls.fork(keyOf(this.#tenant, run_id), options);
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
    const message = readGiven("request", () => readMessageToSend(request, options, this.#principal));
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
}

/** Whether a call gives a stream. A request that cannot be read is refused where it is read. */
function isStreamed(request: { readonly mode?: unknown }): boolean {
  try {
    return request?.mode === "stream";
  } catch {
    return false;
  }
}
