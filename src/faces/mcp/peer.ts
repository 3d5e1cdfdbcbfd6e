import { userOf } from "../../core/user.ts";
import type { RpcMessage } from "../../http/json-rpc.ts";
import { INVALID_PARAMS, INVALID_REQUEST, RpcError } from "../../http/json-rpc.ts";
import { randomId } from "../../http/machine.ts";
import { lineFrame } from "../../http/rpc-text.ts";
import type { WireRequest } from "../../http/wire.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { McpCall, Peer } from "./options.ts";
import { HEADER_MISMATCH, MISSING_CAPABILITY, misstated, UNSUPPORTED_VERSION, unfit } from "./responses.ts";

/* The two eras of MCP: from 2026-07-28 on each request says all that is known of its client; before, `initialize` did. */

export const modernVersions: readonly string[] = ["2026-07-28"];
/** The newest first. */
const legacyVersions = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] as const;

/** The revision that a client from before `2026-07-28` is served in: the one that it asks for, if that is known. */
export function legacyVersion(asked: JsonValue | undefined): string {
  return legacyVersions.find((version) => version === asked) ?? legacyVersions[0];
}

const TASKS = "io.modelcontextprotocol/tasks";
/** The tasks extension among capabilities. */
export const tasksExtension = { extensions: { [TASKS]: {} } };
const VERSION = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";

/** A client from before `2026-07-28` that has declared nothing. */
const undeclared: Peer = { isModern: false, elicits: false, hasTasks: false, session: undefined };

/** The client of a message. Refuses a message that does not say what its era demands. */
export async function peerOf(call: McpCall, message: RpcMessage): Promise<Peer> {
  if (!isModern(call.request, message)) return legacyPeer(call);
  if (message.type !== "request") return { ...undeclared, isModern: true };
  const { method, params } = message;
  const { [VERSION]: claim, [CAPABILITIES]: capabilities } = metaOf(params);
  if (typeof claim !== "string") throw missing(VERSION);
  checkHeader(call, "mcp-protocol-version", claim);
  if (!modernVersions.includes(claim)) throw unserved(UNSUPPORTED_VERSION, modernVersions, claim);
  checkHeader(call, "mcp-method", method);
  if (!isJsonObject(capabilities)) throw missing(CAPABILITIES);
  const { name, taskId } = params;
  const named = method === "tools/call" ? name : ofTask.test(method) && taskId;
  if (typeof named === "string") checkHeader(call, "mcp-name", named);
  const { extensions } = capabilities;
  const hasTasks = isJsonObject(extensions) && isJsonObject(extensions[TASKS]);
  return { ...undeclared, isModern: true, elicits: hasForms(capabilities), hasTasks };
}

/** Whether a message is of `2026-07-28` or later: it claims a version of the protocol, or its header names such a one. */
export function isModern(request: WireRequest, message: RpcMessage): boolean {
  const claims = message.type !== "response" && VERSION in metaOf(message.params);
  return claims || modernVersions.includes(request.header("mcp-protocol-version") ?? "");
}

function metaOf({ _meta: meta }: JsonObject): JsonObject {
  return isJsonObject(meta) ? meta : {};
}

const ofTask = /^tasks\/(get|update|cancel)$/;

/**
 * Refuses a call whose headers do not repeat the arguments for which the schema of the tool names headers (`x-mcp-header`). An
 * argument that is missing has no header.
 */
export function checkArguments(call: McpCall, { properties }: JsonObject, values: JsonObject): void {
  if (!isJsonObject(properties)) return;
  for (const [name, property] of Object.entries(properties)) {
    if (!isJsonObject(property)) continue;
    const value = Object.hasOwn(values, name) ? values[name] : undefined;
    const header = property["x-mcp-header"];
    if (typeof header === "string") checkHeader(call, `mcp-param-${header.toLowerCase()}`, value);
    checkArguments(call, property, isJsonObject(value) ? value : {});
  }
}

/**
 * Refuses a request whose header does not repeat what its body says. What the body does not say has no header. Over stdio
 * there are no headers.
 */
function checkHeader({ request, service }: McpCall, name: string, expected: JsonValue = null): void {
  if (service.settings.frame === lineFrame) return;
  const header = request.header(name);
  const text = header && decoded(header);
  // No header is an object or a list.
  const isRepeated =
    typeof expected === "object"
      ? expected === null && header === undefined
      : text === String(expected) || (text !== "" && Number(text) === expected);
  if (isRepeated) return;
  throw misstated(HEADER_MISMATCH, `The header ${name} has to repeat what the body says.`);
}

/** The value of a header. What is no visible ASCII is sent as base64 of UTF-8. */
function decoded(header: string): string | undefined {
  const text = header.trim();
  const [, base64] = /^=\?base64\?(.*)\?=$/.exec(text) ?? [];
  if (base64 === undefined) return text;
  if (base64.length % 4 !== 0) return undefined;
  try {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function missing(key: string): RpcError {
  return misstated(INVALID_PARAMS, `params._meta: expected ${JSON.stringify(key)}.`);
}

function unserved(code: number, supported: readonly string[], requested: string): RpcError {
  return misstated(code, `The protocol version ${JSON.stringify(requested)} is not served.`, { supported, requested });
}

/** Empty means forms. */
function hasForms({ elicitation }: JsonObject): boolean {
  return isJsonObject(elicitation) && ("form" in elicitation || !("url" in elicitation));
}

async function legacyPeer(call: McpCall): Promise<Peer> {
  const version = call.request.header("mcp-protocol-version");
  if (version !== undefined && legacyVersion(version) !== version)
    throw unserved(INVALID_REQUEST, legacyVersions, version);
  const token = call.request.header("mcp-session-id");
  if (token === undefined) return undeclared;
  const session = await call.service.settings.seal.open("session", holderOf(call), token);
  if (session === undefined) throw new RpcError(INVALID_REQUEST, "There is no such session.", undefined, 404);
  return { ...undeclared, elicits: session["elicits"] === true, session: String(session["id"]) };
}

/** The id of the session that a client from before `2026-07-28` begins. It holds what the client has declared. */
export function sessionToken(call: McpCall, { capabilities }: JsonObject): Promise<string> {
  const elicits = isJsonObject(capabilities) && hasForms(capabilities);
  return call.service.settings.seal.seal("session", holderOf(call), { id: randomId(), elicits });
}

/** Whom a token is made for: the user, or what the host has given as the principal, of a tenant. */
export function holderOf({ caller: { tenant, principal } }: McpCall): JsonValue {
  return [tenant, userOf(principal) ?? principal];
}

/** Refuses a client that cannot show what the server has to ask. */
export function needsCapability(capabilities: JsonObject): RpcError {
  const message = "The client has to declare a capability for this.";
  return misstated(MISSING_CAPABILITY, message, { requiredCapabilities: capabilities });
}

/** An object of params. */
export function objectIn(params: JsonObject, name: string): JsonObject {
  const value = params[name];
  if (!isJsonObject(value)) throw unfit(`${name}: expected an object.`);
  return value;
}
