import { inBackground } from "../core/background.ts";
import type { Logger } from "../core/ports.ts";
import type { DetailedEvent } from "../runtime/log/event-stream.ts";
import type { Leave } from "./disconnects.ts";
import type { EventSource } from "./event-text.ts";

/** The events of a run, and what is to be done when their reader leaves. */
export interface Leg {
  readonly events: EventSource;
  readonly leave: Leave;
}

/** The events of a run, and then the events of a second run, which begins when the first one rests. */
export class Relay implements EventSource {
  /** What is to be done when the reader leaves. What its client has said is not lost by that. */
  readonly leave: Leave;
  #leg: Leg;
  #next: (() => Promise<Leg | undefined>) | undefined;
  #isClosed = false;

  /** `next`: begins the second run. Undefined: no second run begins. */
  constructor(logger: Logger, first: Leg, next: () => Promise<Leg | undefined>) {
    this.#leg = first;
    this.#next = next;
    this.leave = (done) => inBackground(logger, this.#leave(done));
  }

  poll(): ReturnType<EventSource["poll"]> {
    const result = this.#leg.events.poll();
    return "then" in result ? result.then((later) => this.#after(later)) : this.#after(result);
  }

  #after(result: IteratorResult<DetailedEvent, undefined>): ReturnType<EventSource["poll"]> {
    if (result.done !== true || this.#next === undefined) return result;
    return this.#goOn(this.#next, result);
  }

  async #goOn(
    next: () => Promise<Leg | undefined>,
    rest: IteratorResult<DetailedEvent, undefined>,
  ): Promise<IteratorResult<DetailedEvent, undefined>> {
    this.#next = undefined;
    const leg = await next();
    if (leg === undefined) return rest;
    this.#leg.leave(true);
    this.#leg = leg;
    if (!this.#isClosed) return leg.events.poll();
    leg.events.return();
    leg.leave(false);
    return rest;
  }

  return(): void {
    this.#isClosed = true;
    this.#leg.events.return();
  }

  async #leave(done: boolean): Promise<void> {
    this.#leg.leave(done);
    const next = this.#next;
    this.#next = undefined;
    const leg = await next?.();
    leg?.events.return();
    leg?.leave(false);
  }
}
