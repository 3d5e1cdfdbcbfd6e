import { ClientError } from "./client-error.ts";
import { isRecord, jsonText, parsedJson } from "./json.ts";
import type { Machine } from "./machine.ts";
import { machineOf } from "./machine.ts";
import type { ServerEvent } from "./server-events.ts";
import { serverEvents } from "./server-events.ts";
import { away, Passing, retryAfterMs, Tries, unreadable } from "./tries.ts";

/** What a page has, and Node has not. */
declare const location: { readonly href: string };

/** Headers, or a function that gives them for each request. */
export type ClientHeaders =
  | Readonly<Record<string, string>>
  | (() => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>);

/** How a server is reached. */
export interface ConnectionOptions {
  /** Headers of each request, for example `Authorization`, or a function that gives them. Default: none. */
  readonly headers?: ClientHeaders | undefined;
  /**
   * How often a request is sent that gets no answer, an answer that is not one of the server, or 429, 502, 503 and the
   * like. What follows a run is requested so often in a row without a byte. Default: 5, and without end for what follows
   * a run and for chats, as long as the server is away.
   */
  readonly attempts?: number | undefined;
  /**
   * The pause before the second attempt, in milliseconds. Each further one is twice as long, up to 10 seconds. A server
   * that says `Retry-After` is left alone for so long, up to a minute. Default: 250.
   */
  readonly backoffMs?: number | undefined;
  /**
   * After how many milliseconds without a byte a response counts as broken, and is requested again. It has to be longer
   * than the server's `heartbeatMs`. Default: 60 seconds.
   */
  readonly silenceMs?: number | undefined;
  /** Called before each pause with what went wrong, so that a page can say that it is offline. Default: none. */
  readonly onRetry?: ((error: ClientError, pauseMs: number) => void) | undefined;
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
  /** Whether it is repeated without end while the server is away. Default: false. */
  readonly isPatient?: boolean | undefined;
}

/** The statuses after which the same request may succeed. A proxy in front of the server answers 520 and higher. */
const passing: ReadonlySet<number> = new Set([
  408, 425, 429, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527, 530,
]);

/**
 * Sends requests to one server, and again where there is no answer. All of them may be repeated. Each one ends with an
 * answer, with a {@link ClientError}, or with the reason of its signal.
 */
export class Connection {
  readonly machine: Machine;
  readonly #url: string;
  readonly #headers: ClientHeaders;
  readonly #patience: Pick<ConnectionOptions, "attempts" | "onRetry"> & { readonly backoffMs: number };
  readonly #silenceMs: number;
  /** Whether the application sends the requests. */
  readonly #hasFetch: boolean;

  /** Throws `invalid_argument` for an invalid option. */
  constructor(url: string, options: ConnectionOptions) {
    const { headers = {}, attempts, backoffMs = 250, silenceMs = 60_000, onRetry, fetch } = options;
    if (typeof url !== "string") throw new ClientError("invalid_argument", "Expected an address.");
    if (
      attempts !== undefined &&
      attempts !== Number.POSITIVE_INFINITY &&
      !(Number.isInteger(attempts) && attempts >= 1)
    )
      throw new ClientError("invalid_argument", "attempts: expected a whole number from 1 on, or Infinity.");
    if (!(backoffMs >= 0)) throw new ClientError("invalid_argument", "backoffMs: expected a number from 0 on.");
    if (!(silenceMs > 0)) throw new ClientError("invalid_argument", "silenceMs: expected a number above 0.");
    this.#url = url.replace(/\/+$/, "");
    this.#headers = headers;
    this.#patience = { attempts, onRetry, backoffMs };
    this.#silenceMs = silenceMs;
    this.#hasFetch = fetch !== undefined;
    this.machine = machineOf(fetch);
  }

  /** The JSON value that answers a request. `isExpected`: whether it is what the server answers. */
  async json<T>(request: ClientRequest, isExpected: (value: unknown) => value is T): Promise<T> {
    return this.ask(request, async (reply) => {
      const text = await reply.text();
      if (reply.type !== "application/json") throw unreadable(reply.found, reply);
      const value = parsedJson(text);
      if (isExpected(value)) return value;
      throw unreadable(value === undefined ? "broken JSON" : "other JSON", reply);
    });
  }

  /** What a request brings. `read` throws {@link Passing} for a response after which it is sent again. */
  async ask<T>(request: ClientRequest, read: (reply: Reply) => T | Promise<T>): Promise<T> {
    const tries = this.tries(request);
    for (;;) {
      try {
        return await read(await this.open(request));
      } catch (failure) {
        await tries.again(failure);
      }
    }
  }

  /**
   * What the events of a stream say. Where it breaks off, it is requested again with the id of the last event, until
   * `isOver` says that the last event was the end. `read` throws {@link Passing} for an event that makes no sense.
   */
  async *stream<T>(
    request: ClientRequest,
    last: string | undefined,
    read: (event: ServerEvent) => T,
    isOver: (told: T) => boolean,
  ): AsyncGenerator<T, void> {
    const tries = this.tries(request);
    let known = last;
    for (;;) {
      try {
        const headers = { accept: "text/event-stream", ...request.headers, ...(known && { "last-event-id": known }) };
        const reply = await this.open({ ...request, headers });
        // The run has ended, and there is nothing behind the last event.
        if (reply.status === 204 && known !== undefined) return reply.close();
        for await (const event of reply.events(tries)) {
          const told = read(event);
          known = event.id ?? known;
          tries.succeed();
          yield told;
          if (isOver(told)) return;
        }
        throw away(new TypeError("The stream has ended before the run."));
      } catch (failure) {
        await tries.again(failure);
      }
    }
  }

  /** The attempts at a request. */
  tries({ method, isPatient = false, signal }: ClientRequest): Tries {
    const { attempts, onRetry, backoffMs } = this.#patience;
    const patience = { attempts, onRetry, backoffMs, isPatient, isReading: method === "GET" };
    return new Tries(this.machine, patience, signal);
  }

  /** The good response to a request that is sent once. Throws {@link Passing} for a failure that may pass. */
  async open({ method, path, body, headers, signal }: ClientRequest): Promise<Reply> {
    const text = body === undefined ? undefined : jsonText(body);
    const all = await this.#headersOf({
      ...headers,
      ...(text !== undefined && { "content-type": "application/json" }),
    });
    signal?.throwIfAborted();
    const watch = new Watch(this.machine, this.#silenceMs, signal);
    const init: RequestInit = {
      method,
      headers: all,
      ...(text !== undefined && { body: text }),
      // What is sent is for this server alone: its keys and its body must not follow a redirect.
      redirect: "manual",
      signal: watch.signal,
    };
    try {
      const reply = new Reply(await watch.during(this.machine.fetch(`${this.#url}${path}`, init)), watch);
      watch.hear();
      if (!reply.isGood) throw await this.#refusalOf(reply);
      return reply;
    } catch (failure) {
      watch.end();
      signal?.throwIfAborted();
      if (failure instanceof Passing || failure instanceof ClientError) throw failure;
      if (this.#isAddress()) throw away(failure);
      throw new ClientError("invalid_argument", `Expected a whole address, received ${this.#url}.`, { cause: failure });
    }
  }

  /** Whether requests can be sent there. A page may leave its own origin out. */
  #isAddress(): boolean {
    if (this.#hasFetch) return true;
    try {
      return new URL(this.#url, typeof location === "undefined" ? undefined : location.href) !== null;
    } catch {
      return false;
    }
  }

  async #headersOf(headers: Readonly<Record<string, string>>): Promise<Headers> {
    let own: Readonly<Record<string, string>>;
    try {
      own = typeof this.#headers === "function" ? await this.#headers() : this.#headers;
    } catch (failure) {
      // It has asked a server for them, and may do better.
      throw away(failure);
    }
    try {
      const all = new Headers(own);
      for (const [name, value] of Object.entries(headers)) all.set(name, value);
      return all;
    } catch (cause) {
      throw new ClientError("invalid_argument", "headers: expected names and values of HTTP headers.", { cause });
    }
  }

  async #refusalOf(reply: Reply): Promise<Passing | ClientError> {
    const { status, headers } = reply;
    if (reply.isRedirect) {
      reply.close();
      const to = headers.get("location");
      const message = `The server redirects${to === null ? "" : ` to ${to}`}, and the client does not follow. Give it the address itself.`;
      return new ClientError("redirected", message, { status });
    }
    const error = errorIn(await reply.text().catch(() => ""), { status, headers });
    if (!passing.has(status)) return error;
    const isRefusal = status === 429 || limits.has(error.code);
    return new Passing(isRefusal ? "refused" : "away", error, retryAfterMs(headers, this.machine.now()));
  }
}

/** The error that the body of a refusal tells. */
function errorIn(text: string, { status, headers }: Pick<Response, "status" | "headers">): ClientError {
  const { code, message, data } = told(text, headers.get("content-type") ?? "");
  const { reason, issues } = isRecord(data) ? data : {};
  const name = [reason, code].find((one) => typeof one === "string") ?? "refused";
  return new ClientError(name, typeof message === "string" ? message : `The server answered with ${status}.`, {
    status,
    issues: Array.isArray(issues) ? issues : undefined,
  });
}

/** A page of a proxy is no message. */
function told(text: string, type: string): Readonly<Record<string, unknown>> {
  const value = parsedJson(text);
  if (isRecord(value)) return value;
  const isMessage = value === undefined && text !== "" && text.length <= LONGEST_MESSAGE && !/html/i.test(type);
  return isMessage ? { message: text } : {};
}

const LONGEST_MESSAGE = 2_000;

/** The reasons of a server that is there, and says no for a while. */
const limits: ReadonlySet<string> = new Set(["limit_reached", "run_blocked"]);

/** A response while it is read. */
export class Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly isRedirect: boolean;
  /** The media type; empty if the server does not say. */
  readonly type: string;
  readonly #body: ReadableStream<Uint8Array> | null;
  readonly #watch: Watch;

  constructor({ status, headers, type, body }: Response, watch: Watch) {
    this.status = status;
    this.headers = headers;
    // Browsers tell nothing else of it.
    this.isRedirect = type === "opaqueredirect" || (status >= 300 && status < 400);
    this.type = (headers.get("content-type") ?? "").replace(/;.*/, "").trim().toLowerCase();
    this.#body = body;
    this.#watch = watch;
  }

  get isGood(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** What it is, for an error. */
  get found(): string {
    return this.type === "" ? `an answer ${this.status} without a type` : `${this.status} with ${this.type}`;
  }

  /** The server-sent events. Throws {@link Passing} where they break off, and for a body of another kind. */
  async *events(tries: Tries): AsyncGenerator<ServerEvent, void> {
    try {
      if (this.type !== "text/event-stream") throw unreadable(this.found, this);
      yield* serverEvents(this.#bytes(), () => tries.hear());
    } finally {
      this.close();
    }
  }

  async text(): Promise<string> {
    const decoder = new TextDecoder();
    const pieces: string[] = [];
    for await (const chunk of this.#bytes()) pieces.push(decoder.decode(chunk, { stream: true }));
    return pieces.join("") + decoder.decode();
  }

  /** Reads no more. */
  close(): void {
    this.#watch.close();
  }

  async *#bytes(): AsyncGenerator<Uint8Array, void> {
    const watch = this.#watch;
    const reader = this.#body?.getReader();
    const leave = (): void => {
      reader?.cancel().catch(nothing);
    };
    watch.signal.addEventListener("abort", leave);
    if (watch.signal.aborted) leave();
    try {
      for (;;) {
        watch.wait();
        const { done, value } = (await reader?.read()) ?? { done: true };
        watch.signal.throwIfAborted();
        if (done || value === undefined) return;
        watch.hear();
        yield value;
      }
    } catch (failure) {
      throw watch.isLeft ? failure : away(failure);
    } finally {
      watch.signal.removeEventListener("abort", leave);
      watch.end();
      leave();
    }
  }
}

/** Aborts a request when its caller does, and when nothing has come for too long. */
class Watch {
  readonly #machine: Machine;
  readonly #silenceMs: number;
  readonly #caller: AbortSignal | undefined;
  readonly #request = new AbortController();
  readonly #over = new AbortController();
  /** Whether the client waits for bytes. While an application is busy with some, more may wait for it. */
  #isWaiting = true;
  /** How often it was looked without effect. */
  #looks = 0;

  constructor(machine: Machine, silenceMs: number, caller: AbortSignal | undefined) {
    this.#machine = machine;
    this.#silenceMs = silenceMs;
    this.#caller = caller;
    caller?.addEventListener("abort", this.#leave);
    this.#listen().catch(nothing);
  }

  /** The signal of the request. */
  get signal(): AbortSignal {
    return this.#request.signal;
  }

  /** Whether the caller has aborted. */
  get isLeft(): boolean {
    return this.#caller?.aborted === true;
  }

  /** The client waits for bytes. */
  wait(): void {
    this.#isWaiting = true;
    this.#looks = 0;
  }

  /** Some have come. */
  hear(): void {
    this.#isWaiting = false;
  }

  /** Waits for the response. A `fetch` of the application may know nothing of signals. */
  during(response: Promise<Response>): Promise<Response> {
    return new Promise((resolve, reject) => {
      const { signal } = this.#request;
      const leave = (): void => reject(signal.reason);
      signal.addEventListener("abort", leave);
      const end = (): void => signal.removeEventListener("abort", leave);
      response.then(
        (came) => {
          end();
          if (signal.aborted) came.body?.cancel().catch(nothing);
          resolve(came);
        },
        (failure: unknown) => {
          end();
          reject(failure);
        },
      );
    });
  }

  /** The response is over. */
  end(): void {
    this.#caller?.removeEventListener("abort", this.#leave);
    this.#over.abort();
  }

  /** Gives the request up. */
  close(): void {
    this.end();
    this.#request.abort();
  }

  readonly #leave = (): void => this.#request.abort(this.#caller?.reason);

  async #listen(): Promise<void> {
    const { signal } = this.#over;
    while (this.#silenceMs !== Number.POSITIVE_INFINITY) {
      // A timer for each chunk would cost more. So the silence may last half as long again.
      await this.#machine.sleep(this.#silenceMs / 2, signal);
      if (signal.aborted) return;
      this.#looks += 1;
      if (this.#isWaiting && this.#looks > 2)
        return this.#request.abort(new TypeError(`Nothing has come for ${this.#silenceMs} ms.`));
    }
  }
}

function nothing(): void {
  // It is over.
}
