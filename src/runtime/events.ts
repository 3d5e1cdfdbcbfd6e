import type { CadenzaError } from "../core/errors.ts";
import { evolve } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { RunKey } from "../core/ports.ts";
import type { StreamedEvent } from "../core/project.ts";
import { eventCount, project } from "../core/project.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import type { RunState } from "../core/state.ts";
import { initialState, isAtRest, isFinal } from "../core/state.ts";
import { isRestEvent } from "../protocol/event.ts";

/** A log as a reader sees it: what is committed, and when there is more. */
export interface LogSource {
  readonly key: RunKey;
  /** How many entries there are to read. */
  readonly committed: number;
  /** Whether the log goes on elsewhere. */
  readonly lost: boolean;
  /** Why the run does not get on; undefined if it does. */
  readonly blocked: CadenzaError | undefined;
  read(from: number): MaybePromise<readonly Entry[] | undefined>;
  /** Calls back once when there may be more. */
  watch(callback: () => void): void;
  unwatch(callback: () => void): void;
}

/**
 * Where a stream ends. `now`: with what has been said. `end`: with the run. `rest`: when the run rests and everything has been said.
 * `next-rest`: with the first event that says that the run rests, even if it has gone on since.
 */
export type StreamEnd = "now" | "end" | "rest" | "next-rest";

/** What a stream needs from the runtime. */
export interface StreamHost {
  /** The log of a run that has gone elsewhere, where it is now. Throws once the runtime has been closed. */
  find(key: RunKey): MaybePromise<LogSource | undefined>;
  /** Whether readers of a blocked run wait until matching code is registered; otherwise they are refused. */
  readonly waitsForCode: boolean;
  /** Called when a reader has to wait; the answer is called when there is something for it. */
  hold(): () => void;
}

/** How a stream begins. */
export interface StreamStart {
  readonly source: LogSource;
  /** The number of the last event that is not wanted. */
  readonly after: number;
  readonly until: StreamEnd;
}

const finished: IteratorResult<StreamedEvent, undefined> = { done: true, value: undefined };
const none: readonly Entry[] = [];
const forgotten = "Events of this run have been forgotten before they were read.";
const storeLost = "The store has lost events of this run that were read here. Read the run from its beginning.";

/**
 * The events of a run, read from its log at the reader's own pace. It is a cursor, not a queue: a reader that stops reading holds
 * back nobody and buffers nothing. Leaving the loop detaches it; the run goes on.
 */
export class EventStream implements AsyncIterableIterator<StreamedEvent, undefined> {
  #opening: Promise<StreamStart> | undefined;
  readonly #host: StreamHost;
  #start: StreamStart | undefined;
  #state: RunState | undefined;
  #source: LogSource | undefined;
  #chunk: readonly Entry[] = none;
  #chunkIndex = 0;
  /** The entry whose events are being told, how many they are, and which comes next. */
  #entry: Entry | undefined;
  #count = 0;
  #index = 0;
  #done = false;
  #pending: Promise<IteratorResult<StreamedEvent, undefined>> | undefined;
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

  next(): Promise<IteratorResult<StreamedEvent, undefined>> {
    try {
      return Promise.resolve(this.poll());
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** As `next`, but an event that is there is given at once: who writes many at a time need not wait for each. */
  poll(): MaybePromise<IteratorResult<StreamedEvent, undefined>> {
    // Readers that ask ahead are served in order.
    if (this.#pending !== undefined) {
      const next = (): MaybePromise<IteratorResult<StreamedEvent, undefined>> => this.#next();
      return this.#follow(this.#pending.then(next, next));
    }
    const result = this.#opening === undefined ? this.#next() : this.#begin(this.#opening);
    return isPromise(result) && result !== this.#pending ? this.#follow(result) : result;
  }

  return(): Promise<IteratorResult<StreamedEvent, undefined>> {
    this.#done = true;
    if (this.#wake !== undefined) this.#source?.unwatch(this.#wake);
    this.#wake?.();
    return Promise.resolve(finished);
  }

  #follow(
    result: Promise<IteratorResult<StreamedEvent, undefined>>,
  ): Promise<IteratorResult<StreamedEvent, undefined>> {
    this.#pending = result;
    const clear = (): void => {
      if (this.#pending === result) this.#pending = undefined;
    };
    result.then(clear, clear);
    return result;
  }

  /** A stream that cannot be opened says so once. */
  async #begin(opening: Promise<StreamStart>): Promise<IteratorResult<StreamedEvent, undefined>> {
    this.#opening = undefined;
    const letGo = this.#host.hold();
    try {
      this.#open(await opening);
    } finally {
      letGo();
    }
    return this.#next();
  }

  #open(start: StreamStart): void {
    this.#start = start;
    this.#source = start.source;
    this.#state = initialState(start.source.key.run_id);
  }

  /** The next event, now or later. */
  #next(): MaybePromise<IteratorResult<StreamedEvent, undefined>> {
    const state = this.#state;
    const start = this.#start;
    const source = this.#source;
    if (state === undefined || start === undefined || source === undefined) return finished;
    while (!this.#done) {
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
        evolve(state, entry);
        this.#entry = entry;
        this.#count = eventCount(entry);
        this.#index = 0;
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
      const read = source.read(state.position);
      if (isPromise(read)) return read.then((chunk) => this.#take(chunk));
      const early = this.#accept(read);
      if (early !== undefined) return early;
    }
    this.#done = true;
    return finished;
  }

  #take(chunk: readonly Entry[] | undefined): MaybePromise<IteratorResult<StreamedEvent, undefined>> {
    return this.#accept(chunk) ?? this.#next();
  }

  /** Takes what was read. An answer: the store has forgotten the run, and the reader is told so. */
  #accept(chunk: readonly Entry[] | undefined): IteratorResult<StreamedEvent, undefined> | undefined {
    this.#chunk = chunk ?? none;
    this.#chunkIndex = 0;
    return chunk !== undefined && chunk.length > 0 ? undefined : this.#loseEvents(forgotten);
  }

  #loseEvents(message: string): IteratorResult<StreamedEvent, undefined> {
    this.#done = true;
    const id = this.#state?.events ?? 0;
    return {
      done: false,
      value: { type: "error", error: { code: "server_error", message, data: { reason: "events_lost" } }, id },
    };
  }

  /** Everything has been told, and nothing more will come. */
  #refuse(error: CadenzaError): Promise<never> {
    this.#done = true;
    return Promise.reject(error);
  }

  #wait(source: LogSource): Promise<IteratorResult<StreamedEvent, undefined>> {
    const letGo = this.#host.hold();
    const promise = new Promise<IteratorResult<StreamedEvent, undefined>>((resolve, reject) => {
      const wake = (): void => {
        letGo();
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

  /** The run went to another process, or to sleep: its log is read from where it is now. */
  #moveOn(from: LogSource): MaybePromise<IteratorResult<StreamedEvent, undefined>> {
    const go = (source: LogSource | undefined): MaybePromise<IteratorResult<StreamedEvent, undefined>> => {
      // A run that the store never took has nothing to tell.
      if (source === undefined && this.#state?.position === 0) this.#done = true;
      else if (source === undefined) return this.#take(undefined);
      else this.#source = source;
      return this.#next();
    };
    const source = this.#host.find(from.key);
    return isPromise(source) ? source.then(go) : go(source);
  }
}
