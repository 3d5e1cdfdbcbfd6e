import { commandOf } from "../core/decide.ts";
import type { CadenzaErrorCode } from "../core/errors.ts";
import { CadenzaError } from "../core/errors.ts";
import type { StepEntry } from "../core/log.ts";
import { newsForParent } from "../core/passed-on.ts";
import type { RunKey } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { Run } from "../protocol/run.ts";
import type { Execution } from "./execution.ts";
import type { LiveRun } from "./live-run.ts";
import { onceCommitted } from "./once-committed.ts";
import { ShownOutput } from "./shown-output.ts";
import { failureOfStep, resultOfStep } from "./steps.ts";

/** The refusals of a sub-run that the parent's log keeps. */
const finalRefusals: readonly CadenzaErrorCode[] = ["limit_reached", "agent_not_found", "invalid_input"];

/** What a sub-run needs from the runs of the process. */
export interface SubRunHost {
  /** A new id for a run. */
  newRunId(): string;
  /** Throws if the agent does not take the input. */
  checkInput(): MaybePromise<void>;
  /** Creates and begins the sub-run. A promise of undefined: another process executes it, and the store has it. */
  createSubRun(runId: string): MaybePromise<LiveRun | undefined>;
  /** Finds a sub-run that may exist already. */
  findSubRun(key: RunKey): Promise<SubRunFound>;
  /** Waits before the next search. */
  pause(): Promise<void>;
}

/** The result of a search for a sub-run. Undefined: it does not exist yet. */
export type SubRunFound = LiveRun | EndedRun | RunElsewhere | undefined;

/**
 * A run that has not ended, and that this process cannot load: another process owns it, or its code is not registered
 * here.
 */
export interface RunElsewhere {
  /** The error of a blocked run; undefined if the run is not blocked. */
  readonly blocked: CadenzaError | undefined;
  /** How many entries its log holds. */
  readonly position: number;
  /** Reads its current state. Undefined: the store has deleted it. */
  read(): MaybePromise<RunState | undefined>;
}

/** A run that has ended. */
export interface EndedRun {
  readonly run: Run;
  readonly state: RunState;
}

/**
 * One sub-run as an operation of its parent. The parent shows the questions of the sub-run, which are answered in the
 * sub-run's log. When the sub-run has ended, its record is the operation's result, and its usage is added to the
 * parent's. Its id is in the parent's log before it is created, so that a parent that is executed again finds it.
 */
export class SubRun {
  readonly #key: string;
  readonly #parent: LiveRun;
  readonly #execution: Execution;
  readonly #host: SubRunHost;
  /** While the sub-run is being found: resolves with whether the last search has found it live or ended. */
  #search: Promise<boolean> | undefined;
  /** The length of the log of a sub-run in another process when it was last read. Undefined: it has not been read. */
  #readTo: number | undefined;
  readonly #show: boolean;
  /** Of a sub-run that is shown: copies what it emits. */
  #shown: ShownOutput | undefined;
  #isCopying = false;

  constructor(key: string, show: boolean, parent: LiveRun, execution: Execution, host: SubRunHost) {
    this.#key = key;
    this.#show = show;
    this.#parent = parent;
    this.#execution = execution;
    this.#host = host;
  }

  /** Starts or finds the sub-run. Resolves with its record when it has ended. */
  perform(): Promise<Run> {
    const result = this.#execution.perform({
      key: this.#key,
      start: () => void this.#start().catch((error: unknown) => this.#refuse(error)),
      settle: (entry, live) => live ?? resultOfStep(entry as StepEntry),
    });
    // The log's value was made from the record of a run.
    return result as Promise<Run>;
  }

  async #start(): Promise<void> {
    const intent = this.#execution.operations.intent(this.#key);
    this.#parent.ownership.setSubRun(this.#key, intent === undefined ? "at work" : "sought");
    const runId = intent?.run_id ?? this.#host.newRunId();
    if (this.#show) {
      const key = { ...this.#parent.log.key, run_id: runId };
      this.#shown = new ShownOutput(key, this.#parent, this.#execution, () => this.#host.pause());
    }
    // In a persistent store a plain parent logs its sub-runs too, so that they can be cancelled if its process dies.
    if (intent === undefined && (this.#parent.durable || this.#parent.host.store.persistent)) {
      const { log, host } = this.#parent;
      log.decide({
        type: "intend",
        entry: { type: "intent", at: host.clock.now(), key: this.#key, attempt: 1, run_id: runId },
      });
      await log.commit();
    }
    // A new stack for each level, because agents that run each other may be nested deeply.
    await undefined;
    const parent = this.#parent.ownership;
    // A run that another process has taken over starts no sub-run. That process ends or finds it.
    for (let wait = parent.verify(); wait !== undefined; wait = parent.verify()) await wait;
    if (this.#execution.isStopped) return;
    const created = intent === undefined ? this.#create(runId) : Promise.resolve(false);
    if (created !== undefined && !(await created)) await this.#attach(runId);
  }

  /**
   * Creates the sub-run, unless the parent is stopped. Resolves with false if it is not in this process. Undefined: it
   * is, or the parent is stopped.
   */
  #create(runId: string): undefined | Promise<boolean> {
    const create = (): undefined | Promise<boolean> => {
      const child = this.#execution.isStopped ? undefined : this.#host.createSubRun(runId);
      if (isPromise(child)) return this.#handOver(child, runId);
      if (child !== undefined) this.#watch(child);
      return undefined;
    };
    const checked = this.#host.checkInput();
    return checked === undefined ? create() : checked.then(async () => (await create()) ?? true);
  }

  /** Another process executes the sub-run. If the store fails to take it, it is created again after a pause. */
  async #handOver(created: Promise<unknown>, runId: string): Promise<boolean> {
    try {
      await created;
    } catch (error) {
      if (!CadenzaError.is(error) || error.code !== "store_failed") throw error;
      const message = `Run ${runId} could not be stored for its parent, run ${this.#parent.log.key.run_id}. It is tried again.`;
      this.#parent.host.logger.warn(message, { run_id: runId, error });
    }
    return false;
  }

  /** The sub-run has left this process. If the store failed to create it, it is created again after a pause. */
  async #seekAgain({ key, lostReason }: LiveRun["log"]): Promise<void> {
    if (lostReason?.code === "store_failed") await this.#host.pause();
    await this.#attach(key.run_id);
  }

  /** Finds a sub-run that was begun before. While another process executes it, it is polled. */
  async #attach(runId: string): Promise<void> {
    this.#search = Promise.resolve(false);
    const search = (): Promise<boolean> => this.#searchFor(runId);
    this.#parent.family.seek(runId, search);
    try {
      while (!(await search())) await this.#host.pause();
    } finally {
      this.#parent.family.seekNoMore(runId, search);
      this.#search = undefined;
      this.#readTo = undefined;
    }
  }

  /** Searches for the sub-run after earlier searches have ended. Resolves with whether it was found live or ended. */
  #searchFor(runId: string): Promise<boolean> {
    const search = (this.#search ?? Promise.resolve(true)).then((isFound) => isFound || this.#find(runId));
    this.#search = search;
    return search;
  }

  async #find(runId: string): Promise<boolean> {
    const { log, host } = this.#parent;
    let found: SubRunFound;
    try {
      found = await this.#host.findSubRun({ tenant: log.key.tenant, run_id: runId });
      if (found !== undefined && "read" in found) {
        await this.#readAlong(runId, found);
        return this.#execution.over;
      }
    } catch (error) {
      host.logger.warn(
        `Run ${runId} could not be read for its parent, run ${log.key.run_id}. Reading it is tried again.`,
        {
          run_id: runId,
          error,
        },
      );
      return this.#execution.over;
    }
    if (this.#execution.over) return true;
    this.#parent.setBlocked(undefined);
    if (found !== undefined && "run" in found) {
      await this.#shown?.copy(found.state.position);
      this.#finish(found);
    } else if (found !== undefined) this.#watch(found);
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
      this.#spend(runId, state.usage);
    }
    this.#readTo = elsewhere.position;
    this.#parent.ownership.setSubRun(this.#key, "idle");
  }

  #watch(child: LiveRun): void {
    this.#parent.family.children.add(child);
    child.follow(this.#parent, () => this.#onProgress(child));
    const { key, state } = child.log;
    this.#spend(key.run_id, child.family.spending?.usage ?? state.usage);
    this.#onProgress(child);
  }

  /** The sub-run has used so much so far, which may exceed the budget of its parent. */
  #spend(runId: string, usage: Usage | null): void {
    const { spending } = this.#parent.family;
    spending?.note(runId, usage);
    spending?.check();
  }

  #onProgress(child: LiveRun): void {
    const { head, state, lost, committed } = child.log;
    if (this.#execution.over) {
      // A later execution of the parent follows the sub-run. The log of the parent is told until then too.
      if (!lost) this.#relay(state, committed);
      this.#unfollow(child);
      return;
    }
    // What the sub-run has emitted comes before its question and its end.
    const copying = this.#shown?.copy(committed);
    if (copying !== undefined) {
      this.#parent.ownership.setSubRun(this.#key, "at work");
      this.#relay(state, committed, true);
      this.#goOnAfter(copying, child);
      return;
    }
    this.#parent.ownership.setSubRun(this.#key, lost || !child.isWaiting ? "at work" : "idle");
    if (head !== undefined && isFinal(head.status)) {
      this.#unfollow(child);
      void Promise.resolve(child.log.record()).then((run) => this.#finish({ run, state }));
    } else if (lost) {
      this.#unfollow(child);
      this.#parent.ownership.setSubRun(this.#key, "sought");
      this.#seekAgain(child.log).catch((error: unknown) => this.#refuse(error));
    } else this.#relay(state, committed);
  }

  #goOnAfter(copying: Promise<void>, child: LiveRun): void {
    if (this.#isCopying) return;
    this.#isCopying = true;
    void copying.then(() => {
      this.#isCopying = false;
      if (!this.#execution.over) this.#onProgress(child);
    });
  }

  #unfollow(child: LiveRun): void {
    this.#parent.family.children.delete(child);
    child.follow(undefined);
  }

  /**
   * Shows the open questions of the sub-run in the log of the parent, and settles the others. `isBehind`: only settles,
   * which the caller who has answered waits for.
   */
  #relay(child: RunState, committed: number, isBehind = false): void {
    const { log, host } = this.#parent;
    const all = newsForParent(child, committed, this.#key, log.state, host.clock.now());
    const news = isBehind ? all.filter(({ type }) => type === "settled") : all;
    if (news.length === 0) return;
    for (const entry of news) log.decide(commandOf(entry));
    log.flush();
    // The parent is active again, and needs its slot.
    const isSettled = news.some(({ type }) => type === "settled");
    if (isSettled && !this.#execution.over) this.#execution.goOnAfterSubRun();
  }

  #finish({ run, state }: EndedRun): void {
    const { durable, host } = this.#parent;
    if (this.#execution.over) return;
    this.#relay(state, state.position);
    if (this.#shown?.failure !== undefined) {
      this.#refuse(this.#shown.failure);
      return;
    }
    this.#parent.family.spending?.note(state.run_id, null);
    const isNew = state.usage !== null && !this.#execution.operations.holdsUsage(state.usage);
    if (state.usage !== null && isNew) this.#execution.addUsage(state.usage);
    const usage = durable ? this.#execution.takeUsage() : null;
    // A record contains only JSON values.
    const result = durable ? (run as unknown as StepEntry["result"]) : undefined;
    const entry: StepEntry = { type: "step", at: host.clock.now(), key: this.#key, result, error: null, usage };
    if (durable) this.#record(entry, run);
    else this.#execution.withSlot(() => this.#execution.operations.deliver(entry, run));
  }

  /**
   * The sub-run was refused. For a durable agent the refusal is logged, so that the agent gets the same when it is executed
   * again under other limits.
   */
  #refuse(error: unknown): void {
    const { durable, log } = this.#parent;
    const isFinal = CadenzaError.is(error) && finalRefusals.includes(error.code);
    if (!durable || !isFinal || log.lost || this.#execution.over) {
      this.#execution.operations.reject(this.#key, error);
      return;
    }
    const failure = failureOfStep(error);
    const at = this.#parent.host.clock.now();
    this.#record({ type: "step", at, key: this.#key, result: undefined, error: failure, usage: null }, undefined);
  }

  #record(entry: StepEntry, live: unknown): void {
    const { log } = this.#parent;
    log.decide({ type: "record", entry });
    onceCommitted(log, () => {
      const { execution, ownership } = this.#parent;
      // While it only waited for sub-runs that waited, the parent had no slot.
      execution?.withSlot(() => execution.operations.deliver(entry, live));
      ownership.setSubRun(this.#key, undefined);
    });
  }
}
