import type { Entry } from "../core/log.ts";
import type { StreamedEvent } from "../core/project.ts";
import { replyTo } from "../core/state.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { AwaitResume, Run, RunStatus } from "../protocol/run.ts";
import type { Agent, AgentFunction } from "../runtime/agent/agent.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { messageText } from "../runtime/agent/input.ts";
import type { ResumeRequest, Session } from "../runtime/runs/requests.ts";
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

/** How long to wait for the agent. */
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
 * Runs one agent under the control of a test: the agent goes on only when the test asks for something. There is no
 * HTTP and no model, and time stands still until `t.clock` is moved.
 *
 * @example
 * ```ts
 * import { defineAgent } from "cadenza";
 * import { drive } from "cadenza/testing";
 *
 * const booking = defineAgent("booking", async function* (_input, { step, ask }) {
 *   const { train } = await step("plan", async () => ({ train: "unknown" }));
 *   yield `Found ${train}.`;
 *   await ask("Book it?");
 * });
 * const t = drive(booking, "Berlin to Paris", { steps: { plan: { train: "ICE 9553" } } });
 * console.log(await t.next()); // { type: "part", text: "Found ICE 9553.", … }
 * console.log(await t.next()); // { type: "await", question: "Book it?", … }
 * await t.answer({ ok: true });
 * console.log((await t.finish()).status); // completed
 * ```
 */
export function drive(agent: Agent | AgentFunction, input: RunInput, options: DriveOptions = {}): Drive {
  return new Drive(new Stage(readAgent(agent), input, readDriveOptions(options)));
}

/** The inside of a drive, for the other parts of this kit. */
export let stageOf: (t: Drive) => Stage;

/** An agent under the control of a test. Made by {@link drive}. */
export class Drive {
  static {
    stageOf = (t) => t.#stage;
  }

  readonly #stage: Stage;
  /** How many of the events have been returned. */
  #told = 0;
  #asking: Promise<unknown> = Promise.resolve();

  constructor(stage: Stage) {
    this.#stage = stage;
  }

  /**
   * The next thing that the agent does: a part, a message, an object, a question, or the end. The agent goes on exactly
   * so far. Throws a `DriveError` if nothing can come: after the end, while a question waits for its answer, or when
   * the agent shows no activity.
   */
  next(options: NextOptions = {}): Promise<DriveEvent> {
    return this.#inTurn(() => this.#next(options));
  }

  /**
   * Goes on to the next thing of one type, and returns it: `await t.until("await")`. Throws a `DriveError` if the run
   * ends first.
   */
  async until<Type extends DriveEvent["type"]>(
    type: Type,
    options: NextOptions = {},
  ): Promise<Extract<DriveEvent, { readonly type: Type }>> {
    for (;;) {
      const driveEvent = await this.next(options);
      if (isOfType(driveEvent, type)) return driveEvent;
      if (driveEvent.type === "end")
        throw new DriveError(
          `The run ended before an event of type ${quote(type)}: ${describeDriveEvent(driveEvent)}.`,
          { cause: driveEvent.cause },
        );
    }
  }

  /**
   * Lets the agent go on until it rests (completed, failed, cancelled or awaiting), and returns the run. `next` skips
   * what it did until then.
   */
  finish(options: NextOptions = {}): Promise<Run> {
    return this.#inTurn(() => this.#finish(options));
  }

  /**
   * Answers the question that is shown: with a text, a message, an object, or any other JSON value. Rejects when no
   * question is shown, and with `answer_rejected` when the answer does not match the question's schema. The question
   * then stays open.
   */
  async answer(answer: unknown, { await_id }: AnswerOptions = {}): Promise<void> {
    await this.#reply("answer", { await_resume: resumeOf(answer) }, await_id);
  }

  /** Answers with an `await_resume` as a client sends it. */
  async resume(resume: AwaitResume, { await_id }: AnswerOptions = {}): Promise<void> {
    await this.#reply("resume", { await_resume: resume }, await_id);
  }

  /** Declines to answer the question that is shown. Rejects when no question is shown. */
  async decline(reason?: string, { await_id }: AnswerOptions = {}): Promise<void> {
    await this.#reply("decline", { decline: { reason } }, await_id);
  }

  /**
   * Sends the run a message, also before the agent begins or receives. Rejects with `run_finished` when the run has
   * ended, and with `message_rejected` when it does not match what the agent declares.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   * import { drive } from "cadenza/testing";
   *
   * const order = defineAgent("order", async (_input, { receive }) => `Paid: ${await receive("payment")}.`);
   * const t = drive(order, "");
   * await t.send("payment", 40);
   * await t.finish();
   * console.log(t.text()); // → Paid: 40.
   * ```
   */
  async send(name: string, data: unknown): Promise<void> {
    await this.#stage.send(name, data);
  }

  /**
   * Cancels the run, waits for the agent to stop, and returns the run. An agent that does not stop leaves it
   * `cancelling` until `t.clock` has moved past `cancelGraceMs`.
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

  /** The clock of the agent's runtime. */
  get clock(): FakeClock {
    return this.#stage.clock;
  }

  /** The text of what the agent has emitted so far; a line for each message. */
  text(): string {
    const output = this.#stage.state?.output ?? [];
    return output.map(({ role, parts }) => messageText({ role, parts })).join("\n");
  }

  /** The run as a client sees it now. Throws a `DriveError` before the run has begun. */
  get run(): Run {
    const { run } = this.#stage;
    if (run === undefined) throw new DriveError("The run has not begun: call t.next() or t.finish() first.");
    return run;
  }

  /** The status of the run; `created` before it has begun. */
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

  /** The steps, questions, sleeps, receives and sub-runs so far, also those of sub-agents, with their results. */
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

  /** Everything that the agent does, including the end. Questions have to be answered inside the loop. */
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
    if (stage.isOver) throw new DriveError(`Nothing more can come: the run has ended. ${describeLast(stage)}`);
    stage.gate.open();
    await this.#until(() => this.#driveEvents.length > this.#told, within);
    const driveEvent = this.#driveEvents[this.#told];
    if (driveEvent === undefined) throw this.#nothing(within);
    return this.#tell(driveEvent);
  }

  async #finish({ within }: NextOptions): Promise<Run> {
    const stage = this.#stage;
    await stage.begin();
    // While a question is shown, the agent may go on with other work, and may end by itself.
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

  /** An error that no step threw is reported: the test would not test what it says. */
  #checkFailures(end: EndDriveEvent): void {
    const [unused] = this.#stage.cast.failures;
    if (unused === undefined || end.status === "cancelled") return;
    throw new DriveError(
      `Expected a step to fail with ${quote(String(unused.error))}, but the run ended without another step. ` +
        "Call t.failNextStep(…) before the agent reaches the step.",
    );
  }

  #nothing(within: Duration | undefined): DriveError {
    const during = within === undefined ? "" : `Nothing came within ${writeDuration(readDuration("within", within))}. `;
    return new DriveError(`${during}${describeWaiting(this.#stage)} ${describeLast(this.#stage)}`);
  }

  async #reply(
    method: string,
    reply: Pick<ResumeRequest, "await_resume" | "decline">,
    awaitId: string | undefined,
  ): Promise<void> {
    const { state } = this.#stage;
    // With an id it may repeat an earlier answer. The runtime decides that.
    if (awaitId === undefined && !state?.question)
      throw new DriveError(`t.${method}(…): no question is open. ${this.#whyNothingIsAsked()}`);
    await this.#stage.reply(reply, awaitId);
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
    if (last !== undefined && replyTo(last) !== undefined) return `${question} has its answer; call t.next() to go on.`;
    return `The run is ${state.status}. ${describeLast(this.#stage)} Call t.next() until the question comes.`;
  }

  /** Requests are served one after another, also if the test does not await the first. */
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
