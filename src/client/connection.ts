import { ClientError, errorOf, jsonText } from "./client-error.ts";
import type { Machine } from "./machine.ts";
import { machineOf } from "./machine.ts";
import type { ServerEvent } from "./server-events.ts";
import { serverEvents } from "./server-events.ts";

/** Headers, or a function that gives them for each request. */
export type ClientHeaders =
  | Readonly<Record<string, string>>
  | (() => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>);

/** How a server is reached. */
export interface ConnectionOptions {
  /** Headers of each request, for example `Authorization`, or a function that gives them. Default: none. */
  readonly headers?: ClientHeaders | undefined;
  /** How often a request is sent that gets no answer, or 429, 502, 503 or 504. Default: 5. */
  readonly attempts?: number | undefined;
  /** The pause before the second attempt, in milliseconds. Each further one is twice as long, up to 2 seconds. Default: 250. */
  readonly backoffMs?: number | undefined;
  /** How requests are made. Default: the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/** A request. */
export interface ClientRequest {
  readonly method: "GET" | "POST" | "DELETE";
  /** Below the client's address. */
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
}

const LAST_PAUSE_MS = 2_000;
/** The statuses after which the same request may succeed later. */
const passing: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Sends requests to one server, and again if there is no answer. All of them may be repeated. */
export class Connection {
  readonly machine: Machine;
  readonly #url: string;
  readonly #headers: ClientHeaders;
  readonly #attempts: number;
  readonly #backoffMs: number;

  /** Throws `invalid_argument` for an invalid option. */
  constructor(url: string, { headers = {}, attempts = 5, backoffMs = 250, fetch }: ConnectionOptions) {
    if (typeof url !== "string") throw new ClientError("invalid_argument", "Expected an address.");
    if (!Number.isInteger(attempts) || attempts < 1)
      throw new ClientError("invalid_argument", "attempts: expected a whole number from 1 on.");
    if (!(backoffMs >= 0)) throw new ClientError("invalid_argument", "backoffMs: expected a number from 0 on.");
    this.#url = url.replace(/\/+$/, "");
    this.#headers = headers;
    this.#attempts = attempts;
    this.#backoffMs = backoffMs;
    this.machine = machineOf(fetch);
  }

  /** The response to a request, if it is a good one. Rejects with a {@link ClientError} otherwise. */
  async send({ method, path, body, headers, signal }: ClientRequest): Promise<Response> {
    const text = body === undefined ? undefined : jsonText(body);
    for (let attempt = 1; ; attempt++) {
      const own = typeof this.#headers === "function" ? await this.#headers() : this.#headers;
      const init: RequestInit = {
        method,
        headers: { ...(text !== undefined && { "content-type": "application/json" }), ...own, ...headers },
        ...(text !== undefined && { body: text }),
        ...(signal !== undefined && { signal }),
      };
      let error: ClientError;
      try {
        const response = await this.machine.fetch(`${this.#url}${path}`, init);
        if (response.ok) return response;
        error = await errorOf(response);
        if (!passing.has(response.status)) throw error;
      } catch (failure) {
        signal?.throwIfAborted();
        if (failure instanceof ClientError) throw failure;
        error = new ClientError("unreachable", "The server cannot be reached.", { cause: failure });
      }
      if (attempt >= this.#attempts) throw error;
      await this.pause(attempt, signal);
    }
  }

  async json<T>(request: ClientRequest): Promise<T> {
    return (await (await this.send(request)).json()) as T;
  }

  /**
   * The events of a stream. Where it breaks off, it is requested again with the id of the last event, until `isOver`
   * says that the last event was the end.
   */
  async *stream(
    request: ClientRequest,
    last: string | undefined,
    isOver: (event: ServerEvent) => boolean,
  ): AsyncGenerator<ServerEvent, void> {
    let known = last;
    for (let failures = 0; ; failures++) {
      if (failures > 0) await this.pause(failures, request.signal);
      const headers = { accept: "text/event-stream", ...request.headers, ...(known && { "last-event-id": known }) };
      const { status, body } = await this.send({ ...request, headers });
      if (status === 204 || body === null) return;
      try {
        for await (const event of serverEvents(body)) {
          known = event.id ?? known;
          failures = 0;
          yield event;
          if (isOver(event)) return;
        }
      } catch (error) {
        request.signal?.throwIfAborted();
        if (error instanceof ClientError) throw error;
      }
    }
  }

  /** Waits before a further attempt. Rejects after the last one. */
  async pause(attempt: number, signal: AbortSignal | undefined): Promise<void> {
    if (attempt >= this.#attempts) throw new ClientError("unreachable", "The stream breaks off again and again.");
    const most = Math.min(LAST_PAUSE_MS, this.#backoffMs * 2 ** (attempt - 1));
    await this.machine.sleep(most * (0.5 + this.machine.random() / 2), signal);
    signal?.throwIfAborted();
  }
}
