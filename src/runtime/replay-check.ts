import type { Emission } from "../core/decide.ts";
import { sameJson } from "../core/json.ts";
import type { EmittedEntry, IntentEntry, ResultEntry } from "../core/log.ts";
import { isPassedOn } from "../core/log.ts";
import type { Clock, Mismatch } from "../core/ports.ts";
import type { Usage } from "../core/usage.ts";
import { messageOf } from "./failure.ts";
import type { History } from "./history.ts";
import type { Missing, Replay } from "./log-order.ts";
import type { OpenQuestion } from "./questions.ts";
import type { Results } from "./results.ts";
import type { RunLog } from "./run-log.ts";

/** What the comparison needs from the agent that is run again. */
export interface ReplayCheckHost {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly results: Results;
  /** See {@link Replay.stallMs}. */
  readonly stallMs: number;
  /** What the agent does is not what the log holds. */
  mismatch(mismatch: Mismatch): void;
  /** As {@link diverge}, but the agent may still come round. Undefined: it has. */
  onStall(mismatch: Mismatch | undefined): void;
  /** The agent showed another text than the last time; the log wins. */
  onDifference(): void;
  onCaughtUp(): void;
}

/** How much of a text is quoted. */
const MAX_QUOTE = 40;

/** An agent that is run again: what it does is compared with what it did the last time, as the log holds it. */
export class ReplayCheck {
  readonly #host: ReplayCheckHost;
  readonly #recording: History;
  /** What the agent showed for the first time before it had caught up. */
  #early: Emission[] = [];
  /** Whether the agent itself has left no message open. */
  #hasClosed = true;

  constructor(host: ReplayCheckHost, recording: History) {
    this.#host = host;
    this.#recording = recording;
  }

  /** What the agent meets on its way through its log. */
  get replay(): Replay {
    const { results, begun } = this.#recording;
    return {
      results,
      begun,
      stallMs: this.#host.stallMs,
      shown: this.#shownToAgent,
      notEmitted: () => this.#notEmitted,
      onCaughtUp: () => this.#host.onCaughtUp(),
      onStall: (missing, asked) =>
        this.#host.onStall(
          missing && {
            expected: missing.what,
            asked: asked.length === 0 ? "nothing" : asked.join(", "),
            position: missing.position,
          },
        ),
    };
  }

  /** The last attempt at an operation, if there was one. */
  intent(key: string): IntentEntry | undefined {
    return this.#recording.intent(key);
  }

  /** The agent has been handed a result: what the log says of usage up to there was reported before. */
  passUsage(result: ResultEntry): void {
    this.#recording.passUsage(result);
  }

  /** Whether the log has this report of an agent that has not caught up. It is in there once. */
  takeUsage(usage: Usage): boolean {
    return this.#host.results.isReplaying && this.#recording.takeUsage(usage);
  }

  /** Commits what the agent showed for the first time before it had caught up. */
  emitEarly(): void {
    const { log, clock } = this.#host;
    const early = this.#early;
    this.#early = [];
    for (const item of early) log.decide({ type: "emit", at: clock.now(), item });
  }

  /** Compares what the agent shows with what it showed at this point the last time. False: there was no last time. */
  emitAgain(emission: Emission): boolean {
    const next = this.#recording.nextEmission;
    const { results } = this.#host;
    const { isReplaying } = results;
    const hadClosed = this.#hasClosed;
    if (emission.kind !== "generic") this.#hasClosed = emission.kind !== "part";
    // What a stopped agent showed on its way out is no measure for what it shows on its way there.
    if (next === undefined || (isReplaying && next.wasStopped && !isSameEmission(next.entry, emission))) {
      if (!isReplaying) return false;
      // An agent that was stopped may come further than the last time: that has not happened.
      if (this.#recording.isStopped) return true;
      // There was nothing to close the last time, which is in no log.
      if (emission.kind === "close" && hadClosed) return true;
      this.#early.push(emission);
      return true;
    }
    const { entry, position } = next;
    // There was nothing to close the last time.
    if (emission.kind === "close" && entry.kind !== "close") return true;
    if (entry.kind !== emission.kind) {
      this.#host.mismatch({ expected: describeEmission(entry), asked: describeEmission(emission), position });
      return true;
    }
    if (!isSameEmission(entry, emission)) this.#host.onDifference();
    this.#recording.skipEmission();
    results.advance();
    return true;
  }

  /** Compares when the agent asks with when it asked the last time. */
  askAgain({ key, emitted }: OpenQuestion): void {
    // A question closes the open message.
    this.#hasClosed = true;
    const recorded = this.#recording.awaited(key);
    if (recorded === undefined || recorded.emitted === emitted) return;
    const position = this.#positionOf(key);
    const { missing } = this.#host.results;
    if (missing !== undefined && missing.position < position)
      this.#host.mismatch({ expected: missing.what, asked: key, position: missing.position });
    else
      this.#host.mismatch({
        expected: `${key} after ${recorded.emitted} values shown`,
        asked: `${key} after ${emitted}`,
        position,
      });
  }

  /** An answer that the log holds is none to the question as it is asked now. */
  onUnfitAnswer(key: string): void {
    const position = this.#positionOf(key);
    this.#host.mismatch({ expected: `an answer to ${key} that fits`, asked: `${key} with another schema`, position });
  }

  /** Whether the agent ends although the log holds more. */
  endsEarly(error: unknown): boolean {
    const { missing } = this.#host.results;
    const next = this.#recording.nextEmission;
    if (missing === undefined && next === undefined) return false;
    this.#host.mismatch({
      expected: missing?.what ?? (next === undefined ? "" : describeEmission(next.entry)),
      asked: error === null ? "the agent returned" : `the agent threw: ${messageOf(error)}`,
      position: missing?.position ?? next?.position ?? 0,
    });
    return true;
  }

  #positionOf(key: string): number {
    return this.#recording.begun.get(key) ?? 0;
  }

  get #notEmitted(): Missing | undefined {
    const next = this.#recording.nextEmission;
    if (next === undefined || next.wasStopped) return undefined;
    return { what: describeEmission(next.entry), position: next.position };
  }

  /** The question that the agent itself asks; one of a sub-run is none of its. */
  get #shownToAgent(): string | undefined {
    const shown = this.#host.log.state.shown?.await_id;
    return shown === undefined || isPassedOn(shown) ? undefined : shown;
  }
}

/** What was shown, in words. */
function describeEmission(shown: Emission | EmittedEntry): string {
  switch (shown.kind) {
    case "part": {
      const { content_type, content } = shown.part;
      if (content === undefined || !content_type.startsWith("text/")) return `a part of type ${content_type}`;
      return `the text ${JSON.stringify(content.length > MAX_QUOTE ? `${content.slice(0, MAX_QUOTE)}…` : content)}`;
    }
    case "message":
      return "a message";
    case "generic":
      return "an object";
    case "close":
      return "the end of a message";
  }
}

function isSameEmission(entry: EmittedEntry, emission: Emission): boolean {
  switch (emission.kind) {
    case "part":
      return entry.kind === "part" && sameJson(entry.part, emission.part);
    case "message":
      return entry.kind === "message" && sameJson(entry.message.parts, emission.message.parts);
    case "generic":
      return entry.kind === "generic" && sameJson(entry.generic, emission.generic);
    case "close":
      return true;
  }
}
