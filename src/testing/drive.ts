import type { Entry } from "../core/log.ts";
import type { StreamedEvent } from "../core/project.ts";
import type { Usage } from "../core/usage.ts";
import type { AwaitResume, Run, RunStatus } from "../protocol/run.ts";
import type { Agent, AgentFunction } from "../runtime/agent.ts";
import type { RunInput } from "../runtime/input.ts";
import { textOf } from "../runtime/input.ts";
import type { Session } from "../runtime/requests.ts";
import { resumeOf } from "./answer.ts";
import { DriveError } from "./drive-error.ts";
import type { DriveEvent, EndDriveEvent } from "./drive-event.ts";
import { describeDriveEvent, questionText, quote } from "./drive-event.ts";
import type { DriveOptions } from "./drive-options.ts";
import { readAgent, readDriveOptions } from "./drive-options.ts";
import type { Duration } from "./duration.ts";
import { readDuration, writeDuration } from "./duration.ts";
import type { FakeClock } from "./fake-clock.ts";
import type { Operation } from "./operation.ts";
import { Stage } from "./stage.ts";
import { describeLast, describeWaiting } from "./waiting.ts";

/** How to wait for the agent. */
export interface NextOptions {
  /** How much time may pass on the fake clock while the agent waits for it. Default: none. */
  readonly within?: Duration | undefined;
}

/** Which question an answer is for. */
export interface AnswerOptions {
  /** Default: the one that is shown. */
  readonly await_id?: string | undefined;
}

/**
 * Runs one agent under the test's hand: nothing happens until it is asked for. There is no HTTP, no model and no sleeping, and time
 * stands still until `t.clock` is moved.
 *
 * @example
 * const t = drive(booking, "Berlin to Paris", { steps: { plan: { train: "ICE 9553" } } });
 * await t.next();                  // { type: "part", text: "Looking for trains… " }
 * await t.next();                  // { type: "await", question: "Book it?", … }
 * await t.answer({ ok: true });
 * const run = await t.finish();    // run.status is "completed"
 */
export function drive(agent: Agent | AgentFunction, input: RunInput, options: DriveOptions = {}): Drive {
  return new Drive(new Stage(readAgent(agent), input, readDriveOptions(options)));
}

/** What is behind a drive; for the other parts of this kit. */
export let stageOf: (t: Drive) => Stage;

/** An agent under the test's hand. Made by {@link drive}. */
export class Drive {
  static {
    stageOf = (t) => t.#stage;
  }

  readonly #stage: Stage;
  /** How many of the events have been handed out. */
  #told = 0;
  #asking: Promise<unknown> = Promise.resolve();

  constructor(stage: Stage) {
    this.#stage = stage;
  }

  /**
   * The next thing that the agent did: a part, a message, an object, a question, or the end. The agent goes on to just there.
   * Throws a `DriveError` when there is nothing to come: after the end, while a question waits for its answer, or
   * when there is no sign of life from the agent.
   */
  next(options: NextOptions = {}): Promise<DriveEvent> {
    return this.#inTurn(() => this.#next(options));
  }

  /** Goes on to the next thing of one type, and gives it: `await t.until("await")`. Throws a `DriveError` if the run ends before. */
  async until<Type extends DriveEvent["type"]>(
    type: Type,
    options: NextOptions = {},
  ): Promise<Extract<DriveEvent, { readonly type: Type }>> {
    for (;;) {
      const driveEvent = await this.next(options);
      if (isOfType(driveEvent, type)) return driveEvent;
      if (driveEvent.type === "end")
        throw new DriveError(
          `The run ended before there was one of type ${quote(type)}: ${describeDriveEvent(driveEvent)}.`,
        );
    }
  }

  /** Lets the agent go on until it rests, completed, failed, cancelled or awaiting, and gives the run. What it did on the way counts as told. */
  finish(options: NextOptions = {}): Promise<Run> {
    return this.#inTurn(() => this.#finish(options));
  }

  /**
   * Answers the question that is shown: with a text, a message, an object, or what else JSON knows. Rejects when nothing is asked, and with
   * `answer_rejected` when the answer does not fit the question's schema; the question then still stands.
   */
  async answer(answer: unknown, { await_id }: AnswerOptions = {}): Promise<void> {
    await this.#resume("answer", resumeOf(answer), await_id);
  }

  /** Answers with an `await_resume` as a client sends it. */
  async resume(resume: AwaitResume, { await_id }: AnswerOptions = {}): Promise<void> {
    await this.#resume("resume", resume, await_id);
  }

  /**
   * Cancels the run, waits for the agent to stop, and gives the run. An agent that does not stop leaves it `cancelling` until
   * `t.clock` has moved past `cancelGraceMs`.
   */
  async cancel(): Promise<Run> {
    await this.#stage.cancel();
    await this.#stage.until(() => this.#stage.isOver, { patienceMs: this.#stage.settings.patienceMs });
    return this.run;
  }

  /** Makes the next step throw. A text becomes an `Error`. */
  failNextStep(error: unknown): void {
    if (this.#stage.isOver) throw new DriveError("There is no next step that could fail: the run has ended.");
    this.#stage.cast.failures.push({ error: typeof error === "string" ? new Error(error) : error });
  }

  /** The clock that the agent goes by. */
  get clock(): FakeClock {
    return this.#stage.clock;
  }

  /** What the agent has said so far, as text; a line for each message. */
  text(): string {
    const output = this.#stage.state?.output ?? [];
    return output.map(({ role, parts }) => textOf({ role, parts })).join("\n");
  }

  /** The run as a client sees it now. Throws a `DriveError` before it has begun. */
  get run(): Run {
    const { run } = this.#stage;
    if (run === undefined)
      throw new DriveError("The run has not begun: ask for something first, with t.next() or t.finish().");
    return run;
  }

  /** `created` before anything was asked for. */
  get status(): RunStatus {
    return this.#stage.state?.status ?? "created";
  }

  /** The events so far, as a client gets them. */
  get events(): readonly StreamedEvent[] {
    return this.#stage.view?.events ?? [];
  }

  /** The run's log so far. */
  get log(): readonly Entry[] {
    return this.#stage.view?.entries ?? [];
  }

  /** The steps, questions and sub-runs so far, those of sub-agents among them, and what became of them. */
  get operations(): readonly Operation[] {
    return this.#stage.cast.operations;
  }

  /** What was reported with `context.usage.add` so far; null before the first report. */
  get usage(): Usage | null {
    return this.#stage.usage;
  }

  /** The session as it is stored now: its history and its state. */
  session(): Promise<Session> {
    return this.#stage.session();
  }

  /** Everything that the agent does, up to the end and with it. Questions have to be answered inside the loop. */
  async *[Symbol.asyncIterator](): AsyncGenerator<DriveEvent, void> {
    for (;;) {
      const driveEvent = await this.next();
      yield driveEvent;
      if (driveEvent.type === "end") return;
    }
  }

  async #next({ within }: NextOptions): Promise<DriveEvent> {
    const stage = this.#stage;
    await stage.begin();
    const waiting = this.#driveEvents[this.#told];
    if (waiting !== undefined) return this.#tell(waiting);
    if (stage.isOver) throw new DriveError(`There is nothing more to come: the run has ended. ${describeLast(stage)}`);
    stage.gate.open();
    await this.#until(() => this.#driveEvents.length > this.#told, within);
    const driveEvent = this.#driveEvents[this.#told];
    if (driveEvent === undefined) throw this.#nothing(within);
    return this.#tell(driveEvent);
  }

  async #finish({ within }: NextOptions): Promise<Run> {
    const stage = this.#stage;
    await stage.begin();
    // A question that is shown already leaves whatever else the agent is at: it may still come to its end by itself.
    const wasAwaiting = stage.state?.status === "awaiting";
    stage.gate.free();
    const rested = await this.#until(() => (wasAwaiting ? stage.isOver : stage.isAtRest), within);
    if (!stage.isOver) stage.gate.hold();
    if (!rested && !stage.isAtRest) throw this.#nothing(within);
    for (const driveEvent of this.#driveEvents.slice(this.#told)) this.#tell(driveEvent);
    return this.run;
  }

  async #until(goal: () => boolean, within: Duration | undefined): Promise<boolean> {
    const { settings, clock } = this.#stage;
    const until = within === undefined ? undefined : clock.now() + readDuration("within", within);
    return this.#stage.until(goal, { patienceMs: settings.patienceMs, until });
  }

  get #driveEvents(): readonly DriveEvent[] {
    return this.#stage.view?.driveEvents ?? [];
  }

  #tell(driveEvent: DriveEvent): DriveEvent {
    this.#told += 1;
    if (driveEvent.type === "end") this.#checkFailures(driveEvent);
    return driveEvent;
  }

  /** An error that was never thrown is a test that does not test what it says. */
  #checkFailures(end: EndDriveEvent): void {
    const [unused] = this.#stage.cast.failures;
    if (unused === undefined || end.status === "cancelled") return;
    throw new DriveError(
      `The agent was to have a step that fails with ${quote(String(unused.error))}, but it ended without another step. ` +
        "Call t.failNextStep(…) before the agent comes to the step.",
    );
  }

  #nothing(within: Duration | undefined): DriveError {
    const during = within === undefined ? "" : `Nothing came within ${writeDuration(readDuration("within", within))}. `;
    return new DriveError(`${during}${describeWaiting(this.#stage)} ${describeLast(this.#stage)}`);
  }

  async #resume(method: string, resume: AwaitResume, awaitId: string | undefined): Promise<void> {
    const { state } = this.#stage;
    // With an id it may be the repeat of an answer: that is for the runtime to judge.
    if (awaitId === undefined && !state?.shown)
      throw new DriveError(`t.${method}(…): nothing is asked. ${this.#whyNothingIsAsked()}`);
    await this.#stage.resume(resume, awaitId);
  }

  #whyNothingIsAsked(): string {
    const { state } = this.#stage;
    if (state === undefined) return "The run has not begun: call t.next() until the question comes.";
    const last = state.exchanges?.at(-1);
    const expired = this.log.findLast(({ type }) => type === "timed-out");
    const question = last === undefined ? "" : `${last.asked.await_id} ${quote(questionText(last.asked.parts))}`;
    if (expired?.type === "timed-out" && expired.await_id === last?.asked.await_id)
      return `${question} has expired, and the run is ${state.status}.`;
    if (this.#stage.isOver) return `The run is ${state.status}.`;
    if (last !== undefined && last.answer !== null) return `${question} has its answer; call t.next() to go on.`;
    return `The run is ${state.status}. ${describeLast(this.#stage)} Call t.next() until the question comes.`;
  }

  /** Requests are served one after the other, also if nobody waits for the first. */
  #inTurn<T>(request: () => Promise<T>): Promise<T> {
    const result = this.#asking.then(request);
    this.#asking = result.catch(() => undefined);
    return result;
  }
}

function isOfType<Type extends DriveEvent["type"]>(
  driveEvent: DriveEvent,
  type: Type,
): driveEvent is Extract<DriveEvent, { readonly type: Type }> {
  return driveEvent.type === type;
}
