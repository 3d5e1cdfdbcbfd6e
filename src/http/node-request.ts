import { listen } from "../core/background.ts";
import type { Clock, Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { BodyText, checkContentLength, clientLeft, tooSlow } from "./body.ts";
import { WireError } from "./errors.ts";
import type { BodyLimits, WireBody, WireHost, WireRequest } from "./wire.ts";

/** What the listener uses of a request of `node:http`, and of what middleware adds to it. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly httpVersionMajor?: number | undefined;
  readonly url?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly readableDidRead?: boolean | undefined;
  readonly readableEnded?: boolean | undefined;
  readonly destroyed?: boolean | undefined;
  on(event: "data", listener: (chunk: Uint8Array) => void): unknown;
  on(event: "end" | "close" | "error", listener: () => void): unknown;
  resume(): unknown;
}

/** What the listener uses of a response of `node:http`. */
export interface NodeResponse {
  readonly headersSent: boolean;
  readonly writableFinished: boolean;
  readonly destroyed: boolean;
  writeHead(status: number, headers: Readonly<Record<string, string>>): unknown;
  /** HTTP/2 sends headers at once, and lacks it. */
  flushHeaders?(): void;
  write(text: string): boolean;
  end(text: string): unknown;
  destroy(): unknown;
  on(event: "close" | "drain" | "error", listener: () => void): unknown;
  removeListener(event: "close" | "drain" | "error", listener: () => void): unknown;
}

/** A request of `node:http`, after the middleware of the host. */
export class NodeWireRequest implements WireRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: NodeRequest;
  readonly #response: NodeResponse;
  readonly #clock: Clock;
  readonly #logger: Logger;

  constructor(request: NodeRequest, response: NodeResponse, { clock, logger }: WireHost) {
    this.raw = request;
    this.method = request.method ?? "GET";
    this.url = pathOf(request.url ?? "/");
    this.#response = response;
    this.#clock = clock;
    this.#logger = logger;
  }

  header(name: string): string | undefined {
    const value = this.raw.headers[name];
    return typeof value === "object" ? value.join(", ") : value;
  }

  headers(): Readonly<Record<string, string | undefined>> {
    return Object.fromEntries(Object.keys(this.raw.headers).map((name) => [name, this.header(name)]));
  }

  body(limits: BodyLimits): MaybePromise<WireBody> {
    const { raw } = this;
    checkContentLength(this.header("content-length"), limits.maxBodyBytes);
    // Some middleware sets an empty object although it has not read the body.
    const body = setByMiddleware(raw, "body");
    if (body !== undefined && raw.readableDidRead !== false) return { value: body };
    if (raw.readableEnded === true)
      throw new WireError(400, "malformed_body", "The body was read before the service received the request.");
    return new Promise((resolve, reject) => this.#read(limits, resolve, reject));
  }

  onLeave(callback: () => void): () => void {
    const response = this.#response;
    const onClose = (): void => {
      if (!response.writableFinished) callback();
    };
    if (!response.destroyed) return listen(this.#logger, response, "close", onClose);
    callback();
    return ignore;
  }

  origin(): string {
    const { raw } = this;
    const socket = "socket" in raw ? raw.socket : undefined;
    const isSecure =
      typeof socket === "object" && socket !== null && "encrypted" in socket && socket.encrypted === true;
    const host = this.header("host") ?? this.header(":authority") ?? "localhost";
    return `${isSecure ? "https" : "http"}://${host}`;
  }

  /**
   * Express and Nest report what they have stripped. Connect, Polka and Fastify's middie keep the whole address
   * instead.
   */
  mount(): string {
    const { raw } = this;
    const baseUrl = setByMiddleware(raw, "baseUrl");
    if (typeof baseUrl === "string") return baseUrl;
    const originalUrl = setByMiddleware(raw, "originalUrl");
    const whole = typeof originalUrl === "string" ? pathOf(originalUrl) : "";
    return whole.endsWith(this.url) ? whole.slice(0, -this.url.length) : "";
  }

  #read(
    { maxBodyBytes, bodyTimeoutMs }: BodyLimits,
    resolve: (body: WireBody) => void,
    reject: (error: unknown) => void,
  ) {
    const text = new BodyText(maxBodyBytes);
    let isOpen = true;
    const finish = (act: () => void): void => {
      if (!isOpen) return;
      isOpen = false;
      stop?.();
      act();
    };
    const refuse = (error: unknown): void =>
      finish(() => {
        reject(error);
        // The rest of the body is discarded.
        this.raw.resume();
      });
    const stop =
      bodyTimeoutMs === Number.POSITIVE_INFINITY
        ? undefined
        : this.#clock.setTimeout(() => refuse(tooSlow()), bodyTimeoutMs);
    listen(this.#logger, this.raw, "data", (chunk: Uint8Array) => {
      if (!isOpen) return;
      try {
        text.add(chunk);
      } catch (error) {
        refuse(error);
      }
    });
    listen(this.#logger, this.raw, "end", () =>
      finish(() => {
        try {
          resolve({ text: text.end() });
        } catch (error) {
          reject(error);
        }
      }),
    );
    const leave = (): void => {
      if (isOpen) refuse(clientLeft());
    };
    listen(this.#logger, this.raw, "close", leave);
    listen(this.#logger, this.raw, "error", leave);
  }
}

/** The path and query of a request, also if the client sent the whole address. */
function pathOf(url: string): string {
  if (url.startsWith("/")) return url;
  const slash = url.indexOf("/", url.indexOf("://") + 3);
  return url.includes("://") ? (slash === -1 ? "/" : url.slice(slash)) : `/${url}`;
}

/** A property that middleware has set on a request. Node may give all requests one of that name, which means another thing. */
function setByMiddleware(raw: NodeRequest, name: "body" | "baseUrl" | "originalUrl"): unknown {
  return Object.hasOwn(raw, name) ? Reflect.get(raw, name) : undefined;
}

function ignore(): void {
  // Nothing is listened to.
}
