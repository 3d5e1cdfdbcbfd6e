import type { Logger } from "../../core/ports.ts";
import { readJson } from "../../http/body.ts";
import { unfitAt, WireError } from "../../http/errors.ts";
import type { RpcRequest } from "../../http/json-rpc.ts";
import {
  answered,
  INTERNAL_ERROR,
  INVALID_REQUEST,
  METHOD_NOT_FOUND,
  RpcError,
  refused,
  refusedId,
  takeMessage,
  takenMessage,
} from "../../http/json-rpc.ts";
import { askAbout, takeBody } from "../../http/service.ts";
import type { WireRequest, WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import { runIdSchema } from "../../protocol/identifier.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { DECLINING, VERSION } from "./card.ts";
import { faultOf, refusal } from "./errors.ts";
import type { Binding, Operation } from "./operations.ts";
import { operations } from "./operations.ts";
import type { A2aCall } from "./options.ts";

/** `POST /{name}`: an operation in JSON-RPC. */
export async function postJsonRpc(given: A2aCall): Promise<WireResponse> {
  const message = await takeMessage(given);
  if (message.type !== "request") throw new RpcError(INVALID_REQUEST, "Expected a request, with an id.");
  checkVersion(given);
  const operation = operations.get(message.method);
  if (operation === undefined) throw new RpcError(METHOD_NOT_FOUND, "No such method.");
  const params = inCamelCase(message.params);
  return activated(given, await operation.run(await asked(given, operation, params), params, jsonRpc(message)));
}

/** The response to an error, in the binding of the request. */
export function refuse(error: unknown, logger: Logger, request: WireRequest): WireResponse {
  const message = takenMessage(request);
  // The host refuses before any envelope, and a body that was not read has no envelope.
  if (message === undefined || (error instanceof WireError && outside.has(error.status)))
    return refuseInRest(error, logger, request);
  const id = refusedId(message, error);
  if (error instanceof RpcError) return refused(id, { code: error.code, message: error.message });
  const { code, message: text, details, headers } = faultOf(error, logger);
  return refused(id, { code, message: text, ...(details.length > 0 && { data: details }) }, 200, headers);
}

const outside: ReadonlySet<number> = new Set([401, 403, 408, 413]);

/** The call with the rights that the host gives for what the body asks for. */
function asked(call: A2aCall, { action, asks }: Operation, { id, contextId }: JsonObject): Promise<A2aCall> {
  const run = runIdSchema.safeParse(id);
  return askAbout(call, {
    action,
    agent_name: call.parameter,
    ...(run.success && { run_id: run.data }),
    ...(asks !== undefined && typeof contextId === "string" && contextId !== "" && { chat_id: contextId }),
  });
}

/** The parameters by their names in JSON: a reader of ProtoJSON takes the original names of fields too. */
function inCamelCase(params: JsonObject): JsonObject {
  const entries = Object.entries(params).map(([name, value]) => {
    return [name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()), value] as const;
  });
  return Object.fromEntries(entries);
}

function jsonRpc(request: RpcRequest): Binding {
  return {
    result: (value) => answered(request, value),
    item: (result) => ({ jsonrpc: "2.0", id: request.id, result }),
    failure: (message) => ({ jsonrpc: "2.0", id: request.id, error: { code: INTERNAL_ERROR, message } }),
  };
}

/** The handler of an operation in REST. */
export function rest(operation: Operation): (call: A2aCall) => Promise<WireResponse> {
  return async (call) => {
    const params = operation.hasBody === true ? await paramsInBody(call) : paramsInUrl(call);
    checkVersion(call);
    return activated(call, await operation.run(call, params, restOf(call.request)));
  };
}

async function paramsInBody(call: A2aCall): Promise<JsonObject> {
  const body = readJson(await takeBody(call), call.service.settings.limits);
  if (!isJsonObject(body)) throw unfitAt([], "expected an object");
  return body;
}

/** The parameters in the path and the query. Those without a value are absent. */
function paramsInUrl({ query, second: id }: A2aCall): JsonObject {
  return { ...Object.fromEntries([...new URLSearchParams(query)].filter(([, value]) => value !== "")), id };
}

/** The response, which names the extension if the client has asked for it. */
function activated({ request }: A2aCall, response: WireResponse): WireResponse {
  if (request.header(EXTENSIONS)?.includes(DECLINING) !== true) return response;
  return { ...response, headers: { ...response.headers, [EXTENSIONS]: DECLINING } };
}

const EXTENSIONS = "a2a-extensions";

function restOf(request: WireRequest): Binding {
  return {
    result: (value) => json(200, value, typeFor(request)),
    item: (item) => item,
    failure: (message, retryMs) => {
      const [code, status] = retryMs === undefined ? [500, "INTERNAL"] : [503, "UNAVAILABLE"];
      return { error: { code, status, message, details: [] } };
    },
  };
}

function refuseInRest(error: unknown, logger: Logger, request: WireRequest): WireResponse {
  const { status, name, message, details, headers } = faultOf(error, logger);
  return json(status, { error: { code: status, status: name, message, details } }, { ...headers, ...typeFor(request) });
}

const OWN_TYPE = "application/a2a+json";

/** The type of an answer: the one that the request names. */
function typeFor(request: WireRequest): Record<string, string> {
  const named = `${request.header("content-type") ?? ""},${request.header("accept") ?? ""}`;
  return named.toLowerCase().includes(OWN_TYPE) ? { "content-type": OWN_TYPE } : {};
}

/** Refuses a request in another version of the protocol. One that names none is of version 0.3. */
function checkVersion({ request, query }: A2aCall): void {
  const named = request.header("a2a-version") || new URLSearchParams(query).get("A2A-Version") || "0.3";
  const [, version] = /^(\d+\.\d+)(?:\.\d+)?$/.exec(named.trim()) ?? [];
  if (version === VERSION) return;
  throw refusal("VERSION_NOT_SUPPORTED", `A2A-Version: expected ${VERSION}, received ${JSON.stringify(named)}.`);
}
