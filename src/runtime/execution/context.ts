import { frozen } from "../../core/frozen.ts";
import type { Labels } from "../../core/log.ts";
import type { Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { createdEntry, generationNumber } from "../../core/state.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { AgentContext, AgentSession, UsageReport } from "../agent/agent-context.ts";
import { callInside } from "../agent/agent-context.ts";
import { withDeclared } from "../agent/agent-schemas.ts";
import type { Step, StepOptions, StepScope } from "../agent/agent-steps.ts";
import type { Ask, AskOptions, Question, Receive, ReceiveOptions, Sleep } from "../agent/agent-waits.ts";
import {
  badArgument,
  checkCount,
  checkFunction,
  checkKeys,
  checkObject,
  checkSignal,
  checkText,
} from "../agent/check.ts";
import { readEmission } from "../agent/generator.ts";
import { noLabels } from "../agent/labels.ts";
import { recordedValue } from "../agent/recorded.ts";
import { readBudget, readUsage } from "../agent/usage.ts";
import type { AgentRun, Execution } from "./execution.ts";
import { nestedError } from "./nested-operations.ts";
import { SeededRandom, seedOf } from "./random.ts";
import type { HistoryOf } from "./run-session.ts";
import { RunSession } from "./run-session.ts";
import { checkStepName, checkStepOptions } from "./step-options.ts";
import { askClient, checkReceiveOptions, receiveMessage, sleepFor } from "./waits.ts";

/**
 * The context of an agent function. Its methods are bound, so that an agent may destructure them. They are created on
 * first use: most agents use one or two, and creating all of them takes more than half of the time of a small run.
 */
export class RunContext implements AgentContext {
  readonly #run: AgentRun;
  readonly #execution: Execution;
  #session: AgentSession | undefined;
  #usage: UsageReport | undefined;
  #random: SeededRandom | undefined;
  #history: Promise<HistoryOf | null> | undefined;

  constructor(run: AgentRun, execution: Execution) {
    this.#run = run;
    this.#execution = execution;
  }

  get run_id(): string {
    return this.#run.log.key.run_id;
  }

  get agent_name(): string {
    return createdEntry(this.#run.log.state).agent_name;
  }

  get principal(): JsonValue {
    return frozen(createdEntry(this.#run.log.state).principal ?? null);
  }

  get metadata(): JsonValue {
    return frozen(createdEntry(this.#run.log.state).metadata ?? null);
  }

  get labels(): Labels {
    return frozen(createdEntry(this.#run.log.state).labels ?? noLabels);
  }

  get logger(): Logger {
    return this.#execution.logger;
  }

  get signal(): AbortSignal {
    return this.#run.signal;
  }

  get generation(): number {
    return generationNumber(this.#run.log.state);
  }

  get carry(): AgentContext["carry"] {
    return this.#execution.carry as AgentContext["carry"];
  }

  get patched(): AgentContext["patched"] {
    return (id) => {
      checkText("patch id", id);
      // A body is not called again, and would not ask.
      if (this.#run.durable) this.#checkOutside("patched");
      return this.#execution.journal?.recall({ patch: id }) !== "passed";
    };
  }

  get continueAsNew(): AgentContext["continueAsNew"] {
    return (carry) => {
      // A body is not called again: the execution would end elsewhere then.
      if (this.#run.durable) this.#checkOutside("continueAsNew");
      return this.#execution.continueAsNew(recordedValue("carry", carry));
    };
  }

  get emit(): (value: unknown) => Promise<void> {
    return (value) =>
      this.#execution.given(() => {
        // A body is not called again, so this value would be missing then. A body emits with `step.emit`.
        if (this.#run.durable) this.#checkOutside("emit");
        const emitted = this.#execution.emit(readEmission(value));
        const onMove = (): void => this.#run.onMove();
        return emitted === undefined ? onMove() : emitted.then(onMove);
      });
  }

  get ask(): Ask {
    return ((question: Question, options?: AskOptions<unknown, boolean>) =>
      this.#begin("ask", undefined, () => {
        const { questions } = this.#run.agent.options;
        return askClient(this.#execution, question, options && withDeclared(questions, options.name, options));
      })) as Ask;
  }

  get step(): Step {
    // A durable step returns a copy through JSON. The types claim that the copy has the type of the function's result.
    return ((name: string, fn: (step: StepScope) => unknown, options: StepOptions = {}) =>
      this.#begin("step", name, () => {
        checkStepName(name);
        checkFunction("step function", fn);
        checkStepOptions(options, this.#run.shared.settings.stepLimits.names);
        return this.#run.step(this.#execution, name, fn, options);
      })) as Step;
  }

  get sleep(): Sleep {
    return ((duration, options = {}) =>
      this.#begin("sleep", undefined, () => {
        checkObject("options", options);
        checkKeys("options", options, ["name", "signal"]);
        if (options.name !== undefined) checkText("options.name", options.name);
        checkSignal("options.signal", options.signal);
        return sleepFor(this.#execution, duration, options);
      })) as Sleep;
  }

  get receive(): Receive {
    return ((name: string, options: ReceiveOptions<unknown> = {}) =>
      this.#begin("receive", name, () => {
        checkText("message name", name);
        checkReceiveOptions(options);
        return receiveMessage(this.#execution, name, withDeclared(this.#run.agent.options.messages, name, options));
      })) as Receive;
  }

  get run(): AgentContext["run"] {
    return (agentName, input, options = {}) =>
      this.#begin("run", agentName, () => {
        checkText("agent_name", agentName);
        checkObject("options", options);
        checkKeys("options", options, ["show", "budget"]);
        const { show = false, budget } = options;
        if (typeof show !== "boolean") throw badArgument("options.show", "a boolean", show);
        const totalTokens = readBudget("options.budget", budget);
        return this.#run.runAgent(this.#execution, { agentName, input, show, totalTokens });
      });
  }

  get call(): AgentContext["call"] {
    return (agent, input, options) =>
      this.#execution.given(() => callInside(this.run, agent, input, options, this) as Promise<never>);
  }

  get session(): AgentSession {
    const run = this.#run;
    const execution = this.#execution;
    const session = (): RunSession => new RunSession(execution);
    this.#session ??= {
      id: createdEntry(run.log.state).session_id,
      history: (options) =>
        execution.given(async () => {
          const last = readLast(options);
          // The session has grown since the run was created: by what its earlier generations have said, if by nothing else.
          const its = execution.generation === 1 ? undefined : await this.#sessionNow();
          const history = await execution.read(session().history(last, its));
          run.onMove();
          return history;
        }),
      // For a durable agent these are steps, so that an agent that is executed again does not read or write the state.
      getState: () =>
        execution.given(() => this.#once("session.getState", () => session().getState()) as MaybePromise<JsonValue>),
      setState: (state) =>
        execution.given(async () => {
          const copy = readState(state);
          await this.#once("session.setState", () => session().setState(copy));
        }),
    };
    return this.#session;
  }

  get usage(): UsageReport {
    const execution = this.#execution;
    this.#usage ??= {
      add: (usage) => execution.report(readUsage(usage)),
      get total() {
        return execution.usage;
      },
      get remaining() {
        return execution.tokensLeft;
      },
    };
    return this.#usage;
  }

  get now(): () => number {
    return () => this.#execution.now();
  }

  get uuid(): () => string {
    return () => this.#seeded().uuid();
  }

  get random(): () => number {
    return () => this.#seeded().number();
  }

  /** How long the session was when the agent first asked for its history in this generation. */
  #sessionNow(): Promise<HistoryOf | null> {
    const length = async (): Promise<unknown> =>
      this.#once("session.history", () => new RunSession(this.#execution).length());
    this.#history ??= length() as Promise<HistoryOf | null>;
    return this.#history;
  }

  #once(name: string, fn: () => unknown): Promise<unknown> | unknown {
    if (!this.#run.durable) return fn();
    this.#checkOutside(name);
    return this.#run.step(this.#execution, name, fn, {});
  }

  /**
   * Throws for an operation that begins inside the body of a step. When the agent is executed again, the body
   * is not called, and would not begin the operation.
   */
  #checkOutside(what: string, name?: unknown): void {
    if (!this.#run.isInBody(this.#execution)) return;
    throw nestedError(this.run_id, typeof name === "string" ? `${what} ${JSON.stringify(name)}` : what);
  }

  /** Begins an operation. */
  #begin<T>(what: string, name: unknown, begin: () => Promise<T>): Promise<T> {
    try {
      this.#checkOutside(what, name);
      return this.#execution.isStopped ? this.#refuse(begin) : begin();
    } catch (error) {
      return this.#execution.given(() => Promise.reject(error));
    }
  }

  /** The pause keeps an agent that is stopped, and ignores the refusals, from blocking the event loop. */
  #refuse<T>(begin: () => Promise<T>): Promise<T> {
    const turn = this.#execution.pace();
    return turn === undefined ? begin() : this.#execution.given(() => turn.then(begin));
  }

  #seeded(): SeededRandom {
    const { key, state } = this.#run.log;
    const { generation } = this.#execution;
    const seed = seedOf(createdEntry(state), key.run_id);
    this.#random ??= new SeededRandom(generation === 1 ? seed : `${seed} ${generation}`);
    return this.#random;
  }
}

function readState(state: unknown): JsonValue {
  const copy = recordedValue("state", state);
  if (copy === undefined) throw badArgument("state", "a JSON value", state);
  return copy;
}

/** How many messages of the session are asked for. */
function readLast(options: Parameters<AgentSession["history"]>[0]): number {
  if (options === undefined) return Number.POSITIVE_INFINITY;
  checkObject("options", options);
  checkKeys("options", options, ["last"]);
  const { last = Number.POSITIVE_INFINITY } = options;
  checkCount("options.last", last);
  return last;
}
