import type { MaybePromise } from "../core/promises.ts";
import { isLong, JsonText } from "./json-text.ts";

/** A request, whichever way it came in. The two shells make it; nothing behind them knows what a server is. */
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
  /** Reads the body, once. Refuses one that is too large, too slow or not text. */
  body(limits: BodyLimits): MaybePromise<WireBody>;
  /** Calls back if the client goes away before it has its answer, until the returned function is called. */
  onLeave(callback: () => void): () => void;
  /** Scheme and host as the client sees them, for those who have not configured where the service lies. */
  origin(): string;
  /** The path that the host has stripped from the URL, if it says so; else empty. */
  mount(): string;
}

/** How much of a body is read, and how long. */
export interface BodyLimits {
  readonly maxBodyBytes: number;
  readonly bodyTimeoutMs: number;
}

/** A body: its text, or what the host has made of it already. */
export type WireBody = { readonly text: string } | { readonly value: unknown };

/** A response, whichever way it goes out. */
export interface WireResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** The whole text, or pieces of it as they come. Who stops taking pieces calls `return`. */
  readonly body: string | WireStream;
}

/** Pieces of text as they come. */
export interface WireStream {
  next(): Promise<IteratorResult<string, undefined>>;
  return(): void;
}

const jsonHeaders = {
  "content-type": "application/json",
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
};

/** A response with a JSON text. */
export function jsonText(status: number, body: string | WireStream, headers?: Record<string, string>): WireResponse {
  return { status, headers: { ...jsonHeaders, ...headers }, body };
}

/** A response with a value of plain data as JSON. */
export function json(status: number, value: unknown, headers?: Record<string, string>): WireResponse {
  return jsonText(status, isLong(value) ? new JsonText(value) : JSON.stringify(value), headers);
}
