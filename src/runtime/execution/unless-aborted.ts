import { inBackground, onceAborted } from "../../core/background.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { silentLogger } from "../log/system.ts";

/** Waits until a signal says to stop waiting, and then rejects with its reason. */
export async function unlessAborted<T>(promise: MaybePromise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined || !isPromise(promise)) return promise;
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) stop();
    const unfollow = onceAborted(silentLogger, signal, stop);
    inBackground(silentLogger, promise.finally(unfollow).then(resolve, reject));
  });
}
