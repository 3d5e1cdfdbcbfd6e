import { readJson } from "../../http/body.ts";
import type { RpcMessage, RpcRequest } from "../../http/json-rpc.ts";
import { answered, METHOD_NOT_FOUND, RpcError, readMessage } from "../../http/json-rpc.ts";
import { askAbout, takeBody } from "../../http/service.ts";
import { runIdIn } from "../../http/visibility.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { questionOfCall } from "../chat/call-ids.ts";
import { callKey, callOf, callTool } from "./call.ts";
import { refusedAnswer } from "./elicitation.ts";
import { listen } from "./listen.ts";
import type { McpCall } from "./options.ts";
import type { Peer } from "./peer.ts";
import { legacyVersion, modernVersions, peerOf, sessionToken, tasksExtension } from "./peer.ts";
import { noteRequest, respondWith, unfit } from "./responses.ts";
import { admitToRun, cancelRun, cancelTask, getTask, updateTask } from "./tasks.ts";
import { toolOf } from "./tools.ts";

/** `POST`: a message of a client. */
export async function postMessage(call: McpCall): Promise<WireResponse> {
  const message = readMessage(readJson(await takeBody(call), call.service.settings.limits));
  const read = { id: message.type === "request" ? message.id : null, isModern: false };
  noteRequest(call.request, read);
  const peer = await peerOf(call, message);
  read.isModern = peer.isModern;
  if (message.type === "notification") return takeNotification(call, peer, message);
  if (message.type === "response") return takeAnswer(call, message);
  const methods = peer.isModern ? modern : legacy;
  const method = methods.get(message.method);
  if (method !== undefined) return method(call, peer, message);
  const text = `There is no method ${JSON.stringify(message.method)}.`;
  throw new RpcError(METHOD_NOT_FOUND, text, undefined, peer.isModern ? 404 : 200);
}

type Method = (call: McpCall, peer: Peer, request: RpcRequest) => Promise<WireResponse>;

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
  ["ping", async (call: McpCall, peer: Peer, request: RpcRequest) => respondWith(call, peer, request, {})],
  ["tools/list", listTools],
  ["tools/call", callTool],
]);

/** `server/discover`: what the server is. */
async function discover(call: McpCall, peer: Peer, request: RpcRequest): Promise<WireResponse> {
  const { about } = call.service.settings;
  const capabilities = { tools: {}, ...tasksExtension };
  return respondWith(call, peer, request, {
    supportedVersions: modernVersions,
    capabilities,
    ...about,
    ...cacheOf(call),
  });
}

/** `initialize`: begins a session of a client from before `2026-07-28`. */
async function initialize(call: McpCall, _peer: Peer, request: RpcRequest): Promise<WireResponse> {
  const { serverInfo, about } = call.service.settings;
  const { params } = request;
  const protocolVersion = legacyVersion(params["protocolVersion"]);
  const result = { protocolVersion, capabilities: { tools: {} }, serverInfo, ...about };
  return answered(request, result, { "mcp-session-id": await sessionToken(call, params) });
}

/** `tools/list`: the agents that exist for the client, in the order in which they were registered. */
async function listTools(given: McpCall, peer: Peer, request: RpcRequest): Promise<WireResponse> {
  if (request.params["cursor"] !== undefined) throw unfit("cursor: expected none, since all tools are on one page.");
  const call = await askAbout(given, { action: "list" });
  const { scope, sees } = call.caller;
  const agents = (await scope.listAgents()).filter(({ name }) => sees?.(name) ?? true);
  const tools = agents.map((agent) => toolOf(agent, peer.isModern));
  return respondWith(call, peer, request, { tools, ...(peer.isModern && cacheOf(call)) });
}

/** How long a client may keep a result, and whether others may have it too. */
function cacheOf({ service, caller }: McpCall): JsonObject {
  return { ttlMs: service.settings.ttlMs, cacheScope: caller.ask === undefined ? "public" : "private" };
}

const accepted: WireResponse = { status: 202, headers: { "cache-control": "no-store" }, body: "" };

/** A client from before `2026-07-28` cancels a call. Others close its response. */
async function takeNotification(
  given: McpCall,
  peer: Peer,
  { method, params }: Extract<RpcMessage, { readonly type: "notification" }>,
): Promise<WireResponse> {
  const key = method === "notifications/cancelled" ? callKey(peer, params["requestId"]) : undefined;
  const run = key && (await given.caller.scope.findRun({ idempotencyKey: key }));
  if (!run) return accepted;
  const { run_id, agent_name } = run;
  const call = await askAbout(given, { action: "cancel", run_id, agent_name });
  await cancelRun(call, run_id);
  return accepted;
}

/** A client from before `2026-07-28` answers a question, whose id it repeats. */
async function takeAnswer(
  given: McpCall,
  { id, result }: Extract<RpcMessage, { readonly type: "response" }>,
): Promise<WireResponse> {
  const asked = typeof id === "string" ? questionOfCall(id) : undefined;
  if (asked === undefined) throw unfit("id: expected the id of a question that was asked.");
  const { await_id } = asked;
  const run_id = runIdIn(asked.run_id);
  const call = await admitToRun(given, { action: "read", run_id });
  const { await_requests } = await call.caller.scope.details(run_id);
  const question = await_requests.find((one) => one.await_id === await_id);
  if (question === undefined) return accepted;
  // A client that answers with an error could not ask.
  const reason = await refusedAnswer(call, run_id, question, result ?? { action: "decline" });
  if (reason === undefined) return accepted;
  const again = call.service.settings.asking.get(callOf(call, run_id));
  if (again === undefined) throw unfit(reason);
  again(question, reason);
  return accepted;
}
