import { inBackground } from "../../core/background.ts";
import type { DetailFold } from "../../core/detail.ts";
import type { CadenzaError } from "../../core/errors.ts";
import { evolve } from "../../core/evolve.ts";
import type { Entry } from "../../core/log.ts";
import type { Clock, RunKey } from "../../core/ports.ts";
import type { StreamedEvent } from "../../core/project.ts";
import { project } from "../../core/project.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { RunState } from "../../core/state.ts";
import { initialState, isAtRest, isFinal } from "../../core/state.ts";
import { isRestEvent } from "../../protocol/event.ts";
import type { DetailEvent } from "../../protocol/extensions.ts";
import { silentLogger, TURN_ENTRIES } from "./system.ts";

/** A log as a reader sees it: the committed entries, and a call when there are more. */
export interface LogSource {
  readonly key: RunKey;
  /** The number of committed entries. */
  readonly committed: number;
  /** Whether this source ends here. The reader looks for the run again. */
  readonly lost: boolean;
  /** The error of a blocked run; undefined if the run is not blocked. */
  readonly blocked: CadenzaError | undefined;
  read(from: number): MaybePromise<readonly Entry[] | undefined>;
  /** Calls back once when there may be more entries. */
  watch(callback: () => void): void;
  unwatch(callback: () => void): void;
}

/**
 * Where a stream ends. `now`: after the committed events. `end`: when the run has ended. `rest`: after the last event
 * of a run that rests.
 * `next-rest`: after the first event that says that the run rests, even if the run has gone on since.
 */
export type StreamEnd = "now" | "end" | "rest" | "next-rest";

/** What a stream needs from the runtime. */
export interface StreamHost {
  readonly clock: Pick<Clock, "turn">;
  /**
   * Finds the log of a run whose earlier source is lost, and was read as far as `from`. Throws `runtime_closed` when the
   * runtime is closed.
   */
  find(key: RunKey, from: number): MaybePromise<LogSource | undefined>;
  /** Whether readers of a blocked run wait until matching code is registered. Otherwise they get an error. */
  readonly waitsForCode: boolean;
  /** Called when a reader begins to wait. The returned function is called when the wait ends. */
  hold(): void;
  letGo(): void;
}

/** How a stream begins. */
export interface StreamStart {
  readonly source: LogSource;
  /** The id of the last event to skip. */
  readonly after: number;
  readonly until: StreamEnd;
  /** A state at or before that event, on which what follows is folded. Left out: the log is read from its beginning. */
  readonly state?: RunState | undefined;
  /** The stream continues behind deleted generations without a word. Left out: it ends there with an error. */
  readonly passesGaps?: true;
  /** Tells also what the protocol has no events for. */
  readonly details?: DetailFold | undefined;
}

/** What a reader of details gets: the events of the protocol, and between them the details. */
export type DetailedEvent = StreamedEvent | DetailEvent;

type Result = IteratorResult<DetailedEvent, undefined>;

const finished: IteratorResult<never, undefined> = { done: true, value: undefined };
const none: readonly Entry[] = [];
const noDetails: readonly DetailEvent[] = [];
const deleted = "The store has deleted this run before all of its events were read.";
const notKept = (last: number) =>
  `The events of this run up to ${last} are deleted: retention.keepGenerations keeps its last generations. Read on after event ${last}.`;
const storeLost = "The store has lost events of this run that were read here. Read the run from its beginning.";

/**
 * The events of a run, read from its log at the reader's own pace. The stream is a cursor, not a queue: a slow reader
 * buffers nothing and delays no other reader. Leaving the loop detaches the reader. The run continues.
 */
export class EventStream implements AsyncIterableIterator<DetailedEvent, undefined> {
  #opening: Promise<StreamStart> | undefined;
  readonly #host: StreamHost;
  #start: StreamStart | undefined;
  #state: RunState | undefined;
  #source: LogSource | undefined;
  #chunk: readonly Entry[] = none;
  #chunkIndex = 0;
  /** The position at which other work last had a turn. */
  #turnedAt = 0;
  /** The entry whose events are being delivered, how many events it has, and the index of the next. */
  #entry: Entry | undefined;
  #count = 0;
  #index = 0;
  /** The details of that entry, which come before its events. */
  #details = noDetails;
  #detailIndex = 0;
  #done = false;
  #pending: Promise<Result> | undefined;
  #wake: (() => void) | undefined;

  constructor(opening: MaybePromise<StreamStart>, host: StreamHost) {
    this.#host = host;
    if (isPromise(opening)) {
      this.#opening = opening;
      opening.catch(ignore);
    } else this.#open(opening);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Result> {
    try {
      return Promise.resolve(this.poll());
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * As `next`, but returns an available event without a promise. A caller that writes many events needs no wait for
   * each.
   */
  poll(): MaybePromise<Result> {
    // Concurrent calls are served in order.
    if (this.#pending !== undefined) {
      const next = (): MaybePromise<Result> => this.#next();
      return this.#follow(this.#pending.then(next, next));
    }
    const result = this.#opening === undefined ? this.#next() : this.#begin(this.#opening);
    return isPromise(result) && result !== this.#pending ? this.#follow(result) : result;
  }

  return(): Promise<Result> {
    this.#done = true;
    if (this.#wake !== undefined) this.#source?.unwatch(this.#wake);
    this.#wake?.();
    return Promise.resolve(finished);
  }

  #follow(result: Promise<Result>): Promise<Result> {
    this.#pending = result;
    const clear = (): void => {
      if (this.#pending === result) this.#pending = undefined;
    };
    inBackground(silentLogger, result.then(clear, clear));
    return result;
  }

  /** A stream that cannot be opened rejects once. */
  async #begin(opening: Promise<StreamStart>): Promise<Result> {
    this.#opening = undefined;
    this.#host.hold();
    try {
      this.#open(await opening);
    } finally {
      this.#host.letGo();
    }
    return this.#next();
  }

  #open(start: StreamStart): void {
    this.#start = start;
    this.#source = start.source;
    this.#state = start.state ?? initialState(start.source.key.run_id);
    this.#turnedAt = this.#state.position;
  }

  /** The next event, now or later. */
  #next(): MaybePromise<Result> {
    const state = this.#state;
    const start = this.#start;
    const source = this.#source;
    if (state === undefined || start === undefined || source === undefined) return finished;
    while (!this.#done) {
      const detail = this.#details[this.#detailIndex++];
      if (detail !== undefined) return { done: false, value: detail };
      if (this.#entry !== undefined && this.#index < this.#count) {
        const index = this.#index++;
        if (state.events - this.#count + index < start.after) continue;
        const event = project(state, this.#entry, index);
        if (event === undefined) continue;
        if (start.until === "next-rest" && isRestEvent(event)) this.#done = true;
        return { done: false, value: event };
      }
      const entry = this.#chunk[this.#chunkIndex];
      if (entry !== undefined) {
        this.#chunkIndex += 1;
        const { position } = state;
        evolve(state, entry);
        // Of the entry behind a gap the last event is there: it may complete a message that is deleted before.
        const lost = state.events - 1;
        if (state.position > position + 1 && start.after < lost && start.passesGaps !== true)
          return this.#loseEvents(notKept(lost), lost);
        this.#entry = entry;
        this.#count = state.last_events;
        this.#index = 0;
        if (start.details !== undefined) this.#tellDetails(state, entry, start.details);
        continue;
      }
      if (state.position > source.committed && !source.lost) return this.#loseEvents(storeLost);
      if (state.position === source.committed) {
        if (start.until === "now") break;
        if (isFinal(state.status) || (start.until !== "end" && isAtRest(state.status) && state.events >= start.after))
          break;
        if (source.blocked !== undefined && !this.#host.waitsForCode) return this.#refuse(source.blocked);
        return source.lost ? this.#moveOn(source) : this.#wait(source);
      }
      if (state.position - this.#turnedAt >= TURN_ENTRIES) {
        this.#turnedAt = state.position;
        return this.#host.clock.turn().then(() => this.#next());
      }
      const read = source.read(state.position);
      if (isPromise(read)) return read.then((chunk) => this.#take(chunk));
      const early = this.#accept(read);
      if (early !== undefined) return early;
    }
    this.#done = true;
    return finished;
  }

  /** Details are skipped with the event that they come before, or before which they would come. */
  #tellDetails(state: RunState, entry: Entry, fold: DetailFold): void {
    const details = fold.detailsOf(state, entry);
    this.#details = state.events - state.last_events < (this.#start?.after ?? 0) ? noDetails : details;
    this.#detailIndex = 0;
  }

  #take(chunk: readonly Entry[] | undefined): MaybePromise<Result> {
    return this.#accept(chunk) ?? this.#next();
  }

  /** Takes a chunk of entries. Returns an error event if the store has deleted the run. */
  #accept(chunk: readonly Entry[] | undefined): Result | undefined {
    this.#chunk = chunk ?? none;
    this.#chunkIndex = 0;
    return chunk !== undefined && chunk.length > 0 ? undefined : this.#loseEvents(deleted);
  }

  /** `id`: up to which event they are lost. */
  #loseEvents(message: string, id = this.#state?.events ?? 0): Result {
    this.#done = true;
    return {
      done: false,
      value: { type: "error", error: { code: "server_error", message, data: { reason: "events_lost" } }, id },
    };
  }

  /** All events are delivered, and the run is blocked. */
  #refuse(error: CadenzaError): Promise<never> {
    this.#done = true;
    return Promise.reject(error);
  }

  #wait(source: LogSource): Promise<Result> {
    this.#host.hold();
    const promise = new Promise<Result>((resolve, reject) => {
      const wake = (): void => {
        if (this.#wake !== wake) return;
        this.#host.letGo();
        this.#wake = undefined;
        this.#pending = undefined;
        try {
          resolve(this.#next());
        } catch (error) {
          reject(error);
        }
      };
      this.#wake = wake;
      source.watch(wake);
    });
    if (this.#wake !== undefined) this.#pending = promise;
    return promise;
  }

  /** Another process owns the run, or the run was evicted. The stream continues with the log's new source. */
  #moveOn(from: LogSource): MaybePromise<Result> {
    const go = (source: LogSource | undefined): MaybePromise<Result> => {
      // A run that the store never accepted has no events.
      if (source === undefined && this.#state?.position === 0) this.#done = true;
      else if (source === undefined) return this.#take(undefined);
      else this.#source = source;
      return this.#next();
    };
    const source = this.#host.find(from.key, this.#state?.position ?? 0);
    return isPromise(source) ? source.then(go) : go(source);
  }
}
