import { endOf, inBackground, onceAborted } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { WatchedEvent } from "../../core/feed.ts";
import { copyJson } from "../../core/json.ts";
import type { Clock, FeedItem, FeedPage, Logger, Store } from "../../core/ports.ts";
import { isOwn } from "../../core/tenants.ts";
import { isoTime } from "../../core/time.ts";
import { badArgument, checkKeys, checkObject, checkSignal, checkText } from "../agent/check.ts";
import { closedError } from "./refusals.ts";
import { FIRST_PAUSE_MS, nextPauseMs, pollMs } from "./store-failures.ts";
import { holdOpen, silentLogger } from "./system.ts";

/** The types of events that `watch` gives. */
export type WatchedType = WatchedEvent["type"];

/** Which events to watch. */
export interface WatchOptions<Type extends WatchedType = WatchedType> {
  /** Only events of these types. Default: of all. */
  readonly types?: readonly Type[] | undefined;
  /**
   * Behind which event to begin: the `position` of an event, or of a watch. `start`: with the first event that the store
   * keeps. `now`: with what happens from now on. Default: `start`.
   */
  readonly from?: string | undefined;
  /** Ends the loop, without an error. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** An event of a run, wherever the run is executed. */
export interface Watched<Type extends WatchedType = WatchedType> {
  /**
   * The place of the event among the events of all runs, valid after a restart. Keep it when the event has been dealt with: a
   * watch `from` there begins behind the event.
   */
  readonly position: string;
  readonly tenant: string;
  readonly run_id: string;
  readonly agent_name: string;
  /** When it was written, as a time in ISO 8601, by the store's clock. */
  readonly at: string;
  readonly event: Extract<WatchedEvent, { readonly type: Type }>;
}

/** The events of all runs, in one order that never changes. */
export interface Watch<Type extends WatchedType = WatchedType>
  extends AsyncIterableIterator<Watched<Type>, undefined, undefined> {
  /**
   * Behind what has been dealt with: the event that the loop is at does not count, and events of other types do. Keep it from time
   * to time where the events are rare: the store deletes those that are too old. Undefined before the first event.
   */
  readonly position: string | undefined;
}

const types: readonly WatchedType[] = [
  "run.awaiting",
  "run.completed",
  "run.failed",
  "run.cancelled",
  "run.blocked",
  "question.settled",
];
/** How many events are read at once. A synchronous store blocks the event loop meanwhile. */
const PAGE = 500;
/** The first pause before events are read again that an open transaction holds back. It doubles each time. */
const SOON_MS = 10;

const finished: IteratorResult<never, undefined> = { done: true, value: undefined };

/** An event that a watch gives. */
type WantedItem<Type extends WatchedType> = FeedItem & Pick<Watched<Type>, "event">;

/** A shared read of the feed. */
interface Reading {
  readonly from: string;
  /** How often there had been news when it began. */
  readonly news: number;
  /** Whether it has found events: these stay behind `from`. */
  isFound: boolean;
  readonly page: Promise<FeedPage | undefined>;
}

/** A watch that has read all that there is. */
interface Waiting {
  readonly position: string;
  readonly wake: () => void;
}

/**
 * Reads the feed of the store for all watches of this process. Those that have read all that there is share each read, and
 * one timer. A commit of this process and hints of the store make it read earlier.
 */
export class Feed {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** How often there may have been more events. */
  news = 0;
  /** What ends the watches that are being read from. */
  readonly #ends = new Set<() => void>();
  readonly #waiting = new Set<Waiting>();
  #reading: Reading | undefined;
  /** The next look for the watches that wait: stops its timer. `now`: the look is under way. Undefined: none is due. */
  #look: (() => void) | "now" | undefined;
  #unwatch: (() => void) | undefined;
  #isOver = false;

  constructor(store: Store, clock: Clock, logger: Logger) {
    this.store = store;
    this.clock = clock;
    this.logger = logger;
  }

  /**
   * The events of one tenant, or of all that applications have. A watch that is refused, or cannot be opened, rejects its
   * first `next`.
   */
  watch<Type extends WatchedType>(
    options: WatchOptions<Type>,
    tenant: string | undefined,
    refused?: CadenzaError,
  ): Watch<Type> {
    let refusal: unknown;
    let read: WatchOptions<Type> = {};
    try {
      read = readOptions(options);
      if (refused !== undefined) throw refused;
      if (this.#isOver) throw closedError();
      if (this.store.readFeed === undefined) throw noFeedError();
    } catch (error) {
      refusal = error;
    }
    return new FeedWatch(this, read, tenant, refusal);
  }

  /** There may be more events. */
  look(): void {
    this.news += 1;
    if (this.#waiting.size > 0) inBackground(this.logger, this.#lookNow());
  }

  /** The runtime is closed: all watches end. */
  end(): void {
    this.#isOver = true;
    for (const end of [...this.#ends]) end();
  }

  /** A watch is read from, until the returned function is called. `end` ends it. */
  enter(end: () => void): () => void {
    this.#ends.add(end);
    this.#unwatch ??= this.store.watch?.(({ fed }) => fed === true && this.look());
    return () => {
      this.#ends.delete(end);
      if (this.#ends.size > 0) return;
      this.#unwatch?.();
      this.#unwatch = undefined;
      this.#reading = undefined;
    };
  }

  /** What comes behind a position, of all tenants and types. */
  read(from: string): Promise<FeedPage | undefined> {
    const last = this.#reading;
    if (last?.from === from && (last.isFound || last.news === this.news)) return last.page;
    const reading: Reading = { from, news: this.news, isFound: false, page: this.#readNow(from) };
    this.#reading = reading;
    const forget = (): void => {
      if (this.#reading === reading) this.#reading = undefined;
    };
    const found = (page: FeedPage | undefined): void => {
      if (page === undefined || page.position === from) forget();
      else reading.isFound = true;
    };
    inBackground(silentLogger, reading.page.then(found, forget));
    return reading.page;
  }

  /**
   * Calls back once when there is more behind a position. `news`: how often there had been news when it was read.
   * `more`: what the store has said of it. The returned function ends that.
   */
  wait(position: string, news: number, more: FeedPage["more"], wake: () => void): () => void {
    const waiting: Waiting = { position, wake };
    this.#waiting.add(waiting);
    if (news !== this.news) inBackground(this.logger, this.#lookNow());
    else if (more === "soon") this.#lookIn(SOON_MS);
    else if (this.#look === undefined) this.#lookIn(pollMs(this.store));
    return () => {
      this.#waiting.delete(waiting);
      if (this.#waiting.size === 0) this.#stopTimer();
    };
  }

  async #readNow(from: string): Promise<FeedPage | undefined> {
    return this.store.readFeed?.({ from, limit: PAGE });
  }

  #lookIn(delayMs: number, pauseMs = delayMs): void {
    if (this.#look === "now") return;
    this.#stopTimer();
    this.#look = this.clock.setTimeout(() => inBackground(this.logger, this.#lookNow(pauseMs)), delayMs);
  }

  /** A look that is under way continues. */
  #stopTimer(): void {
    if (this.#look === "now") return;
    this.#look?.();
    this.#look = undefined;
  }

  /** Wakes the watches for which there is more. `pausedMs`: how long the pause before it was. */
  async #lookNow(pausedMs = 0): Promise<void> {
    if (this.#look === "now") return;
    this.#stopTimer();
    this.#look = "now";
    let pauseMs = pollMs(this.store);
    try {
      for (let news = -1; news !== this.news; ) {
        news = this.news;
        if (await this.#wakeWaiting()) pauseMs = Math.min(pauseMs, Math.max(SOON_MS, 2 * pausedMs));
      }
    } catch (error) {
      this.logger.warn("The store failed to read the feed. It is read again.", { error });
      pauseMs = Math.max(pauseMs, nextPauseMs(pausedMs));
    }
    this.#look = undefined;
    if (this.#waiting.size > 0) this.#lookIn(pauseMs);
  }

  /** Answers whether there are events that cannot be read yet. */
  async #wakeWaiting(): Promise<boolean> {
    let isSoon = false;
    for (const from of new Set([...this.#waiting].map(({ position }) => position))) {
      const page = await this.read(from);
      isSoon ||= page?.more === "soon";
      if (page?.position === from) continue;
      for (const waiting of [...this.#waiting]) {
        if (waiting.position !== from) continue;
        this.#waiting.delete(waiting);
        waiting.wake();
      }
    }
    return isSoon;
  }
}

/** A cursor over the feed. It holds a page at most, and delays no other watch. */
class FeedWatch<Type extends WatchedType> implements Watch<Type> {
  position: string | undefined;
  readonly #feed: Feed;
  readonly #options: WatchOptions<Type>;
  readonly #tenant: string | undefined;
  #refusal: unknown;
  /** Behind what has been read. */
  #from: string;
  /** Behind what has been given. */
  #given: string | undefined;
  #items: readonly WantedItem<Type>[] = [];
  #index = 0;
  /** What comes behind what has been read. `now`: many events may, of which the store gives those that are wanted. */
  #more: FeedPage["more"] = "now";
  #failureMs = FIRST_PAUSE_MS;
  #isOver = false;
  #last: Promise<unknown> | undefined;
  #wake: (() => void) | undefined;

  constructor(feed: Feed, options: WatchOptions<Type>, tenant: string | undefined, refusal: unknown) {
    this.#feed = feed;
    this.#options = options;
    this.#tenant = tenant;
    this.#refusal = refusal;
    this.#from = options.from ?? "start";
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Concurrent calls are served in order. */
  next(): Promise<IteratorResult<Watched<Type>, undefined>> {
    const next = this.#nextAfter(this.#last);
    this.#last = endOf(silentLogger, next);
    return next;
  }

  async return(): Promise<IteratorResult<never, undefined>> {
    this.#end();
    return finished;
  }

  readonly #end = (): void => {
    this.#isOver = true;
    this.#wake?.();
  };

  async #nextAfter(last: Promise<unknown> | undefined): Promise<IteratorResult<Watched<Type>, undefined>> {
    await last;
    this.position = this.#given ?? this.position;
    const refusal = this.#refusal;
    this.#refusal = undefined;
    if (refusal !== undefined) {
      this.#isOver = true;
      throw refusal;
    }
    return this.#take() ?? this.#takeLater();
  }

  /** The next event of those that were read. */
  #take(): IteratorResult<Watched<Type>, undefined> | undefined {
    if (this.#isOver || this.#options.signal?.aborted === true) return finished;
    const item = this.#items[this.#index++];
    if (item === undefined) return undefined;
    this.#given = item.position;
    const { position, key, agent_name, at } = item;
    // A store may keep the event, or give it to another watch.
    const event = copyJson(item.event) as typeof item.event;
    return { done: false, value: { position, ...key, agent_name, at: isoTime(at), event } };
  }

  async #takeLater(): Promise<IteratorResult<Watched<Type>, undefined>> {
    const { logger, clock } = this.#feed;
    const { signal } = this.#options;
    const leave = this.#feed.enter(this.#end);
    const letGo = holdOpen(clock);
    const unlisten = signal && onceAborted(logger, signal, this.#end);
    try {
      for (;;) {
        const taken = this.#take();
        if (taken !== undefined) return taken;
        await this.#read();
      }
    } catch (error) {
      this.#isOver = true;
      throw error;
    } finally {
      unlisten?.();
      letGo();
      leave();
    }
  }

  /** Reads on, or waits until there is more. */
  async #read(): Promise<void> {
    const feed = this.#feed;
    const { news } = feed;
    const from = this.#from;
    // Events of other types are passed over.
    if (from !== "start" && from !== "now") this.position = this.#given = from;
    const page = await this.#pageBehind(from);
    if (this.#isOver || page === "failed") return;
    if (page === undefined) throw lostError();
    this.#items = page.items.filter((item) => this.#wants(item));
    this.#index = 0;
    this.#from = page.position;
    this.#more = page.more;
    if (page.more === "now") await feed.clock.turn();
    else if (page.position === from) await this.#until((wake) => feed.wait(from, news, page.more, wake));
  }

  async #pageBehind(from: string): Promise<FeedPage | "failed" | undefined> {
    const feed = this.#feed;
    const { types } = this.#options;
    try {
      const page = await (this.#more === "now"
        ? feed.store.readFeed?.({ from, limit: PAGE, tenant: this.#tenant, types })
        : feed.read(from));
      this.#failureMs = FIRST_PAUSE_MS;
      return page;
    } catch (error) {
      feed.logger.warn("The store failed to read the feed. It is read again.", { error });
      await this.#until((wake) => feed.clock.setTimeout(wake, this.#failureMs));
      this.#failureMs = nextPauseMs(this.#failureMs);
      return "failed";
    }
  }

  /** Waits for a call back, or for the end of the watch. */
  async #until(begin: (wake: () => void) => () => void): Promise<void> {
    if (this.#isOver) return;
    let end: (() => void) | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      end = begin(resolve);
    });
    end?.();
    this.#wake = undefined;
  }

  #wants(item: FeedItem): item is WantedItem<Type> {
    const types: readonly string[] | undefined = this.#options.types;
    const { tenant } = item.key;
    const isOfTenant = this.#tenant === undefined ? !isOwn(tenant) : tenant === this.#tenant;
    return isOfTenant && (types?.includes(item.event.type) ?? true);
  }
}

function readOptions<Type extends WatchedType>(options: WatchOptions<Type>): WatchOptions<Type> {
  checkObject("options", options);
  checkKeys("options", options, ["types", "from", "signal"]);
  const { types: wanted, from, signal } = options;
  if (wanted !== undefined) {
    const isList = Array.isArray(wanted) && wanted.length > 0 && wanted.every((type) => types.includes(type));
    if (!isList) throw badArgument("options.types", `a list of some of ${types.join(", ")}`, wanted);
  }
  if (from !== undefined) checkText("options.from", from);
  checkSignal("options.signal", signal);
  return { types: wanted && [...wanted], from, signal };
}

/** The error for a scope with `owns`. */
export function ofAllUsersError(): CadenzaError {
  return new CadenzaError("invalid_argument", "A scope with `owns` cannot watch: the feed has all runs of the tenant.");
}

function noFeedError(): CadenzaError {
  return new CadenzaError(
    "invalid_argument",
    "The store keeps no feed, so that its runs cannot be watched. Open it with the option `feed: { keepMs }`, in each process that writes to it.",
  );
}

function lostError(): CadenzaError {
  return new CadenzaError(
    "events_lost",
    "The feed of the store no longer has all events behind the position, or the position is of another feed. Watch from the start, and read what runs wait for from lists.",
  );
}
