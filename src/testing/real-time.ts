import { setImmediate as immediate, clearTimeout as stop, setTimeout as timeout } from "node:timers";

/*
 * The machine's own time. A test runner that fakes timers replaces the global functions. These come from Node itself,
 * and are read once, so that they stay real.
 */
const startImmediate = immediate;
const startTimeout = timeout;
const stopTimeout = stop;

/** A turn of the event loop, after timers and sockets had theirs. */
export function realTurn(): Promise<void> {
  return new Promise((resolve) => {
    startImmediate(resolve);
  });
}

/**
 * A pause in real time, for agents that wait for something real. It holds the process open, so that it does not exit
 * during a test. Rejects with the reason of a signal that aborts meanwhile.
 */
export function realPause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      stopTimeout(timer);
      reject(signal?.reason);
    };
    const timer = startTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Stops a timer that other code has left. */
export function stopRealTimer(timer: object): void {
  stopTimeout(timer as ReturnType<typeof startTimeout>);
}
