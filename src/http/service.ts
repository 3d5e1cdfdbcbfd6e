import { containedLogger } from "../core/background.ts";
import type { Clock, Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import type { Inside } from "../runtime/api/inside.ts";
import { insideKey } from "../runtime/api/inside.ts";
import { checkContentType } from "./body.ts";
import type { About, Caller } from "./caller.ts";
import { callerOf } from "./caller.ts";
import { Disconnects } from "./disconnects.ts";
import type { WireError } from "./errors.ts";
import { unfitAt } from "./errors.ts";
import type { Action, AuthorizeRequest, HttpSettings, RequestedObjects } from "./options.ts";
import { Readers } from "./readers.ts";
import { Refusals } from "./refusals.ts";
import type { WireBody, WireRequest, WireResponse } from "./wire.ts";

/** A protocol over HTTP: its endpoints, and its answers to requests that are refused. */
export interface Face<Settings extends HttpSettings = HttpSettings, Who = Caller> {
  /** The most frequent ones first. */
  readonly routes: readonly Route<Settings, Who>[];
  /** The headers that pages of other origins send and read with it, in addition to the headers of every protocol. */
  readonly headers?: readonly string[];
  /** Why a client is refused whom the protocol lets in to tell it so. Left out: it lets in no such client. */
  refusalOf?(who: Who): WireError | undefined;
  /** The response to an error. An error that is no refusal is logged. */
  refuse(error: unknown, logger: Logger, request: WireRequest): WireResponse;
}

/** An endpoint. */
export interface Route<Settings extends HttpSettings = HttpSettings, Who = Caller> {
  readonly method: "GET" | "POST" | "DELETE";
  /** The parts of the path between slashes. A name in braces matches any part. */
  readonly segments: readonly string[];
  /** The names in braces. */
  readonly names: readonly string[];
  readonly action: Action;
  /** What the parameters of the query say about the objects of the request. */
  readonly asks: Readonly<Record<string, Asked>>;
  // A method, so that a route of any face is a route.
  handle(call: Call<Settings, Who>): Promise<WireResponse>;
}

/** An object of a request that a path or a query may name. */
export type Asked = Exclude<keyof RequestedObjects, "question">;

/** Says who sends a request, or throws to refuse it. Its second argument makes the question for `authorize`. */
export type Admit<Who> = (request: WireRequest, asked: () => AuthorizeRequest) => MaybePromise<Who>;

/** What all requests of one handler share. */
export class Service<Settings extends HttpSettings = HttpSettings, Who = Caller> {
  readonly face: Face<Settings, Who>;
  readonly settings: Settings;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly readers: Readers;
  readonly disconnects: Disconnects;
  readonly admit: Admit<Who>;
  readonly refusals: Refusals;

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    face: Face<Settings, Who>,
    settings: Settings,
    inside: Pick<Inside, "readersPerTenant" | "audit"> | undefined,
    admit: (logger: Logger) => Admit<Who>,
  ) {
    this.face = face;
    this.settings = settings;
    this.clock = clock;
    this.logger = containedLogger(logger);
    this.admit = admit(this.logger);
    this.refusals = new Refusals(clock, this.logger, inside?.audit);
    this.readers = new Readers(settings.limits, inside?.readersPerTenant);
    this.disconnects = new Disconnects(settings.cancelAfterMs, this.clock, this.logger);
  }
}

/** The service of a protocol whose clients see the runs of a runtime. */
export function runtimeService<Settings extends HttpSettings>(
  runtime: AgentRuntime,
  face: Face<Settings>,
  settings: Settings,
): Service<Settings> {
  return new Service(runtime, face, settings, runtime[insideKey], (logger) => (_request, asked) => {
    return callerOf(runtime, settings.authorize, asked, logger);
  });
}

/** One request while it is answered. */
export interface Call<Settings extends HttpSettings = HttpSettings, Who = Caller> {
  readonly service: Service<Settings, Who>;
  readonly request: WireRequest;
  readonly caller: Who;
  /** The part of the path that matches the first name in braces; empty if the route has none. */
  readonly parameter: string;
  /** The part of the path that matches the second name in braces; empty if the route has none. */
  readonly second: string;
  /** The query, without the question mark. */
  readonly query: string;
}

/** The call with the rights that the host gives the client now that the body has said what the request is about. */
export async function askAbout<Asking extends Call<HttpSettings>>(call: Asking, about: About): Promise<Asking> {
  const { ask } = call.caller;
  return ask === undefined ? call : { ...call, caller: await ask(about) };
}

/** The body of a request, within the limits. */
export function takeBody({ service, request }: Call<HttpSettings, unknown>): MaybePromise<WireBody> {
  checkContentType(request.header("content-type"));
  return request.body(service.settings.limits);
}

const MAX_KEY_LENGTH = 255;

/** The idempotency key of a request, if it has one. */
export function idempotencyKey({ request }: Call): string | undefined {
  const key = request.header("idempotency-key");
  if (key === undefined) return undefined;
  if (key !== "" && key.length <= MAX_KEY_LENGTH) return key;
  throw unfitAt(["Idempotency-Key"], `expected 1 to ${MAX_KEY_LENGTH} characters`);
}

/** A number in the query; undefined if it is missing. */
export function queryNumber(query: URLSearchParams, name: string, least: number, most: number): number | undefined {
  return wholeNumber(query.get(name), [name], least, most);
}

/** True or false in the query; undefined if it is missing. */
export function queryFlag(query: URLSearchParams, name: string): boolean | undefined {
  return flag(query.get(name), [name]);
}

type Path = readonly (string | number)[];

/** A number of a query or a body, which may be written as a text; undefined if it is missing. */
export function wholeNumber(value: unknown, path: Path, least: number, most: number): number | undefined {
  if (value === undefined || value === null) return undefined;
  const number = typeof value === "string" && /^\d{1,16}$/.test(value) ? Number(value) : value;
  if (Number.isInteger(number) && Number(number) >= least && Number(number) <= most) return Number(number);
  throw unfitAt(path, `expected a whole number from ${least} to ${most}`);
}

/** True or false of a query or a body, which may be written as a text; undefined if it is missing. */
export function flag(value: unknown, path: Path): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (value === true || value === "true") return true;
  if (value === false || value === "false") return false;
  throw unfitAt(path, "expected true or false");
}

/** The address of the service, as its clients see it. */
export function baseUrl(call: Call): string {
  return call.service.settings.baseUrl ?? call.request.origin() + mountPath(call);
}

/**
 * The address of the service in the OpenAPI document. Without a configured address it is a path, which clients read
 * relative to the document.
 */
export function serverUrl(call: Call): string {
  return call.service.settings.baseUrl ?? (mountPath(call) || "/");
}

/** The path below which the service is mounted. */
export function mountPath({ service, request }: Call<HttpSettings, unknown>): string {
  const { basePath } = service.settings;
  const mount = request.mount();
  // A host that strips the base path may report it.
  return mount.endsWith(basePath) ? mount : mount + basePath;
}
