import { inBackground } from "../core/background.ts";
import type { Clock } from "../core/ports.ts";
import { STREAM_HEARTBEAT } from "../http/event-text.ts";
import { jsonPieces, PIECE_LENGTH } from "../http/json-text.ts";
import type { WireStream } from "../http/wire.ts";
import { silentLogger } from "../runtime/log/system.ts";

/**
 * Waits until a feed looks again. False: its reader has left, or the runtime is being closed. It also waits while the
 * reader takes nothing.
 */
export type Pause = (ms?: number) => Promise<boolean>;

/** The events of a view, as they come. It looks, gives what has changed, and pauses. */
export type Feed = (pause: Pause) => AsyncGenerator<object, void, void>;

/** What the text of a feed needs. */
export interface FeedTextOptions {
  readonly clock: Clock;
  readonly refreshMs: number;
  readonly heartbeatMs: number;
  isClosed(): boolean;
  /** Called once, when the feed has ended or its reader has left. */
  readonly onClose: () => void;
  /** Called with the error of a feed that cannot go on. Its reader connects again. */
  readonly onFailure: (error: unknown) => void;
}

const finished: IteratorResult<string, undefined> = { done: true, value: undefined };

/** A feed as server-sent events. Nothing is looked up while its reader does not take. */
export class FeedText implements WireStream {
  readonly #options: FeedTextOptions;
  readonly #events: AsyncGenerator<object, void, void>;
  #pending: Promise<IteratorResult<object, void>> | undefined;
  /** What is left of the text of an event. */
  #pieces: Generator<string, undefined> | undefined;
  #isWanted = true;
  #isFull = false;
  #isClosed = false;
  /** Ends the pause of the feed. */
  #wake: (() => void) | undefined;
  /** Ends it if it waits for the reader. */
  #onWanted: (() => void) | undefined;

  constructor(feed: Feed, options: FeedTextOptions) {
    this.#options = options;
    this.#events = feed((ms = options.refreshMs) => this.#pause(ms));
  }

  /** Waits for the first event. Throws if the feed cannot begin. */
  async begin(): Promise<void> {
    this.#pending = this.#events.next();
    try {
      await this.#pending;
    } catch (error) {
      this.return();
      throw error;
    }
  }

  async next(): Promise<IteratorResult<string, undefined>> {
    // A long event would block the event loop for all others.
    if (this.#isFull) await this.#options.clock.turn();
    for (;;) {
      const text = this.#take();
      if (text !== "") return { done: false, value: text };
      if (this.#isClosed) return finished;
      this.#want();
      const event = await this.#nextEvent();
      this.#isWanted = false;
      if (event === "silence") return { done: false, value: STREAM_HEARTBEAT };
      if (event === undefined) this.return();
      else this.#pieces = textOf(event);
    }
  }

  return(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#pieces = undefined;
    this.#wake?.();
    // A feed that looks something up ends at its next pause.
    inBackground(silentLogger, this.#events.return().catch(this.#options.onFailure));
    this.#options.onClose();
  }

  /** The text that is there, up to a size. */
  #take(): string {
    let text = "";
    this.#isFull = false;
    for (let piece = this.#pieces?.next(); piece !== undefined; piece = this.#pieces?.next()) {
      if (piece.done === true) {
        this.#pieces = undefined;
        break;
      }
      text += piece.value;
      this.#isFull = text.length >= PIECE_LENGTH;
      if (this.#isFull) break;
    }
    return text;
  }

  /** The next event; undefined: the feed has ended. */
  async #nextEvent(): Promise<object | "silence" | undefined> {
    this.#pending ??= this.#events.next();
    let stop: (() => void) | undefined;
    const { clock, heartbeatMs } = this.#options;
    const silence = new Promise<"silence">((resolve) => {
      if (heartbeatMs === Number.POSITIVE_INFINITY) return;
      stop = clock.setTimeout(() => resolve("silence"), heartbeatMs);
    });
    try {
      const result = await Promise.race([this.#pending, silence]);
      if (result === "silence") return result;
      this.#pending = undefined;
      return result.done === true ? undefined : result.value;
    } catch (error) {
      if (!this.#isClosed && !this.#options.isClosed()) this.#options.onFailure(error);
      return undefined;
    } finally {
      stop?.();
    }
  }

  async #pause(ms: number): Promise<boolean> {
    if (!this.#isClosed) {
      await new Promise<void>((resolve) => {
        const stop = this.#options.clock.setTimeout(resolve, ms);
        this.#wake = () => {
          stop();
          resolve();
        };
      });
    }
    if (!this.#isWanted && !this.#isClosed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        this.#onWanted = resolve;
      });
    }
    this.#wake = undefined;
    this.#onWanted = undefined;
    return !this.#isClosed && !this.#options.isClosed();
  }

  #want(): void {
    this.#isWanted = true;
    this.#onWanted?.();
  }
}

function* textOf(event: object): Generator<string, undefined> {
  yield "data: ";
  yield* jsonPieces(event);
  yield "\n\n";
  return undefined;
}
