import { CadenzaError } from "../core/errors.ts";
import type { AwaitedEntry, StepEntry } from "../core/log.ts";
import { isPassedOn } from "../core/log.ts";
import type { RunKey } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import { awaitRequest } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import type { Run } from "../protocol/run.ts";
import { passedOnParts } from "./ask.ts";
import type { Execution } from "./execution.ts";
import type { LiveRun } from "./live-run.ts";
import type { Answer } from "./questions.ts";
import { lostError } from "./refusals.ts";
import { failureOfStep, resultOfStep } from "./steps.ts";

/** What a sub-run needs from the runs of the process. */
export interface SubRunHost {
  /** A new id for a run. */
  newRunId(): string;
  /** Creates and begins the sub-run. */
  createSubRun(runId: string): LiveRun;
  /** The sub-run as far as it is there already: loaded here, ended, or elsewhere. */
  findSubRun(key: RunKey): Promise<SubRunFound>;
  /** Waits a little before another look. */
  pause(): Promise<void>;
}

/** What is found of a sub-run; undefined: there is none yet. */
export type SubRunFound = LiveRun | EndedRun | RunElsewhere | undefined;

/** A run that has not ended, and that this process cannot load: another one executes it, or its code is not here. */
export interface RunElsewhere {
  /** Why it does not get on, if its code does not match its history. */
  readonly blocked: CadenzaError | undefined;
  /** How many entries its log holds. */
  readonly position: number;
  /** What its log says by now; undefined: it is not there any more. */
  read(): MaybePromise<RunState | undefined>;
}

/** A run that has ended. */
export interface EndedRun {
  readonly run: Run;
  readonly state: RunState;
}

/**
 * A run that an agent has started and waits for: one of its recorded operations. What the sub-run asks, the parent asks, and the
 * answer is given to it first: what it takes is the answer to both. When it has ended its record is the operation's result, and its usage is the parent's too. Its id is in the
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
  /** While it is looked for: whether the last look has found where it is to be followed, or how it ended. */
  #search: Promise<boolean> | undefined;
  /** How long the log of a sub-run elsewhere was when it was read last. Undefined: it is not known to be elsewhere. */
  #readTo: number | undefined;
  /** The last question of the sub-run that was seen, and how long its log has to be until that is committed. */
  #seen = nothingSeen;
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
    this.#parent.setSubRun(this.#key, intent === undefined ? "at work" : "sought");
    const shown = this.#parent.log.state.shown?.await_id;
    if (shown?.startsWith(`${this.#key}/`) === true) {
      this.#asked = shown;
      this.#isInherited = true;
    }
    const runId = intent?.run_id ?? this.#host.newRunId();
    // A parent that is not durable has its sub-runs in its log too: they end with it if its process dies.
    if (intent === undefined && (this.#parent.durable || this.#parent.host.store.persistent)) {
      const { log, clock } = this.#parent;
      log.decide({
        type: "intend",
        entry: { type: "intent", at: clock.now(), key: this.#key, attempt: 1, run_id: runId },
      });
      await log.commit();
    }
    // Agents that run each other go deep, and the stack must not.
    await undefined;
    // A run that has been taken over starts none: its new owner has it ended, or looks for what is there.
    for (let wait = this.#parent.ensureOwner(); wait !== undefined; wait = this.#parent.ensureOwner()) await wait;
    if (this.#execution.isStopped) return;
    if (intent === undefined) this.#watch(this.#host.createSubRun(runId));
    else await this.#attach(runId);
  }

  /** The sub-run has left this process, or the store did not take it: then it is begun once more after a pause. */
  async #seekAgain({ key, lostReason }: LiveRun["log"]): Promise<void> {
    if (lostReason?.code === "store_failed") await this.#host.pause();
    await this.#attach(key.run_id);
  }

  /** Finds a sub-run that was begun before, wherever it is by now, and looks at it from time to time for as long as it is elsewhere. */
  async #attach(runId: string): Promise<void> {
    this.#search = Promise.resolve(false);
    const look = (): Promise<boolean> => this.#lookFor(runId);
    this.#parent.family.seek(runId, look);
    try {
      while (!(await look())) await this.#host.pause();
    } finally {
      this.#parent.family.seekNoMore(runId, look);
      this.#search = undefined;
      this.#readTo = undefined;
    }
  }

  /** Looks for the sub-run, one look after the other. Says whether it has been found. */
  #lookFor(runId: string): Promise<boolean> {
    const search = (this.#search ?? Promise.resolve(true)).then((isFound) => isFound || this.#find(runId));
    this.#search = search;
    return search;
  }

  async #find(runId: string): Promise<boolean> {
    const { log, logger } = this.#parent;
    let found: SubRunFound;
    try {
      found = await this.#host.findSubRun({ tenant: log.key.tenant, run_id: runId });
      if (found !== undefined && "read" in found) {
        await this.#readAlong(found);
        return this.#execution.over;
      }
    } catch (error) {
      logger.warn(`Run ${runId} could not be read for the run that has started it. It is looked for again.`, {
        run_id: runId,
        error,
      });
      return this.#execution.over;
    }
    if (this.#execution.over) return true;
    this.#parent.setBlocked(undefined);
    if (found !== undefined && "run" in found) this.#finish(found);
    else if (found !== undefined || !this.#execution.isStopped) this.#watch(found ?? this.#host.createSubRun(runId));
    return true;
  }

  /** The sub-run is elsewhere: the parent asks what it asks, and needs no owner here, since the store wakes it when the sub-run goes on. */
  async #readAlong(elsewhere: RunElsewhere): Promise<void> {
    const state = elsewhere.position === this.#readTo ? undefined : await elsewhere.read();
    if (this.#execution.over) return;
    this.#parent.setBlocked(elsewhere.blocked);
    if (state !== undefined) this.#passOn(state, state.shown);
    this.#readTo = elsewhere.position;
    this.#parent.setSubRun(this.#key, "idle");
  }

  #watch(child: LiveRun): void {
    this.#parent.family.children.add(child);
    this.#child = child;
    this.#seen = nothingSeen;
    child.follow(this.#parent, () => this.#onProgress(child));
    this.#onProgress(child);
  }

  #onProgress(child: LiveRun): void {
    if (this.#execution.over) {
      this.#let(child);
      return;
    }
    const { head, state, lost } = child.log;
    this.#parent.setSubRun(this.#key, lost || head?.status !== "awaiting" ? "at work" : "idle");
    if (head !== undefined && isFinal(head.status)) {
      this.#let(child);
      void Promise.resolve(child.log.record()).then((run) => this.#finish({ run, state }));
    } else if (lost) {
      this.#let(child);
      this.#parent.setSubRun(this.#key, "sought");
      this.#seekAgain(child.log).catch((error: unknown) => this.#refuse(error));
    } else this.#look(child);
  }

  #let(child: LiveRun): void {
    if (this.#child === child) this.#child = undefined;
    this.#parent.family.children.delete(child);
    child.follow(undefined);
  }

  /** Passes on what the sub-run asks, as soon as that is committed: what was only decided may be decided otherwise. */
  #look({ log: { state, committed } }: LiveRun): void {
    const asked = state.shown;
    if (asked !== this.#seen.asked) this.#seen = { asked, position: state.position };
    if (committed >= this.#seen.position) this.#passOn(state, asked);
  }

  /** Asks what the sub-run asks; takes the question down when the sub-run does not ask it any more. */
  #passOn(child: RunState, asked: AwaitedEntry | null): void {
    const question = asked === null || this.#isAnswered(asked) ? undefined : `${this.#key}/${asked.await_id}`;
    if (question === this.#asked && !this.#isInherited) return;
    this.#isInherited = false;
    if (this.#asked !== question) this.#settle(child);
    this.#asked = question;
    if (asked === null || question === undefined) return;
    this.#execution.questions.ask({
      key: question,
      parts: passedOnParts(asked.parts, asked.await_id, question),
      pass: (answer) => this.#answer({ ...answer, await_id: asked.await_id }),
      // The sub-run's own deadline counts, and takes the question down.
      timeoutMs: Number.POSITIVE_INFINITY,
      expires_at: awaitRequest(child, asked).expires_at,
      hasDefault: false,
      emitted: 0,
    });
  }

  /** Whether the answer is known here already: a run between this one and the one that asks may not have recorded it yet. */
  #isAnswered({ await_id }: AwaitedEntry): boolean {
    if (!isPassedOn(await_id)) return false;
    const { exchanges } = this.#parent.log.state;
    const question = `${this.#key}/${await_id}`;
    return exchanges?.some(({ asked, answer }) => asked.await_id === question && answer !== null) === true;
  }

  /** Gives the sub-run an answer. While it is looked for, the answer waits; one that is elsewhere is answered there. */
  #answer(answer: Answer): MaybePromise<unknown> {
    const child = this.#child;
    if (child !== undefined) return child.answer(answer);
    return Promise.resolve(this.#search).then(() => {
      if (this.#child === undefined) throw lostError(this.#parent.log.key.run_id);
      return this.#child.answer(answer);
    });
  }

  /** The sub-run does not ask any more what the parent asks for it. */
  #settle({ exchanges }: RunState): void {
    const question = this.#asked;
    if (question === undefined) return;
    this.#asked = undefined;
    const awaitId = question.slice(this.#key.length + 1);
    this.#execution.questions.settle(
      question,
      exchanges?.findLast(({ asked }) => asked.await_id === awaitId),
    );
    // The parent is at work again.
    this.#execution.withSlot(ignore);
  }

  #finish({ run, state }: EndedRun): void {
    const { clock, durable } = this.#parent;
    if (this.#execution.over) return;
    this.#settle(state);
    if (state.usage !== null) this.#execution.addUsage(state.usage);
    const usage = durable ? this.#execution.takeUsage() : null;
    // The record is JSON, made by the library itself.
    const result = durable ? (run as unknown as StepEntry["result"]) : undefined;
    const entry: StepEntry = { type: "step", at: clock.now(), key: this.#key, result, error: null, usage };
    if (durable) this.#record(entry, run);
    else this.#execution.withSlot(() => this.#execution.results.deliver(entry, run));
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
      this.#parent.setSubRun(this.#key, "idle");
    };
    // As with steps: nothing that comes later in the log is handed over before.
    if (committed === undefined) deliver();
    else void committed.then(deliver);
  }
}

const nothingSeen: { readonly asked: AwaitedEntry | null; readonly position: number } = { asked: null, position: 0 };
