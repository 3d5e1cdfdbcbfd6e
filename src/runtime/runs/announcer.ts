import { EventEmitter } from "eventemitter3";
import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import type { Clock, Logger, Mismatch } from "../../core/ports.ts";
import type { StreamedEvent } from "../../core/project.ts";
import { ignore } from "../../core/promises.ts";
import { createdEntry } from "../../core/state.ts";
import type { Counters } from "../../core/statistics.ts";
import { countRun } from "../../core/statistics.ts";
import { isOwn } from "../../core/tenants.ts";
import type { EventType } from "../../protocol/event.ts";
import { EventStream } from "../log/event-stream.ts";
import type { LiveRun } from "./live-run.ts";

/** The run that an event belongs to. */
export interface EventOrigin {
  readonly run_id: string;
  readonly agent_name: string;
  readonly session_id: string;
  readonly tenant: string;
  /** With `run.failed`: the value that the agent threw, if it threw in this process. */
  readonly cause?: unknown;
  /** With the event of its end: what the run adds to the counters of its agent. */
  readonly counters?: Counters;
}

/**
 * A durable run is blocked: its code does not match its log. Nothing is written to it until matching code is
 * registered. The log does not hold this event, and the protocol does not know it.
 */
export interface BlockedEvent {
  readonly type: "run.blocked";
  readonly version: string | null;
  /** The index in the log, from 0, of the first entry that does not match. */
  readonly position: number;
  /** What the log holds there. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

/** The types of events for listeners: the protocol's, and `run.blocked`. */
export type AnnouncedType = EventType | "run.blocked";

/** The event of one type. */
export type EventOf<Type extends AnnouncedType> = Extract<StreamedEvent | BlockedEvent, { readonly type: Type }>;

/**
 * Called with each event of a type, after the event is committed. An error that the listener throws is logged, and has
 * no other effect.
 */
export type EventListener<Type extends AnnouncedType> = (event: EventOf<Type>, origin: EventOrigin) => unknown;

/** A listener of any type. It is called with events of its own type only. */
export type AnyListener = (event: never, origin: EventOrigin) => unknown;

const ends: ReadonlySet<string> = new Set(["run.completed", "run.failed", "run.cancelled"]);

type Guarded = (event: StreamedEvent | BlockedEvent, origin: EventOrigin) => void;

/** Calls listeners with the events of live runs. It reads the events of a run only while there are listeners. */
export class Announcer {
  readonly #emitter = new EventEmitter<string>();
  readonly #guarded = new WeakMap<AnyListener, Guarded>();
  readonly #logger: Logger;
  readonly #clock: Clock;
  /** Counts how often the first listener was added. A reader from an earlier count stops. */
  #era = 0;

  constructor(logger: Logger, clock: Clock) {
    this.#logger = logger;
    this.#clock = clock;
  }

  /** `runs` are the live runs. With the first listener their events are read from the current position on. */
  add(type: AnnouncedType, listener: AnyListener, times: "always" | "once", runs: Iterable<LiveRun>): void {
    if (!this.#isListening) {
      this.#era += 1;
      for (const run of runs) this.#follow(run, run.log.state.events);
    }
    if (times === "once") this.#emitter.once(type, this.#guard(listener));
    else this.#emitter.on(type, this.#guard(listener));
  }

  remove(type: AnnouncedType, listener: AnyListener): void {
    this.#emitter.off(type, this.#guard(listener));
  }

  removeAll(): void {
    this.#emitter.removeAllListeners();
  }

  /** A run has come into this process: it is new, or was in the store. */
  onCreated(run: LiveRun): void {
    if (this.#isListening) this.#follow(run, 0);
  }

  /** The code of a durable run does not match its log. */
  onBlocked(run: LiveRun, { expected, asked, position }: Mismatch): void {
    const { version = null } = createdEntry(run.log.state);
    const event: BlockedEvent = { type: "run.blocked", version, position, expected, asked };
    this.#emitter.emit(event.type, event, originOf(run, event));
  }

  get #isListening(): boolean {
    return this.#era > 0 && this.#emitter.eventNames().length > 0;
  }

  /** Listeners are of the application: they hear nothing of the runtime's own runs. */
  #follow(run: LiveRun, after: number): void {
    if (isOwn(run.log.key.tenant)) return;
    // A listener has no time limit, and does not keep the process open.
    const stream = new EventStream(
      { source: run.log, after, until: "end", passesGaps: true },
      { clock: this.#clock, find: () => undefined, waitsForCode: true, hold: ignore, letGo: ignore },
    );
    inBackground(
      this.#logger,
      this.#announce(run, stream),
      "The events of a run could not be read for listeners.",
      aboutRun(run.log),
    );
  }

  /** Announces the events of a run until it ends or the last listener is removed. */
  async #announce(run: LiveRun, stream: EventStream): Promise<void> {
    const era = this.#era;
    for await (const event of stream) {
      if (!this.#isListening || era !== this.#era) break;
      if (this.#emitter.listenerCount(event.type) > 0) this.#emitter.emit(event.type, event, originOf(run, event));
    }
  }

  /** The wrapper that the emitter holds. A listener always has the same wrapper, so that `off` finds it. */
  #guard(listener: AnyListener): Guarded {
    let guarded = this.#guarded.get(listener);
    if (guarded === undefined) {
      guarded = (event, origin) => {
        const { tenant, run_id, agent_name } = origin;
        const about = { tenant, run_id, agent_name, event: event.type };
        inBackground(this.#logger, () => listener(event as never, origin), "A listener of events threw.", about);
      };
      this.#guarded.set(listener, guarded);
    }
    return guarded;
  }
}

function originOf(run: LiveRun, { type }: { readonly type: string }): EventOrigin {
  const cause = run.extras?.cause;
  const { agent_name, session_id } = createdEntry(run.log.state);
  const { run_id, tenant } = run.log.key;
  return {
    run_id,
    agent_name,
    session_id,
    tenant,
    ...(cause !== undefined && { cause }),
    ...(ends.has(type) && { counters: countRun(run.log.state) }),
  };
}
