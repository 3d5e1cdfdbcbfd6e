import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";

/** Waits until a signal says to stop waiting, and then rejects with its reason. */
export async function unlessAborted<T>(promise: MaybePromise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined || !isPromise(promise)) return promise;
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    const done = (): void => signal.removeEventListener("abort", stop);
    promise.then(
      (value) => {
        done();
        resolve(value);
      },
      (error: unknown) => {
        done();
        reject(error);
      },
    );
  });
}
