import type { AskCommand, ResumeCommand } from "../core/decide.ts";
import { isRefusal } from "../core/decide.ts";
import type { Entry, Growing } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { Exchange } from "../core/state.ts";
import type { Usage } from "../core/usage.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { AwaitResume, RunMode } from "../protocol/run.ts";
import { isMessageResume } from "../protocol/run.ts";
import { isJsonPart, textOf } from "./input.ts";
import type { RunLog } from "./run-log.ts";
import type { StandardSchema, Validated } from "./standard-schema.ts";
import { validateFirst } from "./standard-schema.ts";

/** An answer to a question of a run. */
export interface Answer extends Omit<ResumeCommand, "type" | "at"> {
  /** In mode `async` the caller gets the record of the run as it is when the answer is decided. */
  readonly mode?: RunMode | undefined;
  /** Called when the answer is committed, before the agent goes on. */
  readonly onTaken?: (() => void) | undefined;
}

/** A question that is shown or queued: the agent's own, or that of one of its sub-runs. */
export type OpenQuestion = OwnQuestion | PassedOnQuestion;

/** A question of the agent itself. */
export interface OwnQuestion extends QuestionBase {
  /** Turns an answer into the value for the agent, or into issues. */
  validate(answer: AwaitResume): MaybePromise<Validated>;
}

/** A question of a sub-run. */
export interface PassedOnQuestion extends QuestionBase {
  /** Gives an answer to the sub-run, which accepts or refuses it. */
  pass(answer: Answer): MaybePromise<unknown>;
}

interface QuestionBase {
  readonly key: string;
  readonly parts: readonly MessagePart[];
  /** In milliseconds from when it is shown. */
  readonly timeoutMs: number;
  /** The deadline that the client sees, where the sub-run measures it. */
  readonly expires_at?: string | undefined;
  readonly hasDefault: boolean;
  /** How many values the agent had emitted when it asked. */
  readonly emitted: number;
}

/** What the questions of a run need from it. */
export interface QuestionsHost {
  readonly log: RunLog;
  readonly clock: Clock;
  /** See {@link Ownership.takenAt}. */
  readonly takenAt: number;
  takeUsage(): Usage | null;
  /** Hands a result to the operation that asked. */
  deliver(entry: Entry, live?: unknown): void;
  /** Resolves after a turn of the event loop in which the agent has used the results that it received. */
  settled(): Promise<void>;
  /** Calls back when the run has a slot. */
  withSlot(callback: () => void): void;
  /** A question without a default expired. */
  onExpired(): void;
}

/** The questions of a run. One is shown at a time. The others are queued, and their time begins when they are shown. */
export class Questions {
  readonly #host: QuestionsHost;
  #shown: OpenQuestion | undefined;
  #clearDeadline: (() => void) | undefined;
  /** Undefined for most runs, which ask one question at a time. */
  #line: Line | undefined;

  constructor(host: QuestionsHost) {
    this.#host = host;
  }

  /** Shows a question, or queues it. */
  ask(question: OpenQuestion): void {
    const { shown } = this.#host.log.state;
    if (shown?.await_id === question.key) this.#resume(question);
    else if (shown === null && this.#shown === undefined && !this.#isLined) this.#show(question);
    else {
      this.#openLine.queue.push(question);
    }
  }

  /** The answer to the question that is shown is committed. */
  answered(entry: Entry, value: unknown): void {
    this.#takeDown();
    this.#host.deliver(entry, value);
  }

  /**
   * The question with this id. While the agent catches up it resolves when the agent has asked it again. Undefined: the question
   * is not shown any more.
   */
  find(awaitId: string): MaybePromise<OpenQuestion | undefined> {
    if (this.#shown === undefined) return this.#expect(awaitId);
    return this.#shown.key === awaitId ? this.#shown : undefined;
  }

  async #expect(awaitId: string): Promise<OpenQuestion | undefined> {
    const { log } = this.#host;
    while (this.#shown === undefined && this.#line?.isClosed !== true && log.state.shown?.await_id === awaitId) {
      await new Promise<void>((resolve) => {
        this.#openLine.onShown.push(resolve);
      });
    }
    return this.#shown?.key === awaitId ? this.#shown : undefined;
  }

  /** The sub-run does not ask the question any more. `exchange` holds its answer, if there is one. */
  settle(key: string, exchange: Exchange | undefined): void {
    const { log, clock } = this.#host;
    if (this.#line !== undefined) this.#line.queue = this.#line.queue.filter((question) => question.key !== key);
    const isInLog = log.state.shown?.await_id === key;
    if (!isInLog && this.#shown?.key !== key) return;
    const at = clock.now();
    if (exchange === undefined || exchange.answer === null) log.decide({ type: "withdraw", at, await_id: key });
    else {
      const { answer, idempotency_key } = exchange;
      const decision = log.decide({ type: "resume", at, await_id: key, answer, idempotency_key });
      // The answer is in the log already, and the question was shown once more.
      if (isInLog && !isRefusal(decision) && decision.length === 0) log.decide({ type: "withdraw", at, await_id: key });
    }
    this.#takeDown();
    this.#tellShown();
  }

  /** Takes the question down. No other question is shown. */
  close(): void {
    const line = this.#openLine;
    line.isClosed = true;
    line.queue = [];
    this.#takeDown();
    this.#tellShown();
  }

  /** The client sees the question already, because an earlier execution has asked it. */
  #resume(question: OpenQuestion): void {
    this.#shown = question;
    this.#tellShown();
  }

  #tellShown(): void {
    const line = this.#line;
    if (line === undefined) return;
    const { onShown } = line;
    line.onShown = [];
    for (const resolve of onShown) resolve();
  }

  /** The agent has caught up with its log. From now on its question may expire. */
  onCaughtUp(): void {
    if (this.#shown !== undefined) this.#watchDeadline(this.#shown);
  }

  /** The store has given the run to this process, perhaps because the question has expired. */
  onTaken(): void {
    if (this.#clearDeadline !== undefined && this.#shown !== undefined) this.#watchDeadline(this.#shown);
  }

  #watchDeadline(question: OpenQuestion): void {
    const { log, clock } = this.#host;
    const deadline = log.state.shown?.deadline;
    if (deadline === undefined) return;
    // This clock may be behind the store's clock, by which the question has expired.
    const left = (): number => (this.#host.takenAt >= deadline ? 0 : deadline - clock.now());
    this.#clearDeadline?.();
    this.#clearDeadline = clock.setTimeout(
      // Timers may fire a little early.
      () => (left() > 0 ? this.#watchDeadline(question) : this.#expire(question)),
      Math.max(0, left()),
    );
  }

  #show(question: OpenQuestion): void {
    const { log, clock } = this.#host;
    const { key, parts, timeoutMs, expires_at, emitted } = question;
    const at = clock.now();
    const usage = this.#host.takeUsage();
    this.#shown = question;
    const asking: Growing<AskCommand> = { type: "ask", at, await_id: key, parts, emitted };
    if (timeoutMs !== Number.POSITIVE_INFINITY) asking.deadline = at + timeoutMs;
    if (expires_at !== undefined) asking.expires_at = expires_at;
    if (usage !== null) asking.usage = usage;
    const decision = log.decide(asking);
    if (isRefusal(decision) || decision.length === 0) return;
    this.#watchDeadline(question);
    log.flush();
  }

  #expire(question: OpenQuestion): void {
    const { log, clock } = this.#host;
    const decision = log.decide({
      type: "expire",
      at: clock.now(),
      await_id: question.key,
      defaulted: question.hasDefault,
    });
    if (isRefusal(decision)) return;
    const [entry] = decision;
    if (entry === undefined) return;
    const committed = log.commit();
    const goOn = (): void => {
      if (!question.hasDefault) this.#host.onExpired();
      // The agent needs its slot again, as it does to go on with an answer.
      else this.#host.withSlot(() => this.answered(entry, undefined));
    };
    if (committed === undefined) goOn();
    else void committed.then(goOn);
  }

  #takeDown(): void {
    this.#clearDeadline?.();
    this.#clearDeadline = undefined;
    this.#shown = undefined;
    const line = this.#line;
    if (line !== undefined && line.queue.length > 0 && !line.isTurning) void this.#showNext(line);
  }

  /** The next question is shown a turn later, after the agent has used the answer. */
  async #showNext(line: Line): Promise<void> {
    line.isTurning = true;
    await this.#host.settled();
    line.isTurning = false;
    const next = line.queue.shift();
    if (next !== undefined && !line.isClosed) this.#show(next);
  }

  /** Whether a new question has to be queued. */
  get #isLined(): boolean {
    return this.#line !== undefined && (this.#line.isTurning || this.#line.queue.length > 0);
  }

  get #openLine(): Line {
    this.#line ??= { queue: [], onShown: [], isTurning: false, isClosed: false };
    return this.#line;
  }
}

/** The queued questions, and the callers that wait until a question is shown. */
interface Line {
  queue: OpenQuestion[];
  onShown: (() => void)[];
  /** The next question is about to be shown. */
  isTurning: boolean;
  /** No question is shown any more. */
  isClosed: boolean;
}

/** Validates an answer by a schema. Without a schema any answer is valid. */
export function readAnswer(answer: AwaitResume, schema: StandardSchema | undefined): MaybePromise<Validated> {
  if (schema !== undefined) return validateFirst(schema, candidatesOf(answer));
  return { value: isMessageResume(answer) ? answer.message : answer };
}

/**
 * The possible values of an answer, the likeliest first: the object itself, the JSON part, the text as JSON, the raw
 * text.
 */
function candidatesOf(answer: AwaitResume): readonly unknown[] {
  if (!isMessageResume(answer)) return [answer];
  const json = answer.message.parts.find(isJsonPart);
  const text = textOf(answer.message);
  return [...(json === undefined ? [] : parsed(json.content ?? "")), ...parsed(text), text];
}

function parsed(text: string): readonly unknown[] {
  try {
    return [JSON.parse(text)];
  } catch {
    return [];
  }
}
