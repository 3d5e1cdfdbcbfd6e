import { inBackground } from "../../core/background.ts";
import type { Command } from "../../core/commands.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { Budget } from "../../core/log.ts";
import type { Clock, Logger, RunKey } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import type { RunState } from "../../core/state.ts";
import { addUsage, left, usageOfGeneration } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { RunLog } from "../log/run-log.ts";

const noRuns: readonly RunKey[] = [];

/** What a run has to do with others: its parent, its sub-runs, and those that have joined its session. */
export class RunFamily<Relative> {
  /** The parent, which follows this run. */
  parent: Relative | undefined;
  /** Of a run with a budget whose agent has been called. */
  spending: Spending | undefined;
  /** Called after each commit, if this run is a sub-run. */
  onProgress: (() => void) | undefined;
  /** The error of the run if it is blocked, or if one of its sub-runs is. */
  blocked: CadenzaError | undefined;
  /** Another run has joined the session that was made for this one: then the session stays. */
  isJoined = false;
  /** The keys of the sub-runs that are about to be executed here. */
  readonly beginning = new Set<string>();
  /** The sub-runs that this process executes. */
  readonly children = new Set<Relative>();
  /** The sub-runs that other processes may execute, each with the function that checks it. */
  readonly #sought = new RunMap<{ readonly key: RunKey; readonly check: () => Promise<unknown> }>();
  /** The sub-runs that an earlier execution of the agent has begun, and that any process may execute. */
  #before = noRuns;
  /** The sub-runs whose cancel the store does not have yet. */
  readonly #cancels = new RunMap<Promise<void>>();

  /** Whether a sub-run is being started, is executed here, or may be executed by another process. */
  get hasSubRuns(): boolean {
    return this.beginning.size > 0 || this.children.size > 0 || this.#sought.size > 0;
  }

  /**
   * Sets the sub-runs without a result in the log. They end with this run, even if the agent does not reach them
   * again.
   */
  begunBefore(keys: readonly RunKey[]): void {
    this.#before = keys;
  }

  /**
   * Adds a sub-run that another process may execute. It ends with this run. `check` is called when this run is woken.
   */
  seek(key: RunKey, check: () => Promise<unknown>): void {
    this.#sought.set(key, { key, check });
  }

  seekNoMore(key: RunKey, check: () => Promise<unknown>): void {
    if (this.#sought.get(key)?.check === check) this.#sought.delete(key);
  }

  /** Checks each sub-run that another process may execute. */
  look(): Promise<unknown>[] {
    return [...this.#sought.values()].map(({ check }) => check());
  }

  /**
   * Whether the cancel of a sub-run is not committed yet. The run's end is written after it, because no process would
   * cancel the sub-run later.
   */
  get isEndHeld(): boolean {
    return this.#cancels.size > 0;
  }

  /**
   * Cancels all sub-runs. `cancel` returns a promise if the cancel has to be committed. `onCancelled` is called when it
   * is.
   */
  end(
    live: readonly RunKey[],
    cancel: (key: RunKey) => undefined | Promise<void>,
    onCancelled: () => void,
    logger: Logger,
  ): void {
    const all = new RunMap<RunKey>();
    const sought = Array.from(this.#sought.values(), ({ key }) => key);
    for (const key of [...live, ...this.#before, ...sought]) all.set(key, key);
    for (const key of all.values()) {
      if (this.#cancels.has(key)) continue;
      const cancelling = cancel(key);
      if (cancelling === undefined) continue;
      this.#cancels.set(key, cancelling);
      const cancelled = cancelling.then(() => {
        this.#cancels.delete(key);
        onCancelled();
      });
      inBackground(logger, cancelled);
    }
    this.#before = noRuns;
  }
}

/**
 * What the runs below a run with a budget have used, and what that leaves of the budget. A sub-run in this process is
 * counted at each report, one in another process by what its log holds.
 */
export class Spending {
  readonly #budget: Budget;
  /** What the sub-runs without a result have used. */
  readonly #below = new RunMap<Usage>();
  #tokensBelow = 0;
  /** What the results have used that the agent of a durable run has received, in each of its executions. */
  #received: WeakMap<object, Usage | null> | undefined;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  /** What the sub-runs without a result have used. */
  get below(): Usage | null {
    let sum: Usage | null = null;
    for (const usage of this.#below.values()) sum = addUsage(sum, usage);
    return sum;
  }

  /** Notes what a sub-run has used so far. */
  note(key: RunKey, usage: Usage | null): void {
    this.#tokensBelow += (usage?.total_tokens ?? 0) - (this.#below.get(key)?.total_tokens ?? 0);
    if (usage === null) this.#below.delete(key);
    else this.#below.set(key, usage);
  }

  /** How many tokens of the budget are left. `own`: what the run itself has used. */
  left(own: Usage | null): number {
    return Math.max(0, left(this.#budget, own) - this.#tokensBelow);
  }

  /** A durable agent receives a result, in this execution. `usage`: what the log holds with it. */
  receive(execution: object, usage: Usage | null): void {
    this.#received ??= new WeakMap();
    this.#received.set(execution, addUsage(this.#received.get(execution) ?? null, usage));
  }

  /**
   * How many tokens of the budget are left by the results that a durable agent has received in this execution: it sees
   * the same whenever it is executed again. The budget of a sub-run is what was left above it when it was created.
   */
  leftFor(execution: object, state: RunState): number {
    const received = this.#received?.get(execution) ?? null;
    return left(this.#budget, usageOfGeneration(state, addUsage(state.generation?.used ?? null, received)));
  }

  isExceeded(own: Usage | null): boolean {
    return (own?.total_tokens ?? 0) + this.#tokensBelow > this.#budget.total_tokens;
  }
}

/** A run whose usage counts for a budget, its own or one above it. */
export interface SpendingRun {
  readonly log: RunLog;
  readonly family: RunFamily<SpendingRun>;
  /** The agent at work on the run: see `Execution`. */
  readonly execution: SpendingAgent | undefined;
  /** The run is about to end: its sub-runs end first. */
  onEnd(): void;
}

interface SpendingAgent {
  readonly usage: Usage | null;
  readonly isStopped: boolean;
  /** Whether the agent does again what the log holds. */
  readonly isCatchingUp: boolean;
  readonly clock: Clock;
  takeUsage(): Usage | null;
  stopBy(command: Command): boolean;
  abort(reason: CadenzaError): void;
}

// Each run below a run with a budget has a budget itself, at most what was left then.

/** How many tokens are left now, of the budgets of a run and of those above it. */
export function tokensLeft(run: SpendingRun): number {
  const { spending, parent } = run.family;
  if (spending === undefined) return Number.POSITIVE_INFINITY;
  const own = spending.left(ownUsage(run));
  return parent === undefined ? own : Math.min(own, tokensLeft(parent));
}

/** What a run has used, with the runs below it. */
export function usageOf(run: SpendingRun): Usage | null {
  return addUsage(ownUsage(run), run.family.spending?.below ?? null);
}

/** Tells the runs above what a run with a budget has used, and stops the highest of them that has exceeded its budget. */
export function checkSpending(run: SpendingRun): void {
  let highest: SpendingRun | undefined;
  let each: SpendingRun | undefined = run;
  while (each?.family.spending !== undefined) {
    if (each.family.spending.isExceeded(ownUsage(each))) highest = each;
    const above: SpendingRun | undefined = each.family.parent;
    above?.family.spending?.note(each.log.key, usageOf(each));
    each = above;
  }
  if (highest !== undefined) exceed(highest);
}

/** Stops a run, and the runs below it. */
function exceed(run: SpendingRun): void {
  const { execution } = run;
  // An agent that is executed again is stopped where it was, not on the way there.
  if (execution === undefined || execution.isStopped || execution.isCatchingUp) return;
  const command = { type: "exceed", at: execution.clock.now(), usage: execution.takeUsage() } as const;
  if (execution.stopBy(command)) stopBelow(run);
}

/** Stops the agents of the sub-runs at once, and not when their cancels are committed: they would use more meanwhile. */
function stopBelow(run: SpendingRun): void {
  run.onEnd();
  for (const child of run.family.children) {
    stopBelow(child);
    const { execution, log } = child;
    if (execution?.isCatchingUp === false)
      execution.abort(new CadenzaError("run_cancelled", "The run was cancelled.", { run_id: log.key.run_id }));
  }
}

function ownUsage({ execution, log }: SpendingRun): Usage | null {
  return usageOfGeneration(log.state, execution?.usage);
}
