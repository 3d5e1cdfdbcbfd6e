import { ignore } from "../../core/promises.ts";

type Resolve<T> = (value: T | PromiseLike<T>) => void;

/** The function that resolves the promise which is being made. With one for all, a promise is made without closures. */
let resolveLast: Resolve<never> = ignore;
const take = (resolve: Resolve<never>): void => {
  resolveLast = resolve;
};

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
    super(take);
    this.#resolve = resolveLast as Resolve<T>;
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
