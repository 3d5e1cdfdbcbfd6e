import type { Entry } from "../core/log.ts";
import type { Clock, Mismatch, Store } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import { isFinal } from "../core/state.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { Execution } from "./execution.ts";
import type { Handover } from "./handover.ts";
import type { RunLog } from "./run-log.ts";

/** What the durable runs of one runtime share. */
export interface ResidencySettings {
  readonly clock: Clock;
  readonly store: Store;
  /** How long a durable run that waits stays in memory, in milliseconds. */
  readonly evictAfterMs: number;
  /** Runs every durable agent again after each commit, for tests. */
  readonly alwaysReplay: boolean;
}

/** `sought`: it was begun before, and is looked for. `idle`: it waits for an answer, or has ended. */
export type SubRunActivity = "at work" | "sought" | "idle";

/** What the stay of a durable run needs from the run. */
export interface ResidencyHost {
  readonly host: ResidencySettings;
  readonly log: RunLog;
  readonly handover: Handover | undefined;
  readonly execution: Execution | undefined;
  /** Whether a step is at work. */
  readonly isInStep: boolean;
  /** Whether somebody here relies on the run: the one that has started it, or those that wait for its slot. Then it may not sleep. */
  readonly isNeeded: boolean;
  /** Resolves when the run does not wait for a slot, or no longer. */
  unqueued(): undefined | Promise<void>;
  replay(entries: readonly Entry[]): void;
  /** The agent is where its log ends. */
  onCaughtUp(): void;
  /** Lets go of the run. */
  leave(reason: string): void;
}

/**
 * The stay of a durable run in this process: it comes and catches up with its log, keeps an owner only while there is work for
 * it, sleeps when it waits for long, and is let go of when its code does not fit. Other runs have none: they stay where they are.
 */
export class Residency {
  /** How the code differs from the log; undefined: it does not, as far as it has come. */
  mismatch: Mismatch | undefined;
  /** Whether the run was taken over so often that it may bring its process down. */
  isSuspect = false;
  readonly #run: ResidencyHost;
  #ready: Promise<void> | undefined;
  #caughtUp: (() => void) | undefined;
  #leaving: Promise<void> | undefined;
  #tryingAgain: Promise<void> | undefined;
  #clearSleep: (() => void) | undefined;
  #isEvicted = false;
  readonly #subRuns = new Map<string, SubRunActivity>();
  /** How many times the run looks at what it waits for elsewhere, just now. */
  #looking = 0;
  #isGivingUp = false;
  /** For tests that run the agent again after each commit: it is going to be, and is handed nothing before. */
  #isReplayDue = false;
  /** How many entries there were when the agent was last run again. */
  #replayedUntil = 0;

  constructor(run: ResidencyHost) {
    this.#run = run;
  }

  /** Resolves when an agent that is run again has caught up with its log; undefined: it has. */
  get ready(): Promise<void> | undefined {
    return this.#ready;
  }

  /** While the run is let go of since its code does not fit, and after that. */
  get leaving(): Promise<void> | undefined {
    return this.#leaving;
  }

  /** While the run is let go of since other code is there. */
  get tryingAgain(): Promise<void> | undefined {
    return this.#tryingAgain;
  }

  get isEvicted(): boolean {
    return this.#isEvicted;
  }

  /** The agent is run again, from now until `caughtUp`. */
  begin(): void {
    this.#subRuns.clear();
    this.#expectCatchUp();
  }

  #expectCatchUp(): void {
    this.#ready ??= new Promise((resolve) => {
      this.#caughtUp = resolve;
    });
  }

  caughtUp(): void {
    // Another agent is going to be there in a moment.
    if (this.#isReplayDue) return;
    this.tellReady();
    this.#ready = undefined;
    void this.#forgetTakeovers();
  }

  /** A run that came through its log, and then only waits for answers and sub-runs, brings no process down. */
  async #forgetTakeovers(): Promise<void> {
    const { log, execution } = this.#run;
    if (log.head?.takeovers === 0) return;
    await execution?.settled();
    const isAtIt = this.#run.execution === execution && execution?.over === false && !log.lost;
    if (isAtIt && execution.results.open.length > 0 && !this.#run.isInStep) this.#run.handover?.forgetTakeovers();
  }

  /** Whoever waits for the agent to catch up waits no longer: it has, or does not, or does somewhere else. */
  tellReady(): void {
    this.#caughtUp?.();
  }

  /** Releases the run as blocked: a process that has matching code may take it. */
  block(): Promise<void> {
    this.#leaving ??= this.#release(this.mismatch ?? null);
    return this.#leaving;
  }

  /** Releases the run, which this process loads again with other code at once: answers that come meanwhile wait for that. */
  leaveForOtherCode(): Promise<void> {
    this.#leaving ??= this.#release(null);
    this.#tryingAgain = this.#leaving;
    return this.#leaving;
  }

  async #release(blocked: Mismatch | null): Promise<void> {
    const { handover, execution } = this.#run;
    execution?.fence();
    handover?.setBlocked(blocked);
    // A run that another process has taken meanwhile is none of this process's any more.
    await handover?.release().catch(ignore);
    this.#run.leave("The code of the agent does not match the history of the run.");
  }

  /** What a sub-run does, as far as it is known. One that was begun in another process is looked for: until then the run keeps its owner if it has one. */
  setSubRun(key: string, activity: SubRunActivity): void {
    if (activity === "idle") this.#subRuns.delete(key);
    else this.#subRuns.set(key, activity);
    if (activity !== "sought") this.settleOwner();
  }

  /** Something that the run waits for has happened elsewhere. It keeps its owner until it knows what. */
  lookInto(looking: Promise<unknown>): void {
    this.#looking += 1;
    void looking.then(() => {
      this.#looking -= 1;
      this.settleOwner();
    });
  }

  /** A waiting run has no owner, unless work of it is under way here, or may be. */
  get keepsOwner(): boolean {
    return this.#isBusy || this.#isLooking || this.#run.execution?.isIdle === false;
  }

  get #isBusy(): boolean {
    return this.#run.isInStep || [...this.#subRuns.values()].includes("at work");
  }

  get #isLooking(): boolean {
    return this.#looking > 0 || this.#subRuns.size > 0 || this.#ready !== undefined || this.#isOverdue;
  }

  /** Whether the time of the question that is shown is up, here or in the store that has given the run for that: in a moment the agent goes on. */
  get #isOverdue(): boolean {
    const { takenAt, state } = this.#run.log;
    const deadline = state.shown?.deadline ?? Number.POSITIVE_INFINITY;
    return deadline <= Math.max(this.#run.host.clock.now(), takenAt);
  }

  /** Takes ownership of a waiting run that has work to do here, and gives it up when there is none left. */
  settleOwner(): void {
    const { log } = this.#run;
    const { head } = log;
    if (head?.status !== "awaiting" || this.mismatch !== undefined) return;
    if (head.owner === null && this.#isBusy) log.settleHead();
    else if (head.owner !== null && !this.#isBusy && !this.#isLooking) void this.#giveUpOwner();
  }

  async #giveUpOwner(): Promise<void> {
    if (this.#isGivingUp) return;
    this.#isGivingUp = true;
    await this.#run.execution?.settled();
    this.#isGivingUp = false;
    const { log } = this.#run;
    const { head, lost } = log;
    if (!lost && head?.status === "awaiting" && head.owner !== null && !this.keepsOwner) log.settleHead();
  }

  /** What follows a commit: the run goes to sleep when it waits, and in tests it is run again. */
  onCommit(status: RunStatus): void {
    this.#clearSleep?.();
    if (isFinal(status)) {
      // An agent may come to its end before it has caught up.
      this.tellReady();
      return;
    }
    const { alwaysReplay, evictAfterMs, clock } = this.#run.host;
    if (alwaysReplay) this.#replaySoon();
    if (status === "awaiting") this.settleOwner();
    if (status !== "awaiting" || evictAfterMs === Number.POSITIVE_INFINITY) return;
    this.#clearSleep = clock.setTimeout(() => this.sleep(), evictAfterMs);
  }

  /** The run leaves memory, if it does nothing but wait. While the store has an owner for it, no other process would wake it. */
  sleep(): void {
    const { head, state, committed, backlog } = this.#run.log;
    const isFree = head?.status === "awaiting" && head.owner === null;
    const isQuiet = isFree && state.position === committed && backlog === 0 && !this.#isBusy && !this.#isLooking;
    if (!isQuiet || this.#run.isNeeded) return;
    this.#isEvicted = true;
    this.#run.leave("The run waits for an answer, and sleeps.");
  }

  /** The run that has started this one is not there any more. */
  leaveAlone(): void {
    if (this.#run.host.evictAfterMs !== Number.POSITIVE_INFINITY) this.sleep();
  }

  /** The run is not this process's any more. */
  end(): void {
    this.#clearSleep?.();
    this.tellReady();
  }

  /** From now on the agent is handed nothing: neither a result nor an answer. It is run again as soon as all that it did is committed. */
  #replaySoon(): void {
    const { log, execution } = this.#run;
    if (this.#isReplayDue || execution === undefined || this.#isPastReplay(execution)) return;
    // A run that is to stop stops where its agent is.
    if (log.committed <= this.#replayedUntil || log.state.status === "cancelling") return;
    this.#isReplayDue = true;
    this.#expectCatchUp();
    // A store that fails is told of by the process that writes to it: the agent goes on as it is.
    const replaying = this.#replayWhenQuiet(execution).catch(() => this.#goOnAsItIs());
    void execution.results.holdUntil(replaying);
  }

  async #replayWhenQuiet(execution: Execution): Promise<void> {
    const { log, host } = this.#run;
    for (;;) {
      await host.clock.turn();
      await log.commit();
      await this.#run.unqueued();
      const { committed } = log;
      const entries = await host.store.read(log.key, 0, committed);
      if (this.#isPastReplay(execution)) {
        this.#goOnAsItIs();
        return;
      }
      if (log.backlog > 0 || entries?.length !== log.committed) continue;
      this.#isReplayDue = false;
      this.#replayedUntil = log.committed;
      this.#run.replay(entries);
      return;
    }
  }

  /** Whether the agent is not run again any more: it is being stopped, or the run has ended, is blocked or is gone. */
  #isPastReplay(execution: Execution): boolean {
    const { lost, state } = this.#run.log;
    return execution.isStopped || lost || isFinal(state.status) || this.mismatch !== undefined;
  }

  #goOnAsItIs(): void {
    this.#isReplayDue = false;
    const { execution, log } = this.#run;
    if (!log.lost && execution?.results.isReplaying !== true) this.#run.onCaughtUp();
  }
}
