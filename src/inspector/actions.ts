import { CadenzaError } from "../core/errors.ts";
import type { RunKey } from "../core/ports.ts";
import type { Speaker } from "../http/claims.ts";
import { createRunFor, resumeFor } from "../http/claims.ts";
import { unfitAt, WireError } from "../http/errors.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import { jsonPart } from "../protocol/message.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import { resumeOf } from "../runtime/agent/answer.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { isValue } from "../runtime/agent/input.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import { insideKey } from "../runtime/api/inside.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { Access } from "./access.ts";
import { isForeign, readTenant, runKeyOf } from "./queries.ts";

/** What a user does: its arguments, and in whose name. */
export interface Deed {
  readonly runtime: AgentRuntime;
  readonly access: Access;
  readonly body: JsonObject;
}

/** An action of the page: what it takes besides the run, and what it does. Its answer is JSON. */
export interface InspectorAction {
  readonly takes: readonly string[];
  act(deed: Deed): Promise<object>;
}

/** An action on a run. */
function onRun(
  takes: readonly string[],
  act: (scope: Scope, key: RunKey, body: JsonObject) => Promise<object>,
): InspectorAction {
  return {
    takes: ["tenant", "run_id", ...takes],
    act: async ({ runtime, access, body }) => {
      const key = runKeyOf(body["tenant"], body["run_id"], access);
      return act(runtime.scope({ tenant: key.tenant, principal: access.principal }), key, body);
    },
  };
}

const none = {};

/** What the page can do, by the names of the endpoints. */
export const actions: Readonly<Record<string, InspectorAction>> = {
  create: { takes: ["tenant", "agent_name", "input", "session_id"], act: create },
  answer: onRun(["await_id", "answer"], async (scope, { run_id }, { await_id, answer }) => {
    if (answer === undefined) throw unfitAt(["answer"], "expected an answer");
    const await_resume = resumeOf(answer);
    await resumeFor(speakerOf(scope), { run_id, await_id: text("await_id", await_id), await_resume, mode: "async" });
    return none;
  }),
  decline: onRun(["await_id", "reason"], async (scope, { run_id }, { await_id, reason = null }) => {
    const decline = { reason: reason === null ? null : text("reason", reason) };
    await resumeFor(speakerOf(scope), { run_id, await_id: text("await_id", await_id), decline, mode: "async" });
    return none;
  }),
  cancel: onRun([], async (scope, { run_id }) => {
    await scope.cancel(run_id);
    return none;
  }),
  fork: onRun(["before", "version", "keys"], async (scope, { tenant, run_id }, { before, version, keys }) => {
    const options = {
      before: before === undefined ? undefined : text("before", before),
      version: version === undefined || version === null ? version : text("version", version),
      keys: keys === undefined ? undefined : (text("keys", keys) as "same" | "new"),
    };
    const fork = await scope.fork(run_id, { ...options, mode: "async" });
    return { tenant, run_id: fork.run_id };
  }),
  delete: onRun([], async (scope, { run_id }) => {
    await scope.delete(run_id);
    return none;
  }),
  send: onRun(["name", "data"], async (scope, { run_id }, { name, data }) => {
    await scope.send({ to: run_id, name: text("name", name), data });
    return none;
  }),
};

/** Creates a run, and does not wait for it. The input of an agent with a schema is the value for that schema. */
async function create({ runtime, access, body }: Deed): Promise<object> {
  const { agent_name, input, session_id = null } = body;
  const tenant = readTenant(body["tenant"], access);
  if (isForeign(tenant, access)) throw new WireError(403, "forbidden", "The user may not create runs of this tenant.");
  const name = text("agent_name", agent_name);
  const agent = runtime[insideKey].registry.all().find((one) => one.name === name);
  if (agent === undefined)
    throw new CadenzaError("agent_not_found", `There is no agent ${JSON.stringify(name)}.`, { agent_name: name });
  const request = {
    agent_name: name,
    input: inputOf(agent, input ?? ""),
    session_id: session_id === null ? null : text("session_id", session_id),
    mode: "async",
  } as const;
  const run = await createRunFor(speakerOf(runtime.scope({ tenant, principal: access.principal })), request, {});
  return { tenant, run_id: run.run_id, session_id: run.session_id };
}

/** A value in the body is JSON already, and is written as the text of a part without being copied first. */
function inputOf({ options }: Agent, input: JsonValue): RunInput {
  return options.input !== undefined || isValue(input) ? jsonPart(input) : (input as RunInput);
}

/** Who operates a runtime is a user of its agents. */
function speakerOf(scope: Scope): Speaker {
  return { scope, speaksAs: (role) => role === "user" };
}

function text(name: string, value: unknown): string {
  if (typeof value === "string" && value !== "") return value;
  throw unfitAt([name], "expected a text that is not empty");
}
