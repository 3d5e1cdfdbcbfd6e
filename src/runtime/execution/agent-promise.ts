import { executed, executor, ignore } from "../../core/promises.ts";

type Resolve<T> = (value: T | PromiseLike<T>) => void;

/**
 * A promise that an agent gets. It knows whether anything has observed it: `await`, `then`, `catch`, `finally`,
 * `Promise.all` and `Promise.race` read the constructor of a promise first. What they make of it is a plain promise. It
 * costs as much as a plain one, and less than one whose rejection is handled in advance.
 */
export class AgentPromise<T> extends Promise<T> {
  #isObserved = false;
  readonly #resolve: Resolve<T>;

  static {
    Object.defineProperty(AgentPromise.prototype, "constructor", {
      get(this: object) {
        if (#isObserved in this) this.#isObserved = true;
        return Promise;
      },
    });
  }

  constructor() {
    super(executor);
    this.#resolve = executed.resolve as Resolve<T>;
  }

  get isObserved(): boolean {
    return this.#isObserved;
  }

  resolve(value: T | PromiseLike<T>): void {
    this.#resolve(value);
  }

  /** An agent that drops the promise causes no unhandled rejection. */
  reject(error: unknown): void {
    const isObserved = this.#isObserved;
    const rejected = Promise.reject(error);
    rejected.catch(ignore);
    this.catch(ignore);
    this.#isObserved = isObserved;
    this.#resolve(rejected);
  }
}

/** The operations that have rejected with an error, or have resolved with the record of a run, by that object. */
const operations = new WeakMap<object, string>();

/** Notes the error of a step or a sub-run, or the record of a sub-run, before its agent has it. Returns it. */
export function noteOperation<T>(key: string, given: T): T {
  if (isObject(given)) operations.set(given, key);
  return given;
}

/**
 * The operation that an error came from: itself, its cause, or the run that it tells of. Undefined: from none. Never
 * throws: an agent may throw a proxy, or an error whose fields throw.
 */
export function operationBehind(error: unknown): string | undefined {
  try {
    return findBehind(error);
  } catch {
    return undefined;
  }
}

function findBehind(error: unknown): string | undefined {
  const seen = new Set<unknown>();
  for (let at = error; isObject(at) && !seen.has(at); at = (at as { cause?: unknown }).cause) {
    seen.add(at);
    const { run } = at as { run?: unknown };
    const key = operations.get(at) ?? (isObject(run) ? operations.get(run) : undefined);
    if (key !== undefined) return key;
  }
  return undefined;
}

/** Whether an operation failed with this error, so that the log has it there. */
export function isOfOperation(error: unknown): boolean {
  return isObject(error) && operations.has(error);
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
