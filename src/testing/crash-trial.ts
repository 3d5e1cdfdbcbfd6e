import { CadenzaError } from "../core/errors.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import type { Message } from "../protocol/message.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { readInput } from "../runtime/agent/input.ts";
import type { BlockedEvent } from "../runtime/runs/announcer.ts";
import { replyOf } from "./answer.ts";
import type { Chance } from "./chance.ts";
import type { CrashPoint } from "./crash-point.ts";
import type { Machine } from "./crashing-process.ts";
import { CrashingProcess } from "./crashing-process.ts";
import { Disk } from "./disk.ts";
import { DriveError } from "./drive-error.ts";
import type { AwaitDriveEvent } from "./drive-event.ts";
import { quote } from "./drive-event.ts";
import type { DriveSettings } from "./drive-options.ts";
import { createLeapingClock } from "./fake-clock.ts";
import { InjectedError } from "./interruption.ts";
import type { OpenOperation, Operation } from "./operation.ts";
import type { Answers } from "./rehearsal.ts";
import { sequentialIds } from "./sequential-ids.ts";
import { createRequest, seedSession } from "./stage-request.ts";
import type { Delivery, Messages, OpenWait, TestMessage } from "./supply.ts";
import { describeLacking, nextExpiry, openWaits, Supply } from "./supply.ts";
import { waitUntil } from "./until.ts";

/** One way to run the agent. */
export type Way = CrashWay | UpgradeWay;

/** What a message shows: its texts, and the addresses of what lies elsewhere. */
export function shownText({ parts }: Message): string {
  return parts.map(({ content, content_url }) => content ?? content_url ?? "").join("");
}

/** The process dies after so many writes, and one with other code takes over. `entries`: how long the run's log is then. */
export interface UpgradeWay {
  readonly kind: "upgrade";
  readonly writes: number;
  readonly entries: number;
  readonly where: string;
}

export type CrashWay =
  | { readonly kind: "none" }
  /** The process dies at the point, and another one takes over. */
  | { readonly kind: "crash"; readonly point: CrashPoint }
  /** The body of a step ends, and throws all the same: its work was done, and the reply was lost. */
  | { readonly kind: "lost reply"; readonly step: StepPlace }
  /** The agent is replayed after every commit. */
  | { readonly kind: "replay" };

/** A step as it is identified in every execution of the agent. */
export interface StepPlace {
  readonly path: string;
  readonly key: string;
  readonly where: string;
}

/** What is executed. */
export interface CrashPlay {
  readonly agent: Agent;
  /** The code of all processes after the first. Undefined: the same. */
  readonly next?: Agent | undefined;
  readonly input: RunInput;
  readonly settings: DriveSettings;
  readonly answers: Answers;
  readonly messages: Messages;
  readonly chance: Chance;
}

/** The outcome of one way. */
export interface CrashOutcome {
  readonly disk: Disk;
  /** The operations that agents began in the first process. */
  readonly operations: readonly OpenOperation[];
  /** How many questions were asked. */
  readonly asked: number;
  /** The messages of the list that the agent received. */
  readonly received: ReadonlySet<TestMessage>;
  readonly blocked: BlockedEvent | undefined;
  /** Whether the agent reached the point of the crash or of the lost reply. */
  readonly isReached: boolean;
  /** The agent waited for an answer or a message that there is not, and was cancelled: it behaved differently. */
  readonly isOffScript: boolean;
  readonly problems: readonly string[];
}

/** Longer than an agent may take in a replay to reach the next operation of its history. */
const STALL_MS = 5_000;
/** How many times as long as an agent the body of a step may be silent. */
const WORK_PATIENCE = 8;
/** An agent that emits and asks this much never ends. */
const MAX_THINGS = 1_000;

/** Executes the agent in one way, to its end. */
export async function tryWay(play: CrashPlay, way: Way): Promise<CrashOutcome> {
  return new Trial(play, way).run();
}

class Trial {
  readonly #play: CrashPlay;
  readonly #way: Way;
  readonly #machine: Machine;
  readonly #processes: CrashingProcess[] = [];
  readonly #problems: string[] = [];
  /** The questions that were asked, in order. */
  readonly #asked: string[] = [];
  readonly #answered = new Set<string>();
  readonly #supply: Supply;
  #isOffScript = false;
  #hasLostReply = false;
  #hasWaited = false;
  /** The time, which only this class moves. To ask the clock instead would count as activity. */
  #now: number;

  constructor(play: CrashPlay, way: Way) {
    this.#play = play;
    this.#way = way;
    const { agent, settings, chance } = play;
    const begin = chance.begin();
    this.#supply = new Supply(play.messages);
    const clock = createLeapingClock(settings.now === undefined ? {} : { now: settings.now });
    this.#now = clock.now();
    this.#machine = {
      agent,
      settings,
      disk: new Disk(clock),
      clock,
      ids: sequentialIds(),
      hooks: {
        durable: true,
        tracer: ({ run_id }) => begin(run_id),
        afterStep: (operation) => this.#afterStep(operation),
      },
      alwaysReplay: way.kind === "replay",
    };
  }

  async run(): Promise<CrashOutcome> {
    const { agent, input, settings } = this.#play;
    const { disk, clock } = this.#machine;
    seedSession(disk.store, settings, clock.now());
    const way = this.#way;
    this.#start(way.kind === "crash" ? way.point : way.kind === "upgrade" ? way.writes : undefined);
    const creating = this.#process.scope.createRun(...createRequest(agent, readInput(input), settings));
    await this.#settled(creating);
    while (await this.#goOn());
    const { blocked } = this.#process;
    // The body of a step of a dead process goes on in the world outside, too.
    await this.#until(() => !this.#isAnyAtWork);
    for (const each of this.#processes) each.kill();
    return {
      disk,
      operations: this.#processes[0]?.cast.operations ?? [],
      asked: this.#asked.length,
      received: this.#supply.used,
      blocked,
      isReached: this.#isReached,
      isOffScript: this.#isOffScript,
      problems: this.#problems,
    };
  }

  get #isReached(): boolean {
    const { kind } = this.#way;
    if (kind === "crash" || kind === "upgrade") return this.#processes.length > 1;
    return kind !== "lost reply" || this.#hasLostReply;
  }

  get #process(): CrashingProcess {
    const last = this.#processes.at(-1);
    if (last === undefined) throw new DriveError("There is no process yet.");
    return last;
  }

  get #state(): RunState | undefined {
    return this.#machine.disk.view?.state;
  }

  get #isOver(): boolean {
    return this.#state !== undefined && isFinal(this.#state.status);
  }

  get #isEndless(): boolean {
    const shown = this.#machine.disk.view?.driveEvents.length ?? 0;
    return shown > MAX_THINGS || this.#process.cast.operations.length > MAX_THINGS;
  }

  get #isAnyAtWork(): boolean {
    return this.#processes.some(({ cast }) => cast.operations.some(({ isAtWork }) => isAtWork));
  }

  /** The question that is shown and has no answer yet. */
  get #question(): AwaitDriveEvent | undefined {
    const shown = this.#state?.question?.asked.await_id;
    if (shown === undefined || this.#answered.has(shown)) return undefined;
    const driveEvents = this.#machine.disk.view?.driveEvents ?? [];
    return driveEvents.findLast((one) => one.type === "await" && one.await_id === shown) as AwaitDriveEvent | undefined;
  }

  get #waits(): readonly OpenWait[] {
    return openWaits(this.#machine.disk.store.states);
  }

  /** The message that is to be sent. */
  get #delivery(): Delivery | undefined {
    return this.#supply.next(this.#waits);
  }

  #start(point: CrashPoint | number | undefined): void {
    const earlier = this.#processes.at(-1);
    const { agent, next: other = agent } = this.#play;
    const machine = { ...this.#machine, agent: earlier === undefined ? agent : other };
    const next = new CrashingProcess(machine, `process-${this.#processes.length + 1}`, point);
    if (earlier !== undefined) next.cast.addSubAgentsOf(earlier.cast);
    this.#processes.push(next);
  }

  /** Lets the agent go on until there is something to do for it. False: it does nothing more. */
  async #goOn(): Promise<boolean> {
    const current = this.#process;
    const isDue = (): boolean =>
      current.isDead ||
      current.blocked !== undefined ||
      this.#isOver ||
      this.#isEndless ||
      this.#question !== undefined ||
      this.#delivery !== undefined;
    const isThere = await this.#until(isDue);
    if (current.isDead) {
      this.#start(undefined);
      return true;
    }
    if (current.blocked !== undefined || this.#isOver) return false;
    if (this.#isEndless) {
      this.#problems.push(`It does not come to an end. It has done ${MAX_THINGS} things.`);
      return false;
    }
    const question = this.#question;
    if (question !== undefined) return this.#answer(question);
    const delivery = this.#delivery;
    if (delivery !== undefined) return this.#deliver(delivery);
    const lacking = this.#supply.lacking(this.#waits);
    if (isThere || lacking === undefined) return isThere || (await this.#isWorkDone(isDue)) || this.#waitForStall();
    if (this.#way.kind === "none") throw new DriveError(describeLacking("everyCrash", lacking));
    return this.#stray();
  }

  /** The body of a step may take longer than an agent between its operations: the clock stands still meanwhile. */
  async #isWorkDone(isDue: () => boolean): Promise<boolean> {
    for (let more = 1; more < WORK_PATIENCE && this.#process.cast.isAtWork; more++)
      if (await this.#until(isDue)) return true;
    return false;
  }

  /**
   * A replayed agent may wait for what its history does not hold. Once the stall time is over, the runtime reports it.
   */
  async #waitForStall(): Promise<boolean> {
    if (this.#hasWaited) {
      const open = this.#process.cast.operations.filter(({ state }) => state === "pending").map(({ key }) => key);
      const work = open.length === 0 ? "waits for something outside the runtime" : `waits for ${open.join(", ")}`;
      this.#problems.push(`It does not come to an end: it is ${this.#state?.status ?? "not created"}, and ${work}.`);
      return false;
    }
    this.#hasWaited = true;
    await this.#advance(STALL_MS);
    return true;
  }

  async #answer(question: AwaitDriveEvent): Promise<boolean> {
    const { await_id } = question;
    if (!this.#asked.includes(await_id)) this.#asked.push(await_id);
    const answer = this.#answerTo(question, this.#asked.indexOf(await_id));
    if (answer === undefined) return this.#stray();
    const { scope } = this.#process;
    const run_id = this.#state?.run_id ?? "";
    const resuming = scope.resume({ ...replyOf(answer.value), run_id, await_id, mode: "async" });
    const current = this.#process;
    const outcome = await this.#settled(
      resuming.then(() => {
        this.#answered.add(await_id);
      }),
    );
    // A replayed agent may never ask the question. Once the stall time is over, the runtime reports it.
    if (outcome === undefined) return current.isDead || this.#waitForStall();
    const { error } = outcome;
    if (error === undefined || current.blocked !== undefined) return true;
    if (!CadenzaError.is(error) || this.#way.kind === "none") throw error;
    this.#problems.push(`The answer to ${await_id} was refused: ${error.message}`);
    return this.#stray();
  }

  /** Sends a message. A process that dies has not acknowledged it: it is sent again. */
  async #deliver(delivery: Delivery): Promise<boolean> {
    const { run_id, name, data, idempotencyKey } = delivery;
    const current = this.#process;
    const sending = current.scope.send({ to: run_id, name, data }, { idempotencyKey });
    const outcome = await this.#settled(sending);
    if (outcome === undefined) return current.isDead || this.#waitForStall();
    this.#supply.onDelivered(delivery);
    if (outcome.error === undefined) return true;
    if (!CadenzaError.is(outcome.error) || this.#way.kind === "none") throw outcome.error;
    return this.#stray();
  }

  /** The agent behaved differently and waits for another answer or message, which there is not: it is cancelled. */
  async #stray(): Promise<boolean> {
    if (this.#isOffScript) return false;
    this.#isOffScript = true;
    const cancelling = this.#process.scope.cancel(this.#state?.run_id ?? "");
    await this.#settled(cancelling);
    await this.#until(() => this.#isOver);
    if (!this.#isOver) await this.#advance(this.#play.settings.cancelGraceMs);
    return false;
  }

  async #advance(milliseconds: number): Promise<void> {
    await this.#machine.clock.advance(milliseconds);
    this.#now = this.#machine.clock.now();
  }

  #answerTo(question: AwaitDriveEvent, index: number): { readonly value: unknown } | undefined {
    const { answers } = this.#play;
    if (typeof answers === "function") return { value: answers(question, index) };
    if (index < answers.length) return { value: answers[index] };
    if (this.#way.kind !== "none") return undefined;
    throw new DriveError(
      `everyCrash: the agent asks ${question.await_id} ${quote(question.question)}, question ${index + 1}, and there ` +
        `${answers.length === 1 ? "is 1 answer" : `are ${answers.length} answers`}. Add one: { answers: [ … ] }.`,
    );
  }

  /**
   * Waits for a call to the process, and returns the error of its refusal, if there is one. Undefined: no answer,
   * because the process died.
   */
  async #settled(call: Promise<unknown>): Promise<{ readonly error: unknown } | undefined> {
    let outcome: { readonly error: unknown } | undefined;
    call.then(
      () => {
        outcome = { error: undefined };
      },
      (error: unknown) => {
        outcome = { error };
      },
    );
    const current = this.#process;
    await this.#until(() => outcome !== undefined || current.isDead);
    return outcome;
  }

  #afterStep({ run_id, key }: Operation): void {
    const way = this.#way;
    if (way.kind !== "lost reply" || this.#hasLostReply) return;
    if (way.step.key !== key || way.step.path !== this.#machine.disk.pathOf(run_id)) return;
    this.#hasLostReply = true;
    throw new InjectedError(`The reply to ${key} was lost.`);
  }

  /**
   * Fires due timers. Lets time pass when the agent does nothing but wait for it: in a sleep, in a receive, and between
   * two attempts of a step. No question expires by that.
   */
  #pass(): undefined | Promise<void> {
    const { clock, disk } = this.#machine;
    const { cast } = this.#process;
    const due = clock.nextDue ?? Number.POSITIVE_INFINITY;
    if (due <= this.#now) return clock.set(this.#now);
    // A run that waits may not be loaded. Then the clock has no timer for it.
    const ends = this.#waits.flatMap(({ wait: { until } }) => (until != null && until > this.#now ? [until] : []));
    const isWaiting = ends.length > 0 && !cast.isAtWork;
    const next = cast.isPausing ? Math.min(due, ...ends) : isWaiting ? Math.min(...ends) : Number.POSITIVE_INFINITY;
    return next < nextExpiry(disk.store.states) ? this.#passTo(next) : undefined;
  }

  async #passTo(time: number): Promise<void> {
    const { clock } = this.#machine;
    await clock.leap(time);
    this.#now = time;
    this.#process.lookForWork();
  }

  #until(goal: () => boolean): Promise<boolean> {
    const { clock } = this.#machine;
    const trial = this;
    return waitUntil(
      goal,
      {
        get activity() {
          return trial.#processes.reduce((sum, { cast }) => sum + cast.operations.length, clock.uses);
        },
        get isAwaiting() {
          return false;
        },
        check: () => this.#process.cast.check(),
        pass: () => this.#pass(),
      },
      this.#play.settings,
    );
  }
}
