import { WireError } from "./errors.ts";
import type { HttpSettings } from "./options.ts";
import type { WireRequest } from "./wire.ts";

/**
 * Refuses a request to a host name that is not allowed: it may come from a name that an attacker bound to this machine
 * (DNS rebinding).
 */
export function checkHost(request: WireRequest, { allowedHosts }: HttpSettings): void {
  if (allowedHosts === undefined) return;
  const host = hostOf(request).toLowerCase();
  if (allowedHosts.has(host) || allowedHosts.has(host.replace(/:\d+$/, ""))) return;
  throw new WireError(403, "host_not_allowed", "The service does not answer under this host name.");
}

/** Refuses a request that a page of another origin has sent, unless that origin is allowed. */
export function checkOrigin(request: WireRequest, settings: HttpSettings): void {
  const site = request.header("sec-fetch-site");
  const origin = request.header("origin");
  if (site === undefined && origin === undefined) return;
  if (site === "same-origin" || site === "none") return;
  if (settings.takesLinks && origin === undefined && isFollowedLink(request)) return;
  if (origin !== undefined) {
    if (settings.allowedOrigins.has(origin)) return;
    if (site === undefined && isSameOrigin(origin, request, settings)) return;
  }
  throw new WireError(403, "cross_site", "Requests from pages of other origins are refused.");
}

function isFollowedLink(request: WireRequest): boolean {
  const [mode, dest] = [request.header("sec-fetch-mode"), request.header("sec-fetch-dest")];
  return request.method === "GET" && mode === "navigate" && dest === "document";
}

/** The CORS headers of a response; undefined where there are none. `others`: the headers of its protocol. */
export function corsHeaders(
  request: WireRequest,
  settings: HttpSettings,
  others: readonly string[] = [],
): Record<string, string> | undefined {
  if (!settings.cors) return undefined;
  const origin = request.header("origin");
  if (origin === undefined || !settings.allowedOrigins.has(origin)) return { vary: "Origin" };
  return {
    vary: "Origin",
    "access-control-allow-origin": origin,
    "access-control-expose-headers": ["Run-ID", "Retry-After", ...others].join(", "),
  };
}

/** The further headers of the answer to a preflight request. */
export function preflightHeaders(
  routes: readonly { readonly method: string }[],
  others: readonly string[] = [],
): Record<string, string> {
  const all = ["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", ...others];
  return {
    "access-control-allow-methods": [...new Set(routes.map(({ method }) => method))].sort().join(", "),
    "access-control-allow-headers": all.join(", "),
    "access-control-max-age": "600",
  };
}

/** The host that a request is addressed to. HTTP/2 has it under another name. */
function hostOf(request: WireRequest): string {
  return request.header("host") ?? request.header(":authority") ?? "";
}

/**
 * Behind a proxy only the host can be compared, unless `baseUrl` is set: the scheme that the client used is not known. A
 * connection that is encrypted here is so for the client too.
 */
function isSameOrigin(origin: string, request: WireRequest, { baseUrl }: HttpSettings): boolean {
  if (!URL.canParse(origin)) return false;
  if (baseUrl !== undefined && new URL(baseUrl).origin === origin) return true;
  const { host, protocol } = new URL(origin);
  const secure = baseUrl ?? request.origin();
  if (protocol !== "https:" && secure.startsWith("https:")) return false;
  return host !== "" && host === hostOf(request).toLowerCase();
}
