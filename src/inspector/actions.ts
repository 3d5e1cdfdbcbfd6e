import type { AdminAct } from "../admin/acts.ts";
import type { Admin } from "../admin/admin.ts";
import { createAdmin } from "../admin/admin.ts";
import { CadenzaError, notFound } from "../core/errors.ts";
import type { RunKey } from "../core/ports.ts";
import { isOwn } from "../core/tenants.ts";
import type { Speaker } from "../http/claims.ts";
import { createRunFor, resumeFor } from "../http/claims.ts";
import { unfitAt, WireError } from "../http/errors.ts";
import type { Action } from "../http/options.ts";
import { markRefused } from "../http/refusals.ts";
import { runIdSchema } from "../protocol/identifier.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import { jsonInputFor } from "../runtime/agent/agent-schemas.ts";
import { resumeOf } from "../runtime/agent/answer.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import { insideKey } from "../runtime/api/inside.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { Schedules } from "../schedules/schedules.ts";
import type { Access, InspectorAbout } from "./access.ts";
import type { CodeTrials, StubbedSteps } from "./code-of-run.ts";
import { isForeign, readFilters, readListQuery, readTenant, runKeyOf } from "./queries.ts";

/** What a user does: its arguments, and in whose name. */
export interface Deed {
  readonly runtime: AgentRuntime;
  /** Undefined: the inspector was given none. */
  readonly schedules: Schedules | undefined;
  /** Undefined: the inspector was given none. */
  readonly playground: CodeTrials | undefined;
  readonly access: Access;
  readonly body: JsonObject;
}

/** An action of the page: what it takes besides the run, and what it does. Its answer is JSON. */
export interface InspectorAction {
  readonly action: Action;
  readonly takes: readonly string[];
  act(deed: Deed): Promise<object>;
}

/** An action on a run. */
function onRun(
  action: Action,
  takes: readonly string[],
  act: (speaker: Speaker, key: RunKey, body: JsonObject, deed: Deed) => Promise<object>,
): InspectorAction {
  return {
    action,
    takes: ["tenant", "run_id", ...takes],
    act: async (deed) => {
      const { runtime, access, body } = deed;
      const about = { action, ...runKeyOf(body["tenant"], body["run_id"], access) };
      // An answer is asked about when its question is known.
      const named = action === "send" ? { ...about, message_name: text("name", body["name"]) } : about;
      const user = action === "answer" ? access : await askedAgain(access, named);
      const key = runKeyOf(body["tenant"], body["run_id"], user);
      const { principal } = user;
      const scope = isOwn(key.tenant)
        ? runtime[insideKey].scope(key.tenant, principal)
        : runtime.scope({ tenant: key.tenant, principal });
      return act(speakerOf(scope, user, key.tenant), key, body, deed);
    },
  };
}

/** An action on all runs that the filters of the list select. Its answer is the act. */
function onMany(
  action: "cancel" | "fork",
  act: (admin: Admin, query: ReturnType<typeof readListQuery>, body: JsonObject, user: Access) => Promise<AdminAct>,
  takes: readonly string[] = [],
): InspectorAction {
  return {
    action,
    takes: ["filters", ...takes],
    act: async ({ runtime, access, body }) => {
      const search = readFilters(body["filters"]);
      const { tenant, agent_name } = readListQuery(search, access);
      const user = await askedAgain(access, { action, tenant, agent_name });
      return act(createAdmin(runtime, { principal: user.principal }), readListQuery(search, user), body, user);
    },
  };
}

/** An act on many runs. Who sees one tenant sees the acts on runs of that tenant. */
export async function actOf(admin: Admin, run_id: unknown, { tenant }: Access): Promise<AdminAct> {
  const { data, success } = runIdSchema.safeParse(run_id);
  if (!success) throw unfitAt(["run_id"], "expected the id of an act");
  const act = await admin.act(data);
  if (tenant !== null && act.query["tenant"] !== tenant) throw notFound(data);
  return act;
}

/** The user with the rights that the host gives now that the body has said what the request is about. */
async function askedAgain(access: Access, about: InspectorAbout): Promise<Access> {
  const user = access.ask === undefined ? access : await access.ask(about);
  checkMayDo(user, about.action);
  return user;
}

/** Refuses a user who may only look, or only answer. Which questions the user may answer is asked when they are known. */
export function checkMayDo(user: Access, action: Action): void {
  if (user.isReader && !(action === "answer" && user.isAnswerer)) throw readOnly(user);
}

export function readOnly(user: Access): WireError {
  return refusedTo(user, "read_only", "This inspector is read-only for this user.");
}

/** The error for what a user may see, and not do. */
export function refusedTo({ tenant, principal }: Access, reason: string, message: string): WireError {
  // Who sees all tenants counts as the empty one.
  return markRefused(new WireError(403, reason, message), { client: { tenant: tenant ?? "", principal } });
}

const none = {};

/** What the page can do, by the names of the endpoints. */
export const actions: Readonly<Record<string, InspectorAction>> = {
  create: { action: "create", takes: ["tenant", "agent_name", "input", "session_id"], act: create },
  answer: onRun("answer", ["await_id", "answer"], async (speaker, { run_id }, { await_id, answer }) => {
    if (answer === undefined) throw unfitAt(["answer"], "expected an answer");
    const await_resume = resumeOf(answer);
    await resumeFor(speaker, { run_id, await_id: text("await_id", await_id), await_resume, mode: "async" });
    return none;
  }),
  decline: onRun("answer", ["await_id", "reason"], async (speaker, { run_id }, { await_id, reason = null }) => {
    const decline = { reason: reason === null ? null : text("reason", reason) };
    await resumeFor(speaker, { run_id, await_id: text("await_id", await_id), decline, mode: "async" });
    return none;
  }),
  cancel: onRun("cancel", [], async ({ scope }, { run_id }) => {
    await scope.cancel(run_id);
    return none;
  }),
  fork: onRun(
    "fork",
    ["before", "version", "keys", "stub", "except"],
    async ({ scope }, { tenant, run_id }, { before, version, keys, stub, except }, { playground, runtime }) => {
      const options = {
        before: before === undefined ? undefined : text("before", before),
        version: version === undefined || version === null ? version : text("version", version),
        keys: keys === undefined ? undefined : (text("keys", keys) as "same" | "new"),
      };
      if (playground !== undefined) await playground.stub(runtime, { tenant, run_id }, stubOf(stub, except));
      else if (stub !== undefined) throw unfitAt(["stub"], "expected an inspector with a playground");
      const fork = await scope.fork(run_id, { ...options, mode: "async" });
      return { tenant, run_id: fork.run_id };
    },
  ),
  delete: onRun("delete", [], async ({ scope }, { run_id }) => {
    await scope.delete(run_id);
    return none;
  }),
  "cancel-many": onMany("cancel", (admin, query) => admin.cancelMany(query)),
  "retry-many": onMany("fork", (admin, query) => admin.retryMany(query)),
  // It may pause a version for some seconds, for all tenants.
  "move-many": onMany(
    "fork",
    (admin, query, { version }, user) => {
      if (user.tenant !== null) throw refusedTo(user, "forbidden", "The user may not move the runs of all tenants.");
      return admin.moveToVersion(query, version === null ? null : text("version", version));
    },
    ["version"],
  ),
  "stop-many": {
    action: "cancel",
    takes: ["run_id"],
    act: async ({ runtime, access, body }) => {
      const user = await askedAgain(access, { action: "cancel", tenant: access.tenant ?? undefined });
      const admin = createAdmin(runtime, { principal: user.principal });
      await admin.cancel(await actOf(admin, body["run_id"], user));
      return none;
    },
  },
  send: onRun("send", ["name", "data"], async ({ scope }, { run_id }, { name, data }) => {
    await scope.send({ to: run_id, name: text("name", name), data });
    return none;
  }),
  pause: onVersion("pause"),
  resume: onVersion("resume"),
  "pause-schedule": onSchedule("cancel", [], (schedules, id, options) => schedules.pause(id, options)),
  "resume-schedule": onSchedule("cancel", [], (schedules, id, options) => schedules.resume(id, options)),
  "trigger-schedule": onSchedule("create", ["key"], (schedules, id, options, { key }) =>
    schedules.trigger(id, { ...options, idempotencyKey: text("key", key) }),
  ),
};

/** An action on a schedule. Who may cancel the runs of its agent may pause and resume it, who may create them may trigger it. */
function onSchedule(
  action: "cancel" | "create",
  takes: readonly string[],
  act: (schedules: Schedules, id: string, options: { readonly tenant: string }, body: JsonObject) => Promise<void>,
): InspectorAction {
  return {
    action,
    takes: ["tenant", "id", ...takes],
    act: async ({ schedules, access, body }) => {
      const id = text("id", body["id"]);
      const tenant = readTenant(body["tenant"], access);
      if (schedules === undefined || isForeign(tenant, access)) throw noSchedule(id);
      const { agent_name } = await schedules.get(id, { tenant });
      const user = await askedAgain(access, { action, tenant, agent_name });
      if (isForeign(tenant, user)) throw noSchedule(id);
      await act(schedules, id, { tenant }, body);
      return none;
    },
  };
}

/** The same as for a schedule that does not exist. */
function noSchedule(id: string): CadenzaError {
  return new CadenzaError("run_not_found", `There is no schedule ${JSON.stringify(id)} of this tenant.`);
}

/** Pauses or resumes a version of an agent, for all tenants. Who may cancel the runs of all tenants may do so. */
function onVersion(what: "pause" | "resume"): InspectorAction {
  return {
    action: "cancel",
    takes: what === "pause" ? ["agent_name", "version", "now"] : ["agent_name", "version"],
    act: async ({ runtime, access, body }) => {
      const agent_name = text("agent_name", body["agent_name"]);
      const version = body["version"] === null ? null : text("version", body["version"]);
      const user = await askedAgain(access, { action: "cancel", agent_name });
      if (user.tenant !== null) throw refusedTo(user, "forbidden", "The user may not pause the agents of all tenants.");
      const admin = createAdmin(runtime, { principal: user.principal });
      if (what === "resume") return admin.resume({ agent_name, version });
      return admin.pause({ agent_name, version }, { now: body["now"] === true });
    },
  };
}

/** Which steps of a fork get recorded results; null: none. */
function stubOf(stub: JsonValue | undefined, except: JsonValue = []): StubbedSteps | null {
  if (stub === undefined || stub === null) return null;
  if (stub === "models") return { stub };
  const keys = Array.isArray(except) ? except.filter((key) => typeof key === "string") : [];
  if (stub === "steps") return { stub, except: keys };
  throw unfitAt(["stub"], "expected models or steps");
}

/** Creates a run, and does not wait for it. The input of an agent with a schema is the value for that schema. */
async function create({ runtime, access: before, body }: Deed): Promise<object> {
  const { agent_name, input, session_id = null } = body;
  const session = session_id === null ? undefined : text("session_id", session_id);
  const about = { action: "create", agent_name: text("agent_name", agent_name), session_id: session } as const;
  const access = await askedAgain(before, { ...about, tenant: readTenant(body["tenant"], before) });
  const tenant = readTenant(body["tenant"], access);
  if (isForeign(tenant, access)) throw refusedTo(access, "forbidden", "The user may not create runs of this tenant.");
  const name = about.agent_name;
  const agent = runtime[insideKey].registry.all().find((one) => one.name === name);
  if (agent === undefined)
    throw new CadenzaError("agent_not_found", `There is no agent ${JSON.stringify(name)}.`, { agent_name: name });
  const request = {
    agent_name: name,
    input: jsonInputFor(agent, input ?? ""),
    session_id: session ?? null,
    mode: "async",
  } as const;
  const run = await createRunFor(
    speakerOf(runtime.scope({ tenant, principal: access.principal }), access, tenant),
    request,
    {},
  );
  return { tenant, run_id: run.run_id, session_id: run.session_id };
}

/** Who operates a runtime is a user of its agents. */
function speakerOf(scope: Scope, { principal, isReader, ask }: Access, tenant: string): Speaker {
  return {
    ...{ tenant, principal, isReader, scope },
    speaksAs: (role) => role === "user",
    ask: ask && ((about) => ask({ ...about, tenant })),
  };
}

function text(name: string, value: unknown): string {
  if (typeof value === "string" && value !== "") return value;
  throw unfitAt([name], "expected a text that is not empty");
}
