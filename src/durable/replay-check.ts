import type { Emission } from "../core/decide.ts";
import { messageOf } from "../core/failure.ts";
import { sameJson } from "../core/json.ts";
import type { EmittedEntry, IntentEntry, ReceivedEntry, ResultEntry } from "../core/log.ts";
import type { Clock, Mismatch } from "../core/ports.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { RunLog } from "../runtime/run-log.ts";
import type { History } from "./history.ts";
import type { Missing, Replay } from "./log-order.ts";

/** What the comparison needs from the run of the replayed agent. */
export interface ReplayCheckHost {
  readonly log: RunLog;
  readonly clock: Clock;
  /** See {@link Replay.stallMs}. */
  readonly stallMs: number;
  /** The agent does not do what its history holds. */
  onMismatch(mismatch: Mismatch): void;
  /** As {@link onMismatch}, but the agent may still go on. Undefined: it has gone on. */
  onStall(mismatch: Mismatch | undefined): void;
  /** The agent emitted another value of the same kind than its history holds. The history counts. */
  onDifference(): void;
}

/** The replayed operations. */
export interface ReplayedOperations {
  readonly isCatchingUp: boolean;
  /** What the history holds next and the agent has not done again. */
  readonly missing: Missing | undefined;
  /** The agent has done something again. */
  advance(): void;
  onCaughtUp(): void;
}

/** How many characters of a text a message quotes. */
const MAX_QUOTE = 40;

/** Compares what a replayed agent does with its history. */
export class ReplayCheck {
  readonly #host: ReplayCheckHost;
  readonly #operations: ReplayedOperations;
  readonly #history: History;
  /** What the agent emitted for the first time before it had caught up. */
  #early: Emission[] = [];
  /** Whether the agent itself has no open message. */
  #hasClosed = true;

  constructor(host: ReplayCheckHost, operations: ReplayedOperations, history: History) {
    this.#host = host;
    this.#operations = operations;
    this.#history = history;
  }

  /** What the agent has to do before new work begins. */
  get replay(): Replay {
    const { results, begun } = this.#history;
    return {
      results,
      begun,
      stallMs: this.#host.stallMs,
      notEmitted: () => this.#notEmitted,
      onCaughtUp: () => this.#operations.onCaughtUp(),
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
    return this.#history.intent(key);
  }

  /** The message at a position of the log. */
  received(position: number): ReceivedEntry | undefined {
    return this.#history.received(position);
  }

  /** The agent has received a result. It has reported the usage before that entry. */
  passUsage(result: ResultEntry): void {
    this.#history.passUsage(result);
  }

  /**
   * Whether the agent is replayed and its history holds this report of usage. Each report in the history counts once.
   */
  takeUsage(usage: Usage): boolean {
    return this.#operations.isCatchingUp && this.#history.takeUsage(usage);
  }

  /** Logs what the agent emitted for the first time before it had caught up. */
  emitEarly(): void {
    const { log, clock } = this.#host;
    const early = this.#early;
    this.#early = [];
    for (const item of early) log.decide({ type: "emit", at: clock.now(), item });
  }

  /** Compares what the agent emits with its history. False: the history is at its end, and the emission is new. */
  emitAgain(emission: Emission): boolean {
    const next = this.#history.nextEmission;
    const isReplaying = this.#operations.isCatchingUp;
    const hadClosed = this.#hasClosed;
    if (emission.kind !== "generic") this.#hasClosed = emission.kind !== "part";
    // The output of `finally` blocks after a stop is not compared with what the agent emits before it reaches the stop.
    if (next === undefined || (isReplaying && next.wasStopped && !isSameEmission(next.entry, emission))) {
      if (!isReplaying) return false;
      // A replayed agent may pass the point where it was stopped. What it emits there is dropped.
      if (this.#history.isStopped) return true;
      // Closing when no message is open writes no entry.
      if (emission.kind === "close" && hadClosed) return true;
      this.#early.push(emission);
      return true;
    }
    const { entry, position } = next;
    // Closing when no message was open has written no entry.
    if (emission.kind === "close" && entry.kind !== "close") return true;
    if (entry.kind !== emission.kind) {
      this.#host.onMismatch({ expected: describeEmission(entry), asked: describeEmission(emission), position });
      return true;
    }
    if (!isSameEmission(entry, emission)) this.#host.onDifference();
    this.#history.skipEmission();
    this.#operations.advance();
    return true;
  }

  /** Compares the place of a question in the agent's output with the history. */
  askAgain(key: string, emitted: number): void {
    // A question closes the open message.
    this.#hasClosed = true;
    const before = this.#history.awaited(key);
    if (before === undefined || before.emitted === emitted) return;
    const position = this.#positionOf(key);
    const { missing } = this.#operations;
    if (missing !== undefined && missing.position < position)
      this.#host.onMismatch({ expected: missing.what, asked: key, position: missing.position });
    else
      this.#host.onMismatch({
        expected: `${key} after ${before.emitted} emitted values`,
        asked: `${key} after ${emitted}`,
        position,
      });
  }

  /** An answer in the history fails the validation of the question as the code asks it now. */
  onUnfitAnswer(key: string): void {
    const position = this.#positionOf(key);
    this.#host.onMismatch({ expected: `a valid answer to ${key}`, asked: `${key} with another schema`, position });
  }

  /** Whether the agent ends although its history holds more. */
  endsEarly(error: unknown): boolean {
    const { missing } = this.#operations;
    const next = this.#history.nextEmission;
    if (missing === undefined && next === undefined) return false;
    this.#host.onMismatch({
      expected: missing?.what ?? (next === undefined ? "" : describeEmission(next.entry)),
      asked: error === null ? "the agent returned" : `the agent threw: ${messageOf(error)}`,
      position: missing?.position ?? next?.position ?? 0,
    });
    return true;
  }

  #positionOf(key: string): number {
    return this.#history.begun.get(key) ?? 0;
  }

  get #notEmitted(): Missing | undefined {
    const next = this.#history.nextEmission;
    if (next === undefined || next.wasStopped) return undefined;
    return { what: describeEmission(next.entry), position: next.position };
  }
}

/** Describes an emission, for messages. */
function describeEmission(emission: Emission | EmittedEntry): string {
  switch (emission.kind) {
    case "part": {
      const { content_type, content } = emission.part;
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
