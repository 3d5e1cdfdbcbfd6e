import { CadenzaError } from "../../core/errors.ts";
import type { Labels } from "../../core/log.ts";
import type { Logger } from "../../core/ports.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";
import type { AgentInput, AgentOutput, CallableAgent } from "./agent-schemas.ts";
import { inputFor, readOutput } from "./agent-schemas.ts";
import type { DurableStep, Step } from "./agent-steps.ts";
import type { Ask, Receive, Sleep } from "./agent-waits.ts";
import { checkObject } from "./check.ts";
import type { ContinueAsNew } from "./generator.ts";
import type { RunInput } from "./input.ts";
import type { SchemaHost } from "./standard-schema.ts";
import type { BudgetOptions } from "./usage.ts";

/**
 * The second argument of an agent function. Its methods are bound: they may be destructured and passed on. After the run
 * was stopped, `ask` and `run` reject with `run_cancelled`, `run_timeout` or `await_timeout`. Inside the body of a step
 * `ask`, `step` and `run` reject with `nested_operation`, as do `emit` and the session's state in a durable agent. A
 * promise that rejects and that nothing has observed by the end of the run is logged, and does no other harm.
 */
export interface AgentContext {
  readonly run_id: string;
  readonly agent_name: string;
  readonly session: AgentSession;
  /**
   * Aborts when the run is cancelled, exceeds its `timeoutMs` or ends. Its reason is a `CadenzaError`, such as
   * `run_cancelled` or `run_timeout`. Each run has one signal.
   */
  readonly signal: AbortSignal;
  /** The principal that the application named when it created the run. Default: null. */
  readonly principal: JsonValue;
  /** The `metadata` that the run's creator gave it. Default: null, also for a sub-run. */
  readonly metadata: JsonValue;
  /** The `labels` that the run's creator gave it. Default: none, also for a sub-run. */
  readonly labels: Labels;
  /** The logger of the runtime. */
  readonly logger: Logger;
  /**
   * Emits a part, a message or an object as `yield` does, for code in callbacks. Resolves at once, or, above
   * `limits.maxBacklog`, when the store has caught up. Rejects with `invalid_yield` for a value that is none of these.
   */
  readonly emit: (value: unknown) => Promise<void>;
  /**
   * Asks the client and resolves with the answer. The open message is completed first. Several questions may be open at
   * once: each can be answered by its id, and the first of them is the run's await request. Rejects with
   * `answer_declined` when the client declines, with the signal's reason when its signal aborts, and with
   * `invalid_argument` for an invalid question or option.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   * import { z } from "zod";
   *
   * const schema = z.object({ ok: z.boolean() });
   * export const booking = defineAgent("booking", async (_input, { ask }) => {
   *   const { ok } = await ask("Book it?", { schema, timeoutMs: 86_400_000, default: { ok: false } });
   *   return ok ? "Booked." : "Not booked.";
   * });
   * ```
   */
  readonly ask: Ask;
  /**
   * Runs a function with side effects, and resolves with its result. For a durable agent the result is written to the
   * log. When the agent is executed again, it gets the result from there, and the function is not called. Rejects with
   * the error of the last attempt, which is `step_timeout` if it took longer than `timeoutMs`. Rejects with
   * `limit_reached` if the result of a durable step is larger than `limits.maxStepBytes`, and with `invalid_argument`
   * for an invalid name, function or option. A name is any text except `ask`, `await` and `sleep`, and does not begin
   * with `ask:`, `sleep:`, `run:`, `receive:` or `session.`: the keys of other operations have these forms.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   *
   * export const report = defineAgent("report", { durable: true }, async (_input, { step }) => {
   *   const load = async ({ signal }: { signal: AbortSignal }) =>
   *     (await fetch("https://example.com/figures.txt", { signal })).text();
   *   const figures = await step("load figures", load, { retry: { attempts: 3, backoffMs: 500 } });
   *   return `The figures: ${figures}`;
   * });
   * ```
   */
  readonly step: Step;
  /**
   * Waits for a time: a number of milliseconds, a text such as "90s" or "24h" (the units are ms, s, m, h, d and w), or a
   * `Date`. The sleep of a durable agent survives its process. The run shows no question meanwhile, and may leave
   * memory. Rejects with `invalid_argument` for another value, and with the signal's reason when its signal aborts.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   *
   * export const reminder = defineAgent("reminder", { durable: true }, async function* (_input, { sleep }) {
   *   yield "I shall remind you tomorrow.";
   *   await sleep("24h");
   *   yield "Here is your reminder.";
   * });
   * ```
   */
  readonly sleep: Sleep;
  /**
   * Waits for a message that is sent to the run with `runtime.send`, and resolves with its data. Each receive takes the
   * oldest message of its name that no other has taken, also one that came before the receive began. Without a default
   * it rejects with `receive_timeout` when its time has passed. Rejects with `message_rejected` for a message that does
   * not match the schema, and with the signal's reason when its signal aborts.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   * import { z } from "zod";
   *
   * const schema = z.object({ cents: z.int() });
   * export const order = defineAgent("order", { durable: true }, async (_input, { receive }) => {
   *   const paid = await receive("payment", { schema, timeoutMs: 86_400_000, default: { cents: 0 } });
   *   return `Paid: ${paid.cents} cents.`;
   * });
   * ```
   */
  readonly receive: Receive;
  /**
   * Runs another agent in a session of its own, and resolves with the run when it has ended, also if it has failed. The
   * sub-run is cancelled with this run. This run passes on its questions. With `show: true` it also shows what the
   * sub-run emits, while it is emitted. Rejects with `agent_not_found`, with `limit_reached` above `limits.maxDepth` or
   * if the log of this run is too short for what it shows, and with `invalid_argument` for an invalid option.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   *
   * export const desk = defineAgent("desk", async function* (input, { run }) {
   *   yield "I ask the researcher. ";
   *   const research = await run("researcher", input, { show: true });
   *   yield `That was the researcher, who has ${research.status}.`;
   * });
   * ```
   */
  readonly run: (agent_name: string, input: RunInput, options?: SubRunOptions) => Promise<Run>;
  /**
   * Runs another agent as {@link AgentContext.run} does, and resolves with its output: with an `output` schema the
   * schema's output, otherwise the messages of the run. The input matches its `input` schema, if it has one. Rejects
   * with `run_failed` or `run_cancelled` if the run has ended so, each with the run, and with `invalid_input` or
   * `invalid_output`.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   * import { z } from "zod";
   *
   * const lengthOf = defineAgent("length", { input: z.string(), output: z.object({ length: z.int() }) }).run(
   *   (text) => ({ length: text.length }),
   * );
   * export const report = defineAgent("report", async (_input, { call }) => {
   *   const { length } = await call(lengthOf, "cadenza");
   *   return `It has ${length} letters.`;
   * });
   * ```
   */
  readonly call: <Called extends CallableAgent>(
    agent: Called,
    input: AgentInput<Called>,
    options?: SubRunOptions,
  ) => Promise<AgentOutput<Called>>;
  /**
   * Whether a change of the agent's code applies to this run. With it, code changes without a new `version` while runs of
   * the old code are open. A run that has not come to this place yet has the patch, and so do all new runs. A run whose log
   * holds more after this place, without the patch, was executed by the old code here: false. The first call with an id
   * decides for all others of the run, until it continues as new. Once no run has gone past the place without the
   * patch, the old code and the call may go. An agent that is not durable always gets true. Throws `invalid_argument` for
   * an id that is no text, and `nested_operation` inside the body of a step.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   *
   * export const order = defineAgent("order", { durable: true }, async (_input, { step, ask, patched }) => {
   *   if (patched("check the stock first")) await step("check the stock", () => true);
   *   return ask("Order it?");
   * });
   * ```
   */
  readonly patched: (id: string) => boolean;
  /**
   * What the agent returns to begin again from the top: the same run continues with a new *generation*, whose `carry` is this
   * value, and whose history of operations is empty. For agents that go on for ever: what a run costs grows with the length
   * of a generation, whatever the length of the run. Its id, session, labels, usage and the numbers of its events stay.
   * Questions that are open are withdrawn, sub-runs without a result are cancelled, messages that nothing has received
   * stay. What was said joins the session. Budget, `timeoutMs` and the limits of the log count anew. Throws
   * `invalid_argument` for a value that is not JSON, or does not match the agent's `carry` schema. A run whose agent returns
   * something else after this call fails with `invalid_yield`.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const runtime = new AgentRuntime();
   * runtime.register("countdown", async (_input, { carry = 3, continueAsNew, emit }) => {
   *   await emit(`${carry} `);
   *   return Number(carry) > 1 ? continueAsNew(Number(carry) - 1) : "Done.";
   * });
   * const { run_id } = await runtime.createRun({ agent_name: "countdown", input: "" });
   * const said = await runtime.transcript(run_id);
   * console.log(said.map(({ parts }) => parts.map(({ content }) => content).join("")).join("")); // → 3 2 1 Done.
   * ```
   */
  readonly continueAsNew: (carry?: unknown) => ContinueAsNew;
  /** The number of the generation, from 1 on: see {@link AgentContext.continueAsNew}. */
  readonly generation: number;
  /** What the generation before has given this one: see {@link AgentContext.continueAsNew}. Undefined in the first one. */
  readonly carry: JsonValue | undefined;
  /** Takes the token usage of the run's model calls. */
  readonly usage: UsageReport;
  /**
   * The time in milliseconds since 1970. For a durable agent it is the time of the last result that it received, or of
   * its start. An agent that is executed again gets the same times.
   */
  readonly now: () => number;
  /** A UUID that is the same when a durable agent is executed again. */
  readonly uuid: () => string;
  /**
   * A number from 0 up to, but not including, 1. It is the same when a durable agent is executed again. Not for
   * secrets.
   */
  readonly random: () => number;
}

/** The session of a run. */
export interface AgentSession {
  readonly id: string;
  /**
   * The messages of the session as they were when the run was created, oldest first. `last`: only so many of the last ones, and
   * no others are read. Default: all. Rejects with `invalid_argument` for what is no count.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   *
   * const session_id = crypto.randomUUID();
   * const runtime = new AgentRuntime();
   * runtime.register("chat", async (_input, { session }) => {
   *   const [question, answer] = await session.history({ last: 2 });
   *   return answer === undefined ? "Hello." : `You said ${question?.parts[0]?.content}.`;
   * });
   * for (const input of ["one", "two", "three"]) {
   *   const { output } = await runtime.createRun({ agent_name: "chat", session_id, input });
   *   console.log(output[0]?.parts[0]?.content);
   * }
   * // → Hello.
   * // → You said one.
   * // → You said two.
   * ```
   */
  readonly history: (options?: { readonly last?: number | undefined }) => Promise<readonly Message[]>;
  /** The current state, as JSON; null until it is set. */
  readonly getState: () => Promise<JsonValue>;
  /** Replaces the state. Resolves when it is stored. Rejects with `invalid_argument` for a value that is not JSON. */
  readonly setState: (state: JsonValue) => Promise<void>;
}

/** How another agent is run. */
export interface SubRunOptions {
  /**
   * Whether this run shows what the sub-run emits: its parts, messages and objects join the output and the events of this
   * run while they are emitted. The messages keep the role of the sub-run's agent, and in process the events have a
   * `source`. All of it is shown before the sub-run's record is the result. Default: false.
   */
  readonly show?: boolean | undefined;
  /**
   * How many tokens the sub-run and the runs below it may use. What is left of the budgets above it limits it too.
   * Default: the agent's `budget`.
   */
  readonly budget?: BudgetOptions | undefined;
}

/**
 * The second argument of a durable agent's function: an {@link AgentContext} whose steps return JSON values. The
 * results of its steps are written to the log as JSON. A result that JSON would lose or change is refused.
 */
export interface DurableContext extends AgentContext {
  readonly step: DurableStep;
}

/** The token usage of a run's model calls. */
export interface UsageReport {
  /**
   * Adds the usage object of the AI SDK 4 to 7, of OpenAI's two APIs or of Anthropic. Totals include cached tokens.
   * Throws `invalid_argument` for an object without token counts.
   */
  readonly add: (usage: object) => void;
  /** The sum of all reports so far, including the reports of sub-runs; null before the first report. */
  readonly total: Usage | null;
  /**
   * How many tokens are left of the run's budget, or of a budget above it if that is less; `Infinity` without one. For a
   * durable agent it is what was left with the last result that it received, of a budget above it what was left when
   * the run was created. An agent that is executed again gets the same.
   */
  readonly remaining: number;
}

/** Calls an agent by `context.run`, and gives its output. */
export async function callInside(
  run: AgentContext["run"],
  agent: CallableAgent,
  input: unknown,
  options: SubRunOptions | undefined,
  { logger }: SchemaHost,
): Promise<unknown> {
  checkObject("agent", agent);
  // The time of the calling run limits the time of the schema.
  return outcomeOf(agent, await run(agent.name, inputFor(agent, input), options), { logger });
}

/** The output of a run that has completed. Throws `run_failed` or `run_cancelled`. */
export async function outcomeOf(agent: CallableAgent, run: Run, host: SchemaHost): Promise<unknown> {
  const { run_id, agent_name, status, error } = run;
  if (status === "completed") return readOutput(agent, run, host);
  const details = { run_id, agent_name, run };
  const which = `Run ${run_id} of agent ${JSON.stringify(agent_name)}`;
  if (status === "cancelled") throw new CadenzaError("run_cancelled", `${which} was cancelled.`, details);
  throw new CadenzaError("run_failed", `${which} has failed: ${error?.message}`, details);
}
