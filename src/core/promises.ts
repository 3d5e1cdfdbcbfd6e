/** A value now or later: stores may answer either way. */
export type MaybePromise<T> = T | Promise<T>;

/** Whether the value comes later. */
export function isPromise<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

/** Discards an outcome that is handled elsewhere. */
export function ignore(): void {
  // Handled elsewhere.
}
