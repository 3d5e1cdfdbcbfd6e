import { answered, INVALID_PARAMS, RpcError } from "../../http/json-rpc.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { JsonObject } from "../../protocol/json.ts";
import type { RpcCall } from "./options.ts";

/* The results of MCP, and its errors. */

/** A result as clients of its era have it: from `2026-07-28` on each says what it is, and who gives it. */
export function resultFor({ service, peer }: RpcCall, result: JsonObject): JsonObject {
  const meta = { "io.modelcontextprotocol/serverInfo": service.settings.serverInfo };
  return peer.isModern ? { resultType: "complete", ...result, _meta: meta } : result;
}

/** The response with such a result. */
export function respondWith(call: RpcCall, result: JsonObject): WireResponse {
  return answered(call.message, resultFor(call, result));
}

export const HEADER_MISMATCH = -32020;
export const MISSING_CAPABILITY = -32021;
export const UNSUPPORTED_VERSION = -32022;

/** The refusal of params. */
export function unfit(message: string, data?: JsonObject): RpcError {
  return new RpcError(INVALID_PARAMS, message, data);
}

/** The refusal of a message that says something else than its client has to say. */
export function misstated(code: number, message: string, data?: JsonObject): RpcError {
  return new RpcError(code, message, data, 400);
}

/** An error as it is sent. */
export function errorOf({ code, message, data }: RpcError): JsonObject {
  return { code, message, ...(data !== undefined && { data }) };
}
