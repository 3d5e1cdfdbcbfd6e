import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { AgentRuntime } from "../runtime/agent-runtime.ts";
import { BodyText, checkContentLength, clientLeft, tooSlow } from "./body.ts";
import { WireError } from "./errors.ts";
import type { HttpOptions } from "./options.ts";
import { readHttpOptions } from "./options.ts";
import { answerRequest } from "./router.ts";
import { Service } from "./service.ts";
import type { BodyLimits, WireBody, WireRequest, WireResponse, WireStream } from "./wire.ts";

/** What the listener uses of a request of `node:http`, and of what middleware puts on it. */
export interface NodeRequest {
  readonly method?: string | undefined;
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
  flushHeaders(): void;
  write(text: string): boolean;
  end(text?: string): unknown;
  destroy(): unknown;
  on(event: "close" | "drain" | "error", listener: () => void): unknown;
  removeListener(event: "close" | "drain" | "error", listener: () => void): unknown;
}

/** Answers a request of `node:http`, and of every framework that hands on its request and response. */
export type NodeListener = (request: NodeRequest, response: NodeResponse) => void;

/**
 * The runs of a runtime over HTTP, for `node:http`, Express, Fastify and Koa. Throws `invalid_argument` for an option that cannot be.
 *
 * @example
 * createServer(createNodeListener(runtime)).listen(8000);
 */
export function createNodeListener(runtime: AgentRuntime, options: HttpOptions = {}): NodeListener {
  const service = new Service(runtime, readHttpOptions(options));
  return (request, response) => {
    void serve(service, request, response);
  };
}

async function serve(service: Service, request: NodeRequest, response: NodeResponse): Promise<void> {
  // A socket that breaks is reported here; `close` follows, and is what matters.
  response.on("error", ignore);
  const answer = await answerRequest(service, new NodeWireRequest(request, response, service.clock));
  const { status, headers, body } = answer;
  try {
    if (typeof body === "string") sendText(response, answer, body);
    else if (response.destroyed || response.headersSent || request.method === "HEAD") {
      body.return();
      if (!response.headersSent) response.writeHead(status, headers);
      response.end();
    } else await sendStream(service, response, answer, body);
  } catch (error) {
    if (typeof body !== "string") body.return();
    service.logger.error("A response could not be written.", { error });
    response.destroy();
  }
}

function sendText(response: NodeResponse, { status, headers }: WireResponse, text: string): void {
  if (response.headersSent || response.destroyed) return;
  const length = status === 204 ? undefined : { "content-length": String(Buffer.byteLength(text)) };
  response.writeHead(status, { ...headers, ...length });
  response.end(text);
}

/** Writes a stream as fast as the client takes it. */
async function sendStream(
  { clock, settings }: Service,
  response: NodeResponse,
  { status, headers }: WireResponse,
  stream: WireStream,
): Promise<void> {
  const onClose = (): void => stream.return();
  response.on("close", onClose);
  response.writeHead(status, headers);
  response.flushHeaders();
  for (let piece = await stream.next(); piece.done !== true; piece = await stream.next()) {
    if (response.destroyed) return;
    if (response.write(piece.value)) continue;
    if (await drained(response, clock, settings.stallMs)) continue;
    response.destroy();
    return;
  }
  response.removeListener("close", onClose);
  response.end();
}

/** Waits until the client has taken what was written. False: it went away, or took nothing for too long. */
function drained(response: NodeResponse, clock: Clock, stallMs: number): Promise<boolean> {
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const settle = (isDrained: boolean): void => {
      stop?.();
      response.removeListener("drain", onDrain);
      response.removeListener("close", onClose);
      resolve(isDrained);
    };
    const onDrain = (): void => settle(true);
    const onClose = (): void => settle(false);
    const stop = stallMs === Number.POSITIVE_INFINITY ? undefined : clock.setTimeout(onClose, stallMs);
    response.on("drain", onDrain);
    response.on("close", onClose);
  });
}

class NodeWireRequest implements WireRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: NodeRequest;
  readonly #response: NodeResponse;
  readonly #clock: Clock;

  constructor(request: NodeRequest, response: NodeResponse, clock: Clock) {
    this.raw = request;
    this.method = request.method ?? "GET";
    this.url = pathOf(request.url ?? "/");
    this.#response = response;
    this.#clock = clock;
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
    // Some middleware puts an empty object where it has not read the body.
    if ("body" in raw && raw.body !== undefined && raw.readableDidRead !== false) return { value: raw.body };
    if (raw.readableEnded === true)
      throw new WireError(400, "malformed_body", "The body has been read already, and is not there any more.");
    checkContentLength(this.header("content-length"), limits.maxBodyBytes);
    return new Promise((resolve, reject) => this.#read(limits, resolve, reject));
  }

  onLeave(callback: () => void): void {
    const response = this.#response;
    if (response.destroyed) callback();
    else {
      response.on("close", () => {
        if (!response.writableFinished) callback();
      });
    }
  }

  base(): string {
    const { raw } = this;
    const socket = "socket" in raw ? raw.socket : undefined;
    const isSecure =
      typeof socket === "object" && socket !== null && "encrypted" in socket && socket.encrypted === true;
    const host = this.header("host") ?? this.header(":authority") ?? "localhost";
    const mount = "baseUrl" in raw && typeof raw.baseUrl === "string" ? raw.baseUrl : "";
    return `${isSecure ? "https" : "http"}://${host}${mount}`;
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
        // What still comes is thrown away.
        this.raw.resume();
      });
    const stop =
      bodyTimeoutMs === Number.POSITIVE_INFINITY
        ? undefined
        : this.#clock.setTimeout(() => refuse(tooSlow()), bodyTimeoutMs);
    this.raw.on("data", (chunk) => {
      if (!isOpen) return;
      try {
        text.add(chunk);
      } catch (error) {
        refuse(error);
      }
    });
    this.raw.on("end", () =>
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
    this.raw.on("close", leave);
    this.raw.on("error", leave);
  }
}

/** The path and query of a request, also where the client wrote the whole address. */
function pathOf(url: string): string {
  if (url.startsWith("/")) return url;
  const slash = url.indexOf("/", url.indexOf("://") + 3);
  return url.includes("://") ? (slash === -1 ? "/" : url.slice(slash)) : `/${url}`;
}

function ignore(): void {
  // There is nobody to tell.
}
