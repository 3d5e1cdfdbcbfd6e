import { inBackground } from "../core/background.ts";
import type { Logger } from "../core/ports.ts";
import type { DetailedEvent } from "../runtime/log/event-stream.ts";
import type { EventSource } from "./event-text.ts";

type Result = IteratorResult<DetailedEvent, undefined>;

/** Events, between which others can be added at any time. */
export class Interjected implements EventSource {
  readonly #logger: Logger;
  readonly #events: EventSource;
  readonly #last: () => Promise<unknown>;
  readonly #others: DetailedEvent[] = [];
  /** The event that is awaited. */
  #pending: Promise<Result> | undefined;
  #wake: (() => void) | undefined;

  /** `last`: called before the end, which waits for it. */
  constructor(logger: Logger, events: EventSource, last: () => Promise<unknown>) {
    this.#logger = logger;
    this.#events = events;
    this.#last = last;
  }

  /** Tells another event, before those that follow. */
  add(event: DetailedEvent): void {
    this.#others.push(event);
    this.#wake?.();
  }

  poll(): ReturnType<EventSource["poll"]> {
    const value = this.#others.shift();
    if (value !== undefined) return { done: false, value };
    const next = this.#pending ?? this.#events.poll();
    if (!("then" in next)) return this.#after(next);
    this.#pending = next;
    return new Promise((resolve, reject) => {
      const wake = (): void => {
        this.#wake = undefined;
        resolve(this.poll());
      };
      this.#wake = wake;
      const settle = (act: () => void): void => {
        if (this.#wake !== wake) return;
        this.#wake = undefined;
        this.#pending = undefined;
        act();
      };
      const settled = next.then(
        (result) => settle(() => resolve(this.#after(result))),
        (error: unknown) => settle(() => reject(error)),
      );
      inBackground(this.#logger, settled);
    });
  }

  #after(result: Result): ReturnType<EventSource["poll"]> {
    return result.done === true ? this.#last().then(() => result) : result;
  }

  return(): void {
    this.#events.return();
  }
}
