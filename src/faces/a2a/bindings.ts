import type { Logger } from "../../core/ports.ts";
import { readJson } from "../../http/body.ts";
import { unfitAt, WireError } from "../../http/errors.ts";
import type { RpcId, RpcRequest } from "../../http/json-rpc.ts";
import {
  answered,
  INTERNAL_ERROR,
  INVALID_REQUEST,
  METHOD_NOT_FOUND,
  RpcError,
  readMessage,
  refused,
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
  const { service, request } = given;
  let id: RpcId | null = null;
  try {
    const message = readMessage(readJson(await takeBody(given), service.settings.limits));
    if (message.type !== "request") throw new RpcError(INVALID_REQUEST, "Expected a request, with an id.");
    ({ id } = message);
    checkVersion(given);
    const { method, params } = message;
    if (!Object.hasOwn(operations, method)) throw new RpcError(METHOD_NOT_FOUND, "No such method.");
    const operation: Operation = operations[method as keyof typeof operations];
    const named = inCamelCase(params);
    return activated(given, await operation.run(await asked(given, operation, named), named, jsonRpc(message)));
  } catch (error) {
    if (error instanceof RpcError) return refused(error.id ?? id, { code: error.code, message: error.message });
    // The host refuses before any envelope, and a body that was not read has no envelope.
    if (error instanceof WireError && outside.has(error.status)) throw error;
    service.refusals.note(error, () => {
      return { action: "read", agent_name: given.parameter, headers: request.headers(), request: request.raw };
    });
    const { code, message, details, headers } = faultOf(error, service.logger);
    return refused(id, { code, message, ...(details.length > 0 && { data: details }) }, 200, headers);
  }
}

const outside: ReadonlySet<number> = new Set([401, 403, 408, 413]);

/** The call with the rights that the host gives for what the body asks for. */
async function asked(call: A2aCall, { action }: Operation, { id }: JsonObject): Promise<A2aCall> {
  if (call.caller.ask === undefined) return call;
  const run = runIdSchema.safeParse(id);
  return askAbout(call, {
    action,
    agent_name: call.parameter,
    ...(run.success && { run_id: run.data }),
  }) as Promise<A2aCall>;
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

/** The handler of an operation in REST that has its parameters in the path and the query. Those without a value are absent. */
export function rest(name: keyof typeof operations): (call: A2aCall) => Promise<WireResponse> {
  return (call) => operate(call, name, { ...Object.fromEntries(new URLSearchParams(call.query)), id: call.second });
}

/** The handler of an operation in REST that has its parameters in the body. */
export function restBody(name: keyof typeof operations): (call: A2aCall) => Promise<WireResponse> {
  return async (call) => {
    const body = readJson(await takeBody(call), call.service.settings.limits);
    if (!isJsonObject(body)) throw unfitAt([], "expected an object");
    return operate(call, name, body);
  };
}

async function operate(call: A2aCall, name: keyof typeof operations, params: JsonObject): Promise<WireResponse> {
  checkVersion(call);
  return activated(call, await operations[name].run(call, params, restOf(call.request)));
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
    failure: (message) => ({ error: { code: 500, status: "INTERNAL", message, details: [] } }),
  };
}

/** The answer in REST to an error. */
export function refuseInRest(error: unknown, logger: Logger, request: WireRequest): WireResponse {
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
  throw refusal("version_not_supported", `A2A-Version: expected ${VERSION}, received ${JSON.stringify(named)}.`);
}
