import type { Logger } from "../../core/ports.ts";
import { refusalOf } from "../../http/errors.ts";
import type { WireRequest, WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";

/* JSON-RPC 2.0, as MCP uses it. */

export type RpcId = string | number;

/** A message of a client. */
export type RpcMessage =
  | { readonly type: "request"; readonly id: RpcId; readonly method: string; readonly params: JsonObject }
  | { readonly type: "notification"; readonly method: string; readonly params: JsonObject }
  | {
      readonly type: "response";
      readonly id: RpcId;
      readonly result: JsonValue | undefined;
      readonly error: JsonValue;
    };

/* The codes of errors: those of JSON-RPC, then those of MCP. */
const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;
export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;
export const INTERNAL_ERROR = -32603;
export const HEADER_MISMATCH = -32020;
export const MISSING_CAPABILITY = -32021;
export const UNSUPPORTED_VERSION = -32022;

/** A request of a client, which gets a response. */
export type RpcRequest = Extract<RpcMessage, { readonly type: "request" }>;

/** A refusal in the words of MCP. */
export class RpcError extends Error {
  override readonly name = "RpcError";
  readonly code: number;
  readonly data: JsonObject | undefined;
  /** The status of a response that is nothing but this error. */
  readonly status: number;

  constructor(code: number, message: string, data?: JsonObject, status = 200) {
    super(message);
    this.code = code;
    this.data = data;
    this.status = status;
  }
}

/** Reads a message. A list of messages is refused: no revision that is served has them. */
export function readMessage(value: unknown): RpcMessage {
  if (!isJsonObject(value) || value["jsonrpc"] !== "2.0") throw malformed('expected one object with jsonrpc "2.0"');
  const { id, method, params = {}, result, error } = value;
  const isId = typeof id === "string" || Number.isSafeInteger(id);
  if (id !== undefined && !isId) throw malformed("id: expected a string or a whole number");
  if (typeof method === "string") {
    if (!isJsonObject(params)) throw malformed("params: expected an object");
    return isId ? { type: "request", id: id as RpcId, method, params } : { type: "notification", method, params };
  }
  if (method !== undefined) throw malformed("method: expected a string");
  if (!isId || (result === undefined) === (error === undefined))
    throw malformed("expected a method, a result or an error");
  return { type: "response", id: id as RpcId, result, error: error ?? null };
}

function malformed(why: string): RpcError {
  return new RpcError(INVALID_REQUEST, `The message is invalid: ${why}.`, undefined, 400);
}

/** The refusal of params. */
export function unfit(message: string, data?: JsonObject): RpcError {
  return new RpcError(INVALID_PARAMS, message, data);
}

/** What is known of a message once it was read, for the response to an error. */
interface Read {
  /** Null: it is no request. */
  readonly id: RpcId | null;
  readonly isModern: boolean;
}

const requests = new WeakMap<WireRequest, Read>();

/** Remembers the id of a message. A refusal has to repeat it. */
export function noteRequest(request: WireRequest, read: Read): void {
  requests.set(request, read);
}

/** The response to an error. One that is no refusal is logged. */
export function refuseRpc(error: unknown, logger: Logger, request: WireRequest): WireResponse {
  const read = requests.get(request);
  const id = read?.id ?? null;
  if (error instanceof RpcError) return json(error.status, { jsonrpc: "2.0", id, error: errorOf(error) });
  const { status, message, data, headers } = refusalOf(error, logger);
  const code = status >= 500 ? INTERNAL_ERROR : read !== undefined ? INVALID_PARAMS : codeBefore(data.reason);
  const isKept = read === undefined || status === 401 || status === 403 || (status >= 500 && read.isModern);
  const body = { jsonrpc: "2.0", id, error: { code, message, data } };
  return json(isKept ? status : id === null ? 400 : 200, body, headers);
}

/** The code of an error that came before the message was known. */
function codeBefore(reason: unknown): number {
  return reason === "malformed_body" ? PARSE_ERROR : INVALID_REQUEST;
}

/** An error as it is sent. */
export function errorOf({ code, message, data }: RpcError): JsonObject {
  return { code, message, ...(data !== undefined && { data }) };
}
