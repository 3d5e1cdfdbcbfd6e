import type { Clock } from "../core/ports.ts";
import type { StreamedEvent } from "../core/project.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { RunEvent } from "../protocol/event.ts";
import { readError } from "./errors.ts";
import type { WireStream } from "./wire.ts";

/** A stream of events that gives what is there at once. */
export interface EventSource {
  poll(): MaybePromise<IteratorResult<StreamedEvent, undefined>>;
  return(): unknown;
}

/** How events are written one after another. */
export interface EventFormat {
  readonly begin: string;
  each(event: StreamedEvent, index: number): string;
  readonly end: string;
  /** What is written after a silence; undefined: nothing. */
  readonly heartbeat: string | undefined;
  /** What is written when the events cannot be read on; without it the text breaks off. */
  readonly failure: ((error: unknown) => string) | undefined;
}

/** As server-sent events. The number of an event is its id, so that a client can come back and go on from there. */
export const eventStreamFormat: EventFormat = {
  begin: "",
  each: (event) =>
    event.type === "error"
      ? `event: error\ndata: ${escapeBreaks(eventJson(event))}\n\n`
      : `id: ${event.id}\nevent: ${event.type}\ndata: ${escapeBreaks(eventJson(event))}\n\n`,
  end: "",
  // A comment with no blank line behind it: a blank line makes some clients see an event without data.
  heartbeat: ":\n",
  failure: (error) =>
    `event: error\ndata: ${escapeBreaks(JSON.stringify({ type: "error", error: readError(error) }))}\n\n`,
};

/** As the one JSON text `{ "events": [ … ] }`. */
export const eventListFormat: EventFormat = {
  begin: '{"events":[',
  each: (event, index) => (index === 0 ? eventJson(event) : `,${eventJson(event)}`),
  end: "]}",
  heartbeat: undefined,
  failure: undefined,
};

/** Characters in one piece of text, about. More than one event may be in a piece, if they are there at the same time. */
const PIECE_LENGTH = 32 * 1024;

/** What a stream of text needs beside its events. */
export interface EventTextOptions {
  readonly clock: Clock;
  readonly heartbeatMs: number;
  /** An event that was read from the source already. */
  readonly first?: IteratorResult<StreamedEvent, undefined> | undefined;
  /** Called once, when nobody reads any more. `done`: everything has been read. */
  readonly onClose: (done: boolean) => void;
  /** Told why the events could not be read on, when the client is told that they could not. */
  readonly onFailure: (error: unknown) => void;
}

/** Events as text, in pieces: each holds all the events that are there when it is taken, up to a size. */
export class EventText implements WireStream {
  readonly #source: EventSource;
  readonly #format: EventFormat;
  readonly #options: EventTextOptions;
  #state: "open" | "waiting" | "full" | "failed" | "ended" | "closed" = "open";
  #text: string;
  #count = 0;
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
    // A log that is read faster than it is written out would keep everybody else waiting.
    if (this.#state === "full") {
      await this.#options.clock.turn();
      if (this.#state === "full") this.#state = "open";
    }
    for (;;) {
      this.#collect();
      if (this.#text !== "") return { done: false, value: this.#take() };
      if (this.#state !== "waiting") break;
      await this.#wait();
      // What else the agent says in this turn of the event loop goes into the same piece.
      if (this.#isOpen()) await this.#options.clock.turn();
    }
    if (this.#state === "failed") return this.#fail();
    this.#close(true);
    return finished;
  }

  /** Nobody reads any more. */
  return(): void {
    this.#close(this.#state === "ended");
    this.#wake?.();
  }

  #isOpen(): boolean {
    return this.#state === "open";
  }

  /** Takes what is there. */
  #collect(): void {
    while (this.#state === "open") {
      const result = this.#source.poll();
      if ("then" in result) this.#expect(result);
      else this.#add(result);
    }
  }

  #expect(pending: Promise<IteratorResult<StreamedEvent, undefined>>): void {
    this.#state = "waiting";
    const settle = (state: "open" | "failed"): void => {
      if (this.#state === "waiting") this.#state = state;
      this.#wake?.();
    };
    pending.then(
      (result) => {
        settle("open");
        this.#add(result);
      },
      (error: unknown) => {
        this.#error = error;
        settle("failed");
      },
    );
  }

  #add(result: IteratorResult<StreamedEvent, undefined>): void {
    if (this.#state !== "open") return;
    if (result.done === true) {
      this.#text += this.#format.end;
      this.#state = "ended";
      return;
    }
    this.#text += this.#format.each(result.value, this.#count++);
    if (this.#text.length >= PIECE_LENGTH) this.#state = "full";
  }

  #take(): string {
    const text = this.#text;
    this.#text = "";
    return text;
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
    this.#source.return();
    this.#options.onClose(done);
  }
}

const finished: IteratorResult<string, undefined> = { done: true, value: undefined };

/** The event as JSON, without its number. */
function eventJson(event: RunEvent): string {
  switch (event.type) {
    case "message.part":
      return `{"type":"message.part","part":${JSON.stringify(event.part)}}`;
    case "message.created":
    case "message.completed":
      return `{"type":"${event.type}","message":${JSON.stringify(event.message)}}`;
    case "generic":
      return `{"type":"generic","generic":${JSON.stringify(event.generic)}}`;
    case "error":
      return `{"type":"error","error":${JSON.stringify(event.error)}}`;
    default:
      return `{"type":"${event.type}","run":${JSON.stringify(event.run)}}`;
  }
}

/** Some readers of lines break them at these characters too; JSON may write them as escapes. */
function escapeBreaks(text: string): string {
  return breaks.test(text) ? text.replace(allBreaks, escapeBreak) : text;
}

const breaks = /[\u0085\u2028\u2029]/;
const allBreaks = /[\u0085\u2028\u2029]/g;

function escapeBreak(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
