import type { Growing } from "../core/log.ts";
import { runIdSchema } from "../protocol/identifier.ts";
import { WireError } from "./errors.ts";
import type { AuthorizeRequest, HttpSettings, RequestedObjects } from "./options.ts";
import { checkHost, checkOrigin, corsHeaders, preflightHeaders } from "./safety.ts";
import type { Asked, Call, Route, Service } from "./service.ts";
import type { WireRequest, WireResponse } from "./wire.ts";

/** The route of a request, and the parts of its path that match the names in braces. */
interface Match<Settings extends HttpSettings, Who> extends Pick<Call, "parameter" | "second"> {
  readonly found: Route<Settings, Who>;
}

/** Answers a request. Never rejects: an error gets an answer too. */
export function answerRequest<Settings extends HttpSettings, Who>(
  service: Service<Settings, Who>,
  request: WireRequest,
): Promise<WireResponse> {
  const cors = corsHeaders(request, service.settings, service.face.headers);
  const answer = settle(service, request);
  if (cors === undefined) return answer;
  return answer.then((response) => {
    const { vary } = response.headers;
    const both = vary === undefined ? cors : { ...cors, vary: `${vary}, ${cors["vary"]}` };
    return { ...response, headers: { ...response.headers, ...both } };
  });
}

async function settle<Settings extends HttpSettings, Who>(
  service: Service<Settings, Who>,
  request: WireRequest,
): Promise<WireResponse> {
  const { settings, face } = service;
  try {
    checkHost(request, settings);
    checkOrigin(request, settings);
    if (request.method === "OPTIONS" && settings.cors && request.header("origin") !== undefined)
      return { status: 204, headers: preflightHeaders(face.routes, face.headers), body: "" };
    const { segments, query } = splitUrl(request, settings.basePath);
    const match = findRoute(face.routes, request.method, segments);
    const { found, parameter, second } = match;
    const about = (): AuthorizeRequest => asked(match, query, request);
    try {
      const caller = await service.admit(request, about);
      const refusal = face.refusalOf?.(caller);
      if (refusal !== undefined) service.refusals.note(refusal, about);
      return await found.handle({ service, request, caller, parameter, second, query });
    } catch (error) {
      service.refusals.note(error, about);
      throw error;
    }
  } catch (error) {
    return face.refuse(error, service.logger, request);
  }
}

function asked<Settings extends HttpSettings, Who>(
  { found, parameter, second }: Match<Settings, Who>,
  query: string,
  request: WireRequest,
): AuthorizeRequest {
  const { action, names, asks } = found;
  const objects: Growing<RequestedObjects> = {};
  for (const [name, about] of Object.entries(asks)) {
    const value = new URLSearchParams(query).get(name);
    if (value !== null) objects[about] = canonical(about, value);
  }
  for (const [index, value] of [parameter, second].entries()) {
    const about = inPath[names[index] ?? ""];
    if (about !== undefined) objects[about] = canonical(about, value);
  }
  return { action, ...objects, headers: request.headers(), request: request.raw };
}

/** What the names in paths say. The id of a resource begins with that of its session. */
const inPath: Readonly<Record<string, Asked>> = {
  "{name}": "agent_name",
  "{run_id}": "run_id",
  "{message_name}": "message_name",
  "{session_id}": "session_id",
  "{chat_id}": "chat_id",
  "{id}": "session_id",
};

/** An id as the runtime reads it. What is no id is refused later. */
function canonical(about: Asked, text: string): string {
  if (about !== "run_id" && about !== "session_id") return text;
  const read = runIdSchema.safeParse(about === "session_id" ? text.split(".", 1)[0] : text);
  return read.success ? read.data : text;
}

/**
 * The parts of a path below the base path, and the query. Slashes at the end are ignored. A path elsewhere is refused: what
 * guards the base path would not see it. A host may have stripped the base path, if it reports that.
 */
function splitUrl(
  request: WireRequest,
  basePath: string,
): { readonly segments: readonly string[]; readonly query: string } {
  const { url } = request;
  const mark = url.indexOf("?");
  let path = mark === -1 ? url : url.slice(0, mark);
  const query = mark === -1 ? "" : url.slice(mark + 1);
  if (basePath !== "" && !request.mount().endsWith(basePath)) {
    const rest = path.startsWith(basePath) ? path.slice(basePath.length) : undefined;
    if (rest !== "" && rest?.startsWith("/") !== true) throw noSuchPath();
    path = rest;
  }
  let end = path.length;
  while (end > 0 && path[end - 1] === "/") end -= 1;
  return { segments: path.slice(path.startsWith("/") ? 1 : 0, end).split("/"), query };
}

/** The route of a request. Refuses an unknown path, and a method that the path does not have. */
function findRoute<Settings extends HttpSettings, Who>(
  all: readonly Route<Settings, Who>[],
  method: string,
  segments: readonly string[],
): Match<Settings, Who> {
  const wanted = method === "HEAD" ? "GET" : method;
  const others: string[] = [];
  for (const found of all) {
    if (!fits(found.segments, segments)) continue;
    if (found.method === wanted) {
      const [parameter, second] = found.segments.flatMap((name, index) =>
        isName(name) ? [decode(segments[index]?.slice(0, -suffixOf(name).length || undefined))] : [],
      );
      return { found, parameter: parameter ?? "", second: second ?? "" };
    }
    others.push(found.method);
  }
  if (others.length === 0) throw noSuchPath();
  throw new WireError(405, "method_not_allowed", `This path takes ${others.join(" and ")} only.`, {
    headers: { allow: others.join(", ") },
  });
}

function fits(pattern: readonly string[], segments: readonly string[]): boolean {
  if (pattern.length !== segments.length) return false;
  return pattern.every((name, index) => {
    const segment = segments[index] ?? "";
    return isName(name) ? segment.endsWith(suffixOf(name)) : name === segment;
  });
}

/** What follows the name in braces, such as `:cancel` in `{run_id}:cancel`. */
function suffixOf(name: string): string {
  return name.slice(name.indexOf("}") + 1);
}

function isName(segment = ""): boolean {
  return segment.startsWith("{");
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

/**
 * Makes a route. A name in braces matches any part of a path. With a text behind it, it matches a part that ends with
 * the text. `asks`: the parameters of the query that name objects.
 */
export function route<Settings extends HttpSettings, Who>(
  method: Route<Settings, Who>["method"],
  path: string,
  action: Route<Settings, Who>["action"],
  handle: Route<Settings, Who>["handle"],
  asks: Route<Settings, Who>["asks"] = {},
): Route<Settings, Who> {
  const segments = path.split("/");
  const names = segments.filter(isName).map((name) => name.slice(0, name.indexOf("}") + 1));
  return { method, segments, names, action, asks, handle };
}
