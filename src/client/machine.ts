/** What the client needs of the machine that it runs on. */
export interface Machine {
  readonly fetch: typeof globalThis.fetch;
  /** The time, in milliseconds since the epoch. */
  now(): number;
  /** Resolves after so many milliseconds, or when the signal aborts. */
  sleep(ms: number, signal?: AbortSignal | undefined): Promise<void>;
  /** As `sleep`. Also resolves when the machine is online again, and when the page is looked at again. */
  pause(ms: number, signal?: AbortSignal | undefined): Promise<void>;
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

const machine: Omit<Machine, "fetch"> = {
  now: () => Date.now(),
  sleep: (ms, signal) => wait(ms, [[signal, "abort"]]),
  pause: (ms, signal) =>
    wait(ms, [
      [signal, "abort"],
      [target(typeof self === "undefined" ? undefined : self), "online"],
      [documentOfPage(), "visibilitychange"],
    ]),
  key: newKey,
  random: () => Math.random(),
};

/** A text that is made once. `randomUUID` is missing on pages without https. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

type Target = Pick<EventTarget, "addEventListener" | "removeEventListener">;

/** Resolves after so many milliseconds, or with the first of the events. */
function wait(ms: number, events: readonly (readonly [from: Target | undefined, type: string])[]): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      for (const [from, type] of events) from?.removeEventListener(type, end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, LONGEST_MS));
    for (const [from, type] of events) from?.addEventListener(type, end);
    if (events.some(([from]) => from !== undefined && "aborted" in from && from.aborted === true)) end();
  });
}

/** Timers take no longer time. */
const LONGEST_MS = 2 ** 31 - 1;

/** What a page has, and Node has not. */
declare const self: unknown;
declare const document: unknown;

/** The global object of some machines has no events. */
function target(value: unknown): Target | undefined {
  return typeof (value as Partial<Target> | undefined)?.addEventListener === "function" ? (value as Target) : undefined;
}

function documentOfPage(): Target | undefined {
  return target(typeof document === "undefined" ? undefined : document);
}
