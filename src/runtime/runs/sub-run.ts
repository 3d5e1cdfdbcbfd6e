import { inBackground } from "../../core/background.ts";
import { commandOf } from "../../core/commands.ts";
import type { CadenzaErrorCode } from "../../core/errors.ts";
import { CadenzaError } from "../../core/errors.ts";
import { failureOfStep } from "../../core/failure.ts";
import { newerPart } from "../../core/format.ts";
import type { AttemptEntry, Growing, IntentEntry, StepEntry } from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import { newsForParent } from "../../core/questions-above.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, isFinal } from "../../core/state.ts";
import { waitFor } from "../../core/time.ts";
import { addUsage } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { Run } from "../../protocol/run.ts";
import { checkInput } from "../agent/agent-schemas.ts";
import { readInput } from "../agent/input.ts";
import type { NewRun } from "../agent/new-run.ts";
import { noteOperation } from "../execution/agent-promise.ts";
import type { Execution, NewSubRun } from "../execution/execution.ts";
import { onceCommitted, onceInLog, uncommitted } from "../execution/operations.ts";
import { parentOf } from "../execution/random.ts";
import { checkSpending, tokensLeft, usageOf } from "../execution/run-family.ts";
import { resultOfStep } from "../execution/steps.ts";
import type { LogSource } from "../log/event-stream.ts";
import type { SubRunActivity } from "../log/run-write.ts";
import type { EndedRun, LiveRun, RunElsewhere, SubRunFound } from "./live-run.ts";
import { ShownOutput } from "./shown-output.ts";

/** The refusals of a sub-run that the parent's log keeps. */
const finalRefusals: readonly CadenzaErrorCode[] = [
  "limit_reached",
  "agent_not_found",
  "invalid_input",
  "run_not_found",
];

/** Runs another agent under a run, to its end. */
export function runSubRun(parent: LiveRun, execution: Execution, asked: NewSubRun): Promise<Run> {
  return new SubRun(parent, execution, asked).perform(asked);
}

/** The pause after a failure, in milliseconds. */
const RETRY_MS = 200;
/** When to look again at a sub-run in another process of which nothing is heard, in milliseconds. */
const SILENCE_MS = 10_000;

/**
 * One sub-run as an operation of its parent. The parent shows the questions of the sub-run, which are answered in the
 * sub-run's log. When the sub-run has ended, its record is the operation's result, and its usage is added to the
 * parent's. Its id is in the parent's log before it is created, so that a parent that is executed again finds it. A second
 * entry says that the store holds it: a sub-run that is missing after that is an error, and never created again.
 */
class SubRun {
  readonly #key: string;
  readonly #request: NewRun;
  readonly #parent: LiveRun;
  readonly #execution: Execution;
  /** While another process may execute the sub-run: tells when it has moved. Undefined: that is not known. */
  #elsewhere: LogSource | undefined;
  /** Ends the wait for the next search. */
  #onNews: () => void = ignore;
  /** While the sub-run is being found: resolves with whether the last search has found it live or ended. */
  #search: Promise<boolean> | undefined;
  /** The length of the log of a sub-run in another process when it was last read. Undefined: it has not been read. */
  #readTo: number | undefined;
  /** Whether the store has held the sub-run. `lost`: this process has executed it since, and has lost it before its end. */
  #stored: "no" | "yes" | "lost" = "no";
  /** How long the parent was active before it started the sub-run, in milliseconds. */
  #activeBefore = 0;
  /** Of a sub-run that is shown: copies what it emits. */
  #shown: ShownOutput | undefined;
  /** The copying after which it continues with a sub-run in this process. Undefined: none is under way. */
  #copying: Promise<void> | undefined;

  /** Throws `invalid_argument` for an input that is none. */
  constructor(parent: LiveRun, execution: Execution, asked: NewSubRun) {
    this.#key = execution.keyFor(`run:${asked.agentName}`);
    this.#request = requestFor(parent, asked);
    this.#parent = parent;
    this.#execution = execution;
  }

  /** Starts or finds the sub-run. Resolves with its record when it has ended. */
  perform({ show }: Pick<NewSubRun, "show">): Promise<Run> {
    const result = this.#execution.record({
      key: this.#key,
      start: (_given, before) => {
        this.#parent.family.beginning.add(this.#key);
        const started = this.#start(before, show).catch((error: unknown) => this.#refuse(error));
        this.#do(started.finally(() => this.#onBegun()));
      },
      settle: (entry, live) => noteOperation(this.#key, live ?? resultOfStep(entry as StepEntry)),
    });
    // The log's value was made from the record of a run.
    return result as Promise<Run>;
  }

  /** The sub-run is live here, or another process may execute it. */
  #onBegun(): void {
    if (!this.#parent.family.beginning.delete(this.#key)) return;
    this.#parent.settleActivity();
    this.#parent.settleSlot();
  }

  async #start(before: AttemptEntry | undefined, show: boolean): Promise<void> {
    const intent = before?.type === "intent" ? before : undefined;
    this.#note(intent === undefined ? "at work" : "sought");
    const runId = intent?.run_id ?? this.#parent.runs.ids.uuid();
    this.#activeBefore = intent === undefined ? (this.#parent.log.activeTime?.ms ?? 0) : (intent.active_ms ?? 0);
    this.#stored = intent?.stored === true ? "yes" : "no";
    if (show) {
      this.#shown = new ShownOutput(this.#keyOf(runId), this.#execution, () => this.#pause());
    }
    // In a persistent store a plain parent logs its sub-runs too, so that they can be cancelled if its process dies.
    if (intent === undefined && (this.#parent.durable || this.#parent.shared.store.persistent)) {
      const { log } = this.#parent;
      log.decide({ type: "intend", entry: this.#intentOf(runId) });
      await log.commit();
    }
    // A new stack for each level, because agents that run each other may be nested deeply.
    await undefined;
    const { residence } = this.#parent;
    // A run that another process has taken over starts no sub-run. That process ends or finds it.
    for (let wait = residence?.sync("before work"); wait !== undefined; wait = residence?.sync("before work"))
      await this.#parent.log.outlast(wait);
    if (this.#execution.isStopped) return;
    const created = intent === undefined ? this.#create(runId) : Promise.resolve(false);
    if (created !== undefined && !(await created)) await this.#attach(runId);
  }

  #intentOf(run_id: string): IntentEntry {
    return { type: "intent", at: this.#parent.shared.clock.now(), key: this.#key, attempt: 1, run_id };
  }

  /** The store holds the sub-run. The log of a parent that may be executed again says so. */
  #onStored(runId: string): void {
    const { durable, log } = this.#parent;
    if (this.#stored !== "no" || this.#execution.over) return;
    this.#stored = "yes";
    if (!durable || log.lost) return;
    const entry: Growing<IntentEntry> = { ...this.#intentOf(runId), stored: true };
    // Also where the parent has done more by now.
    if (log.activeTime !== undefined) entry.active_ms = this.#activeBefore;
    log.decide({ type: "intend", entry });
  }

  /**
   * Creates the sub-run, unless the parent is stopped. Resolves with false if it is not in this process. Undefined: it
   * is, or the parent is stopped.
   */
  #create(runId: string): undefined | Promise<boolean> {
    const create = (): undefined | Promise<boolean> => {
      const child = this.#execution.isStopped ? undefined : this.#accept(runId);
      if (isPromise(child)) return this.#handOver(child, runId);
      if (child !== undefined) this.#watch(child);
      return undefined;
    };
    const { agent_name, input } = this.#request;
    const checked = checkInput(this.#parent.runs.registry.get(agent_name), input, this.#parent.shared);
    return checked === undefined ? create() : checked.then(async () => (await create()) ?? true);
  }

  /** Another process executes the sub-run. If the store fails to take it, it is created again after a pause. */
  async #handOver(created: Promise<unknown>, runId: string): Promise<boolean> {
    try {
      await created;
      this.#onStored(runId);
    } catch (error) {
      if (!CadenzaError.is(error) || error.code !== "store_failed") throw error;
      this.#parent.shared.logger.warn("A sub-run could not be stored. It is tried again.", this.#about(runId, error));
    }
    return false;
  }

  /** What the sub-run does. Undefined: the agent has its result. */
  #note(activity: SubRunActivity | undefined): void {
    this.#parent.residence?.note({ subRun: this.#key, activity });
  }

  /** A sub-run is of the tenant of its parent. */
  #keyOf(run_id: string): RunKey {
    return { tenant: this.#parent.log.key.tenant, run_id };
  }

  #about(run_id: string, error: unknown): object {
    const { tenant, run_id: parent_run_id } = this.#parent.log.key;
    return { tenant, run_id, agent_name: this.#request.agent_name, parent_run_id, error };
  }

  /** The sub-run begins after the commit. If the commit fails, it is created again. */
  #accept(runId: string): MaybePromise<LiveRun | undefined> {
    const { log, family, runs, shared } = this.#parent;
    const above = parentOf(createdEntry(log.state), log.key.run_id, this.#key);
    checkDepth(above.depth, shared.settings.maxDepth, this.#request.agent_name);
    const left = family.spending === undefined ? undefined : tokensLeft(this.#parent);
    const timeoutMs = log.activeTime?.leftMs;
    const run = runs.acceptSubRun({ ...this.#request, tokensLeft: left, timeoutMs }, runId, above);
    if (run !== undefined && !isPromise(run)) {
      onceCommitted(run.log, () => {
        this.#onStored(runId);
        run.begin();
      });
    }
    return run;
  }

  #pause(): Promise<void> {
    return waitFor(this.#parent.shared.clock, RETRY_MS);
  }

  /** Waits before the next search: until the sub-run has moved in another process, or has been found by another search. */
  async #untilNews(): Promise<void> {
    const log = this.#elsewhere;
    this.#elsewhere = undefined;
    await new Promise<void>((resolve) => {
      const delayMs = log === undefined && this.#parent.mayGoOn ? RETRY_MS : SILENCE_MS;
      const clear = this.#parent.shared.clock.setTimeout(() => this.#onNews(), delayMs);
      this.#onNews = () => {
        this.#onNews = ignore;
        clear();
        log?.unwatch(this.#onMoved);
        resolve();
      };
      log?.watch(this.#onMoved);
    });
  }

  readonly #onMoved = (): void => this.#onNews();

  /**
   * The sub-run has left this process before its end. If the store failed to create it, it is created again after a pause,
   * and also if the store does not hold it any more: it deletes no run that has not ended, so it has lost its last commits.
   */
  async #seekAgain({ key, lostReason }: LiveRun["log"]): Promise<void> {
    if (this.#stored === "yes") this.#stored = "lost";
    if (lostReason?.code === "store_failed") await this.#pause();
    await this.#attach(key.run_id);
  }

  /** Finds a sub-run that was begun before. While another process executes it, it is followed. */
  async #attach(runId: string): Promise<void> {
    this.#onBegun();
    this.#search = Promise.resolve(false);
    const key = this.#keyOf(runId);
    const search = (): Promise<boolean> => this.#searchFor(runId);
    this.#parent.family.seek(key, search);
    this.#parent.settleActivity();
    try {
      while (!(await search())) await this.#untilNews();
    } finally {
      this.#parent.family.seekNoMore(key, search);
      this.#parent.settleActivity();
      this.#search = undefined;
      this.#readTo = undefined;
    }
  }

  /** Searches for the sub-run after earlier searches have ended. Resolves with whether it was found live or ended. */
  #searchFor(runId: string): Promise<boolean> {
    const before = this.#search ?? Promise.resolve(true);
    const search = before.then(async (isFound) => {
      const isOver = isFound || this.#execution.over || (await this.#find(runId));
      if (isOver) this.#onNews();
      return isOver;
    });
    this.#search = search;
    return search;
  }

  async #find(runId: string): Promise<boolean> {
    const { shared } = this.#parent;
    let found: SubRunFound;
    try {
      found = await this.#parent.runs.findSubRun(this.#keyOf(runId));
      if (found !== undefined && "read" in found) {
        this.#onStored(runId);
        await this.#readAlong(runId, found);
        this.#elsewhere = found.log;
        return this.#execution.over;
      }
    } catch (error) {
      // The parent is not executed here any more: another process, or a later execution, reads the sub-run.
      if (this.#execution.over) return true;
      // Of a sub-run that a newer version has written to, the callers that wait for the parent get the error, once.
      const isNewer = newerPart(error) !== undefined && CadenzaError.is(error);
      if (!isNewer || this.#parent.blocked?.code !== error.code)
        shared.logger.warn(
          "A sub-run could not be read for its parent. Reading it is tried again.",
          this.#about(runId, error),
        );
      if (isNewer) {
        this.#parent.setBlocked(error);
        this.#note("unreadable");
      }
      return false;
    }
    if (this.#execution.over) return true;
    this.#parent.setBlocked(undefined);
    if (found !== undefined && "run" in found) {
      // The end of the sub-run has made its parent due. A parent that is taken looks again.
      if (!this.#parent.mayGoOn) return false;
      await this.#shown?.copy(found.state.position);
      this.#finish(found);
    } else if (found !== undefined) {
      // A run that this process has created may not be in the store yet.
      onceCommitted(found.log, () => this.#onStored(runId));
      this.#watch(found);
    } else if (this.#stored === "yes") this.#refuse(missing(runId, this.#parent.log.key));
    else return (await this.#create(runId)) ?? true;
    return true;
  }

  /**
   * Another process executes the sub-run. The parent passes on its question, and need not stay loaded, because the sub-run's
   * next rest wakes it.
   */
  async #readAlong(runId: string, elsewhere: RunElsewhere): Promise<void> {
    const state = elsewhere.position === this.#readTo ? undefined : await elsewhere.read();
    if (this.#execution.over) return;
    this.#parent.setBlocked(elsewhere.blocked);
    await this.#shown?.copy(elsewhere.position);
    if (this.#execution.over) return;
    if (state !== undefined) {
      this.#relay(state, state.position);
      this.#spend(this.#keyOf(runId), state.usage);
    }
    this.#readTo = elsewhere.position;
    this.#note("idle");
  }

  #watch(child: LiveRun): void {
    if (this.#stored === "lost") this.#stored = "yes";
    this.#parent.family.children.add(child);
    child.follow(this.#parent, () => this.#onProgress(child));
    const { key, state } = child.log;
    this.#spend(key, child.family.spending === undefined ? state.usage : usageOf(child));
    this.#onProgress(child);
  }

  /** The sub-run has used so much so far, which may exceed the budget of its parent. */
  #spend(key: RunKey, usage: Usage | null): void {
    const { spending } = this.#parent.family;
    if (spending === undefined) return;
    spending.note(key, usage);
    checkSpending(this.#parent);
  }

  #onProgress(child: LiveRun): void {
    const { head, state, lost, committed } = child.log;
    if (this.#execution.over) {
      // A later execution of the parent follows the sub-run. The log of the parent hears of it until then too.
      if (!lost) this.#relay(state, committed);
      this.#unfollow(child);
      return;
    }
    // What the sub-run has emitted comes before its question and its end.
    const copying = this.#shown?.copy(committed);
    if (copying !== undefined) {
      this.#note("at work");
      this.#relay(state, committed, "only settled");
      this.#goOnAfter(copying, child);
      return;
    }
    this.#note(lost || !child.waits ? "at work" : "idle");
    if (head !== undefined && isFinal(head.status)) {
      this.#unfollow(child);
      this.#do(this.#finishWith(child, state));
    } else if (lost) {
      this.#unfollow(child);
      this.#note("sought");
      this.#do(this.#seekAgain(child.log));
    } else this.#relay(state, committed);
  }

  #goOnAfter(copying: Promise<void>, child: LiveRun): void {
    if (this.#copying !== undefined) return;
    this.#copying = copying;
    const copied = copying.then(() => {
      this.#copying = undefined;
      if (!this.#execution.over) this.#onProgress(child);
    });
    this.#do(copied);
  }

  /** Work that no caller waits for. If it fails, so does the operation. */
  #do(work: Promise<void>): void {
    inBackground(
      this.#parent.shared.logger,
      work.catch((error: unknown) => this.#refuse(error)),
    );
  }

  /** The sub-run has ended. If the store fails to give its record, it is searched again after a pause. */
  async #finishWith(child: LiveRun, state: RunState): Promise<void> {
    let run: Run;
    try {
      run = await child.log.record();
    } catch (error) {
      this.#parent.shared.logger.warn("A sub-run could not be read for its parent. Reading it is tried again.", {
        ...this.#about(child.log.key.run_id, error),
      });
      await this.#pause();
      await this.#attach(child.log.key.run_id);
      return;
    }
    this.#finish({ run, state });
  }

  #unfollow(child: LiveRun): void {
    this.#parent.family.children.delete(child);
    child.follow(undefined);
    this.#parent.settleActivity();
    // A parent that waits may have kept its slot for this sub-run alone.
    this.#parent.settleSlot();
  }

  /**
   * Shows the open questions of the sub-run in the log of the parent, and settles the others. `only settled`: shows none,
   * because the caller who has answered waits for that alone.
   */
  #relay(child: RunState, committed: number, which?: "only settled"): void {
    const { log, shared } = this.#parent;
    const all = newsForParent(child, committed, this.#key, log.state, shared.clock.now());
    const news = which !== undefined ? all.filter(({ type }) => type === "settled") : all;
    if (news.length === 0) return;
    for (const entry of news) log.decide(commandOf(entry));
    log.flush();
    // The parent continues, and needs its slot.
    const isSettled = news.some(({ type }) => type === "settled");
    if (isSettled && !this.#execution.over) this.#execution.withSlot(ignore);
  }

  #finish({ run, state }: EndedRun): void {
    const { durable, shared } = this.#parent;
    if (this.#execution.over) return;
    this.#parent.holdAfterSubRun();
    // The parent was active while its sub-run was, wherever that was executed. Side by side the time counts once.
    this.#parent.log.activeTime?.atLeast(this.#activeBefore + state.active_ms);
    this.#relay(state, state.position);
    if (this.#shown?.failure !== undefined) {
      this.#refuse(this.#shown.failure);
      return;
    }
    this.#parent.family.spending?.note(this.#keyOf(state.run_id), null);
    const isNew = state.usage !== null && this.#execution.journal?.recall(state.usage) !== "held";
    const own_usage = durable ? this.#execution.takeUsage() : null;
    if (state.usage !== null && isNew) this.#execution.addUsage(state.usage);
    const usage = durable ? addUsage(own_usage, this.#execution.takeUsage()) : null;
    // A record contains only JSON values.
    const result = durable ? (run as unknown as StepEntry["result"]) : undefined;
    const ended: StepEntry = { type: "step", at: shared.clock.now(), key: this.#key, result, error: null, usage };
    const entry = own_usage === null ? ended : { ...ended, own_usage };
    if (durable) this.#record(entry, run);
    else this.#execution.deliverWithSlot(uncommitted(entry), run);
  }

  /**
   * The sub-run was refused. For a durable agent the refusal is logged, so that the agent gets the same when it is executed
   * again under other limits.
   */
  #refuse(error: unknown): void {
    const { durable, log } = this.#parent;
    const isFinal = CadenzaError.is(error) && finalRefusals.includes(error.code);
    if (!durable || !isFinal || log.lost || this.#execution.over) {
      this.#execution.reject(this.#key, error);
      return;
    }
    const failure = failureOfStep(error);
    const at = this.#parent.shared.clock.now();
    this.#record({ type: "step", at, key: this.#key, result: undefined, error: failure, usage: null }, undefined);
  }

  #record(entry: StepEntry, live: unknown): void {
    const { log } = this.#parent;
    log.decide({ type: "record", entry });
    onceInLog(log, entry, (committed) => {
      const { execution } = this.#parent;
      // While it only waited for sub-runs that waited, the parent had no slot.
      if (committed !== undefined) execution?.deliverWithSlot(committed, live);
      this.#note(undefined);
    });
  }
}

/** Throws `invalid_argument` for an input that is none. */
function requestFor({ log: { key, state } }: LiveRun, { agentName, input, totalTokens }: NewSubRun): NewRun {
  return {
    tenant: key.tenant,
    principal: createdEntry(state).principal ?? null,
    agent_name: agentName,
    input: readInput(input),
    session_id: undefined,
    idempotencyKey: undefined,
    timeoutMs: undefined,
    totalTokens,
    startAt: undefined,
    session: undefined,
    metadata: null,
    labels: undefined,
  };
}

function missing(run_id: string, parent: RunKey): CadenzaError {
  const message =
    `The store does not hold run ${run_id} any more, which run ${parent.run_id} has started and whose result it has not recorded. ` +
    "The run was deleted, or the store has lost it. It is not started again, because its steps would run twice.";
  return new CadenzaError("run_not_found", message, { run_id });
}

function checkDepth(depth: number, maxDepth: number, agentName: string): void {
  if (depth <= maxDepth) return;
  const message = `A run of agent ${JSON.stringify(agentName)} would have ${depth} ancestors; limits.maxDepth allows ${maxDepth}.`;
  throw new CadenzaError("limit_reached", message, { agent_name: agentName, limit: "maxDepth" });
}
