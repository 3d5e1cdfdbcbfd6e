import type { RunMode, StreamedEvent } from "cadenza";
import type { textOf } from "../program-player.ts";
import type { Random } from "../random.ts";
import type { AnswerRecord, OpenQuestion, RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED, Acknowledged, UNKNOWN } from "./acknowledged.ts";
import type { QuestionText } from "./agents.ts";
import type { Fleet, Outcome } from "./fleet.ts";
import type { GivenAnswer } from "./messages.ts";
import { randomPlan } from "./plans.ts";

/*
 * The client: it creates runs, follows them, answers their questions in each mode, and cancels some. A request that was
 * not acknowledged is repeated at another process.
 */

/** Refusals after which a request is repeated at another process: this one could not tell, or is not the right one. */
const AGAIN = [
  "lost_ownership",
  "runtime_closed",
  "store_failed",
  "agent_not_found",
  "run_blocked",
  "run_blocked",
  "answer_pending",
];
const PAUSE_MS = 100;
/** A question that is still shown so long after its answer was refused is answered once more. */
const STILL_SHOWN_MS = 1_000;
/** How long the client waits before it answers, at most. */
const THOUGHT_MS = 300;
/** Around its deadline a question is answered within so many milliseconds. */
const AROUND_MS = 15;
/** A run makes progress if a reader got an event of it within so many milliseconds. */
const MOVING_MS = 15_000;
/** Sessions that runs share. */
const SESSIONS = 10;

export class Client {
  readonly acknowledged = new Acknowledged();
  readonly #random: Random;
  readonly #prefix: string;
  readonly #fleet: Fleet;
  readonly #onEnded: (run: RunRecord) => void;
  #names = 0;

  constructor(random: Random, prefix: string, fleet: Fleet, onEnded: (run: RunRecord) => void) {
    this.#random = random;
    this.#prefix = prefix;
    this.#fleet = fleet;
    this.#onEnded = onEnded;
  }

  /** Keeps `atOnce` runs open, and creates no more than `total` in all. */
  fill(atOnce: number, total: number): void {
    const { runs, open } = this.acknowledged;
    // A run without progress is not counted.
    const moving = open.filter(({ newsAt }) => Date.now() - newsAt < MOVING_MS);
    for (let count = moving.length; count < atOnce && runs.length < total; ) {
      const joined = this.#random.chance(0.04) ? this.#finished() : undefined;
      // Two processes join the session of a run that has ended.
      const sessions = joined === undefined ? [this.#sessionId()] : [joined, joined];
      for (const session_id of sessions) void this.#begin(session_id);
      count += sessions.length;
    }
  }

  /** A process can be reached again: it reads the runs that no process reads. */
  followAll(): void {
    for (const run of this.acknowledged.open) if (run.reader === undefined) this.#follow(run);
  }

  /** A process is gone, or frozen. */
  lost(name: string): void {
    for (const run of this.acknowledged.open) {
      if (run.reader !== name) continue;
      run.reader = undefined;
      this.#follow(run);
    }
  }

  hear(run_id: string, event: StreamedEvent): void {
    const run = this.acknowledged.find(run_id);
    if (run === undefined || !this.acknowledged.take(run, event)) return;
    // A run may emit more while it waits.
    if (event.type.startsWith("run.")) run.question = undefined;
    if (event.type === "run.awaiting") this.#asked(run, event.run.await_request);
    run.ended = event.type === "run.completed" || event.type === "run.failed" || event.type === "run.cancelled";
    if (run.ended) this.#onEnded(run);
  }

  async #begin(session_id: string | null): Promise<void> {
    const random = this.#random;
    const agent = random.weighted([
      [7, "durable"],
      [1.5, "plain"],
      [1.5, "rolling"],
    ]);
    const id = `${this.#prefix}-${this.acknowledged.runs.length}`;
    const plan = randomPlan(random, id, agent !== "plain");
    const mode = random.pick<RunMode>(["async", "async", "sync", "stream"]);
    const run = this.acknowledged.add({ plan, agent, session_id, key: random.chance(0.85) ? id : null, mode });
    if (random.chance(0.08)) setTimeout(() => void this.#cancel(run), random.below(3_000));
    const { key } = run;
    const input = JSON.stringify(plan);
    for (let attempt = 0; run.run_id === undefined && !this.#fleet.isOver; attempt++) {
      const outcome = await this.#fleet.call({
        do: "create",
        agent,
        input,
        session_id,
        key,
        mode: attempt === 0 ? mode : "async",
      });
      if (typeof outcome === "object" && "done" in outcome) this.acknowledged.created(run, outcome.done);
      else if (key === null && !isRefusal(outcome, ["runtime_closed", "agent_not_found"])) {
        // It may have been created or not, and its id is unknown.
        run.ended = true;
        return this.#onEnded(run);
      } else {
        this.#noteRefusal(run, "create", outcome);
        await pause(PAUSE_MS);
      }
    }
    this.#follow(run);
  }

  #follow(run: RunRecord): void {
    if (run.run_id === undefined || run.ended) return;
    const reader = this.#fleet.follow(run.run_id, run.seen.length, () => {
      // The read was refused, or ended before the run did.
      if (run.reader !== reader || run.ended) return;
      run.reader = undefined;
      setTimeout(() => {
        if (run.reader === undefined) this.#follow(run);
      }, PAUSE_MS);
    });
    run.reader = reader;
  }

  #asked(
    run: RunRecord,
    request: { await_id: string; message: Parameters<typeof textOf>[0][number]; expires_at?: string } | null,
  ): void {
    if (request === null) return;
    // A schema is a part of its own, after the question.
    const [part] = request.message.parts;
    const text = JSON.parse(part?.content ?? "{}") as QuestionText;
    const { await_id, expires_at } = request;
    const question: OpenQuestion = {
      await_id,
      text,
      expires_at: expires_at === undefined ? undefined : Date.parse(expires_at),
    };
    run.question = question;
    this.#answerInSomeWay(run, question);
  }

  #answerInSomeWay(run: RunRecord, question: OpenQuestion): void {
    const random = this.#random;
    const { expires_at, text } = question;
    const isTimed = text.timeoutMs !== null && expires_at !== undefined;
    const soon = random.below(THOUGHT_MS);
    const around = (expires_at ?? 0) - Date.now() + random.below(2 * AROUND_MS) - AROUND_MS;
    const way = random.weighted<() => Promise<void>>([
      [4, () => this.#answer(run, question, soon)],
      [text.schema ? 2 : 0, () => this.#answerWrongFirst(run, question, soon)],
      [1.5, () => this.#answerTwice(run, question, soon)],
      [isTimed ? 5 : 0, () => this.#answer(run, question, around)],
      [isTimed ? 1.5 : 0, () => this.#answerTwice(run, question, around)],
      [isTimed && text.schema ? 1 : 0, () => this.#answerWrongFirst(run, question, around)],
      [isTimed ? 3 : 0, () => Promise.resolve()],
    ]);
    void way();
  }

  async #answerWrongFirst(run: RunRecord, question: OpenQuestion, thoughtMs: number): Promise<void> {
    await pause(thoughtMs);
    await this.#send(run, this.#newAnswer(run, question, false), 1);
    await this.#answer(run, question, this.#random.below(PAUSE_MS));
  }

  /** Two answers at once, at two processes. */
  async #answerTwice(run: RunRecord, question: OpenQuestion, thoughtMs: number): Promise<void> {
    await pause(thoughtMs);
    const [first, second] = [this.#newAnswer(run, question, true), this.#newAnswer(run, question, true)];
    const [one, other] = this.#fleet.pickTwo();
    await Promise.all([this.#send(run, first, 5, one), this.#send(run, second, 5, other)]);
    await this.#answer(run, question, STILL_SHOWN_MS);
  }

  /** Answers, and again if the question is still shown after a while. */
  async #answer(run: RunRecord, question: OpenQuestion, thoughtMs: number): Promise<void> {
    await pause(thoughtMs);
    for (;;) {
      if (run.question !== question || run.ended || this.#fleet.isOver) return;
      await this.#send(run, this.#newAnswer(run, question, true), 100);
      // A question with a deadline expires by itself.
      if (question.expires_at !== undefined) return;
      await pause(STILL_SHOWN_MS);
    }
  }

  #newAnswer(run: RunRecord, question: OpenQuestion, fits: boolean): AnswerRecord {
    const answer: AnswerRecord = { nonce: `${run.plan.id}/a${++this.#names}`, fits, question, outcomes: [] };
    run.answers.push(answer);
    return answer;
  }

  /** Sends an answer until it is acknowledged, or refused for good. */
  async #send(run: RunRecord, record: AnswerRecord, attempts: number, to?: string): Promise<void> {
    const random = this.#random;
    const { nonce, fits, question, outcomes } = record;
    const value = { value: fits ? random.below(1_000) : "many", nonce };
    const answer: GivenAnswer = random.chance(0.5)
      ? value
      : { type: "message", message: { role: "user", parts: [{ content: JSON.stringify(value) }] } };
    const key = random.chance(0.4) ? nonce : null;
    const mode = random.pick<RunMode>(["async", "sync", "stream"]);
    for (let attempt = 0; attempt < attempts && run.run_id !== undefined && !this.#fleet.isOver; attempt++) {
      const task = { do: "answer", run_id: run.run_id, await_id: question.await_id, answer, key, mode } as const;
      const outcome = await this.#fleet.call(task, attempt === 0 ? to : undefined);
      outcomes.push(wordOf(outcome));
      if (outcome !== UNKNOWN && !isRefusal(outcome, AGAIN)) return;
      await pause(PAUSE_MS);
    }
  }

  async #cancel(run: RunRecord): Promise<void> {
    while (!run.ended && !this.#fleet.isOver) {
      const to = this.#fleet.pick();
      if (run.run_id !== undefined && to !== undefined) {
        const record = { to, at: Date.now(), outcome: UNKNOWN };
        run.cancels.push(record);
        const outcome = await this.#fleet.call({ do: "cancel", run_id: run.run_id }, to);
        record.outcome = wordOf(outcome);
        if (outcome !== UNKNOWN && !isRefusal(outcome, AGAIN)) return;
      }
      await pause(PAUSE_MS);
    }
  }

  #noteRefusal(run: RunRecord, what: string, outcome: Outcome): void {
    run.refusals.push(`${what}: ${wordOf(outcome)}`);
  }

  #sessionId(): string | null {
    if (!this.#random.chance(0.25)) return null;
    return `00000000-0000-4000-8000-00000000000${this.#random.below(SESSIONS)}`;
  }

  /** A run that has completed in a session of its own. */
  #finished(): string | undefined {
    const last = this.acknowledged.runs
      .slice(-200)
      .filter(({ seen, session_id }) => session_id === null && seen.at(-1)?.type === "run.completed");
    return last[this.#random.below(Math.max(1, last.length))]?.run_id;
  }
}

function isRefusal(outcome: Outcome, codes: readonly string[]): boolean {
  return typeof outcome === "object" && "refused" in outcome && codes.includes(outcome.refused);
}

function wordOf(outcome: Outcome): string {
  if (outcome === "unknown") return UNKNOWN;
  if ("done" in outcome) return ACKNOWLEDGED;
  const [firstLine = ""] = outcome.message.split("\n");
  return outcome.refused === "" ? firstLine : outcome.refused;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(ms, 0)));
}
