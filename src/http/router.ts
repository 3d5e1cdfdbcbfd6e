import { getAgent, listAgents } from "./agents.ts";
import { authorizeCaller } from "./caller.ts";
import { errorResponse, WireError } from "./errors.ts";
import { getDetails, sendMessage } from "./extensions.ts";
import { openApiText } from "./openapi.ts";
import type { Action, AuthorizeRequest } from "./options.ts";
import { cancelRun, createRun, getEvents, getRun, listRuns, resumeRun } from "./runs.ts";
import { checkHost, checkOrigin, corsHeaders, preflightHeaders } from "./safety.ts";
import type { Call, Service } from "./service.ts";
import { serverUrl } from "./service.ts";
import { getResource, getSession } from "./sessions.ts";
import type { WireRequest, WireResponse } from "./wire.ts";
import { json, jsonText } from "./wire.ts";

interface Route {
  readonly method: "GET" | "POST";
  /** The parts of the path between slashes. A name in braces matches any part. */
  readonly segments: readonly string[];
  readonly action: Action;
  readonly handle: (call: Call) => Promise<WireResponse>;
}

/** The route of a request, and the parts of its path that match the names in braces. */
interface Match extends Pick<Call, "parameter" | "second"> {
  readonly found: Route;
}

/** Every endpoint of ACP, the most frequent ones first. */
const routes: readonly Route[] = [
  route("POST", "runs", "createRun", createRun),
  route("GET", "runs/{run_id}", "getRun", getRun),
  route("POST", "runs/{run_id}", "resume", resumeRun),
  route("GET", "runs/{run_id}/events", "events", getEvents),
  route("POST", "runs/{run_id}/cancel", "cancel", cancelRun),
  route("GET", "runs", "listRuns", listRuns),
  route("GET", "agents", "listAgents", listAgents),
  route("GET", "agents/{name}", "getAgent", getAgent),
  route("GET", "sessions/{session_id}", "getSession", getSession),
  route("GET", "session/{session_id}", "getSession", getSession),
  route("GET", "resources/{id}", "getResource", getResource),
  route("GET", "ping", "ping", async () => json(200, {})),
  route("GET", "openapi.json", "openapi", async (call) => {
    return jsonText(200, openApiText(serverUrl(call), call.service.settings.extensions));
  }),
];

/** Every endpoint, with those that are not part of ACP. */
const extendedRoutes: readonly Route[] = [
  ...routes,
  route("GET", "runs/{run_id}/details", "details", getDetails),
  route("POST", "runs/{run_id}/messages/{message_name}", "send", sendMessage),
];

/** Answers a request. Never rejects: an error gets an answer too. */
export function answerRequest(service: Service, request: WireRequest): Promise<WireResponse> {
  const cors = corsHeaders(request, service.settings);
  const answer = settle(service, request);
  if (cors === undefined) return answer;
  return answer.then((response) => {
    const { vary } = response.headers;
    const both = vary === undefined ? cors : { ...cors, vary: `${vary}, ${cors["vary"]}` };
    return { ...response, headers: { ...response.headers, ...both } };
  });
}

async function settle(service: Service, request: WireRequest): Promise<WireResponse> {
  try {
    const { settings } = service;
    checkHost(request, settings);
    checkOrigin(request, settings);
    if (request.method === "OPTIONS" && settings.cors && request.header("origin") !== undefined)
      return { status: 204, headers: preflightHeaders, body: "" };
    const { segments, query } = splitUrl(request.url, settings.basePath);
    const match = findRoute(settings.extensions ? extendedRoutes : routes, request.method, segments);
    const { found, parameter, second } = match;
    const caller =
      settings.authorize === undefined
        ? { scope: service.runtime, sees: undefined }
        : await authorizeCaller(service.runtime, settings.authorize, asked(match, request), service.logger);
    return await found.handle({ service, request, caller, parameter, second, query });
  } catch (error) {
    return errorResponse(error, service.logger);
  }
}

function asked({ found, parameter, second }: Match, request: WireRequest): AuthorizeRequest {
  const { action, segments } = found;
  return {
    action,
    ...(segments[1] === "{name}" && { agent_name: parameter }),
    ...(segments[1] === "{run_id}" && { run_id: parameter }),
    ...(segments[3] === "{message_name}" && { message_name: second }),
    headers: request.headers(),
    request: request.raw,
  };
}

/** The parts of a path below the base path, and the query. Slashes at the end are ignored. */
function splitUrl(url: string, basePath: string): { readonly segments: readonly string[]; readonly query: string } {
  const mark = url.indexOf("?");
  let path = mark === -1 ? url : url.slice(0, mark);
  const query = mark === -1 ? "" : url.slice(mark + 1);
  if (basePath !== "" && path.startsWith(basePath)) {
    const rest = path.slice(basePath.length);
    if (rest === "" || rest.startsWith("/")) path = rest;
  }
  let end = path.length;
  while (end > 0 && path[end - 1] === "/") end -= 1;
  return { segments: path.slice(path.startsWith("/") ? 1 : 0, end).split("/"), query };
}

/** The route of a request. Refuses an unknown path, and a method that the path does not have. */
function findRoute(all: readonly Route[], method: string, segments: readonly string[]): Match {
  const wanted = method === "HEAD" ? "GET" : method;
  const others: string[] = [];
  for (const found of all) {
    const { length } = found.segments;
    if (!fits(found.segments, segments)) continue;
    if (found.method === wanted)
      return {
        found,
        parameter: decode(length > 1 ? segments[1] : undefined),
        second: decode(length > 3 ? segments[3] : undefined),
      };
    others.push(found.method);
  }
  if (others.length === 0) throw noSuchPath();
  throw new WireError(405, "method_not_allowed", `This path takes ${others.join(" and ")} only.`, {
    headers: { allow: others.join(", ") },
  });
}

function fits(pattern: readonly string[], segments: readonly string[]): boolean {
  if (pattern.length !== segments.length) return false;
  return pattern.every((name, index) => name.startsWith("{") || name === segments[index]);
}

function decode(segment = ""): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw noSuchPath();
  }
}

function noSuchPath(): WireError {
  return new WireError(404, "path_not_found", "There is no endpoint at this path.");
}

function route(method: Route["method"], path: string, action: Action, handle: Route["handle"]): Route {
  return { method, segments: path.split("/"), action, handle };
}
