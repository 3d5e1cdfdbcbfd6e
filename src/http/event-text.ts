import { inBackground } from "../core/background.ts";
import type { Clock, Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isRestEvent } from "../protocol/event.ts";
import type { DetailedEvent } from "../runtime/log/event-stream.ts";
import { isLong, jsonPieces, PIECE_LENGTH } from "./json-text.ts";
import type { WireStream } from "./wire.ts";

/** A stream of events whose `poll` answers at once if an event is there. */
export interface EventSource {
  poll(): MaybePromise<IteratorResult<DetailedEvent, undefined>>;
  return(): unknown;
}

/** How events are written one after another. One format writes one stream, so that it may keep what it has written. */
export interface EventFormat {
  readonly begin: string;
  /** Writes an event, as any number of texts. */
  write(event: DetailedEvent, out: EventText): void;
  /** The text after the last event. */
  end(): string;
  /** Written after a silence; undefined: nothing. */
  readonly heartbeat: string | undefined;
  /** The text when the events cannot be read further; undefined: the text breaks off. */
  readonly failure: ((error: unknown) => string) | undefined;
}

/** A comment without a blank line after it: a blank line makes some clients report an event without data. */
export const STREAM_HEARTBEAT = ":\n";

/** What a stream of text needs besides its events. */
export interface EventTextOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly heartbeatMs: number;
  /** An event that was read from the source already. */
  readonly first?: IteratorResult<DetailedEvent, undefined> | undefined;
  /**
   * Called once, when the reader is done or has left. `done`: it took everything, or everything until the run rests.
   */
  readonly onClose: (done: boolean) => void;
  /** Called with the error when the client is told that the events cannot be read further. */
  readonly onFailure: (error: unknown) => void;
}

/**
 * Events as pieces of text. Each piece holds all events that are there when it is taken, up to a size. A long event
 * takes several pieces, and the text of each is generated when it is taken.
 */
export class EventText implements WireStream {
  readonly #source: EventSource;
  readonly #format: EventFormat;
  readonly #options: EventTextOptions;
  #state: "open" | "waiting" | "full" | "failed" | "ended" | "closed" = "open";
  #text: string;
  /** The rest of a long value. */
  #rest: Generator<string, undefined> | undefined;
  /** The text after it. */
  #tail = "";
  /** What is written after it. */
  readonly #later: (readonly [before: string, value: object, after: string])[] = [];
  /** Whether the last event says that the run rests. */
  #rests = false;
  #error: unknown;
  #wake: (() => void) | undefined;

  constructor(source: EventSource, format: EventFormat, options: EventTextOptions) {
    this.#source = source;
    this.#format = format;
    this.#options = options;
    this.#text = format.begin;
    if (options.first !== undefined) this.#add(options.first);
  }

  async next(): Promise<IteratorResult<string, undefined>> {
    // Reading a log faster than it is sent would block the event loop for all other requests.
    if (this.#state === "full") {
      await this.#options.clock.turn();
      if (this.#state === "full") this.#state = "open";
    }
    for (;;) {
      this.#collect();
      if (this.#text !== "") return { done: false, value: this.#take() };
      if (this.#state !== "waiting") break;
      await this.#wait();
      // What the agent emits later in this turn of the event loop joins the same piece.
      if (this.#isOpen()) await this.#options.clock.turn();
    }
    if (this.#state === "failed") return this.#fail();
    this.#close(true);
    return finished;
  }

  return(): void {
    this.#close(this.#state === "ended" || this.#isTold());
    this.#wake?.();
  }

  #isOpen(): boolean {
    return this.#state === "open";
  }

  /** Whether the reader has taken the event with which the run rests. It may then leave without waiting for the end. */
  #isTold(): boolean {
    return this.#rests && this.#text === "" && this.#rest === undefined;
  }

  /** Collects the events that are there. */
  #collect(): void {
    while (this.#state === "open") {
      if (this.#rest !== undefined) {
        this.#goOn(this.#rest);
        continue;
      }
      try {
        const result = this.#source.poll();
        if ("then" in result) this.#expect(result);
        else this.#add(result);
      } catch (error) {
        this.#error = error;
        this.#state = "failed";
      }
    }
  }

  #expect(pending: Promise<IteratorResult<DetailedEvent, undefined>>): void {
    this.#state = "waiting";
    const taken = pending
      .then((result) => {
        if (this.#state === "waiting") this.#state = "open";
        this.#add(result);
        this.#wake?.();
      })
      // Also what the format throws for an event that it cannot write.
      .catch((error: unknown) => {
        this.#error = error;
        if (this.#state !== "closed") this.#state = "failed";
        this.#wake?.();
      });
    inBackground(this.#options.logger, taken);
  }

  #add(result: IteratorResult<DetailedEvent, undefined>): void {
    if (this.#state !== "open") return;
    if (result.done === true) {
      this.#text += this.#format.end();
      this.#state = "ended";
      return;
    }
    const event = result.value;
    this.#rests = "id" in event && isRestEvent(event);
    this.#format.write(event, this);
  }

  /** Writes a value as JSON, with a text before it and one after it. */
  put(before: string, value: object, after: string): void {
    if (this.#rest !== undefined) {
      this.#later.push([before, value, after]);
      return;
    }
    // A value that cannot be written leaves no text before it.
    const json = isLong(value) ? undefined : JSON.stringify(value);
    this.#text += before;
    this.#tail = after;
    if (json === undefined) this.#rest = jsonPieces(value);
    else this.#endValue(json);
  }

  #goOn(pieces: Generator<string, undefined>): void {
    const piece = pieces.next();
    if (piece.done === true) {
      this.#rest = undefined;
      this.#endValue("");
      for (const later of this.#later.splice(0)) this.put(...later);
      return;
    }
    this.#text += piece.value;
    if (this.#text.length >= PIECE_LENGTH) this.#state = "full";
  }

  #endValue(json: string): void {
    this.#text += json + this.#tail;
    if (this.#text.length >= PIECE_LENGTH) this.#state = "full";
  }

  #take(): string {
    const text = this.#text;
    this.#text = "";
    // Between the values no format has such characters.
    return escapeBreaks(text);
  }

  /** Waits for the next event, or until a heartbeat is due. */
  #wait(): Promise<void> {
    const { clock, heartbeatMs } = this.#options;
    const { heartbeat } = this.#format;
    return new Promise((resolve) => {
      let stop: (() => void) | undefined;
      this.#wake = () => {
        this.#wake = undefined;
        stop?.();
        resolve();
      };
      if (heartbeat === undefined || heartbeatMs === Number.POSITIVE_INFINITY) return;
      stop = clock.setTimeout(() => {
        this.#text += heartbeat;
        this.#wake?.();
      }, heartbeatMs);
    });
  }

  #fail(): IteratorResult<string, undefined> {
    const { failure } = this.#format;
    this.#close(false);
    if (failure === undefined) throw this.#error;
    this.#options.onFailure(this.#error);
    return { done: false, value: failure(this.#error) };
  }

  #close(done: boolean): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#text = "";
    this.#rest = undefined;
    this.#source.return();
    this.#options.onClose(done);
  }
}

const finished: IteratorResult<string, undefined> = { done: true, value: undefined };

/** Some line readers break lines at these characters too. JSON may write them as escapes. */
export function escapeBreaks(text: string): string {
  return breaks.some((character) => text.includes(character)) ? text.replace(allBreaks, escapeBreak) : text;
}

const breaks = ["\u0085", "\u2028", "\u2029"];
const allBreaks = /[\u0085\u2028\u2029]/g;

function escapeBreak(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
