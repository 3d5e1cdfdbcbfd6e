import { userOf } from "../../core/user.ts";
import type { RpcMessage, RpcRequest } from "../../http/json-rpc.ts";
import { INVALID_PARAMS, INVALID_REQUEST, RpcError } from "../../http/json-rpc.ts";
import { randomId } from "../../http/machine.ts";
import { lineFrame } from "../../http/rpc-text.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { McpCall } from "./options.ts";
import type { Era } from "./responses.ts";
import { HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION, unfit } from "./responses.ts";

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

/** The client of a request, as far as the request or its session says. */
export interface Peer extends Era {
  /** Whether it shows forms to its user. */
  readonly elicits: boolean;
  readonly hasTasks: boolean;
  /** Tells the session from all others, before `2026-07-28`. Undefined: the client has none. */
  readonly session: string | undefined;
}

/** A client from before `2026-07-28` that has declared nothing. */
const undeclared: Peer = { isModern: false, elicits: false, hasTasks: false, session: undefined };

/** The client of a message. Refuses a message that does not say what its era demands. */
export async function peerOf(call: McpCall, message: RpcMessage): Promise<Peer> {
  const header = call.request.header("mcp-protocol-version");
  const meta = message.type === "response" ? undefined : message.params["_meta"];
  const claim = isJsonObject(meta) ? meta[VERSION] : undefined;
  const isModern = claim !== undefined || modernVersions.includes(header ?? "");
  if (!isModern) return legacyPeer(call, header);
  if (message.type !== "request") return { ...undeclared, isModern };
  return modernPeer(call, message, isJsonObject(meta) ? meta : {});
}

function modernPeer(call: McpCall, request: RpcRequest, meta: JsonObject): Peer {
  const { [VERSION]: claim, [CAPABILITIES]: capabilities } = meta;
  if (typeof claim !== "string") throw missing(VERSION);
  checkHeader(call, "mcp-protocol-version", claim);
  if (!modernVersions.includes(claim)) throw unserved(UNSUPPORTED_VERSION, modernVersions, claim);
  checkHeader(call, "mcp-method", request.method);
  if (!isJsonObject(capabilities)) throw missing(CAPABILITIES);
  const { name, taskId } = request.params;
  const named = request.method === "tools/call" ? name : ofTask.test(request.method) && taskId;
  if (typeof named === "string") checkHeader(call, "mcp-name", named);
  const { extensions } = capabilities;
  const hasTasks = isJsonObject(extensions) && isJsonObject(extensions[TASKS]);
  return { ...undeclared, isModern: true, elicits: hasForms(capabilities), hasTasks };
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
  const isSame = text === String(expected) || Number(text || Number.NaN) === expected;
  if (expected === null ? header === undefined : isSame) return;
  const message = `The header ${name} has to repeat what the body says.`;
  throw new RpcError(HEADER_MISMATCH, message, undefined, 400);
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
  return new RpcError(INVALID_PARAMS, `params._meta: expected ${JSON.stringify(key)}.`, undefined, 400);
}

function unserved(code: number, supported: readonly string[], requested: string): RpcError {
  const data = { supported, requested };
  return new RpcError(code, `The protocol version ${JSON.stringify(requested)} is not served.`, data, 400);
}

/** Empty means forms. */
function hasForms({ elicitation }: JsonObject): boolean {
  return isJsonObject(elicitation) && ("form" in elicitation || !("url" in elicitation));
}

async function legacyPeer(call: McpCall, version: string | undefined): Promise<Peer> {
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
  return new RpcError(MISSING_CAPABILITY, message, { requiredCapabilities: capabilities }, 400);
}

/** An object of params. */
export function objectIn(params: JsonObject, name: string): JsonObject {
  const value = params[name];
  if (!isJsonObject(value)) throw unfit(`${name}: expected an object.`);
  return value;
}
