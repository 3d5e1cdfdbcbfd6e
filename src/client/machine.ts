/** What the client needs of the machine that it runs on. */
export interface Machine {
  readonly fetch: typeof globalThis.fetch;
  /** Resolves after so many milliseconds, or when the signal aborts. */
  sleep(ms: number, signal?: AbortSignal | undefined): Promise<void>;
  /** A text that is made once. */
  key(): string;
  /** A number from 0 to 1. */
  random(): number;
}

/** The machine as browsers and Node have it. */
export function machineOf(fetch: typeof globalThis.fetch | undefined): Machine {
  // The global one may be replaced later, and a browser calls it on the window alone.
  return { ...machine, fetch: fetch ?? ((...request) => globalThis.fetch(...request)) };
}

const machine = {
  sleep: (ms: number, signal?: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const timer = setTimeout(resolve, ms);
      signal?.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
      return undefined;
    }),
  // `randomUUID` is missing on pages without https.
  key: (): string =>
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join(""),
  random: (): number => Math.random(),
};
