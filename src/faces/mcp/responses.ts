import type { Logger } from "../../core/ports.ts";
import { refusalOf } from "../../http/errors.ts";
import type { RpcId, RpcRequest } from "../../http/json-rpc.ts";
import {
  answered,
  INTERNAL_ERROR,
  INVALID_PARAMS,
  INVALID_REQUEST,
  PARSE_ERROR,
  RpcError,
  refused,
} from "../../http/json-rpc.ts";
import type { WireRequest, WireResponse } from "../../http/wire.ts";
import type { JsonObject } from "../../protocol/json.ts";
import type { McpCall } from "./options.ts";

/* The responses of MCP: results, and refusals. */

/** Who gets a response: a client of `2026-07-28` and later, or one from before. */
export interface Era {
  readonly isModern: boolean;
}

/** A result as clients of its era have it: from `2026-07-28` on each says what it is, and who gives it. */
export function resultFor({ service }: McpCall, { isModern }: Era, result: JsonObject): JsonObject {
  const meta = { "io.modelcontextprotocol/serverInfo": service.settings.serverInfo };
  return isModern ? { resultType: "complete", ...result, _meta: meta } : result;
}

/** The response with such a result. */
export function respondWith(call: McpCall, era: Era, request: RpcRequest, result: JsonObject): WireResponse {
  return answered(request, resultFor(call, era, result));
}

export const HEADER_MISMATCH = -32020;
export const MISSING_CAPABILITY = -32021;
export const UNSUPPORTED_VERSION = -32022;

/** The refusal of params. */
export function unfit(message: string, data?: JsonObject): RpcError {
  return new RpcError(INVALID_PARAMS, message, data);
}

/** What is known of a message once it was read, for the response to an error. */
interface Read extends Era {
  /** Null: it is no request. */
  readonly id: RpcId | null;
}

const requests = new WeakMap<WireRequest, Read>();

/** Remembers the id of a message. A refusal has to repeat it. */
export function noteRequest(request: WireRequest, read: Read): void {
  requests.set(request, read);
}

/** The response to an error. One that is no refusal is logged. What is no request is refused by its status. */
export function refuseRpc(error: unknown, logger: Logger, request: WireRequest): WireResponse {
  const read = requests.get(request);
  if (error instanceof RpcError) {
    const id = read?.id ?? error.id ?? null;
    return refused(id, errorOf(error), id === null && error.status === 200 ? 400 : error.status);
  }
  const { status, message, data, headers } = refusalOf(error, logger);
  const code = status >= 500 ? INTERNAL_ERROR : read === undefined ? codeBefore(data.reason) : INVALID_PARAMS;
  const isKept = read === undefined || status === 401 || status === 403 || (status >= 500 && read.isModern);
  const id = read?.id ?? null;
  return refused(id, { code, message, data }, isKept ? status : id === null ? 400 : 200, headers);
}

/** The code of an error that came before the message was known. */
function codeBefore(reason: unknown): number {
  return reason === "malformed_body" ? PARSE_ERROR : INVALID_REQUEST;
}

/** An error as it is sent. */
export function errorOf({ code, message, data }: RpcError): JsonObject {
  return { code, message, ...(data !== undefined && { data }) };
}
