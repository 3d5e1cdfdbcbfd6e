import type { Clock, Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isLong, JsonText } from "./json-text.ts";

/** A request, independent of the server. The fetch and the Node adapter make it. */
export interface WireRequest {
  readonly method: string;
  /** Path and query, as they came. */
  readonly url: string;
  /** The request as the host knows it, for `authorize`. */
  readonly raw: unknown;
  /** A header by its name in lower case. */
  header(name: string): string | undefined;
  /** All headers, by their names in lower case. */
  headers(): Readonly<Record<string, string | undefined>>;
  /** Reads the body, once. Refuses a body that is too large, too slow or not text. */
  body(limits: BodyLimits): MaybePromise<WireBody>;
  /** Calls back if the client disconnects before it has its answer, until the returned function is called. */
  onLeave(callback: () => void): () => void;
  /** Scheme and host as the client sees them, for a service without a configured `baseUrl`. */
  origin(): string;
  /** The path that the host has stripped from the URL, if it reports it; else empty. */
  mount(): string;
}

/** Limits on the size of a body, and on the time that it takes. */
export interface BodyLimits {
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
}

/** A body: its text, or the value that the host has parsed already. */
export type WireBody = { readonly text: string } | { readonly value: unknown };

/** A response, independent of the server. */
export interface WireResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** The whole text, or pieces of it as they come. A consumer that stops taking pieces calls `return`. */
  readonly body: string | WireStream;
}

/** Pieces of text as they come. */
export interface WireStream {
  next(): Promise<IteratorResult<string, undefined>>;
  return(): void;
}

/** Pieces of text of which the first one has been taken already. */
export function beginningWith(first: IteratorResult<string, undefined>, rest: WireStream): WireStream {
  let isTaken = false;
  return {
    next: () => {
      if (isTaken) return rest.next();
      isTaken = true;
      return Promise.resolve(first);
    },
    return: () => rest.return(),
  };
}

/** After so many pieces other work has a turn of the event loop. */
const TURN_PIECES = 8;

/** The same pieces, with turns for other work: a reader that is near takes all of them at once. */
export function inTurns(pieces: WireStream, clock: Pick<Clock, "turn">): WireStream {
  let given = 0;
  const next = (): ReturnType<WireStream["next"]> => pieces.next();
  return {
    next: () => (++given % TURN_PIECES === 0 ? clock.turn().then(next) : next()),
    return: () => pieces.return(),
  };
}

const jsonHeaders = {
  "content-type": "application/json",
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
};

/** A response with a JSON text. */
export function jsonText(status: number, body: string | WireStream, headers?: Record<string, string>): WireResponse {
  return { status, headers: headers === undefined ? jsonHeaders : { ...jsonHeaders, ...headers }, body };
}

/** A response with a value of plain data as JSON. */
export function json(status: number, value: unknown, headers?: Record<string, string>): WireResponse {
  return jsonText(status, isLong(value) ? new JsonText(value) : JSON.stringify(value), headers);
}

/** What a request needs of the service that answers it. */
export interface WireHost {
  readonly clock: Clock;
  readonly logger: Logger;
}
