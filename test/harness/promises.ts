import { setImmediate as inNextTurn } from "node:timers";

/** A promise that the test settles. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
}

export function deferred<T = void>(): Deferred<T> {
  let resolve: (value: T) => void = () => {};
  let reject: (error: unknown) => void = () => {};
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

/** A promise that never settles. */
export function never(): Promise<never> {
  return new Promise(() => {});
}

/** The next turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => inNextTurn(resolve));
}
