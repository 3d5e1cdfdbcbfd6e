import { inBackground, onceAborted } from "../../core/background.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { silentLogger } from "../log/system.ts";

/** Waits until a signal says to stop waiting, and then rejects with its reason. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T>;
export function unlessAborted<T>(promise: MaybePromise<T>, signal: AbortSignal | undefined): MaybePromise<T>;
export function unlessAborted<T>(promise: MaybePromise<T>, signal: AbortSignal | undefined): MaybePromise<T> {
  return signal === undefined || !isPromise(promise) ? promise : untilAborted(promise, signal);
}

function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) stop();
    const unfollow = onceAborted(silentLogger, signal, stop);
    inBackground(silentLogger, promise.finally(unfollow).then(resolve, reject));
  });
}
