import type { JsonObject } from "../protocol/json.ts";
import type { DetailedEvent } from "../runtime/log/event-stream.ts";
import { readError } from "./errors.ts";
import type { EventFormat, EventText } from "./event-text.ts";
import { escapeBreaks, STREAM_HEARTBEAT } from "./event-text.ts";
import type { RpcRequest } from "./json-rpc.ts";
import { INTERNAL_ERROR } from "./json-rpc.ts";

/** What separates messages. */
export interface Frame {
  readonly before: string;
  readonly after: string;
  /** Written after a silence; undefined: nothing. */
  readonly heartbeat?: string;
}

/** As server-sent events. */
export const sseFrame: Frame = { before: "event: message\ndata: ", after: "\n\n", heartbeat: STREAM_HEARTBEAT };

/** As the lines of a text. */
export const lineFrame: Frame = { before: "", after: "\n" };

/** Writes events as messages of JSON-RPC: notifications and requests, and then the response to one request. */
export abstract class RpcText implements EventFormat {
  abstract readonly begin: string;
  readonly heartbeat: string | undefined;
  readonly request: RpcRequest;
  readonly #frame: Frame;

  constructor(frame: Frame, request: RpcRequest) {
    this.heartbeat = frame.heartbeat;
    this.request = request;
    this.#frame = frame;
  }

  abstract write(event: DetailedEvent, out: EventText): void;

  /** The response. */
  abstract end(): string;

  readonly failure = (error: unknown): string => {
    const { message, data } = readError(error);
    return this.respond({ error: { code: INTERNAL_ERROR, message, data } });
  };

  /** Writes a message before the response. */
  protected put(out: EventText, message: JsonObject): void {
    const { before, after } = this.#frame;
    out.put(before, { jsonrpc: "2.0", ...message }, after);
  }

  /** A message as text. */
  protected text(message: object): string {
    const { before, after } = this.#frame;
    return `${before}${escapeBreaks(JSON.stringify({ jsonrpc: "2.0", ...message }))}${after}`;
  }

  /** The response as text. `content`: its result or its error. */
  protected respond(content: object): string {
    return this.text({ id: this.request.id, ...content });
  }
}
