import { bad, checkKeys, isTexts } from "../../http/options.ts";
import { isWebAddress } from "../chat/parts.ts";

/** Which authorization servers give tokens for a service. */
export interface ProtectedResourceOptions {
  /** The address of the MCP endpoint as its clients see it. */
  readonly resource: string;
  /** The issuers of the authorization servers. */
  readonly authorizationServers: readonly string[];
  /** The scopes that a client may ask for. Default: none are named. */
  readonly scopes?: readonly string[] | undefined;
}

/** What tells clients where to get a token. */
export interface ProtectedResource {
  /**
   * The path at which the metadata is served, for example `/.well-known/oauth-protected-resource/mcp`. Clients send the query
   * of the resource with it.
   */
  readonly path: string;
  /** The metadata of RFC 9728. */
  readonly metadata: Readonly<Record<string, unknown>>;
  /** The headers of a `Denial` with status 401: they name the address of the metadata. */
  readonly headers: { readonly "www-authenticate": string };
  /** Answers requests for the metadata. */
  readonly handler: (request: Request) => Response;
}

/**
 * The metadata by which clients of a protected MCP endpoint find its authorization servers (RFC 9728). `authorize` of the
 * endpoint checks the tokens, and denies with these headers. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createMcpHandler, protectedResource } from "cadenza/mcp";
 *
 * const resource = "https://example.com/mcp";
 * const { headers, path } = protectedResource({ resource, authorizationServers: ["https://login.example.com"] });
 * const handler = createMcpHandler(new AgentRuntime(), {
 *   basePath: "/mcp",
 *   authorize: ({ headers: { authorization } }) => (authorization === undefined ? { status: 401, headers } : { tenant: "blue" }),
 * });
 * const response = await handler(new Request(resource, { method: "POST" }));
 * console.log(response.status, path); // → 401 /.well-known/oauth-protected-resource/mcp
 * ```
 */
export function protectedResource(options: ProtectedResourceOptions): ProtectedResource {
  checkKeys("options", options, ["resource", "authorizationServers", "scopes"]);
  const { resource, authorizationServers, scopes } = options;
  if (typeof resource !== "string" || !isWebAddress(resource) || /[#"]/.test(resource))
    throw bad("resource", "an absolute http or https URL without a fragment");
  if (!isTexts(authorizationServers) || authorizationServers.length === 0 || !authorizationServers.every(isWebAddress))
    throw bad("authorizationServers", "a list of at least one absolute URL");
  if (scopes !== undefined && !isTexts(scopes)) throw bad("scopes", "a list of texts");
  const { origin, pathname, search } = new URL(resource);
  const path = `/.well-known/oauth-protected-resource${pathname === "/" ? "" : pathname}`;
  const metadata = {
    resource,
    authorization_servers: authorizationServers,
    bearer_methods_supported: ["header"],
    ...(scopes !== undefined && { scopes_supported: scopes }),
  };
  return {
    path,
    metadata,
    headers: { "www-authenticate": `Bearer resource_metadata="${origin}${path}${search}"` },
    handler: () => Response.json(metadata, { headers: { "access-control-allow-origin": "*" } }),
  };
}
