import { EventEmitter } from "eventemitter3";
import type { Logger, Mismatch } from "../core/ports.ts";
import type { StreamedEvent } from "../core/project.ts";
import { ignore, isPromise } from "../core/promises.ts";
import { createdEntry } from "../core/state.ts";
import type { EventType } from "../protocol/event.ts";
import { EventStream } from "./events.ts";
import type { LiveRun } from "./live-run.ts";
import type { RunsListener } from "./runs.ts";

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
export interface BlockedEvent {
  readonly type: "run.blocked";
  readonly version: string | null;
  /** How many entries of the log there are. */
  readonly position: number;
  /** What the log holds next. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

/** What can be listened to: the protocol's events, and `run.blocked`. */
export type AnnouncedType = EventType | "run.blocked";

/** The event of one type. */
export type EventOf<Type extends AnnouncedType> = Extract<StreamedEvent | BlockedEvent, { readonly type: Type }>;

/** Called with each event of a type, after it has been committed. What it throws goes to the logger, and harms nothing. */
export type EventListener<Type extends AnnouncedType> = (event: EventOf<Type>, origin: EventOrigin) => unknown;

/** A listener of whatever type; it is called with events of its own type only. */
export type AnyListener = (event: never, origin: EventOrigin) => unknown;

type Guarded = (event: StreamedEvent | BlockedEvent, origin: EventOrigin) => void;

/** Tells listeners what happens, run by run. A run is followed only while there are listeners. */
export class Announcer implements RunsListener {
  readonly #emitter = new EventEmitter<string>();
  readonly #guarded = new WeakMap<AnyListener, Guarded>();
  readonly #logger: Logger;
  /** Counts how often listening began: a run that has been followed since an earlier time is followed anew. */
  #era = 0;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** `runs` are the live runs: with the first listener they are followed from here on. */
  add(type: AnnouncedType, listener: AnyListener, once: boolean, runs: Iterable<LiveRun>): void {
    if (!this.#isListening) {
      this.#era += 1;
      for (const run of runs) this.#follow(run, run.log.state.events);
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

  onCreated(run: LiveRun): void {
    if (this.#isListening) this.#follow(run, 0);
  }

  onBlocked(run: LiveRun, { expected, asked, position }: Mismatch): void {
    const { version = null } = createdEntry(run.log.state);
    const event: BlockedEvent = { type: "run.blocked", version, position, expected, asked };
    this.#emitter.emit(event.type, event, originOf(run));
  }

  get #isListening(): boolean {
    return this.#emitter.eventNames().length > 0;
  }

  #follow(run: LiveRun, after: number): void {
    // A listener waits for ever, and holds nothing for it.
    const stream = new EventStream(
      { source: run.log, after, until: "end" },
      { find: () => undefined, waitsForCode: true, hold: () => ignore },
    );
    const { run_id } = run.log.key;
    this.#announce(run, stream).catch((error: unknown) =>
      this.#logger.error("A run could not be followed.", { run_id, error }),
    );
  }

  /** Announces what a run does until it ends or there are no listeners any more. */
  async #announce(run: LiveRun, stream: EventStream): Promise<void> {
    const era = this.#era;
    for await (const event of stream) {
      if (!this.#isListening || era !== this.#era) break;
      if (this.#emitter.listenerCount(event.type) > 0) this.#emitter.emit(event.type, event, originOf(run));
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

function originOf(run: LiveRun): EventOrigin {
  const { agent_name, session_id } = createdEntry(run.log.state);
  const { run_id, tenant } = run.log.key;
  return { run_id, agent_name, session_id, tenant, ...(run.cause !== undefined && { cause: run.cause }) };
}
