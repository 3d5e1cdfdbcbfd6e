import type { Contained } from "../../core/background.ts";
import { contained, eachInBackground, whenSettled } from "../../core/background.ts";
import type { CreatedEntry } from "../../core/log.ts";
import type { Clock, Logger, RunKey, Store } from "../../core/ports.ts";
import type { Interceptors } from "../agent/interceptors.ts";
import { withCarrier } from "../agent/interceptors.ts";
import type { MessageLimits } from "./part-size.ts";
import { Pauses } from "./pauses.ts";
import { Slots } from "./run-slot.ts";
import type { StepLimits } from "./step-limits.ts";
import type { StoreClock } from "./store-clock.ts";
import { holdOpen } from "./system.ts";
import { Trimming } from "./trimming.ts";

/** The limits under which agents are executed. Durations are in milliseconds. */
export interface ExecutionSettings extends MessageLimits {
  readonly timeoutMs: number;
  readonly awaitTimeoutMs: number;
  readonly cancelGraceMs: number;
  readonly maxPartBytes: number;
  readonly maxStepBytes: number;
  readonly maxBacklog: number;
  readonly maxDepth: number;
  /** How many stored runs the search for the run with a message's labels looks at. */
  readonly maxExaminedRuns: number;
  /** Whether clients get the messages of errors that agents throw. */
  readonly exposeErrors: boolean;
  readonly interceptors: Interceptors;
  readonly stepLimits: StepLimits;
  /** How many generations of a run are kept. */
  readonly keepGenerations: number;
}

const MIN_DIRTY = 64;

/** A log that may have something for the store. */
interface DirtyLog {
  readonly isDue: boolean;
  flush(): void;
}

const flushLog = (log: DirtyLog): void => log.flush();

/** What the live runs of one runtime share. */
export class SharedByRuns {
  readonly store: Store;
  readonly clock: StoreClock;
  readonly logger: Logger;
  readonly settings: ExecutionSettings;
  readonly slots: Slots;
  readonly pauses: Pauses;
  readonly trimming: Trimming;
  readonly figures = new RunFigures();
  /** Tells runs what those that they have started have done. */
  readonly telling = new OneByOne();
  /**
   * How far the runtime has been closed. `draining`: no run begins, is loaded or is answered any more. `handing on`: also,
   * the runs that other processes can go on with begin no more steps here.
   */
  stage: "open" | "draining" | "handing on" = "open";
  /** Called after every commit while the runtime is being closed. */
  onProgress: (() => void) | undefined;
  /** Counts what the agents of all runs give: when it is due, other work of the process gets a turn of the event loop. */
  readonly pacer: Pacer;
  /** The logs to be written at the end of the turn. */
  #dirty: DirtyLog[] | undefined;
  /** With so many, those that have been written meanwhile are forgotten: a turn may take long. */
  #maxDirty = MIN_DIRTY;
  readonly #onTurn: Contained<unknown>;
  #holds = 0;
  #endHold: (() => void) | undefined;
  /** The end of what the process is kept open for. Made once for all callers that wait. */
  readonly #onDone = <T>(value: T): T => {
    this.letGo();
    return value;
  };
  readonly #onFailed = (error: unknown): never => {
    this.letGo();
    throw error;
  };

  constructor(store: Store, clock: StoreClock, logger: Logger, settings: ExecutionSettings) {
    this.store = store;
    this.clock = clock;
    this.logger = logger;
    this.settings = settings;
    this.slots = new Slots(clock);
    this.pacer = new Pacer(clock);
    this.pauses = new Pauses(store, clock, logger);
    this.trimming = new Trimming(store, clock, logger, settings.keepGenerations);
    const flush = (shared: SharedByRuns): void => shared.#flush();
    // Also where the clock fails to give a turn.
    this.#onTurn = contained(this, flush, flush);
  }

  /** Whether the runtime has been closed: no run begins, is loaded or is answered any more. */
  get isClosed(): boolean {
    return this.stage !== "open";
  }

  /** The first entry of a new run with what the interceptors give it to carry. */
  withCarrier(key: RunKey, created: CreatedEntry): CreatedEntry {
    return withCarrier(this.settings.interceptors, key, created, this.logger);
  }

  /** Keeps the process open until {@link letGo} was called as often as this. */
  hold(): void {
    this.#holds += 1;
    if (this.#holds === 1) this.#endHold = holdOpen(this.clock);
  }

  letGo(): void {
    this.#holds -= 1;
    if (this.#holds > 0) return;
    this.#endHold?.();
    this.#endHold = undefined;
  }

  /** Keeps the process open until the promise is settled. */
  holdFor<T>(work: Promise<T>): Promise<T> {
    this.hold();
    return work.then(this.#onDone, this.#onFailed);
  }

  /** The log has entries that no caller waits for. They are committed at the end of the turn. */
  commitSoon(log: DirtyLog): void {
    if (this.#dirty !== undefined) {
      this.#dirty.push(log);
      if (this.#dirty.length < this.#maxDirty) return;
      this.#dirty = this.#dirty.filter(({ isDue }) => isDue);
      this.#maxDirty = Math.max(MIN_DIRTY, 2 * this.#dirty.length);
      return;
    }
    this.#dirty = [log];
    whenSettled(this.clock.turn(), this.#onTurn);
  }

  #flush(): void {
    const dirty = this.#dirty ?? [];
    this.#dirty = undefined;
    // One that fails does not keep the others from being written.
    eachInBackground(this.logger, dirty, flushLog);
  }
}

/**
 * Runs tasks that lead to more tasks one after the other instead of nested, so that long chains do not overflow the
 * stack.
 */
export class OneByOne {
  #queue: (() => void)[] | undefined;

  /** Runs the task now, or after the tasks that are running. */
  do(work: () => void): void {
    if (this.#queue !== undefined) {
      this.#queue.push(work);
      return;
    }
    const queue = [work];
    this.#queue = queue;
    let done = 0;
    try {
      for (const next of queue) {
        done += 1;
        next();
      }
    } finally {
      this.#queue = undefined;
      // Tasks are left only if one has thrown.
      for (const rest of queue.slice(done)) this.do(rest);
    }
  }
}

const MAX_ENTRIES = 1_000;
const MAX_MS = 10;

/**
 * Takes a turn of the event loop every 1,000 entries or 10 ms, so that an agent that never waits does not block timers
 * and sockets.
 */
class Pacer {
  readonly #clock: Clock;
  #entries = 0;
  #since = 0;
  #turn: Promise<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts an entry. A promise: wait for it before the next one. */
  count(at: number): undefined | Promise<void> {
    if (this.#turn !== undefined) return this.#turn;
    if (this.#entries++ === 0) this.#since = at;
    if (this.#entries < MAX_ENTRIES && at - this.#since < MAX_MS) return undefined;
    const turn = this.#clock.turn().then(() => {
      this.#entries = 0;
      this.#turn = undefined;
    });
    this.#turn = turn;
    return turn;
  }
}

/** Counts of this process that are in no log. */
export interface RunsReport {
  /** The runs in this process that have not ended, by status. */
  readonly live: Readonly<Record<string, number>>;
  /** How many runs wait for a slot. */
  readonly queued: number;
  /** How many values agents emitted after their run had ended, and steps after their generation. They are dropped. */
  readonly dropped: number;
  /** How many stopped agents did not end within `cancelGraceMs`. */
  readonly hung: number;
  /** How many runs were cancelled without their `finally` blocks, because no matching code was registered. */
  readonly withoutFinally: number;
}

/** The counters behind {@link RunsReport}. */
class RunFigures {
  dropped = 0;
  hung = 0;
  withoutFinally = 0;
}
