import { ClientError } from "./client-error.ts";
import type { Machine } from "./machine.ts";

/** A failure after which the same request may succeed. */
export class Passing extends Error {
  /** What the caller gets if it is the last one. */
  readonly error: ClientError;
  /** `away`: there is no answer. `refused`: the server refuses for now. `unreadable`: the answer is not one of the server. */
  readonly kind: "away" | "refused" | "unreadable";
  /** How long the server wants to be left alone, in milliseconds. */
  readonly afterMs: number;

  constructor(kind: Passing["kind"], error: ClientError, afterMs = 0) {
    super(error.message);
    this.kind = kind;
    this.error = error;
    this.afterMs = afterMs;
  }
}

/** The failure of a request that gets no answer, or only a part of one. */
export function away(cause: unknown): Passing {
  return new Passing("away", new ClientError("unreachable", "The server cannot be reached.", { cause }));
}

/** The failure of a request that gets an answer which this server does not give. `found`: what the answer is. */
export function unreadable(found: string, { status }: { readonly status: number }): Passing {
  const message = `Expected an answer of the server, received ${found}. Check the address, and what lies between.`;
  return new Passing("unreadable", new ClientError("bad_response", message, { status }));
}

/** How a request is repeated. */
export interface Patience {
  /** The limit that the application has set; undefined: the default one of the request. */
  readonly attempts: number | undefined;
  readonly backoffMs: number;
  /** Whether it is repeated without end while the server is away. */
  readonly isPatient: boolean;
  /** Whether it is also repeated without end while the server refuses for now. */
  readonly isReading: boolean;
  readonly onRetry: ((error: ClientError, pauseMs: number) => void) | undefined;
}

const ATTEMPTS = 5;
/** A pause is no longer, unless the server asks for it. */
const LONGEST_PAUSE_MS = 10_000;
/** What a server may ask for. */
const LONGEST_ASKED_MS = 60_000;

/** The attempts at one request, or at one stream whose connection breaks. */
export class Tries {
  readonly #machine: Machine;
  readonly #patience: Patience;
  readonly #signal: AbortSignal | undefined;
  /** How many attempts in a row have failed. */
  #failures = 0;
  /** How many of these got an answer that is not one of the server. */
  #unreadable = 0;

  constructor(machine: Machine, patience: Patience, signal: AbortSignal | undefined) {
    this.#machine = machine;
    this.#patience = patience;
    this.#signal = signal;
  }

  /** The server is there, and sends heartbeats at least. */
  hear(): void {
    this.#failures = 0;
  }

  /** What has come makes sense. */
  succeed(): void {
    this.#failures = 0;
    this.#unreadable = 0;
  }

  /** Waits before the next attempt. Rejects after the last attempt, with the error for the caller. */
  async again(failure: unknown): Promise<void> {
    this.#signal?.throwIfAborted();
    if (!(failure instanceof Passing)) throw failure;
    const { kind, error, afterMs } = failure;
    this.#failures += 1;
    if (kind === "unreadable") this.#unreadable += 1;
    if (this.#isLast(kind)) throw error;
    const pauseMs = this.#pauseMs(afterMs);
    this.#patience.onRetry?.(error, pauseMs);
    await this.#machine.pause(pauseMs, this.#signal);
    this.#signal?.throwIfAborted();
  }

  #isLast(kind: Passing["kind"]): boolean {
    const { attempts, isPatient, isReading } = this.#patience;
    if (kind === "unreadable") return this.#unreadable >= (attempts ?? ATTEMPTS);
    const isEndless = isPatient && (kind === "away" || isReading);
    return this.#failures >= (attempts ?? (isEndless ? Number.POSITIVE_INFINITY : ATTEMPTS));
  }

  /** Not all clients of a server that was away come at the same time. */
  #pauseMs(askedMs: number): number {
    const random = this.#machine.random();
    const longest = Math.min(LONGEST_PAUSE_MS, this.#patience.backoffMs * 2 ** Math.min(this.#failures - 1, 30));
    const asked = Math.min(askedMs, LONGEST_ASKED_MS);
    return Math.max(longest * (0.5 + random / 2), asked * (1 + random / 4));
  }
}

/** How long the server wants to be left alone, by its header `Retry-After`: seconds, or a date. 0: it does not say. */
export function retryAfterMs(headers: Headers, now: number): number {
  const text = headers.get("retry-after") ?? "";
  if (/^\d+$/.test(text)) return Number(text) * 1_000;
  // The clocks of the two may differ.
  const sent = Date.parse(headers.get("date") ?? "");
  return Math.max(0, Date.parse(text) - (Number.isNaN(sent) ? now : sent)) || 0;
}
