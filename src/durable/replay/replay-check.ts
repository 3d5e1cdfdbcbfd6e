import type { Emission } from "../../core/commands.ts";
import { messageOf } from "../../core/failure.ts";
import { sameJson } from "../../core/json.ts";
import type { AwaitedEntry, EmittedEntry } from "../../core/log.ts";
import { isReceive } from "../../core/operation-keys.ts";
import type { Mismatch } from "../../core/ports.ts";
import type { Patch } from "../../runtime/execution/operations.ts";
import type { History } from "./history.ts";

/** Something in the history that the replayed agent has not done again. */
export interface Missing {
  /** A description. */
  readonly what: string;
  /** The position of its entry. */
  readonly position: number;
}

/**
 * What the history says of a value that the agent emits. `new`: it is at its end. `again`: it holds the value. `other`: it
 * holds another value of the same kind, which counts. `none`: the value does not go into the log, or goes there later.
 */
export type Comparison = "new" | "again" | "other" | "none" | Mismatch;

/** How many characters of a text a message quotes. */
const MAX_QUOTE = 40;

/** Compares what a replayed agent does with its history. */
export class ReplayCheck {
  readonly history: History;
  /** What the agent emitted for the first time before it had caught up, and the patches that it got there. */
  #early: (Emission | Patch)[] = [];
  /** Whether the agent itself has no open message. */
  #hasClosed = true;
  /** The questions of the history that the agent has asked with other parts, by these parts as JSON. */
  readonly #reworded = new Map<string, AwaitedEntry>();

  constructor(history: History) {
    this.history = history;
  }

  /** The next emission in the history that the agent has not emitted again. */
  get notEmitted(): Missing | undefined {
    const next = this.history.nextEmission;
    if (next === undefined || next.wasStopped) return undefined;
    return { what: describeEmission(next.entry), position: next.position };
  }

  /** The agent has got a patch at the end of its history. It has not caught up. */
  getPatch(patch: Patch): void {
    // A replayed agent may pass the point where it was stopped.
    if (!this.history.isStopped) this.#early.push(patch);
  }

  /** What the agent emitted for the first time before it had caught up, and the patches that it got there. It is given once. */
  takeEarly(): readonly (Emission | Patch)[] {
    const early = this.#early;
    this.#early = [];
    return early;
  }

  /** Compares what the agent emits with its history. `isReplaying`: it has not caught up. */
  emitAgain(emission: Emission, isReplaying: boolean): Comparison {
    const next = this.history.nextEmission;
    const hadClosed = this.#hasClosed;
    if (emission.kind !== "generic") this.#hasClosed = emission.kind !== "part";
    // The output of `finally` blocks after a stop is not compared with what the agent emits before it reaches the stop.
    if (next === undefined || (isReplaying && next.wasStopped && !isSameEmission(next.entry, emission))) {
      if (!isReplaying) return "new";
      // A replayed agent may pass the point where it was stopped. What it emits there is dropped.
      if (this.history.isStopped) return "none";
      // Closing when no message is open writes no entry.
      if (emission.kind === "close" && hadClosed) return "none";
      this.#early.push(emission);
      return "none";
    }
    const { entry, position } = next;
    // Closing when no message was open has written no entry.
    if (emission.kind === "close" && entry.kind !== "close") return "none";
    if (entry.kind !== emission.kind)
      return { expected: describeEmission(entry), asked: describeEmission(emission), position };
    this.history.skipEmission();
    return isSameEmission(entry, emission) ? "again" : "other";
  }

  /**
   * Compares the place of a question in the agent's output with the history, and its parts with the parts of others:
   * a question may get another text, but no two may change places, since the answer to one would reach the other. `missing`:
   * what the history holds next and the agent has not done again.
   */
  askAgain(
    key: string,
    { emitted, parts }: Pick<AwaitedEntry, "emitted" | "parts">,
    missing: Missing | undefined,
  ): Mismatch | undefined {
    // A question closes the open message.
    this.#hasClosed = true;
    const before = this.history.find(key)?.asked;
    if (before === undefined) return undefined;
    const position = this.#positionOf(key);
    if (before.emitted === emitted) {
      if (sameJson(before.parts, parts)) return undefined;
      const other = this.#reworded.get(JSON.stringify(before.parts));
      if (sameJson(other?.parts, parts)) return { expected: key, asked: `${key} asking ${other?.await_id}`, position };
      this.#reworded.set(JSON.stringify(parts), before);
      return undefined;
    }
    if (missing !== undefined && missing.position < position)
      return { expected: missing.what, asked: key, position: missing.position };
    return { expected: `${key} after ${before.emitted} emitted values`, asked: `${key} after ${emitted}`, position };
  }

  /** The mismatch of an accepted answer that the code does not accept any more, or of a message whose schema fails. */
  unfitResult(key: string): Mismatch {
    return {
      expected: `a valid ${isReceive(key) ? "message for" : "answer to"} ${key}`,
      asked: `${key} with another schema`,
      position: this.#positionOf(key),
    };
  }

  /** The mismatch of an agent that ends although its history holds more. `missing`: see {@link askAgain}. */
  endsEarly(error: unknown, missing: Missing | undefined): Mismatch | undefined {
    const next = this.history.nextEmission;
    if (missing === undefined && next === undefined) return undefined;
    return {
      expected: missing?.what ?? (next === undefined ? "" : describeEmission(next.entry)),
      asked: error === null ? "the agent returned" : `the agent threw: ${messageOf(error)}`,
      position: missing?.position ?? next?.position ?? 0,
    };
  }

  #positionOf(key: string): number {
    return this.history.find(key)?.position ?? 0;
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
