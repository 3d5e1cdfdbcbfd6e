import { CadenzaError } from "../core/errors.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { replyOf } from "./answer.ts";
import type { Chance } from "./chance.ts";
import { DriveError } from "./drive-error.ts";
import type { AwaitDriveEvent, DriveEvent } from "./drive-event.ts";
import type { DriveSettings } from "./drive-options.ts";
import type { Interruption, OperationPlace } from "./interruption.ts";
import { InjectedError, operationId } from "./interruption.ts";
import type { Operation } from "./operation.ts";
import { Stage } from "./stage.ts";
import type { Delivery, Messages, OpenWait, TestMessage } from "./supply.ts";
import { describeLacking, Supply, waitId } from "./supply.ts";
import { TimerWatch } from "./timer-watch.ts";
import { describeWaiting } from "./waiting.ts";

/**
 * The answers to an agent's questions: a list in the order of the questions, or a function of the question. The answer
 * `decline(reason)` declines.
 */
export type Answers = readonly unknown[] | ((question: AwaitDriveEvent, index: number) => unknown);

/** What is executed. */
export interface Play {
  readonly agent: Agent;
  readonly input: RunInput;
  readonly settings: DriveSettings;
  readonly answers: Answers;
  readonly messages: Messages;
  readonly chance: Chance;
}

/** The outcome of one run with one interruption. */
export interface Outcome {
  readonly stage: Stage;
  readonly driveEvents: readonly DriveEvent[];
  /** The steps, sub-runs, sleeps and receives, in the order in which they began. */
  readonly places: readonly OperationPlace[];
  /** How many questions were answered. */
  readonly asked: number;
  /** The messages of the list that the agent received. */
  readonly received: ReadonlySet<TestMessage>;
  /** The messages that were sent. */
  readonly deliveries: readonly Delivery[];
  readonly dropped: number;
  readonly hung: boolean;
  /** The timers that were left, as text. */
  readonly timers: readonly string[];
  /** The problems during the run. */
  readonly problems: readonly string[];
}

/** An agent that emits and asks this much never ends. */
const MAX_THINGS = 1_000;
/** An agent that is busy for this many turns after it was stopped does not stop. */
const STOPPING_TURNS = 1_000;

/** Executes an agent once, with one interruption, to its end. */
export async function rehearse(play: Play, interruption: Interruption): Promise<Outcome> {
  return new Rehearsal(play, interruption).run();
}

class Rehearsal {
  readonly #play: Play;
  readonly #interruption: Interruption;
  readonly #watch = new TimerWatch();
  readonly #stage: Stage;
  readonly #supply: Supply;
  readonly #places: OperationPlace[] = [];
  readonly #problems: string[] = [];
  #told = 0;
  #asked = 0;
  #emitted = 0;
  #late: AwaitDriveEvent | undefined;
  /** The wait whose message is held back. */
  #withheld: string | undefined;
  #stopping: Promise<unknown> | undefined;

  constructor(play: Play, interruption: Interruption) {
    this.#play = play;
    this.#interruption = interruption;
    this.#supply = new Supply(play.messages);
    const begin = play.chance.begin();
    if (interruption.kind === "message late" || interruption.kind === "expire")
      this.#withheld = interruption.during?.id;
    this.#stage = new Stage(play.agent, play.input, play.settings, {
      probes: true,
      tracer: ({ run_id }) => {
        const drawing = begin(run_id);
        return (callback) => drawing(() => this.#watch.trace(callback));
      },
      onOperation: (operation) => this.#onOperation(operation),
      onEmit: () => this.#onEmit(),
    });
  }

  async run(): Promise<Outcome> {
    const stage = this.#stage;
    this.#watch.begin();
    let timers: readonly string[] = [];
    try {
      await stage.begin();
      if (this.#isHere("cancel")) await this.#cancel();
      if (this.#interruption.kind === "message early") await this.#sendEarly(this.#interruption.deliveries);
      while (await this.#goOn());
      await this.#end();
    } finally {
      timers = this.#watch.end();
    }
    const { dropped, hung } = await stage.report();
    return {
      stage,
      driveEvents: stage.view?.driveEvents ?? [],
      places: this.#places,
      asked: this.#asked,
      received: this.#supply.used,
      deliveries: this.#supply.delivered,
      dropped,
      hung: hung > 0,
      timers,
      problems: this.#problems,
    };
  }

  /** Takes the agent to its next thing, and interrupts or answers it there. False: it does nothing more. */
  async #goOn(): Promise<boolean> {
    const stage = this.#stage;
    if (!stage.gate.isOpen && stage.view?.driveEvents.length === this.#told) stage.gate.open(this.#untilThere);
    const holds = this.#interruption.kind === "message late" ? this.#withheld : undefined;
    await stage.until(() => this.#isThere(), { ...stage.settings, passesTime: true, holds });
    if (this.#stopping !== undefined) await this.#stopping;
    const driveEvent = stage.view?.driveEvents[this.#told];
    if (driveEvent === undefined) return this.#onWait();
    this.#told += 1;
    if (this.#told > MAX_THINGS) return false;
    if (driveEvent.type === "end") {
      this.#checkLate();
      return false;
    }
    if (this.#isHere("cancel")) await this.#cancel();
    else if (driveEvent.type === "await") await this.#onQuestion(driveEvent);
    return true;
  }

  /** Whether there is something to do: the agent has done something, or waits for a message that the test has. */
  #isThere(): boolean {
    for (const wait of this.#stage.waits) this.#onWaitBegun(wait);
    const { driveEvents = [] } = this.#stage.view ?? {};
    return driveEvents.length > this.#told || this.#supply.next(this.#supplied) !== undefined;
  }

  /** The agent waits for a message, or for nothing that will come. False: it does nothing more. */
  async #onWait(): Promise<boolean> {
    const delivery = this.#supply.next(this.#supplied);
    if (delivery !== undefined) {
      await this.#deliver(delivery);
      return true;
    }
    if (this.#withheld !== undefined && this.#interruption.kind === "message late") {
      this.#withheld = undefined;
      return true;
    }
    if (await this.#unblock()) return true;
    const lacking = this.#supply.lacking(this.#stage.waits);
    if (lacking === undefined || this.#stage.isOver) return false;
    if (this.#interruption.kind === "none") throw new DriveError(describeLacking("everyInterruption", lacking));
    // The agent behaves differently and receives another message, which there is not.
    await this.#cancel();
    return true;
  }

  /** The open waits whose messages are sent. */
  get #supplied(): readonly OpenWait[] {
    return this.#stage.waits.filter((wait) => waitId(wait) !== this.#withheld);
  }

  async #deliver(delivery: Delivery): Promise<void> {
    this.#supply.onDelivered(delivery);
    try {
      await this.#stage.deliver(delivery);
    } catch (error) {
      if (!CadenzaError.is(error) || this.#interruption.kind === "none") throw error;
      // The agent behaves differently, and this message was another one before.
      await this.#cancel();
    }
  }

  async #sendEarly(deliveries: readonly Delivery[]): Promise<void> {
    // A sub-run is not there yet.
    for (const delivery of deliveries)
      if (delivery.run_id === this.#stage.state?.run_id) await this.#stage.deliver(delivery);
  }

  /** How many things the agent may do before it is held: it is not observed before the interruption. */
  get #untilThere(): number {
    const { kind } = this.#interruption;
    return kind === "none" ? 1 : Math.max(this.#interruption.at - this.#told, 1);
  }

  /**
   * Brings the run to its end: a run that does not end by itself is cancelled, and an agent that does not stop is
   * abandoned.
   */
  async #end(): Promise<void> {
    const stage = this.#stage;
    if (!stage.isOver && stage.state?.status !== "cancelling") {
      const why = this.#told > MAX_THINGS ? `It has done ${MAX_THINGS} things.` : describeWaiting(stage);
      this.#problems.push(`It does not come to an end. ${why}`);
      await this.#cancel();
    }
    if (!stage.isOver) await stage.clock.advance(stage.settings.cancelGraceMs);
    stage.gate.free();
    const isIdle = (): boolean => stage.cast.operations.every(({ state }) => state !== "pending");
    await stage.until(isIdle, stage.settings);
    await stage.until(() => false, { patienceMs: 0 });
    await this.#watch.settle(stage.settings.patienceMs);
  }

  async #cancel(): Promise<void> {
    // What an agent returns comes with the end of its run.
    if (this.#stage.isOver) return;
    await this.#stage.cancel();
    const { patienceMs } = this.#stage.settings;
    await this.#stage.until(() => this.#stage.isOver, { patienceMs, turns: STOPPING_TURNS });
  }

  async #onQuestion(question: AwaitDriveEvent): Promise<void> {
    if (this.#isHere("expire")) {
      await this.#stage.clock.set(question.expires_at ?? 0);
      return;
    }
    if (this.#isHere("answer late")) this.#late = question;
    else await this.#answer(question);
  }

  /** Gives a late answer to an agent that does nothing more. True: there was one. */
  async #unblock(): Promise<boolean> {
    const late = this.#late;
    this.#late = undefined;
    if (late === undefined || this.#stage.state?.question?.asked.await_id !== late.await_id) return false;
    await this.#answer(late);
    return true;
  }

  /** Reports a late answer that was never given, because the agent ended without it. */
  #checkLate(): void {
    const late = this.#late;
    if (late === undefined) return;
    this.#problems.push(`It ended while ${late.await_id} was still shown: an answer that comes later is refused.`);
  }

  async #answer(question: AwaitDriveEvent): Promise<void> {
    const stage = this.#stage;
    const index = this.#asked++;
    const answer = this.#answerTo(question, index);
    if (answer === undefined) {
      await this.#cancel();
      return;
    }
    const reply = replyOf(answer.value);
    try {
      await stage.reply(reply, question.await_id);
    } catch (error) {
      if (!CadenzaError.is(error) || this.#interruption.kind === "none") throw error;
      // The agent behaves differently and asks another question, which has no answer.
      await this.#cancel();
      return;
    }
    if (!this.#isHere("answer twice")) return;
    await stage.reply(reply, question.await_id).catch((error: unknown) => {
      this.#problems.push(`The same answer to ${question.await_id} again was refused: ${String(error)}`);
    });
    const other = stage.reply({ await_resume: { another: "answer" } }, question.await_id);
    await other.then(
      () => this.#problems.push(`Another answer to ${question.await_id} was accepted on top of the first.`),
      () => undefined,
    );
  }

  #answerTo(question: AwaitDriveEvent, index: number): { readonly value: unknown } | undefined {
    const { answers } = this.#play;
    if (typeof answers === "function") return { value: answers(question, index) };
    if (index < answers.length) return { value: answers[index] };
    if (this.#interruption.kind !== "none") return undefined;
    throw new DriveError(
      `everyInterruption: the agent asks ${question.await_id} ${JSON.stringify(question.question)}, question ${index + 1}, ` +
        `and there ${answers.length === 1 ? "is 1 answer" : `are ${answers.length} answers`}. Add one: { answers: [ … ] }.`,
    );
  }

  #onOperation(operation: Operation): undefined | Promise<unknown> {
    const id = operationId(operation);
    const isLead = operation.run_id === this.#stage.state?.run_id;
    const name = operation.kind === "step" ? `step ${operation.key}` : operation.key;
    this.#addPlace({ id, label: isLead ? name : `${name} of ${operation.agent_name}` });
    const { kind } = this.#interruption;
    if ((kind !== "cancel" && kind !== "fail") || this.#interruption.during?.id !== id) return undefined;
    if (kind === "fail") throw new InjectedError(`${operation.key} was made to fail.`);
    this.#stopping ??= this.#stage.cancel();
    return this.#stopping;
  }

  #onWaitBegun(open: OpenWait): void {
    const id = waitId(open);
    const { run_id, wait } = open;
    const { cast, state } = this.#stage;
    const of = cast.operations.find((operation) => operationId(operation) === id)?.agent_name ?? "";
    const label = run_id === state?.run_id ? wait.key : `${wait.key} of ${of}`;
    this.#addPlace({ id, label, wait: { isSent: this.#supply.for(open) !== null, expires: wait.until != null } });
    if (this.#interruption.kind === "cancel" && this.#interruption.during?.id === id)
      this.#stopping ??= this.#stage.cancel();
  }

  /** A later attempt belongs to the same operation. */
  #addPlace(place: Omit<OperationPlace, "at">): void {
    if (this.#places.some(({ id }) => id === place.id)) return;
    const at = this.#stage.view?.driveEvents.filter(({ type }) => type !== "end").length ?? 0;
    this.#places.push({ ...place, at });
  }

  #onEmit(): void {
    this.#emitted += 1;
    const { kind } = this.#interruption;
    if (kind !== "fail" || this.#interruption.during !== undefined || this.#emitted !== this.#interruption.at) return;
    throw new InjectedError(`emit was made to fail.`);
  }

  #isHere(kind: Interruption["kind"]): boolean {
    const interruption = this.#interruption;
    if (interruption.kind === "none" || interruption.kind !== kind || interruption.at !== this.#told) return false;
    return !("during" in interruption) || interruption.during === undefined;
  }
}
