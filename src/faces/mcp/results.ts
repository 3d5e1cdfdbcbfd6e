import type { WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import type { JsonObject } from "../../protocol/json.ts";
import type { McpCall } from "./options.ts";
import type { RpcRequest } from "./rpc.ts";

/** The response with a result. */
export function answered({ id }: RpcRequest, result: JsonObject, headers?: Record<string, string>): WireResponse {
  return json(200, { jsonrpc: "2.0", id, result }, headers);
}

/** A result with what each result has from `2026-07-28` on. */
export function complete({ service }: McpCall, result: JsonObject): JsonObject {
  const meta = { "io.modelcontextprotocol/serverInfo": service.settings.serverInfo };
  return { resultType: "complete", ...result, _meta: meta };
}
