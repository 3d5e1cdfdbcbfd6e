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
