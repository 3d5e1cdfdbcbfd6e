import { inBackground, listen } from "../core/background.ts";
import type { Clock, Logger } from "../core/ports.ts";
import type { NodeRequest, NodeResponse } from "./node-request.ts";
import { NodeWireRequest } from "./node-request.ts";
import type { HttpSettings } from "./options.ts";
import { answerRequest } from "./router.ts";
import type { Service } from "./service.ts";
import type { WireResponse, WireStream } from "./wire.ts";
import { inTurns } from "./wire.ts";

/** Answers a request of `node:http`, and of every framework that hands on its request and response. */
export type NodeListener = (request: NodeRequest, response: NodeResponse) => void;

/** Answers requests of `node:http` for a service. */
export function listenerOf<Settings extends HttpSettings, Who>(service: Service<Settings, Who>): NodeListener {
  return (request, response) => {
    inBackground(service.logger, serve(service, request, response));
  };
}

async function serve<Settings extends HttpSettings, Who>(
  service: Service<Settings, Who>,
  request: NodeRequest,
  response: NodeResponse,
): Promise<void> {
  // The error of a broken socket is handled by the `close` that follows it.
  listen(service.logger, response, "error", ignore);
  const answer = fitting(request, await answerRequest(service, new NodeWireRequest(request, response, service)));
  const { status, headers, body } = answer;
  try {
    if (typeof body === "string") sendText(response, answer, body);
    else if (response.destroyed || response.headersSent || request.method === "HEAD") {
      body.return();
      if (!response.headersSent) response.writeHead(status, headers);
      response.end("");
    } else await sendStream(service, response, answer, body);
  } catch (error) {
    if (typeof body !== "string") body.return();
    service.logger.error("A response could not be written.", { error });
    response.destroy();
  }
}

/** An HTTP/2 connection carries other requests too, so HTTP/1's `connection` header is removed. */
function fitting({ httpVersionMajor = 1 }: NodeRequest, answer: WireResponse): WireResponse {
  if (httpVersionMajor < 2 || answer.headers["connection"] === undefined) return answer;
  const { connection: _, ...headers } = answer.headers;
  return { ...answer, headers };
}

function sendText(response: NodeResponse, { status, headers }: WireResponse, text: string): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(
    status,
    status === 204 ? headers : { ...headers, "content-length": String(Buffer.byteLength(text)) },
  );
  response.end(text);
}

/** Writes a stream as fast as the client takes it. */
async function sendStream(
  { clock, logger, settings }: Pick<Service<HttpSettings, unknown>, "clock" | "logger" | "settings">,
  response: NodeResponse,
  { status, headers }: WireResponse,
  pieces: WireStream,
): Promise<void> {
  const stream = inTurns(pieces, clock);
  const stopListening = listen(logger, response, "close", () => stream.return());
  response.writeHead(status, headers);
  response.flushHeaders?.();
  for (let piece = await stream.next(); piece.done !== true; piece = await stream.next()) {
    if (response.destroyed) return;
    if (response.write(piece.value)) continue;
    if (await drained(response, clock, logger, settings.stallMs)) continue;
    response.destroy();
    return;
  }
  stopListening();
  response.end("");
}

/** Waits until the client has taken what was written. False: it disconnected, or took nothing for too long. */
function drained(response: NodeResponse, clock: Clock, logger: Logger, stallMs: number): Promise<boolean> {
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const settle = (isDrained: boolean): void => {
      stop?.();
      for (const stopListening of listeners) stopListening();
      resolve(isDrained);
    };
    const onClose = (): void => settle(false);
    const stop = stallMs === Number.POSITIVE_INFINITY ? undefined : clock.setTimeout(onClose, stallMs);
    const listeners = [
      listen(logger, response, "drain", () => settle(true)),
      listen(logger, response, "close", onClose),
    ];
  });
}

function ignore(): void {
  // The `close` event follows and is handled.
}
