import { recordRun } from "../durable/replay/cassette.ts";
import { readJson } from "../http/body.ts";
import { errorResponse, unfitAt, WireError } from "../http/errors.ts";
import { streamHeaders } from "../http/event-stream.ts";
import type { Handler } from "../http/fetch.ts";
import { handlerOf } from "../http/fetch.ts";
import type { NodeListener } from "../http/node.ts";
import { listenerOf } from "../http/node.ts";
import type { Action } from "../http/options.ts";
import { route } from "../http/router.ts";
import type { Call, Route } from "../http/service.ts";
import { mountPath, Service, takeBody } from "../http/service.ts";
import type { WireResponse } from "../http/wire.ts";
import { json } from "../http/wire.ts";
import { isJsonObject } from "../protocol/json.ts";
import { describeSchemas } from "../runtime/agent/agent-schemas.ts";
import { insideKey } from "../runtime/api/inside.ts";
import { randomSecret } from "../runtime/log/system.ts";
import type { Access, Visitor } from "./access.ts";
import { byHost, byNothing, byToken } from "./access.ts";
import { actions, actOf, checkMayDo, readOnly, refusedTo } from "./actions.ts";
import type { InspectedAgent, Start } from "./api.ts";
import { runItemId } from "./api.ts";
import { familyFeed } from "./family.ts";
import type { Feed } from "./feed.ts";
import { FeedText } from "./feed.ts";
import { answeredQuestions, askedQuestion, inboxFeed, readInboxQuery } from "./inbox.ts";
import type { Inspected } from "./inspected.ts";
import { inspect, noSuchRun } from "./inspected.ts";
import { Lists } from "./lists.ts";
import { runFeed, sessionFeed, severalFeed } from "./one-run.ts";
import type { InspectorOptions, InspectorSettings, InspectorTarget } from "./options.ts";
import { readInspectorOptions } from "./options.ts";
import { pageResponse, refusal, safeHeaders } from "./page.ts";
import {
  isForeign,
  readFigures,
  readLimit,
  readListQuery,
  readPage,
  readRunQuery,
  readRunsQuery,
  readTenant,
  runKeyOf,
} from "./queries.ts";
import { schedulesFeed } from "./schedules.ts";
import { Figures, stuckFeed } from "./states.ts";

/**
 * The inspector of a runtime for Hono, Next.js, Bun and Deno: a page that shows its runs while they go on, and lets its
 * users answer, cancel, fork and create runs. Without `authorize` it refuses every request. Throws `invalid_argument`
 * for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createInspectorHandler } from "cadenza/inspector";
 *
 * const operators = new Set(["Bearer of-ada"]);
 * const handler = createInspectorHandler(new AgentRuntime(), {
 *   basePath: "/inspector",
 *   authorize: ({ headers }) => operators.has(headers["authorization"] ?? "") && { allTenants: true },
 * });
 * // With Hono: app.all("/inspector/*", (context) => handler(context.req.raw));
 * const headers = { authorization: "Bearer of-ada" };
 * const response = await handler(new Request("http://localhost/inspector/api/start", { headers }));
 * console.log(await response.json()); // → { tenant: null, may_write: true, may_answer: true, agents: [], has_schedules: false, has_playground: false }
 * ```
 */
export function createInspectorHandler(target: InspectorTarget, options: InspectorOptions = {}): Handler {
  return handlerOf(serviceOf(inspect(target), readInspectorOptions(options, false), undefined));
}

/**
 * The inspector of a runtime for `node:http`, Express, Fastify and Koa. Without `authorize` it serves its own machine,
 * and needs a token, whose address goes to the logger. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts no-run — it listens until it is stopped
 * import { createServer } from "node:http";
 * import { AgentRuntime } from "cadenza";
 * import { createInspectorNodeListener } from "cadenza/inspector";
 *
 * const runtime = new AgentRuntime({ logger: console });
 * createServer(createInspectorNodeListener(runtime)).listen(4000, "127.0.0.1");
 * // The inspector is open. { url: '<where this listener is mounted>/?token=…' }
 * ```
 */
export function createInspectorNodeListener(target: InspectorTarget, options: InspectorOptions = {}): NodeListener {
  const settings = readInspectorOptions(options, true);
  const { authorizes, token = randomSecret(), baseUrl = "<where this listener is mounted>" } = settings;
  const service = serviceOf(inspect(target), settings, token);
  // A token that the host has made is not for its log.
  const query = settings.token === undefined ? `?token=${token}` : "";
  if (authorizes === undefined) service.logger.info("The inspector is open.", { url: `${baseUrl}/${query}` });
  return listenerOf(service);
}

type InspectorCall = Call<InspectorSettings, Visitor>;
type InspectorRoute = Route<InspectorSettings, Visitor>;

function serviceOf(
  inspected: Inspected,
  settings: InspectorSettings,
  token: string | undefined,
): Service<InspectorSettings, Visitor> {
  const { authorizes } = settings;
  const face = {
    routes: routesOf(inspected, settings),
    refusalOf: (visitor: Visitor) => ("refused" in visitor ? visitor.refused : undefined),
    refuse: (error: unknown, logger: Inspected["logger"]): WireResponse => safe(errorResponse(error, logger)),
  };
  return new Service(inspected, face, settings, inspected.runtime?.[insideKey], (logger) => {
    if (authorizes !== undefined) return byHost(authorizes, logger);
    return token === undefined ? byNothing : byToken(token, settings);
  });
}

function routesOf(
  inspected: Inspected,
  { schedules, playground, refreshMs }: InspectorSettings,
): readonly InspectorRoute[] {
  const { admin, store } = inspected;
  const get = (
    path: string,
    action: Action,
    answer: (asked: Asked) => Promise<WireResponse>,
    asks: InspectorRoute["asks"] = {},
  ): InspectorRoute => {
    const handle: InspectorRoute["handle"] = async (call) => {
      const asked = { call, access: admitted(call), search: new URLSearchParams(call.query) };
      return safe(await answer(asked));
    };
    return route("GET", path, action, handle, asks);
  };
  const feed = (path: string, action: Action, make: (asked: Asked) => Feed, asks: InspectorRoute["asks"] = {}) =>
    get(`api/feed/${path}`, action, (asked) => follow(inspected, asked, make(asked)), asks);
  const lists = new Lists(admin, inspected.clock, refreshMs);
  const figures = new Figures(inspected);
  const has = { has_schedules: schedules !== undefined, has_playground: playground !== undefined };
  return [
    route("GET", "", "list", getPage),
    get("api/start", "list", async ({ access }) => json(200, startOf(inspected, access, has))),
    feed("runs", "list", ({ search, access }) =>
      lists.feed("runs", {
        ...{ query: readListQuery(search, access), limit: readLimit(search), showsWorkers: access.tenant === null },
        read: async (runs) => runs,
        idOf: runItemId,
      }),
    ),
    feed("questions", "list", ({ search, access }) => {
      const status = isForeign(search.get("tenant"), access) ? [] : (["awaiting"] as const);
      const runs = { tenant: access.tenant ?? undefined, status };
      return inboxFeed(inspected, runs, readInboxQuery(search, readLimit(search)));
    }),
    feed("failures", "list", ({ search, access }) => {
      const query = { ...readListQuery(search, access), ...failed(search, access) };
      return lists.feed("failures", {
        ...{ query, limit: readLimit(search), showsWorkers: false },
        read: async (among) => (await admin.failures({ ...query, among })).items,
        idOf: runItemId,
      });
    }),
    feed("stuck", "list", ({ access }) => stuckFeed(inspected, access.tenant ?? undefined)),
    feed("figures", "list", ({ access }) => {
      if (access.tenant !== null)
        throw refusedTo(access, "forbidden", "The figures count the runs of all tenants, which the user may not see.");
      return figures.now();
    }),
    feed("history", "list", ({ search, access }) => {
      if (isForeign(search.get("tenant"), access))
        throw refusedTo(access, "forbidden", "The user sees the figures of one tenant, and this is another one.");
      return figures.overTime(readFigures(search, access));
    }),
    feed("run", "read", ({ search, access }) => runFeed(inspected, readRunQuery(search, access)), oneRun),
    feed("family", "read", ({ search, access }) => familyFeed(inspected, readRunQuery(search, access)), oneRun),
    feed("schedules", "list", ({ access }) => {
      if (schedules === undefined)
        throw new WireError(404, "no_schedules", "This inspector was not given `schedules`, and so shows none.");
      return schedulesFeed(schedules, access.tenant ?? undefined);
    }),
    get("api/feed/several", "list", async (asked) => {
      const keys = readRunsQuery(asked.search, asked.access);
      // The host decides about each run, as if the page had asked for each.
      for (const { tenant, run_id } of keys) {
        const user = (await asked.access.ask?.({ action: "read", tenant, run_id })) ?? asked.access;
        runKeyOf(tenant, run_id, user);
      }
      return follow(inspected, asked, severalFeed(inspected, keys));
    }),
    feed(
      "session",
      "session",
      ({ search, access }) => {
        const tenant = readTenant(search.get("tenant"), access);
        const session_id = search.get("session_id");
        if (session_id === null) throw unfitAt(["session_id"], "expected the id of a session");
        return sessionFeed(inspected, tenant, isForeign(tenant, access) ? "" : session_id);
      },
      { session_id: "session_id" },
    ),
    get(
      "api/log",
      "read",
      async ({ search, access }) => {
        return json(200, await admin.log(readRunQuery(search, access), readPage(search)));
      },
      oneRun,
    ),
    get(
      "api/question",
      "read",
      async ({ search, access }) => {
        const key = readRunQuery(search, access);
        return json(200, await askedQuestion(inspected, key, search.get("await_id") ?? ""));
      },
      oneRun,
    ),
    get(
      "api/code",
      "read",
      async ({ search, access }) => {
        const { runtime } = inspected;
        if (playground === undefined || runtime === undefined)
          throw new WireError(404, "no_playground", "This inspector was not given a `playground`.");
        return json(200, await playground.codeOf(runtime, readRunQuery(search, access)));
      },
      oneRun,
    ),
    get("api/answers", "list", async ({ search, access }) =>
      json(200, await answeredQuestions(inspected, readListQuery(search, access))),
    ),
    get("api/many", "list", async ({ search, access }) => json(200, await actOf(admin, search.get("run_id"), access))),
    get(
      "api/cassette",
      "read",
      async ({ search, access }) => {
        const key = readRunQuery(search, access);
        const cassette = await recordRun(store, key);
        if (cassette === undefined) throw noSuchRun(key);
        return json(200, cassette);
      },
      oneRun,
    ),
    ...Object.entries(actions).map(([name, { action, takes, act }]) =>
      route<InspectorSettings, Visitor>("POST", `api/${name}`, action, async (call) => {
        const access = admitted(call);
        const { runtime } = inspected;
        if (runtime === undefined) throw readOnly(access);
        checkMayDo(access, action);
        return safe(
          json(200, await act({ runtime, schedules, playground, access, body: await readBody(call, takes) })),
        );
      }),
    ),
  ];
}

const oneRun = { run_id: "run_id" } as const;

/** A request of a user who was admitted. */
interface Asked {
  readonly call: InspectorCall;
  readonly access: Access;
  readonly search: URLSearchParams;
}

function admitted({ caller }: InspectorCall): Access {
  if ("refused" in caller) throw caller.refused;
  return caller.access;
}

/** `GET /`: the page, or a page that says why there is none. */
async function getPage(call: InspectorCall): Promise<WireResponse> {
  const { caller } = call;
  if ("refused" in caller) return refusal(caller.refused.status, caller.refused.message);
  const { cookie } = caller.access;
  // A path with other characters would end the cookie's attribute.
  const path = /^[\w\-./~%]+$/.test(mountPath(call)) ? mountPath(call) : "/";
  return pageResponse(cookie && `${cookie}; HttpOnly; SameSite=Strict; Path=${path}`);
}

function startOf(
  { runtime }: Inspected,
  { tenant, isReader, isAnswerer }: Access,
  has: Pick<Start, "has_schedules" | "has_playground">,
): Start {
  const agents = (runtime?.[insideKey].registry.all() ?? []).map(({ name, options }): InspectedAgent => {
    const { input, messages, version = null, description = "", durable = false } = options;
    const input_schema = describeSchemas({ input })?.["input"] ?? null;
    return {
      agent_name: name,
      version,
      description,
      durable,
      input_schema,
      messages: Object.keys(messages ?? {}),
    };
  });
  const isOpen = runtime !== undefined;
  return { tenant, may_write: isOpen && !isReader, may_answer: isOpen && isAnswerer, agents, ...has };
}

/** Answers with a feed. Its first event is there before the answer, so that a run that does not exist is refused. */
async function follow(inspected: Inspected, { call, search, access }: Asked, feed: Feed): Promise<WireResponse> {
  const { clock, logger, readers, settings } = call.service;
  if (inspected.isClosed()) throw new WireError(503, "runtime_closed", "The runtime is being closed.");
  // Who sees all tenants counts as the empty one.
  const reader = readers.enter(access.tenant ?? "");
  const text = new FeedText(feed, {
    clock,
    refreshMs: settings.refreshMs,
    heartbeatMs: settings.heartbeatMs,
    isClosed: inspected.isClosed,
    onClose: reader.leave,
    onFailure: (error) => logger.error("A view of the inspector could not be read further.", { error }),
  });
  try {
    const run_id = search.get("run_id");
    const tenant = readTenant(search.get("tenant"), access);
    // The views of a user do not count for the runs of another tenant.
    if (run_id !== null && !isForeign(tenant, access)) reader.join({ tenant, run_id });
    await text.begin();
  } catch (error) {
    text.return();
    throw error;
  }
  return { status: 200, headers: streamHeaders, body: text };
}

/** The body of an action. Pages of other origins cannot send its media type without asking. */
async function readBody(call: InspectorCall, takes: readonly string[]) {
  if (!/^\s*application\/json\s*(?:;|$)/i.test(call.request.header("content-type") ?? ""))
    throw new WireError(415, "unsupported_media_type", "The body has to be application/json.");
  const body = readJson(await takeBody(call), call.service.settings.limits);
  if (!isJsonObject(body)) throw unfitAt([], "expected an object");
  const unknown = Object.keys(body).find((key) => !takes.includes(key));
  if (unknown !== undefined) throw unfitAt([unknown], `expected one of ${takes.join(", ")}`);
  return body;
}

function safe(response: WireResponse): WireResponse {
  return { ...response, headers: { ...response.headers, ...safeHeaders } };
}

function failed(search: URLSearchParams, access: Access) {
  return { status: isForeign(search.get("tenant"), access) ? [] : (["failed"] as const) };
}
