import { EventEmitter } from "eventemitter3";
import type { Logger } from "../core/ports.ts";
import type { StreamedEvent } from "../core/project.ts";
import { isPromise } from "../core/promises.ts";
import type { EventType } from "../protocol/event.ts";
import type { EventStream } from "./events.ts";

/** Whose event it is. */
export interface EventOrigin {
  readonly run_id: string;
  readonly agent_name: string;
  readonly session_id: string;
  readonly tenant: string;
  /** With `run.failed`: what the agent threw, in the process in which it did. */
  readonly cause?: unknown;
}

/** A durable run whose code does not fit its log. It is written to no more until fitting code is registered. Not one of the protocol's events: it is not in the log. */
export interface ParkedEvent {
  readonly type: "run.parked";
  readonly version: string | null;
  /** How many entries of the log there are. */
  readonly position: number;
  /** What the log holds next. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

/** What can be listened to: the protocol's events, and `run.parked`. */
export type AnnouncedType = EventType | "run.parked";

/** The event of one type. */
export type EventOf<Type extends AnnouncedType> = Extract<StreamedEvent | ParkedEvent, { readonly type: Type }>;

/** Called with each event of a type, after it has been committed. What it throws goes to the logger, and harms nothing. */
export type EventListener<Type extends AnnouncedType> = (event: EventOf<Type>, origin: EventOrigin) => unknown;

/** A listener of whatever type; it is called with events of its own type only. */
export type AnyListener = (event: never, origin: EventOrigin) => unknown;

type Guarded = (event: StreamedEvent | ParkedEvent, origin: EventOrigin) => void;

/** Tells listeners what happens, run by run. A run is followed only while somebody listens. */
export class Announcer {
  readonly #emitter = new EventEmitter<string>();
  readonly #guarded = new WeakMap<AnyListener, Guarded>();
  readonly #logger: Logger;
  readonly #onFirst: () => void;
  /** Counts how often listening began: whoever follows a run since an earlier time has a successor. */
  #era = 0;

  /** `onFirst` is called when the first listener comes, before it is heard. */
  constructor(logger: Logger, onFirst: () => void) {
    this.#logger = logger;
    this.#onFirst = onFirst;
  }

  get isListening(): boolean {
    return this.#emitter.eventNames().length > 0;
  }

  add(type: AnnouncedType, listener: AnyListener, once: boolean): void {
    if (!this.isListening) {
      this.#era += 1;
      this.#onFirst();
    }
    if (once) this.#emitter.once(type, this.#guard(listener));
    else this.#emitter.on(type, this.#guard(listener));
  }

  remove(type: AnnouncedType, listener: AnyListener): void {
    this.#emitter.off(type, this.#guard(listener));
  }

  removeAll(): void {
    this.#emitter.removeAllListeners();
  }

  /** Announces what is in no log. */
  announce(event: ParkedEvent, origin: EventOrigin): void {
    this.#emitter.emit(event.type, event, origin);
  }

  /** Announces what a run does until it ends or nobody listens any more. */
  async follow(stream: EventStream, origin: () => EventOrigin): Promise<void> {
    const era = this.#era;
    for await (const event of stream) {
      if (!this.isListening || era !== this.#era) break;
      if (this.#emitter.listenerCount(event.type) > 0) this.#emitter.emit(event.type, event, origin());
    }
  }

  /** The listener as the emitter holds it, always the same, so that it can be taken off. */
  #guard(listener: AnyListener): Guarded {
    let guarded = this.#guarded.get(listener);
    if (guarded === undefined) {
      guarded = (event, origin) => {
        try {
          const result: unknown = listener(event as never, origin);
          if (isPromise(result)) result.then(undefined, (error: unknown) => this.#report(event, error));
        } catch (error) {
          this.#report(event, error);
        }
      };
      this.#guarded.set(listener, guarded);
    }
    return guarded;
  }

  #report(event: { readonly type: string }, error: unknown): void {
    this.#logger.error(`A listener of ${event.type} threw.`, { error });
  }
}
