import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import type { CadenzaError } from "../../core/errors.ts";
import { causeOf, failureOf } from "../../core/failure.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import { createdEntry, isFinal } from "../../core/state.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Run } from "../../protocol/run.ts";
import type { Agent } from "../agent/agent.ts";
import type { NewSubRun } from "../agent/new-run.ts";
import type { AwaitYield } from "../agent/yields.ts";
import { ActiveTime } from "../log/active-time.ts";
import type { Operations } from "../log/operations.ts";
import type { Ownership } from "../log/ownership.ts";
import type { RunLog } from "../log/run-log.ts";
import type { ExecutionSettings } from "../log/shared-by-runs.ts";
import type { AgentRun } from "./agent-run.ts";
import type { Execution, ExecutionHost, Failed } from "./execution.ts";
import { isOfOperation, operationBehind } from "./failed-operation.ts";
import { LiveOperations } from "./live-operations.ts";
import { answerOffers } from "./offered-answers.ts";
import { takeMail } from "./receive.ts";
import { RunSession } from "./run-session.ts";
import { RunSignal } from "./run-signal.ts";
import { Spending } from "./spending.ts";
import { checkSpending, tokensLeft } from "./spending-tree.ts";
import { Steps } from "./steps.ts";
import { askByYield } from "./waits.ts";

/** The run as its agent sees it: what executions, contexts and steps of the agent need. Made when the agent is called. */
export class AgentHost implements ExecutionHost {
  readonly #run: AgentRun;
  /** Made on first use. */
  #signal: RunSignal | undefined;
  #steps: Steps | undefined;
  #isMailDue = false;

  constructor(run: AgentRun) {
    const { shared, log } = run;
    this.#run = run;
    const { budget } = createdEntry(log.state);
    if (budget !== undefined) run.family.spending = new Spending(budget);
    const limitMs = timeoutOf(run);
    if (limitMs !== Number.POSITIVE_INFINITY)
      log.activeTime = new ActiveTime({
        clock: shared.clock,
        logger: shared.logger,
        limitMs,
        recordedMs: log.state.active_ms,
        writing: () => log.writing,
        onOver: () => this.execution?.overrun(),
      });
  }

  get log(): RunLog {
    return this.#run.log;
  }

  get clock(): Clock {
    return this.#run.shared.clock;
  }

  get logger(): Logger {
    return this.#run.shared.logger;
  }

  get agent(): Agent {
    return this.#run.agent;
  }

  get settings(): ExecutionSettings {
    return this.#run.shared.settings;
  }

  get durable(): boolean {
    return this.#run.durable;
  }

  get ownership(): Ownership {
    return this.#run.ownership;
  }

  get execution(): Execution | undefined {
    return this.#run.execution;
  }

  get principal(): JsonValue {
    return createdEntry(this.log.state).principal ?? null;
  }

  get #runSignal(): RunSignal {
    this.#signal ??= new RunSignal(this.logger);
    return this.#signal;
  }

  get signal(): AbortSignal {
    return this.#runSignal.signal;
  }

  abortSignal(reason: () => CadenzaError): void {
    this.#runSignal.abort(reason);
    if (this.execution?.over === true) this.#steps?.onOver();
  }

  get session(): RunSession {
    return new RunSession(this, this.#run.shared.store);
  }

  get steps(): Steps {
    this.#steps ??= new Steps(this.#run, this.#runSignal);
    return this.#steps;
  }

  /** Undefined: no step has begun. */
  get startedSteps(): Steps | undefined {
    return this.#steps;
  }

  isInBody(execution: Execution): boolean {
    // What a run that stops refuses, it refuses for that.
    if (this.#steps === undefined || execution.aborted !== undefined || isFinal(this.log.state.status)) return false;
    return this.#steps.isInside(execution.operations.isPaced);
  }

  operationsFor(): Operations {
    return this.ownership.operations() ?? new LiveOperations(this);
  }

  onAwait(execution: Execution, request: AwaitYield): void {
    askByYield(execution, request);
  }

  /**
   * Messages for the agent, and answers that other processes could not validate, may be in the log. They are looked at
   * a turn later: results that are being committed now come before theirs, in the log and to the agent.
   */
  onMail(): void {
    if (this.#isMailDue || this.log.state.mail === null) return;
    this.#isMailDue = true;
    const looked = this.clock.turn().then(() => {
      this.#isMailDue = false;
      if (this.log.lost || this.ownership.isCatchingUp || this.execution?.isStopped !== false) return;
      takeMail(this.execution.operations);
      answerOffers(this.execution, this.#run.shared);
    });
    inBackground(this.logger, looked);
  }

  onMove(): void {
    if (this.#steps !== undefined && this.durable) this.#steps.moves();
  }

  pace(at: number): undefined | Promise<void> {
    return this.#run.shared.pace(at);
  }

  withSlot(callback: () => void): void {
    this.#run.withSlot(callback);
  }

  runAgent(execution: Execution, request: NewSubRun): Promise<Run> {
    return this.#run.runAgent(execution, request);
  }

  failureOf(error: unknown): Failed {
    this.#run.cause = error;
    this.logger.warn("A run failed.", { ...aboutRun(this.log), error });
    const failure = failureOf(error, this.settings.exposeErrors);
    const key = this.durable ? operationBehind(error) : undefined;
    const cause = key !== undefined && isOfOperation(error) ? undefined : causeOf(error);
    return { failure, ...(key !== undefined && { key }), ...(cause !== undefined && { cause }) };
  }

  /**
   * The body of a step goes on when its execution is replaced: what it uses is that of the next one, and is new. An agent
   * that has not caught up reports what the log has already.
   */
  addUsage(execution: Execution, usage: Usage): void {
    const { execution: current } = this;
    if (current !== undefined && current !== execution && this.#steps?.isBusy === true) current.addUsage(usage);
    else if (!execution.operations.holdsUsage(usage)) execution.addUsage(usage);
  }

  /** Of a run with a budget. The others may have no family. */
  get #spending(): Spending | undefined {
    return createdEntry(this.log.state).budget === undefined ? undefined : this.#run.family.spending;
  }

  onUsage(): void {
    if (this.#spending !== undefined) checkSpending(this.#run);
  }

  get usageBelow(): Usage | null {
    return this.#spending?.below ?? null;
  }

  get tokensLeft(): number {
    return this.#spending === undefined ? Number.POSITIVE_INFINITY : tokensLeft(this.#run);
  }

  onDropped(): void {
    this.#run.shared.figures.dropped += 1;
  }

  onEnd(): void {
    this.#run.onEnd();
  }

  onOver(hung: boolean): void {
    if (hung) {
      this.#run.shared.figures.hung += 1;
      this.logger.warn("An agent did not stop in time, and was left behind.", aboutRun(this.log));
    }
    this.#run.onOver();
  }
}

/** How long a run may be active, in milliseconds. A sub-run has no more than was left above it. */
function timeoutOf({ log, agent, shared }: AgentRun): number {
  const { timeout_ms, parent } = createdEntry(log.state);
  const own = agent.options.timeoutMs ?? shared.settings.timeoutMs;
  if (timeout_ms === undefined) return own;
  const given = timeout_ms ?? Number.POSITIVE_INFINITY;
  return parent === undefined ? given : Math.min(given, own);
}
