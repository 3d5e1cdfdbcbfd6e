import { ignore } from "../core/promises.ts";

/** A step, a question, a sleep, a receive or a sub-run of an agent, with its outcome. */
export interface Operation {
  readonly kind: "step" | "ask" | "sleep" | "receive" | "run";
  /** The name of the step, the message, the sleep or the sub-agent; `ask` and `sleep` for one without a name. */
  readonly name: string;
  /** The name and how often it was used before: `plan#1`. */
  readonly key: string;
  readonly agent_name: string;
  readonly run_id: string;
  /** Whether a stand-in replaced it. */
  readonly replaced: boolean;
  readonly state: "pending" | "done" | "failed";
  /** Its result. */
  readonly result: unknown;
  /** The error that it threw. */
  readonly error: unknown;
  /** Whether the agent has awaited the result. */
  readonly wasAwaited: boolean;
}

/** An operation while it is at work. */
export class OpenOperation implements Operation {
  readonly kind: Operation["kind"];
  readonly name: string;
  readonly key: string;
  readonly agent_name: string;
  readonly run_id: string;
  replaced = false;
  /** The step runs its body at most once. */
  runsOnce = false;
  /** The body of the step is at work. */
  isAtWork = false;
  /** An attempt has failed, and the next one has not begun. */
  isPausing = false;
  state: Operation["state"] = "pending";
  result: unknown;
  error: unknown;
  readonly #interest: Interest;

  constructor(about: Pick<Operation, "kind" | "name" | "key" | "agent_name" | "run_id">, interest: Interest) {
    this.#interest = interest;
    this.kind = about.kind;
    this.name = about.name;
    this.key = about.key;
    this.agent_name = about.agent_name;
    this.run_id = about.run_id;
  }

  get wasAwaited(): boolean {
    return this.#interest.shown;
  }

  done(result: unknown): void {
    this.state = "done";
    this.isPausing = false;
    this.result = result;
  }

  failed(error: unknown): void {
    this.state = "failed";
    this.isPausing = false;
    this.error = error;
  }
}

/** Whether a promise was awaited. */
export interface Interest {
  shown: boolean;
}

/** A promise for the agent that tells whether it was awaited. A dropped promise causes no unhandled rejection. */
export function watched<T>(begin: (interest: Interest) => Promise<T>): Promise<T> {
  const interest: Interest = { shown: false };
  const work = begin(interest);
  const promise = new WatchedPromise<T>((resolve, reject) => {
    work.then(resolve, reject);
  });
  promise.interest = interest;
  Promise.prototype.then.call(promise, undefined, ignore);
  return promise;
}

/** `await` and `Promise.all` go through its `then`, since it is not a plain promise. */
class WatchedPromise<T> extends Promise<T> {
  interest: Interest | undefined;

  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  // biome-ignore lint/suspicious/noThenProperty: a promise needs it.
  override then<Result1 = T, Result2 = never>(
    onFulfilled?: ((value: T) => Result1 | PromiseLike<Result1>) | null,
    onRejected?: ((reason: unknown) => Result2 | PromiseLike<Result2>) | null,
  ): Promise<Result1 | Result2> {
    if (this.interest !== undefined) this.interest.shown = true;
    return super.then(onFulfilled, onRejected);
  }
}
