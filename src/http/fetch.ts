import { inBackground, onceAborted } from "../core/background.ts";
import type { Clock, Logger } from "../core/ports.ts";
import { BodyText, checkContentLength, clientLeft, tooSlow } from "./body.ts";
import { WireError } from "./errors.ts";
import type { HttpSettings } from "./options.ts";
import { answerRequest } from "./router.ts";
import type { Service } from "./service.ts";
import type { BodyLimits, WireBody, WireHost, WireRequest, WireStream } from "./wire.ts";
import { inTurns } from "./wire.ts";

/** Answers a web request. It never rejects. */
export type Handler = (request: Request) => Promise<Response>;

/** Answers web requests for a service. */
export function handlerOf<Settings extends HttpSettings, Who>(service: Service<Settings, Who>): Handler {
  return async (request) => {
    const { status, headers, body } = await answerRequest(service, new FetchWireRequest(request, service));
    if (request.method === "HEAD" || body === "") {
      if (typeof body !== "string") body.return();
      return new Response(null, { status, headers });
    }
    return new Response(typeof body === "string" ? body : bytesOf(body, service, request.signal), { status, headers });
  };
}

/** A stream of text as the bytes of a web stream. A reader that takes nothing for too long is disconnected. */
function bytesOf(
  pieces: WireStream,
  { clock, logger, settings }: Pick<Service<HttpSettings, unknown>, "clock" | "logger" | "settings">,
  signal: AbortSignal,
): ReadableStream<Uint8Array> {
  const { stallMs } = settings;
  const stream = inTurns(pieces, clock);
  const encoder = new TextEncoder();
  let stop: (() => void) | undefined;
  const leave = (): void => {
    stop?.();
    stopListening();
    stream.return();
  };
  const stopListening = onceAborted(logger, signal, leave);
  if (signal.aborted) leave();
  return new ReadableStream({
    async pull(controller) {
      stop?.();
      stop = undefined;
      const piece = await stream.next();
      if (piece.done === true) {
        leave();
        controller.close();
        return;
      }
      controller.enqueue(encoder.encode(piece.value));
      if (stallMs === Number.POSITIVE_INFINITY) return;
      stop = clock.setTimeout(() => {
        leave();
        controller.error(new Error("The reader of the stream took nothing for too long (stallMs)."));
      }, stallMs);
    },
    cancel: leave,
  });
}

class FetchWireRequest implements WireRequest {
  readonly method: string;
  readonly url: string;
  readonly raw: Request;
  readonly #url: URL;
  readonly #clock: Clock;
  readonly #logger: Logger;

  constructor(request: Request, { clock, logger }: WireHost) {
    this.raw = request;
    this.method = request.method;
    this.#url = new URL(request.url);
    this.url = `${this.#url.pathname}${this.#url.search}`;
    this.#clock = clock;
    this.#logger = logger;
  }

  header(name: string): string | undefined {
    if (name.startsWith(":")) return undefined;
    return this.raw.headers.get(name) ?? (name === "host" ? this.#url.host : undefined);
  }

  headers(): Readonly<Record<string, string | undefined>> {
    return Object.fromEntries(this.raw.headers);
  }

  async body({ maxBodyBytes, bodyTimeoutMs }: BodyLimits): Promise<WireBody> {
    const { body, bodyUsed } = this.raw;
    if (bodyUsed)
      throw new WireError(400, "malformed_body", "The body was read before the service received the request.");
    checkContentLength(this.header("content-length"), maxBodyBytes);
    if (body === null) return { text: "" };
    const reader = body.getReader();
    let isLate = false;
    const stop =
      bodyTimeoutMs === Number.POSITIVE_INFINITY
        ? undefined
        : this.#clock.setTimeout(() => {
            isLate = true;
            inBackground(this.#logger, reader.cancel().catch(ignore));
          }, bodyTimeoutMs);
    try {
      const text = new BodyText(maxBodyBytes);
      for (let read = await reader.read(); !read.done; read = await reader.read()) text.add(read.value);
      if (isLate) throw tooSlow();
      return { text: text.end() };
    } catch (error) {
      inBackground(this.#logger, reader.cancel().catch(ignore));
      throw error instanceof WireError ? error : clientLeft();
    } finally {
      stop?.();
    }
  }

  onLeave(callback: () => void): () => void {
    const { signal } = this.raw;
    if (signal.aborted) callback();
    return onceAborted(this.#logger, signal, callback);
  }

  origin(): string {
    return this.#url.origin;
  }

  mount(): string {
    return "";
  }
}

function ignore(): void {
  // The client has disconnected.
}
