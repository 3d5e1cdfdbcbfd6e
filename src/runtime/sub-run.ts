import { CadenzaError } from "../core/errors.ts";
import type { AwaitedEntry, StepEntry } from "../core/log.ts";
import type { RunKey } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import { awaitRequest } from "../core/record.ts";
import { isFinal } from "../core/state.ts";
import type { Usage } from "../core/usage.ts";
import type { AwaitResume, Run } from "../protocol/run.ts";
import type { Execution } from "./execution.ts";
import type { LiveRun } from "./live-run.ts";
import { failureOfStep, resultOfStep } from "./steps.ts";

/** What a sub-run needs from the runs of the process. */
export interface SubRunHost {
  /** A new id for a run. */
  newRunId(): string;
  /** Creates and begins the sub-run. */
  createSubRun(runId: string): LiveRun;
  /** The sub-run as far as it is there already: at work here, or as it ended. `elsewhere`: another process executes it. */
  findSubRun(key: RunKey): Promise<LiveRun | EndedRun | "elsewhere" | undefined>;
  /** Waits a little before another look. */
  pause(): Promise<void>;
}

/** A run that has ended, and what it used. */
export interface EndedRun {
  readonly run: Run;
  readonly usage: Usage | null;
}

/**
 * A run that an agent has started and waits for: one of its recorded operations. What the sub-run asks, the parent asks, and the
 * answer is passed on. When it has ended its record is the operation's result, and its usage is the parent's too. Its id is in the
 * parent's log before it exists, so that a parent that is run again finds it.
 */
export class SubRun {
  readonly #key: string;
  readonly #parent: LiveRun;
  readonly #execution: Execution;
  readonly #host: SubRunHost;
  /** The question of the sub-run that the parent shows, or is going to show. */
  #asked: string | undefined;
  /** The sub-run as it is followed here: one that was elsewhere meanwhile is another object. */
  #child: LiveRun | undefined;
  /** Whether an earlier execution of the parent asked it. */
  #isInherited = false;

  constructor(key: string, parent: LiveRun, execution: Execution, host: SubRunHost) {
    this.#key = key;
    this.#parent = parent;
    this.#execution = execution;
    this.#host = host;
  }

  /** Runs it to its end. */
  perform(): Promise<Run> {
    const result = this.#execution.perform({
      key: this.#key,
      start: () => void this.#start().catch((error: unknown) => this.#refuse(error)),
      settle: (entry, live) => live ?? resultOfStep(entry as StepEntry),
    });
    // What was recorded was made from a run's record.
    return result as Promise<Run>;
  }

  async #start(): Promise<void> {
    const intent = this.#execution.intent(this.#key);
    if (intent === undefined) this.#parent.setSubRun(this.#key, true);
    else this.#parent.seekSubRun(this.#key);
    const shown = this.#parent.log.state.shown?.await_id;
    if (shown?.startsWith(`${this.#key}/`) === true) {
      this.#asked = shown;
      this.#isInherited = true;
    }
    const runId = intent?.run_id ?? this.#host.newRunId();
    if (intent === undefined && this.#parent.durable) {
      const { log, clock } = this.#parent;
      log.decide({
        type: "intend",
        entry: { type: "intent", at: clock.now(), key: this.#key, attempt: 1, run_id: runId },
      });
      await log.commit();
    }
    // Agents that run each other go deep, and the stack must not.
    await undefined;
    if (this.#execution.isStopped) return;
    if (intent === undefined) this.#watch(this.#host.createSubRun(runId));
    else await this.#attach(runId);
  }

  /** Finds a sub-run that was begun before, wherever it is by now. */
  async #attach(runId: string): Promise<void> {
    const key = { tenant: this.#parent.log.key.tenant, run_id: runId };
    while (!this.#execution.over) {
      const found = await this.#host.findSubRun(key);
      if (found !== "elsewhere") {
        if (found === undefined) this.#watch(this.#host.createSubRun(runId));
        else if ("run" in found) this.#finish(found);
        else this.#watch(found);
        return;
      }
      this.#parent.setSubRun(this.#key, true);
      await this.#host.pause();
    }
  }

  #watch(child: LiveRun): void {
    this.#parent.adopt(child);
    this.#child = child;
    child.follow(() => this.#onProgress(child));
    this.#onProgress(child);
  }

  #onProgress(child: LiveRun): void {
    if (this.#execution.over) {
      this.#let(child);
      return;
    }
    const { head, state, lost } = child.log;
    this.#parent.setSubRun(this.#key, lost || head?.status !== "awaiting");
    if (head !== undefined && isFinal(head.status)) {
      this.#let(child);
      const { usage } = state;
      void Promise.resolve(child.log.record()).then((run) => this.#finish({ run, usage }));
    } else if (lost && (head !== undefined || child.log.lostReason?.code === "lost_ownership")) {
      this.#let(child);
      void this.#attach(child.log.key.run_id).catch((error: unknown) =>
        this.#execution.results.reject(this.#key, error),
      );
    } else if (lost) {
      this.#let(child);
      this.#execution.results.reject(this.#key, child.log.lostReason);
    } else this.#passOn(child, state.shown);
  }

  #let(child: LiveRun): void {
    if (this.#child === child) this.#child = undefined;
    this.#parent.release(child);
    child.follow(undefined);
  }

  /** Asks what the sub-run asks; takes the question down when the sub-run does not ask it any more. */
  #passOn(child: LiveRun, asked: AwaitedEntry | null): void {
    const question = asked === null ? undefined : `${this.#key}/${asked.await_id}`;
    if (question === this.#asked && !this.#isInherited) return;
    this.#isInherited = false;
    if (this.#asked !== undefined && this.#asked !== question) this.#execution.questions.withdraw(this.#asked);
    this.#asked = question;
    if (asked === null || question === undefined) return;
    const exchange = this.#parent.log.state.exchanges?.find((one) => one.asked.await_id === question);
    if (exchange !== undefined && exchange.answer !== null) {
      this.#answer(child, asked, exchange.answer);
      return;
    }
    this.#execution.questions.ask({
      key: question,
      parts: asked.parts,
      validate: async (answer) => (await (this.#child ?? child).execution?.validate(answer)) ?? { value: answer },
      // The sub-run's own deadline counts, and takes the question down.
      timeoutMs: Number.POSITIVE_INFINITY,
      expires_at: awaitRequest(child.log.state, asked).expires_at,
      hasDefault: false,
      emitted: 0,
      // While the sub-run is looked for there is nobody to tell: it is given the answer when it is found.
      onAnswer: ({ answer }) => this.#answer(this.#child, asked, answer),
    });
  }

  #answer(child: LiveRun | undefined, { await_id }: AwaitedEntry, answer: AwaitResume): void {
    this.#asked = undefined;
    const answering = async (): Promise<unknown> => child?.answer({ await_id, answer, idempotency_key: null });
    answering().catch(ignore);
  }

  #finish({ run, usage }: EndedRun): void {
    const { clock } = this.#parent;
    if (this.#execution.over) return;
    if (this.#asked !== undefined) this.#execution.questions.withdraw(this.#asked);
    if (usage !== null) this.#execution.addUsage(usage);
    const usageSoFar = this.#parent.durable ? this.#execution.takeUsage() : null;
    // The record is JSON, made by the library itself.
    const result = this.#parent.durable ? (run as unknown as StepEntry["result"]) : undefined;
    const entry: StepEntry = { type: "step", at: clock.now(), key: this.#key, result, error: null, usage: usageSoFar };
    if (this.#parent.durable) this.#record(entry, run);
    else this.#execution.results.deliver(entry, run);
  }

  /** The sub-run is not to be. A durable agent is told the same when it is run again, whatever the limits are then. */
  #refuse(error: unknown): void {
    const { durable, log } = this.#parent;
    const isFinal = CadenzaError.is(error) && (error.code === "limit_reached" || error.code === "agent_not_found");
    if (!durable || !isFinal || log.lost || this.#execution.over) {
      this.#execution.results.reject(this.#key, error);
      return;
    }
    const failure = failureOfStep(error);
    const at = this.#parent.clock.now();
    this.#record({ type: "step", at, key: this.#key, result: undefined, error: failure, usage: null }, undefined);
  }

  #record(entry: StepEntry, live: unknown): void {
    const { log } = this.#parent;
    log.decide({ type: "record", entry });
    const committed = log.commit();
    const deliver = (): void => {
      this.#parent.execution?.results.deliver(entry, live);
      this.#parent.setSubRun(this.#key, false);
    };
    // As with steps: nothing that comes later in the log is handed over before.
    if (committed === undefined) deliver();
    else void committed.then(deliver);
  }
}
