import { CadenzaError } from "../../core/errors.ts";
import { checkFormat } from "../../core/format.ts";
import type { Entry } from "../../core/log.ts";
import type {
  Clock,
  RunKey,
  RunPost,
  RunWrite,
  Store,
  StoreConflict,
  StoredRun,
  WrittenWithInbox,
} from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { LogTail } from "../../core/survey.ts";
import { closedError } from "./refusals.ts";
import type { Attempt } from "./run-write.ts";
import { holdOpen } from "./system.ts";

/** How long to wait before a store that has failed is called again. In milliseconds. */
export const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 5_000;

/** The pause after one of this length: twice as long, up to five seconds. */
export function nextPauseMs(pauseMs: number): number {
  return Math.min(2 * pauseMs, LAST_PAUSE_MS);
}

/**
 * The interval at which a store is asked for what other processes have written, in milliseconds. It is the longest delay of
 * an event from another process.
 */
const POLL_MS = 200;
/** The same for a store that gives hints. */
const HINTED_POLL_MS = 1_000;

/** The interval at which readers of what other processes write ask a store, in milliseconds. */
export function pollMs(store: Store): number {
  return store.watch === undefined ? POLL_MS : HINTED_POLL_MS;
}

/**
 * The door through which everything comes from a store. Its failures get the code `store_failed`, with the thrown value
 * as the cause: its message may tell addresses and data of a database, and the message of this error reaches clients where an
 * agent lets it through. Failures of `create` and `append` are not wrapped, because the writer of a run adds the run's id. Entries
 * that this version of the library would misread are refused with `newer_format`: no fold ever meets one. What fails once the
 * store is closed is refused with `runtime_closed`. `onFed` is called when a write has added to the feed.
 */
export function guarded(store: Store, onFed: () => void = ignore): Store {
  const time = store.time?.bind(store);
  const readFeed = store.readFeed?.bind(store);
  const snapshot = store.snapshot?.bind(store);
  const keepSnapshot = store.keepSnapshot?.bind(store);
  const changeVersion = store.changeVersion?.bind(store);
  let isClosed = false;
  const rethrow = (cause: unknown): never => {
    if (isClosed) throw closedError(cause);
    if (CadenzaError.is(cause)) throw cause;
    throw new CadenzaError("store_failed", "The store failed. The cause of this error says why.", { cause });
  };
  const named = <T>(call: () => MaybePromise<T>): MaybePromise<T> => {
    try {
      const answer = call();
      return isPromise(answer) ? answer.catch(rethrow) : answer;
    } catch (error) {
      return rethrow(error);
    }
  };
  const told = <Answer extends StoreConflict | WrittenWithInbox>(
    { feed }: RunWrite | RunPost,
    answer: MaybePromise<Answer | undefined>,
  ) =>
    feed === undefined
      ? answer
      : then(answer, (given) => {
          if (given?.conflict === undefined) onFed();
          return given;
        });
  return {
    persistent: store.persistent,
    create: (key, write, idempotencyKey) => told(write, store.create(key, write, idempotencyKey)),
    append: (key, expected, write) => told(write, store.append(key, expected, write)),
    post: (key, post) =>
      told(
        post,
        named(() => store.post(key, post)),
      ),
    ...(changeVersion !== undefined && {
      changeVersion: (...parameters) => named(() => changeVersion(...parameters)),
    }),
    claim: (...parameters) => named(() => store.claim(...parameters)),
    take: (request) => named(() => store.take(request)),
    renew: (...parameters) => named(() => store.renew(...parameters)),
    release: (name) => named(() => store.release(name)),
    find: (key, how) => named(() => then(store.find(key, how), (run) => run && knownInbox(run))),
    read: (key, from, limit) => named(() => then(store.read(key, from, limit), (entries) => known(key, from, entries))),
    trim: (...parameters) => named(() => store.trim(...parameters)),
    findByIdempotencyKey: (...parameters) => named(() => store.findByIdempotencyKey(...parameters)),
    list: (query) => named(() => store.list(query)),
    moved: (known) => named(() => store.moved(known)),
    owned: (...parameters) => named(() => store.owned(...parameters)),
    blocked: (query) => named(() => store.blocked(query)),
    backlog: () => named(() => store.backlog()),
    lines: (query) => named(() => store.lines(query)),
    pauses: () => named(() => store.pauses()),
    pause: (...parameters) => named(() => store.pause(...parameters)),
    resume: (runs) => named(() => store.resume(runs)),
    comeBack: (limit) => named(() => store.comeBack(limit)),
    grantSteps: (...parameters) => named(() => store.grantSteps(...parameters)),
    permitSteps: (...parameters) => named(() => store.permitSteps(...parameters)),
    survey: (query) => named(() => store.survey(query)),
    tails: (runs, count) => named(() => then(store.tails(runs, count), (tails) => tails.map(knownTail(runs)))),
    census: () => named(() => store.census()),
    living: () => named(() => store.living()),
    workers: () => named(() => store.workers()),
    session: (...parameters) => named(() => store.session(...parameters)),
    sessionHead: (key) => named(() => store.sessionHead(key)),
    makeSession: (...parameters) => named(() => store.makeSession(...parameters)),
    putSession: (...parameters) => named(() => store.putSession(...parameters)),
    counters: (agentName) => named(() => store.counters(agentName)),
    prune: (retention) => named(() => store.prune(retention)),
    delete: (runs) => named(() => store.delete(runs)),
    deleteSession: (key) => named(() => store.deleteSession(key)),
    ...(snapshot !== undefined && { snapshot: (key) => named(() => snapshot(key)) }),
    ...(keepSnapshot !== undefined && { keepSnapshot: (...parameters) => named(() => keepSnapshot(...parameters)) }),
    ...(readFeed !== undefined && { readFeed: (query) => named(() => readFeed(query)) }),
    ...(store.watch !== undefined && { watch: store.watch.bind(store) }),
    ...(time !== undefined && { time: () => named(time) }),
    close: () => {
      isClosed = true;
      return store.close();
    },
  };
}

function then<T, R>(value: MaybePromise<T>, go: (value: T) => R): MaybePromise<R> {
  return isPromise(value) ? value.then(go) : go(value);
}

function known(key: RunKey, from: number, entries: readonly Entry[] | undefined): readonly Entry[] | undefined {
  if (entries !== undefined) checkFormat(key, from, entries);
  return entries;
}

function knownInbox(run: StoredRun): StoredRun {
  for (const { entries } of run.inbox ?? []) checkFormat(run.key, run.position, entries);
  return run;
}

/** Leaves out a tail that this version cannot read, as a store leaves out a damaged one. */
function knownTail(runs: readonly RunKey[]): (tail: LogTail | undefined, index: number) => LogTail | undefined {
  return (tail, index) => {
    const key = runs[index];
    if (tail === undefined || key === undefined) return undefined;
    try {
      checkFormat(key, tail.from, tail.entries);
      return tail;
    } catch {
      return undefined;
    }
  };
}

/** The time in which the store fails to take the writes of a run. */
export class Outage {
  /** The error of the last write. */
  failure: CadenzaError;
  /** The attempts that failed. The store may still have written them. */
  readonly attempts: Attempt[] = [];
  readonly #clock: Clock;
  #nextPauseMs = FIRST_PAUSE_MS;
  #endPause: (() => void) | undefined;

  constructor(clock: Clock, failure: CadenzaError) {
    this.#clock = clock;
    this.failure = failure;
  }

  /**
   * Resolves when the next attempt is due. The process is kept open until then, because decided entries that are not
   * committed would be lost.
   */
  pause(): Promise<void> {
    const pauseMs = this.#nextPauseMs;
    this.#nextPauseMs = nextPauseMs(pauseMs);
    return new Promise((resolve) => {
      const letGo = holdOpen(this.#clock);
      const end = (): void => {
        this.#endPause = undefined;
        letGo();
        // A process that closes, or looks at the run once more, waits for the pause.
        resolve();
      };
      const clearTimer = this.#clock.setTimeout(end, pauseMs);
      this.#endPause = () => {
        clearTimer();
        end();
      };
    });
  }

  /** There is no next attempt. */
  end(): void {
    this.#endPause?.();
  }
}
