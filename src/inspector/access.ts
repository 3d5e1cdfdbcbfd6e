import type { Logger } from "../core/ports.ts";
import { isOwn } from "../core/tenants.ts";
import type { About, Caller, Rights } from "../http/caller.ts";
import { answering, askHost, isAnswers, isFlag, isPrincipal, misgranted } from "../http/caller.ts";
import { WireError } from "../http/errors.ts";
import { markRefused } from "../http/refusals.ts";
import type { Admit } from "../http/service.ts";
import type { WireRequest } from "../http/wire.ts";
import type { JsonValue } from "../protocol/json.ts";
import { digestOf, urlSafe } from "../runtime/log/system.ts";
import type { AuthorizeInspector, InspectorGrant, InspectorRequest, InspectorSettings } from "./options.ts";

/** What the user of a request may see and do. */
export interface Access {
  /** The only tenant that exists for the user; null: all do. */
  readonly tenant: string | null;
  /** Whether the user may only look, and answer what `mayAnswer` says. */
  readonly isReader: boolean;
  /** Whether the user may answer any question at all. */
  readonly isAnswerer: boolean;
  mayAnswer: Caller["mayAnswer"];
  readonly principal: JsonValue;
  /** Asks the host about the same request again. Undefined: there is no host to ask. */
  readonly ask?: ((about: InspectorAbout) => Promise<Access>) | undefined;
  /** The cookie that stands for the token from now on, as `name=value`. */
  readonly cookie?: string | undefined;
}

/** What is known of a request that was not known when the host was last asked. */
export type InspectorAbout = About & Pick<InspectorRequest, "tenant">;

/** The user of a request, or why it is refused: the page says it to people, the other endpoints to programs. */
export type Visitor = { readonly access: Access } | { readonly refused: WireError };

const everything: Access = {
  tenant: null,
  isReader: false,
  isAnswerer: true,
  mayAnswer: () => true,
  principal: null,
};

/** Asks the host's `authorize`. */
export function byHost(authorize: AuthorizeInspector, logger: Logger): Admit<Visitor> {
  const accessTo = async (question: InspectorRequest): Promise<Access> => {
    const grant = await askHost<InspectorGrant>(() => authorize(question), rights, logger);
    return { ...accessOf(grant, logger), ask: (about) => accessTo({ ...question, ...about }) };
  };
  return async (request, asked) => {
    const tenant = inQuery(request, "tenant");
    return { access: await accessTo({ ...asked(), ...(tenant !== null && { tenant }) }) };
  };
}

const rights: Rights = {
  tenant: (value) => typeof value === "string",
  allTenants: isFlag,
  readOnly: isFlag,
  answers: isAnswers,
  principal: isPrincipal,
};

function accessOf(grant: InspectorGrant, logger: Logger): Access {
  const { tenant, allTenants = false, readOnly = false, answers, principal = null } = grant;
  if (allTenants && tenant !== undefined) throw misgranted("it has both a tenant and allTenants", logger);
  if (tenant !== undefined && isOwn(tenant)) throw misgranted("its tenant is the runtime's own", logger);
  return {
    tenant: allTenants ? null : (tenant ?? ""),
    isReader: readOnly,
    isAnswerer: answers === undefined ? !readOnly : typeof answers === "function" || answers.length > 0,
    mayAnswer: answering(answers, readOnly, logger),
    principal,
  };
}

/** Refuses everything. */
export const byNothing: Admit<Visitor> = () => ({
  refused: markRefused(
    new WireError(403, "no_authorize", "This inspector has no `authorize`, and so refuses every request."),
  ),
});

/** Asks for the token, or the cookie that stands for it, from a browser on this machine. */
export function byToken(token: string, { hosts }: Pick<InspectorSettings, "hosts">): Admit<Visitor> {
  // Two inspectors on one machine share its cookies, so that each names its own.
  const made = Promise.all([digestOf(`cadenza inspector ${token}`), digestOf(`cadenza cookie ${token}`)]).then(
    ([name, value]) => [`cadenza_inspector_${urlSafe(name).slice(0, 8)}`, urlSafe(value)] as const,
  );
  return async (request) => {
    checkPlace(request, hosts);
    const [name, value] = await made;
    const given = inQuery(request, "token");
    if (given !== null && isSame(given, token)) return { access: { ...everything, cookie: `${name}=${value}` } };
    if (isSame(cookieOf(request, name), value)) return { access: everything };
    const message = "This inspector needs its token: open the address that its process has printed.";
    return { refused: markRefused(new WireError(401, "unauthorized", message)) };
  };
}

/** A parameter of the address. Null: the address has none. */
function inQuery({ url }: WireRequest, name: string): string | null {
  return new URLSearchParams(url.split("?")[1] ?? "").get(name);
}

/**
 * The headers that proxies, tunnels and content networks add, and that browsers do not send: the standard ones, names that
 * end as `X-Real-IP` and `True-Client-IP` do, and those of Cloudflare, Amazon, Azure, Envoy and Tailscale.
 */
const forwarding = new RegExp(
  [
    "^(?:via|forwarded|cdn-loop|(?:.+-)?forwarded-.+)$",
    "^(?:.+-)?(?:real|client|connecting|connection|remote|source|socket|user)-?(?:ip|addr|address)$",
    "^(?:cf|tailscale)-.+$",
    "^x-(?:amzn-trace-id|amz-cf-id|azure-(?:fdid|ref)|envoy-external-address|original-host)$",
  ].join("|"),
  "i",
);

/** Refuses what has come through a proxy, behind which every request would come from this machine, or from elsewhere. */
function checkPlace(request: WireRequest, hosts: ReadonlySet<string>): void {
  const headers = request.headers();
  const forwarded = Object.keys(headers).find((name) => forwarding.test(name));
  if (forwarded !== undefined) throw refusedPlace("forwarded", `The request has the header ${forwarded}.`);
  const host = (request.header("host") ?? request.header(":authority") ?? "").toLowerCase();
  const name = host.replace(/:\d+$/, "");
  if (!isLoopbackName(name) && !hosts.has(host) && !hosts.has(name))
    throw refusedPlace("host_not_allowed", "The request is addressed to a name other than this machine's.");
  const address = remoteAddress(request.raw);
  if (address !== undefined && !isLoopbackAddress(address))
    throw refusedPlace("not_local", "The request comes from another machine.");
}

function refusedPlace(reason: string, message: string): WireError {
  const why = "Without `authorize` the inspector serves its own machine alone.";
  return markRefused(new WireError(403, reason, `${message} ${why}`));
}

function isLoopbackName(name: string): boolean {
  return ["localhost", "127.0.0.1", "[::1]"].includes(name) || name.endsWith(".localhost");
}

function isLoopbackAddress(address: string): boolean {
  return address === "::1" || /^(?:::ffff:)?127\.\d+\.\d+\.\d+$/i.test(address);
}

/** The address that the host shows of a connection. */
function remoteAddress(raw: unknown): string | undefined {
  if (typeof raw !== "object" || raw === null || !("socket" in raw)) return undefined;
  const { socket } = raw;
  if (typeof socket !== "object" || socket === null || !("remoteAddress" in socket)) return undefined;
  return typeof socket.remoteAddress === "string" ? socket.remoteAddress : undefined;
}

function cookieOf(request: WireRequest, name: string): string {
  const pairs = (request.header("cookie") ?? "").split(";").map((pair) => pair.trim());
  const found = pairs.find((pair) => pair.startsWith(`${name}=`));
  return found === undefined ? "" : found.slice(name.length + 1);
}

/** Compares in a time that does not depend on where the texts differ. */
function isSame(given: string, secret: string): boolean {
  let difference = given.length ^ secret.length;
  for (let index = 0; index < secret.length; index++)
    difference |= secret.charCodeAt(index) ^ given.charCodeAt(index % (given.length || 1));
  return difference === 0;
}
