import type { JsonObject, JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import { readJson } from "./body.ts";
import type { HttpSettings } from "./options.ts";
import type { Call } from "./service.ts";
import { takeBody } from "./service.ts";
import type { WireRequest, WireResponse } from "./wire.ts";
import { json } from "./wire.ts";

/* JSON-RPC 2.0, of which each request over HTTP has one message. */

export type RpcId = string | number;

/** A message of a client. */
export type RpcMessage =
  | { readonly type: "request"; readonly id: RpcId; readonly method: string; readonly params: JsonObject }
  | { readonly type: "notification"; readonly method: string; readonly params: JsonObject }
  | { readonly type: "response"; readonly id: RpcId; readonly result: JsonValue | undefined };

/** A message that gets a response. */
export type RpcRequest = Extract<RpcMessage, { readonly type: "request" }>;

const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;
export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;
export const INTERNAL_ERROR = -32603;

/** A refusal in the words of JSON-RPC. */
export class RpcError extends Error {
  override readonly name = "RpcError";
  readonly code: number;
  readonly data: JsonObject | undefined;
  /** The status of a response that is nothing but this error. */
  readonly status: number;
  /** The id of a message that was not read. Undefined: it has none, or it was read. */
  readonly id: RpcId | undefined;

  constructor(code: number, message: string, data?: JsonObject, status = 200, id?: RpcId) {
    super(message);
    this.code = code;
    this.data = data;
    this.status = status;
    this.id = id;
  }
}

const messages = new WeakMap<WireRequest, RpcMessage | null>();

/**
 * The message that the body of a request is. Refuses a list of messages, and what is no message. It is remembered, since
 * the response to an error has to repeat its id.
 */
export async function takeMessage(call: Call<HttpSettings, unknown>): Promise<RpcMessage> {
  const { request, service } = call;
  messages.set(request, null);
  const message = readMessage(readJson(await takeBody(call), service.settings.limits));
  messages.set(request, message);
  return message;
}

/** The message that was taken from a request. Null: its body is none. Undefined: its body has not been asked for. */
export function takenMessage(request: WireRequest): RpcMessage | null | undefined {
  return messages.get(request);
}

/** The id that the response to an error repeats. Null: the message is no request, or its id was not read. */
export function refusedId(message: RpcMessage | null | undefined, error: unknown): RpcId | null {
  if (message?.type === "request") return message.id;
  return (error instanceof RpcError ? error.id : undefined) ?? null;
}

function readMessage(value: unknown): RpcMessage {
  const { jsonrpc, id: given, method, params = {}, result, error } = isJsonObject(value) ? value : {};
  const id = typeof given === "string" || typeof given === "number" ? given : undefined;
  const malformed = (expected: string, code = INVALID_REQUEST): RpcError => {
    return new RpcError(code, `The message is invalid: expected ${expected}.`, undefined, 400, id);
  };
  if (jsonrpc !== "2.0") throw malformed('one object with jsonrpc "2.0"');
  if (given !== undefined && id === undefined) throw malformed("a string or a number as id");
  if (typeof method === "string") {
    if (!isJsonObject(params)) throw malformed("an object as params", INVALID_PARAMS);
    return id === undefined ? { type: "notification", method, params } : { type: "request", id, method, params };
  }
  if (method !== undefined || id === undefined || (result === undefined) === (error === undefined))
    throw malformed("a method, a result or an error");
  return { type: "response", id, result };
}

/** The code of an error that a request gets for the status with which it is refused, and not for what its message says. */
export function codeFor(status: number, reason: unknown): number {
  if (reason === "malformed_body") return PARSE_ERROR;
  return status >= 500 ? INTERNAL_ERROR : INVALID_REQUEST;
}

/** The response to a request. */
export function answered({ id }: RpcRequest, result: object, headers?: Record<string, string>): WireResponse {
  return json(200, { jsonrpc: "2.0", id, result }, headers);
}

/** The response to a message that is refused. `id`: null where the message has none, or was not read. */
export function refused(id: RpcId | null, error: object, status = 200, headers?: Record<string, string>): WireResponse {
  return json(status, { jsonrpc: "2.0", id, error }, headers);
}
