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

/** An answer to what a run asks. */
export interface Answer extends Omit<ResumeCommand, "type" | "at"> {
  /** In mode `async` the run is wanted as it is when the answer is taken. */
  readonly mode?: RunMode | undefined;
  /** Called when the answer is committed, before the agent goes on. */
  readonly onTaken?: (() => void) | undefined;
}

/** A question that is asked, or waits to be: the agent's own, or that of one of its sub-runs. */
export type OpenQuestion = OwnQuestion | PassedOnQuestion;

/** What the agent asks itself. */
export interface OwnQuestion extends QuestionBase {
  /** Turns an answer into what the agent gets, or says what is wrong with it. */
  validate(answer: AwaitResume): MaybePromise<Validated>;
}

/** What a sub-run asks. */
export interface PassedOnQuestion extends QuestionBase {
  /** Gives an answer to the sub-run, which validates and takes it, or refuses. */
  pass(answer: Answer): MaybePromise<unknown>;
}

interface QuestionBase {
  readonly key: string;
  readonly parts: readonly MessagePart[];
  /** In milliseconds from when it is shown. */
  readonly timeoutMs: number;
  /** What is said of its end where somebody else sees to that. */
  readonly expires_at?: string | undefined;
  readonly hasDefault: boolean;
  /** How much the agent had shown when it asked. */
  readonly emitted: number;
}

/** What the questions of a run need from it. */
export interface QuestionsHost {
  readonly log: RunLog;
  readonly clock: Clock;
  takeUsage(): Usage | null;
  /** Hands a result to the operation that asked. */
  deliver(entry: Entry, live?: unknown): void;
  /** Resolves after a turn of the event loop, when the agent has had its turn with what was handed to it. */
  settled(): Promise<void>;
  /** Calls back as soon as the agent may go on. */
  withSlot(callback: () => void): void;
  /** A question without a default expired. */
  onExpired(): void;
}

/** The questions of a run. It shows one at a time; the others wait for their turn, and their time begins when they are shown. */
export class Questions {
  readonly #host: QuestionsHost;
  #shown: OpenQuestion | undefined;
  #clearDeadline: (() => void) | undefined;
  /** Most runs ask one question at a time, and have none. */
  #line: Line | undefined;

  constructor(host: QuestionsHost) {
    this.#host = host;
  }

  /** Shows a question, or queues it up behind the one that is shown. */
  ask(question: OpenQuestion): void {
    const { shown } = this.#host.log.state;
    if (shown?.await_id === question.key) this.#takeUp(question);
    else if (shown === null && this.#shown === undefined && !this.#isLined) this.#show(question);
    else {
      this.#openLine.queue.push(question);
    }
  }

  /** The question that was shown has its answer, which is committed. */
  answered(entry: Entry, value: unknown): void {
    this.#takeDown();
    this.#host.deliver(entry, value);
  }

  /** The question that the client sees under this id, as soon as the agent has asked it again; undefined: it does not ask it any more. */
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

  /** The sub-run that asked does not ask any more: with an answer, or without. */
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
      // The answer came before, and the question was shown once more.
      if (isInLog && !isRefusal(decision) && decision.length === 0) log.decide({ type: "withdraw", at, await_id: key });
    }
    this.#takeDown();
    this.#tellShown();
  }

  /** No question is shown any more, and none will be. */
  close(): void {
    const line = this.#openLine;
    line.isClosed = true;
    line.queue = [];
    this.#takeDown();
    this.#tellShown();
  }

  /** The client sees the question already: the agent that asked it is run again. */
  #takeUp(question: OpenQuestion): void {
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

  /** An agent that was run again is where it was: from now on its question may expire. */
  onCaughtUp(): void {
    if (this.#shown !== undefined) this.#watchDeadline(this.#shown);
  }

  /** The store has given the run to this process: the time of its question may be up. */
  onTaken(): void {
    if (this.#clearDeadline !== undefined && this.#shown !== undefined) this.#watchDeadline(this.#shown);
  }

  #watchDeadline(question: OpenQuestion): void {
    const { log, clock } = this.#host;
    const deadline = log.state.shown?.deadline;
    if (deadline === undefined) return;
    // The clock of this process may be behind that of the store, which has given it the run because the time is up.
    const left = (): number => (log.takenAt >= deadline ? 0 : deadline - clock.now());
    this.#clearDeadline?.();
    this.#clearDeadline = clock.setTimeout(
      // Timers may ring a little early.
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

  /** The next question is shown a turn later, so that what the agent does with the answer comes first. */
  async #showNext(line: Line): Promise<void> {
    line.isTurning = true;
    await this.#host.settled();
    line.isTurning = false;
    const next = line.queue.shift();
    if (next !== undefined && !line.isClosed) this.#show(next);
  }

  /** Whether a question that is asked now comes behind others. */
  get #isLined(): boolean {
    return this.#line !== undefined && (this.#line.isTurning || this.#line.queue.length > 0);
  }

  get #openLine(): Line {
    this.#line ??= { queue: [], onShown: [], isTurning: false, isClosed: false };
    return this.#line;
  }
}

/** The questions that are not shown yet, and those who wait for one to be. */
interface Line {
  queue: OpenQuestion[];
  onShown: (() => void)[];
  /** The next question is about to be shown. */
  isTurning: boolean;
  /** No question is shown any more. */
  isClosed: boolean;
}

/** Reads an answer by a schema; without one, any answer will do. */
export function readAnswer(answer: AwaitResume, schema: StandardSchema | undefined): MaybePromise<Validated> {
  if (schema !== undefined) return validateFirst(schema, candidatesOf(answer));
  return { value: isMessageResume(answer) ? answer.message : answer };
}

/** What an answer may mean, the likeliest first: the object itself, the JSON part, the text as JSON, the raw text. */
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
