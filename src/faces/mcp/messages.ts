import type { Logger } from "../../core/ports.ts";
import { refusalOf } from "../../http/errors.ts";
import type { RpcMessage } from "../../http/json-rpc.ts";
import {
  answered,
  codeFor,
  INVALID_PARAMS,
  METHOD_NOT_FOUND,
  RpcError,
  refused,
  refusedId,
  takeMessage,
  takenMessage,
} from "../../http/json-rpc.ts";
import { askAbout } from "../../http/service.ts";
import { runIdIn } from "../../http/visibility.ts";
import type { WireRequest, WireResponse } from "../../http/wire.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { questionOfCall } from "../chat/call-ids.ts";
import { callKey, callOf, callTool } from "./call.ts";
import { refusedAnswer } from "./elicitation.ts";
import { listen } from "./listen.ts";
import type { McpCall, RpcCall } from "./options.ts";
import { isModern, legacyVersion, modernVersions, peerOf, sessionToken, tasksExtension } from "./peer.ts";
import { errorOf, respondWith, unfit } from "./responses.ts";
import { admitToRun, cancelRun, cancelTask, getTask, updateTask } from "./tasks.ts";
import { toolOf } from "./tools.ts";

/** `POST`: a message of a client. */
export async function postMessage(given: McpCall): Promise<WireResponse> {
  const message = await takeMessage(given);
  const peer = await peerOf(given, message);
  if (message.type === "notification") return takeNotification({ ...given, peer, message });
  if (message.type === "response") return takeAnswer({ ...given, peer, message });
  const methods = peer.isModern ? modern : legacy;
  const method = methods.get(message.method);
  if (method !== undefined) return method({ ...given, peer, message });
  const text = `There is no method ${JSON.stringify(message.method)}.`;
  throw new RpcError(METHOD_NOT_FOUND, text, undefined, peer.isModern ? 404 : 200);
}

/** The response to an error. One that is no refusal is logged. What is no request is refused by its status. */
export function refuseMessage(error: unknown, logger: Logger, request: WireRequest): WireResponse {
  const taken = takenMessage(request);
  const id = refusedId(taken, error);
  if (error instanceof RpcError)
    return refused(id, errorOf(error), id === null && error.status === 200 ? 400 : error.status);
  const { status, message, data, headers } = refusalOf(error, logger);
  const code = taken && status < 500 ? INVALID_PARAMS : codeFor(status, data.reason);
  const isKept = !taken || status === 401 || status === 403 || (status >= 500 && isModern(request, taken));
  return refused(id, { code, message, data }, isKept ? status : id === null ? 400 : 200, headers);
}

type Method = (call: RpcCall) => Promise<WireResponse>;

const modern: ReadonlyMap<string, Method> = new Map([
  ["server/discover", discover],
  ["tools/list", listTools],
  ["tools/call", callTool],
  ["tasks/get", getTask],
  ["tasks/update", updateTask],
  ["tasks/cancel", cancelTask],
  ["subscriptions/listen", listen],
]);

const legacy: ReadonlyMap<string, Method> = new Map([
  ["initialize", initialize],
  ["ping", async (call: RpcCall) => respondWith(call, {})],
  ["tools/list", listTools],
  ["tools/call", callTool],
]);

/** `server/discover`: what the server is. */
async function discover(call: RpcCall): Promise<WireResponse> {
  const { about } = call.service.settings;
  const capabilities = { tools: {}, ...tasksExtension };
  return respondWith(call, { supportedVersions: modernVersions, capabilities, ...about, ...cacheOf(call) });
}

/** `initialize`: begins a session of a client from before `2026-07-28`. */
async function initialize(call: RpcCall): Promise<WireResponse> {
  const { serverInfo, about } = call.service.settings;
  const { message } = call;
  const { params } = message;
  const protocolVersion = legacyVersion(params["protocolVersion"]);
  const result = { protocolVersion, capabilities: { tools: {} }, serverInfo, ...about };
  return answered(message, result, { "mcp-session-id": await sessionToken(call, params) });
}

/** `tools/list`: the agents that exist for the client, in the order in which they were registered. */
async function listTools(given: RpcCall): Promise<WireResponse> {
  const { isModern } = given.peer;
  if (given.message.params["cursor"] !== undefined)
    throw unfit("cursor: expected none, since all tools are on one page.");
  const call = await askAbout(given, { action: "list" });
  const { scope, sees } = call.caller;
  const agents = (await scope.listAgents()).filter(({ name }) => sees?.(name) ?? true);
  const tools = agents.map((agent) => toolOf(agent, isModern));
  return respondWith(call, { tools, ...(isModern && cacheOf(call)) });
}

/** How long a client may keep a result, and whether others may have it too. */
function cacheOf({ service, caller }: McpCall): JsonObject {
  return { ttlMs: service.settings.ttlMs, cacheScope: caller.ask === undefined ? "public" : "private" };
}

const accepted: WireResponse = { status: 202, headers: { "cache-control": "no-store" }, body: "" };

/** A client from before `2026-07-28` cancels a call. Others close its response. */
async function takeNotification(given: RpcCall<Extract<RpcMessage, { type: "notification" }>>): Promise<WireResponse> {
  const { method, params } = given.message;
  const key = method === "notifications/cancelled" ? callKey(given, params["requestId"]) : undefined;
  const run = key && (await given.caller.scope.findRun({ idempotencyKey: key }));
  if (!run) return accepted;
  const { run_id, agent_name } = run;
  const call = await askAbout(given, { action: "cancel", run_id, agent_name });
  await cancelRun(call, run_id);
  return accepted;
}

/** A client from before `2026-07-28` answers a question, whose id it repeats. */
async function takeAnswer(given: RpcCall<Extract<RpcMessage, { type: "response" }>>): Promise<WireResponse> {
  const { id, result } = given.message;
  const asked = typeof id === "string" ? questionOfCall(id) : undefined;
  if (asked === undefined) throw unfit("id: expected the id of a question that was asked.");
  const { await_id } = asked;
  const run_id = runIdIn(asked.run_id);
  const call = await admitToRun(given, { action: "read", run_id });
  const { await_requests } = await call.caller.scope.details(run_id);
  const question = await_requests.find((one) => one.await_id === await_id);
  if (question === undefined) return accepted;
  // A client that answers with an error could not ask.
  const reason = await refusedAnswer(call, run_id, question, result === undefined ? { action: "decline" } : result);
  if (reason === undefined) return accepted;
  const again = call.service.settings.asking.get(callOf(call, run_id));
  if (again === undefined) throw unfit(reason);
  again(question, reason);
  return accepted;
}
