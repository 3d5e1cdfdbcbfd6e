import type { CreateRunRequest, StreamedEvent } from "cadenza";
import type { Random } from "../random.ts";
import type { RunRecord } from "./acknowledged.ts";
import { Acknowledged, UNKNOWN } from "./acknowledged.ts";
import type { Fleet } from "./fleet.ts";
import { randomPlan } from "./plans.ts";
import { isPassing, isRefusal, PAUSE_MS, pause, Talk, wordOf } from "./talk.ts";

/*
 * The client: it creates runs, follows them, gives them what they wait for, and cancels some. A request that was not
 * acknowledged is repeated at another process.
 */

/** A run makes progress if a reader got an event of it within so many milliseconds. */
const MOVING_MS = 15_000;
/** Sessions that runs share. */
const SESSIONS = 10;
/** Refusals after which there is certainly no run, unless the caller waits for more than its creation. */
const NOT_CREATED = ["runtime_closed", "agent_not_found"];
/** A run that does not begin at once begins within so many milliseconds. */
const LATER_MS = 4_000;

export class Client {
  readonly acknowledged = new Acknowledged();
  readonly #random: Random;
  readonly #prefix: string;
  readonly #fleet: Fleet;
  readonly #onEnded: (run: RunRecord) => void;
  readonly #talk: Talk;

  constructor(random: Random, prefix: string, fleet: Fleet, onEnded: (run: RunRecord) => void) {
    this.#random = random;
    this.#prefix = prefix;
    this.#fleet = fleet;
    this.#onEnded = onEnded;
    this.#talk = new Talk(random, fleet);
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
    const asked = event.type === "run.awaiting" ? event.run.await_request : null;
    if (asked !== null) {
      const { await_id, message, expires_at = null } = asked;
      // A schema is a part of its own, after the question.
      this.#talk.onQuestion(run, { run_id, await_id }, message.parts[0]?.content ?? "", expires_at);
    }
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
    const mode = random.pick<NonNullable<CreateRunRequest["mode"]>>(["async", "async", "sync", "stream"]);
    const run = this.acknowledged.add({ plan, agent, session_id, key: random.chance(0.85) ? id : null, mode });
    if (random.chance(0.08)) setTimeout(() => void this.#cancel(run), random.below(3_000));
    const { key } = run;
    const input = JSON.stringify(plan);
    const startAt = random.chance(0.1) ? Date.now() + random.below(LATER_MS) : null;
    for (let attempt = 0; run.run_id === undefined && !this.#fleet.isOver; attempt++) {
      const outcome = await this.#fleet.call({
        do: "create",
        agent,
        input,
        session_id,
        key,
        mode: attempt === 0 ? mode : "async",
        startAt,
        label: id,
      });
      if (typeof outcome === "object" && "done" in outcome) this.acknowledged.created(run, outcome.done);
      else if (key === null && !isRefusal(outcome, mode === "async" ? NOT_CREATED : ["agent_not_found"])) {
        // It may have been created or not, and its id is unknown. A runtime that is closed ends the wait of a caller.
        run.ended = true;
        return this.#onEnded(run);
      } else {
        run.refusals.push(`create: ${wordOf(outcome)}`);
        await pause(PAUSE_MS);
      }
    }
    this.#follow(run);
    if (run.run_id !== undefined) await this.#talk.attend(run);
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

  async #cancel(run: RunRecord): Promise<void> {
    while (!run.ended && !this.#fleet.isOver) {
      const to = this.#fleet.pick();
      if (run.run_id !== undefined && to !== undefined) {
        const record = { to, at: Date.now(), outcome: UNKNOWN };
        run.cancels.push(record);
        const outcome = await this.#fleet.call({ do: "cancel", run_id: run.run_id }, to);
        record.outcome = wordOf(outcome);
        if (!isPassing(outcome)) return;
      }
      await pause(PAUSE_MS);
    }
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
