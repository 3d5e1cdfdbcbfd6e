/** A value now or later: stores may answer either way. */
export type MaybePromise<T> = T | Promise<T>;

/** Whether the value comes later. Never throws: a value of the user's may be a proxy, or have a `then` that throws. */
export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  if (typeof value !== "object" || value === null) return false;
  try {
    return typeof (value as { then?: unknown }).then === "function";
  } catch {
    return false;
  }
}

/** Discards an outcome that is handled elsewhere. */
export function ignore(): void {
  // Handled elsewhere.
}

type Resolve<T> = (value: MaybePromise<T>) => void;
type Reject = (error: unknown) => void;

/** The functions that settle the promise which was made last with {@link executor}. */
export const executed: { resolve: Resolve<never>; reject: Reject } = { resolve: ignore, reject: ignore };

/** The executor of promises that are made without a closure for each. */
export const executor = (resolve: Resolve<never>, reject: Reject): void => {
  executed.resolve = resolve;
  executed.reject = reject;
};

/** A promise, and the functions that settle it. */
export class Deferred<T> {
  readonly promise: Promise<T> = new Promise(executor);
  readonly resolve = executed.resolve as Resolve<T>;
  readonly reject = executed.reject;
}

/**
 * Calls a function after a promise has resolved. Most callers have no promise to wait for: all of them would pay for a
 * closure, since what it captures is allocated with each call.
 */
export async function later<Args extends readonly unknown[], T>(
  wait: Promise<unknown>,
  next: (...args: Args) => MaybePromise<T>,
  ...args: Args
): Promise<T> {
  await wait;
  return next(...args);
}
