import type { Logger } from "./ports.ts";
import { isPromise } from "./promises.ts";

/*
 * The one place where a callback of the event loop may fail. What a timer, a turn, a listener or a promise throws has no
 * caller: Node ends the process for it, and with it the runs of all tenants. Here it goes to the logger, and has no other
 * effect. `test/background.test.ts` finds what does not pass this place.
 */

const FAILED = "Work in the background failed.";
const LEVELS = ["debug", "info", "warn", "error"] as const;
const containedLoggers = new WeakSet<Logger>();

/** A logger that neither throws nor rejects, whatever the given one does. */
export function containedLogger(logger: Logger): Logger {
  if (containedLoggers.has(logger)) return logger;
  const take = (level: (typeof LEVELS)[number], message: string, fields?: object): void => {
    try {
      const taken: unknown = logger[level](message, fields);
      if (isPromise(taken)) taken.then(undefined, dropped);
    } catch {
      // The logger itself has failed: there is no place left to report to.
    }
  };
  const own: Logger = {
    debug: (message, fields) => take("debug", message, fields),
    info: (message, fields) => take("info", message, fields),
    warn: (message, fields) => take("warn", message, fields),
    error: (message, fields) => take("error", message, fields),
  };
  containedLoggers.add(own);
  return own;
}

/** A warning that the logger gets once. `fieldsOf`: what it says of the subject of the first call. */
export function warningOnce<Subject>(
  logger: Logger,
  message: string,
  fieldsOf: (subject: Subject) => object,
): (subject: Subject) => void {
  let warn: ((subject: Subject) => void) | undefined = (subject) => logger.warn(message, fieldsOf(subject));
  return (subject) => {
    const first = warn;
    warn = undefined;
    first?.(subject);
  };
}

/**
 * Does work that no caller waits for. What it throws, now or later, goes to the logger: with this message and these
 * fields, and as `error`.
 */
export function inBackground(
  logger: Logger,
  work: (() => unknown) | PromiseLike<unknown>,
  message = FAILED,
  about?: object,
): void {
  try {
    const outcome = typeof work === "function" ? work() : work;
    if (isPromise(outcome)) outcome.then(undefined, reporter(logger, message, about));
  } catch (error) {
    logger.error(message, { ...about, error });
  }
}

/** Does the same work with each item. What it throws for one goes to the logger, and does not keep it from the others. */
export function eachInBackground<Item>(logger: Logger, items: Iterable<Item>, work: (item: Item) => void): void {
  for (const item of items) {
    try {
      work(item);
    } catch (error) {
      logger.error(FAILED, { error });
    }
  }
}

/** In a function of its own: where a closure is made, what it captures is allocated with each call. */
function reporter(logger: Logger, message: string, about: object | undefined): (error: unknown) => void {
  return (error) => logger.error(message, { ...about, error });
}

declare const isContained: unique symbol;

/** Callbacks that do not throw. Made once, they are called for many promises, which costs each of them nothing. */
export interface Contained<Value> {
  readonly onValue: (value: Value) => void;
  readonly onError: (error: unknown) => void;
  readonly [isContained]: true;
}

/** What a host does when a promise is settled. The functions are made once for all hosts, and get the host. */
export function contained<Host extends { readonly logger: Logger }, Value>(
  host: Host,
  onValue: (host: Host, value: Value) => void,
  onError: (host: Host, error: unknown) => void,
): Contained<Value> {
  // Both say the same: a helper would allocate what each of them captures once more, for each run.
  const callbacks = {
    onValue: (value: Value): void => {
      try {
        onValue(host, value);
      } catch (error) {
        host.logger.error(FAILED, { error });
      }
    },
    onError: (error: unknown): void => {
      try {
        onError(host, error);
      } catch (thrown) {
        host.logger.error(FAILED, { error: thrown });
      }
    },
  };
  return callbacks as unknown as Contained<Value>;
}

/** Calls back when a promise is settled. */
export function whenSettled<Value>(promise: PromiseLike<Value>, { onValue, onError }: Contained<Value>): void {
  promise.then(onValue, onError);
}

/** The end of work, for callers that wait until it is over. It does not reject: what the work throws goes to the logger. */
export async function endOf(logger: Logger, work: PromiseLike<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    logger.error(FAILED, { error });
  }
}

function dropped(): void {
  // There is no place left to report to.
}

/** What calls listeners: an event emitter, or what a host gives in its place. */
export interface Emitter {
  // Each kind of emitter has types and events of its own.
  on(type: never, listener: never): unknown;
  off?(type: never, listener: never): unknown;
  removeListener?(type: never, listener: never): unknown;
}

/** Calls back with each event of a type, until the returned function is called. What the callback throws goes to the logger. */
export function listen<Event>(
  logger: Logger,
  emitter: Emitter,
  type: string,
  callback: (event: Event) => unknown,
): () => void {
  const listener = (event: Event): void => inBackground(logger, () => callback(event));
  const given = [type as never, listener as never] as const;
  emitter.on(...given);
  return () => {
    if (emitter.removeListener === undefined) emitter.off?.(...given);
    else emitter.removeListener(...given);
  };
}

/** Calls back when a signal is aborted, until the returned function is called. What the callback throws goes to the logger. */
export function onceAborted(logger: Logger, signal: AbortSignal, callback: () => unknown): () => void {
  const listener = (): void => inBackground(logger, callback);
  signal.addEventListener("abort", listener, { once: true });
  return () => signal.removeEventListener("abort", listener);
}

type AddListener = AbortSignal["addEventListener"];
type RemoveListener = AbortSignal["removeEventListener"];
type AbortListener = Parameters<AddListener>[1];
type AbortFunction = Extract<AbortListener, (...parameters: never) => unknown>;

/**
 * A controller for a signal that user code gets. What a listener of the signal throws goes to the logger: a signal that
 * is aborted would throw it where no caller can catch it. A signal that user code makes from this one, as
 * `AbortSignal.any` does, is that code's own.
 */
export function newController(logger: Logger): AbortController {
  const controller = new AbortController();
  const { signal } = controller;
  const add: AddListener = signal.addEventListener.bind(signal);
  const remove: RemoveListener = signal.removeEventListener.bind(signal);
  const wrappers = new WeakMap<object, AbortFunction>();
  const wrapped = (listener: AbortListener): AbortFunction => {
    let wrapper = wrappers.get(listener);
    if (wrapper === undefined) {
      wrapper = (event) =>
        inBackground(logger, () =>
          typeof listener === "function" ? listener.call(signal, event) : listener.handleEvent(event),
        );
      wrappers.set(listener, wrapper);
    }
    return wrapper;
  };
  signal.addEventListener = (type: string, listener: AbortListener, options?: Parameters<AddListener>[2]) =>
    add(type, isListener(listener) ? wrapped(listener) : listener, options);
  signal.removeEventListener = (type: string, listener: AbortListener, options?: Parameters<RemoveListener>[2]) =>
    remove(type, isListener(listener) ? wrapped(listener) : listener, options);
  return controller;
}

/** Signals ignore or refuse what is no listener. */
function isListener(listener: unknown): boolean {
  return typeof listener === "function" || (typeof listener === "object" && listener !== null);
}
