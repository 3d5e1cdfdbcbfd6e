import type { CreateRunRequest } from "cadenza";
import type { Random } from "../random.ts";
import type { AnswerRecord, MailRecord, OpenQuestion, RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED, UNKNOWN } from "./acknowledged.ts";
import type { QuestionText } from "./agents.ts";
import type { Fleet, Outcome } from "./fleet.ts";
import type { GivenReply, NamedData, ShownQuestion, Task } from "./messages.ts";
import type { MessageName } from "./plans.ts";
import { MESSAGE_NAMES } from "./plans.ts";

/*
 * What the client says to a run and its sub-runs. It looks what they wait for, replies to their questions in each mode,
 * at the run that asks and at those above it, and sends messages. A request that was not acknowledged is repeated at
 * another process.
 */

/** Refusals after which a request is repeated at another process: this one could not tell, or is not the right one. */
const AGAIN = ["lost_ownership", "runtime_closed", "store_failed", "agent_not_found", "run_blocked", "answer_pending"];
export const PAUSE_MS = 100;
/** How much time passes between two looks at a run, on average. */
const LOOK_MS = 700;
/** What is still waited for so long after a reply or a message to it gets another one. */
const STILL_WAITS_MS = 1_000;
/** How long the client waits before it replies, at most. */
const THOUGHT_MS = 300;
/** Around its deadline a question is answered within so many milliseconds. */
const AROUND_MS = 15;
/** Within so many milliseconds a run gets messages that it may not have asked for. */
const EARLY_MS = 3_000;

export class Talk {
  readonly #random: Random;
  readonly #fleet: Fleet;
  /** What the client is replying or sending messages to. */
  readonly #busy = new Set<string>();
  #names = 0;
  /** Counts when messages are sent and acknowledged. */
  #moment = 0;

  constructor(random: Random, fleet: Fleet) {
    this.#random = random;
    this.#fleet = fleet;
  }

  /** Gives a run what it waits for, until it has ended. */
  async attend(run: RunRecord): Promise<void> {
    const random = this.#random;
    for (let early = random.chance(0.25) ? 1 + random.below(3) : 0; early > 0; early--)
      void this.#mail(run, run.run_id ?? "", random.pick(MESSAGE_NAMES), random.below(EARLY_MS));
    while (!run.ended && !this.#fleet.isOver) {
      await this.#look(run);
      await pause(LOOK_MS * (0.5 + random.number()));
    }
  }

  /** A run shows a question: its own, or one of a sub-run. */
  onQuestion(run: RunRecord, { run_id, await_id }: ShownQuestion, content: string, expires: string | null): void {
    const text = JSON.parse(content) as QuestionText;
    const name = `${text.run} ${text.key}`;
    const expires_at = expires === null ? undefined : Date.parse(expires);
    const question: OpenQuestion = run.questions.get(name) ?? { text, expires_at, shown: [] };
    run.questions.set(name, question);
    if (!question.shown.some((one) => one.run_id === run_id)) question.shown.push({ run_id, await_id });
    // A question with a deadline expires by itself.
    this.#unlessBusy(name, () => this.#replyInSomeWay(run, question), expires_at === undefined);
  }

  async #look(run: RunRecord): Promise<void> {
    const outcome = await this.#fleet.call({ do: "look", run_id: run.run_id ?? "" });
    if (outcome === UNKNOWN || !("done" in outcome)) return;
    const { questions = [], receives = [] } = outcome.waiting ?? {};
    for (const { text, expires_at, ...shown } of questions) this.onQuestion(run, shown, text, expires_at);
    for (const { run_id, key } of receives) {
      const name = MESSAGE_NAMES.find((one) => key.startsWith(`receive:${one}#`));
      if (name !== undefined) this.#unlessBusy(`${run_id} ${key}`, () => this.#mails(run, run_id, name), true);
    }
  }

  #unlessBusy(name: string, act: () => Promise<unknown>, again: boolean): void {
    if (this.#busy.has(name)) return;
    this.#busy.add(name);
    void act()
      .then(() => pause(STILL_WAITS_MS))
      .then(() => {
        if (again) this.#busy.delete(name);
      });
  }

  // Replies.

  #replyInSomeWay(run: RunRecord, question: OpenQuestion): Promise<void> {
    const random = this.#random;
    const { expires_at, text } = question;
    const isTimed = text.timeoutMs !== null && expires_at !== undefined;
    const soon = random.below(THOUGHT_MS);
    const around = (expires_at ?? 0) - Date.now() + random.below(2 * AROUND_MS) - AROUND_MS;
    const way = random.weighted<() => Promise<void>>([
      [4, () => this.#reply(run, question, "valid", soon)],
      [1.5, () => this.#reply(run, question, "decline", soon)],
      [text.schema ? 2 : 0, () => this.#replyWrongFirst(run, question, soon)],
      [1.5, () => this.#replyTwice(run, question, soon)],
      [isTimed ? 5 : 0, () => this.#reply(run, question, "valid", around)],
      [isTimed ? 1 : 0, () => this.#reply(run, question, "decline", around)],
      [isTimed ? 1.5 : 0, () => this.#replyTwice(run, question, around)],
      [isTimed && text.schema ? 1 : 0, () => this.#replyWrongFirst(run, question, around)],
      [isTimed ? 3 : 0, () => Promise.resolve()],
    ]);
    return way();
  }

  async #replyWrongFirst(run: RunRecord, question: OpenQuestion, thoughtMs: number): Promise<void> {
    await pause(thoughtMs);
    await this.#give(run, this.#newAnswer(run, question, "invalid"), 1);
    await this.#reply(run, question, "valid", this.#random.below(PAUSE_MS));
  }

  /** Two replies at once, at two processes. */
  async #replyTwice(run: RunRecord, question: OpenQuestion, thoughtMs: number): Promise<void> {
    await pause(thoughtMs);
    const second = this.#random.chance(0.3) ? "decline" : "valid";
    const [one, other] = this.#fleet.pickTwo();
    await Promise.all([
      this.#give(run, this.#newAnswer(run, question, "valid"), 5, one),
      this.#give(run, this.#newAnswer(run, question, second), 5, other),
    ]);
  }

  async #reply(run: RunRecord, question: OpenQuestion, is: AnswerRecord["is"], thoughtMs: number): Promise<void> {
    await pause(thoughtMs);
    // An event names the question in one run. A look finds the others that show it.
    if (question.text.run !== run.run_id && this.#random.chance(0.5)) await this.#look(run);
    await this.#give(run, this.#newAnswer(run, question, is), 100);
  }

  #newAnswer(run: RunRecord, question: OpenQuestion, is: AnswerRecord["is"]): AnswerRecord {
    const answer: AnswerRecord = { nonce: `${run.plan.id}/a${++this.#names}`, is, question, outcomes: [] };
    run.answers.push(answer);
    return answer;
  }

  /** Gives a reply until it is acknowledged, or refused for good. */
  async #give(run: RunRecord, record: AnswerRecord, attempts: number, at?: string): Promise<void> {
    const random = this.#random;
    const { nonce, question, outcomes } = record;
    const reply = this.#replyOf(record);
    const key = random.chance(0.4) ? nonce : null;
    const mode = random.pick<NonNullable<CreateRunRequest["mode"]>>(["async", "sync", "stream"]);
    const ask = (): Task => ({ do: "answer", to: random.pick(question.shown), reply, key, mode });
    await this.#insist(run, ask, outcomes, attempts, at);
  }

  #replyOf({ nonce, is }: AnswerRecord): GivenReply {
    if (is === "decline") return { decline: { reason: nonce } };
    const value: NamedData = { value: is === "valid" ? this.#random.below(1_000) : "many", nonce };
    if (this.#random.chance(0.5)) return { await_resume: value };
    const message = { role: "user", parts: [{ content: JSON.stringify(value) }] } as const;
    return { await_resume: { type: "message", message } };
  }

  // Messages.

  /** One message, or two at once. */
  async #mails(run: RunRecord, run_id: string, name: MessageName): Promise<void> {
    const random = this.#random;
    const count = random.chance(0.3) ? 2 : 1;
    const mails = Array.from({ length: count }, () => this.#mail(run, run_id, name, random.below(THOUGHT_MS)));
    await Promise.all(mails);
  }

  async #mail(run: RunRecord, run_id: string, name: MessageName, thoughtMs: number): Promise<void> {
    await pause(thoughtMs);
    const random = this.#random;
    const nonce = `${run.plan.id}/m${++this.#names}`;
    const key = random.chance(0.7) ? nonce : null;
    const data: NamedData = { value: random.chance(0.15) ? "many" : random.below(1_000), nonce };
    const record: MailRecord = {
      nonce,
      name,
      run_id,
      key,
      sentAt: ++this.#moment,
      acknowledgedAt: undefined,
      outcomes: [],
    };
    run.mails.push(record);
    const isLabelled = run_id === run.run_id && random.chance(0.4);
    const to = isLabelled ? { label: run.plan.id } : { run_id };
    const send = (): Task => ({ do: "send", to, name, data, key });
    // Without a key a message that may have arrived is not sent again.
    await this.#insist(run, send, record.outcomes, key === null ? 1 : 100);
    if (record.outcomes.at(-1) !== ACKNOWLEDGED) return;
    record.acknowledgedAt = ++this.#moment;
    if (key === null || !random.chance(0.25)) return;
    await pause(random.below(EARLY_MS));
    await this.#insist(run, () => ({ do: "send", to: { run_id }, name, data, key }), record.outcomes, 3);
  }

  /** Asks until it is acknowledged, or refused for good, and notes the outcomes. */
  async #insist(
    run: RunRecord,
    task: () => Task,
    outcomes: string[],
    attempts: number,
    at: string | undefined = undefined,
  ): Promise<void> {
    for (let attempt = 0; attempt < attempts && run.run_id !== undefined && !this.#fleet.isOver; attempt++) {
      const outcome = await this.#fleet.call(task(), attempt === 0 ? at : undefined);
      outcomes.push(wordOf(outcome));
      if (!isPassing(outcome)) return;
      await pause(PAUSE_MS);
    }
  }
}

/** Whether a request is to be repeated at another process. */
export function isPassing(outcome: Outcome): boolean {
  return outcome === UNKNOWN || isRefusal(outcome, AGAIN);
}

export function isRefusal(outcome: Outcome, codes: readonly string[]): boolean {
  return typeof outcome === "object" && "refused" in outcome && codes.includes(outcome.refused);
}

export function wordOf(outcome: Outcome): string {
  if (outcome === UNKNOWN) return UNKNOWN;
  if ("done" in outcome) return ACKNOWLEDGED;
  const [firstLine = ""] = outcome.message.split("\n");
  return outcome.refused === "" ? firstLine : outcome.refused;
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(ms, 0)));
}
