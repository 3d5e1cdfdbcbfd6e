import type { Logger } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import type { Authorize } from "cadenza/http";
import { createAcpHandler } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";
import { describe, expect, it } from "vitest";

/* What a host may return from `authorize` by mistake. Each of it refuses the request, and gives no right. */

class Rights {
  readonly tenant = "blue";
}

const wrong: Readonly<Record<string, unknown>> = {
  nothing: undefined,
  null: null,
  true: true,
  "a number": 1,
  "a text": "blue",
  "a symbol": Symbol("blue"),
  "a function": () => ({}),
  "an empty list": [],
  "a list of tenants": ["blue"],
  "a date": new Date(0),
  "a map": new Map([["tenant", "blue"]]),
  "an error": new Error("No."),
  "an instance of a class": new Rights(),
  "an object that inherits its rights": Object.create({ tenant: "blue" }),
  "a misspelt tenant": { tenantId: "blue" },
  "a misspelt agent": { agent: ["echo"] },
  "a tenant that is undefined": { tenant: undefined },
  "a tenant that is null": { tenant: null },
  "a tenant that is a number": { tenant: 1 },
  "a tenant that is a promise": { tenant: Promise.resolve("blue") },
  "a tenant that is a list": { tenant: ["blue"] },
  "a principal that is undefined": { principal: undefined },
  "a principal that is a function": { principal: () => "Ada" },
  "agents that are undefined": { agents: undefined },
  "agents that are null": { agents: null },
  "agents that are a text": { agents: "echo" },
  "agents that are a set": { agents: new Set(["echo"]) },
  "agents with a hole": { agents: ["echo", undefined] },
  "a function of agents that answers later": { agents: async () => true },
  "a function of agents that answers with a text": { agents: () => "yes" },
  "a function of agents that answers with nothing": { agents: () => undefined },
  "a function of agents that throws": {
    agents: () => {
      throw new Error("No.");
    },
  },
  "owns without a principal": { owns: true },
  "owns with a principal without an id": { owns: true, principal: { name: "Ada" } },
  "owns with an id that is too long": { owns: true, principal: { id: "a".repeat(256) } },
  "owns that is a text": { owns: "ada", principal: "ada" },
  "owns that is undefined": { owns: undefined, principal: "ada" },
  "owns that is a promise": { owns: Promise.resolve(true), principal: "ada" },
  "readOnly that is undefined": { readOnly: undefined },
  "readOnly that is a text": { readOnly: "no" },
  "readOnly that is a number": { readOnly: 0 },
  "a misspelt readOnly": { readonly: true },
  "answers that are undefined": { answers: undefined },
  "answers that are true": { answers: true },
  "answers that are a text": { answers: "approval" },
  "answers that are a set": { answers: new Set(["approval"]) },
  "answers of an unknown kind": { answers: ["approval", "payment"] },
  "answers with a hole": { answers: ["approval", undefined] },
  "roles that are a text": { roles: "user" },
  "roles that are true": { roles: true },
  "a list of roles with a hole": { roles: ["user", undefined] },
  "a right beside a misspelt one": { tenant: "blue", principle: "Ada" },
  "a status that is a text": { status: "401" },
  "a status of success": { status: 200 },
};

function open(answer: unknown) {
  const said: string[] = [];
  const say = (message: string): void => void said.push(message);
  const logger: Logger = { debug: say, info: say, warn: say, error: say };
  const runtime = new AgentRuntime({ logger });
  runtime.register("echo", (input) => input);
  const authorize = (() => answer) as Authorize;
  return { said, runtime, authorize };
}

const post = (path: string, body: unknown): Request =>
  new Request(`http://service${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

describe.each(Object.keys(wrong))("authorize that returns %s", (name) => {
  it("refuses every request, and nothing is begun", async () => {
    const { said, runtime, authorize } = open(wrong[name]);
    const message = { id: "m1", role: "user", content: "Hi", parts: [{ type: "text", text: "Hi" }] };
    const answers = [
      await createAcpHandler(runtime, { authorize })(
        post("/runs", { agent_name: "echo", input: [{ parts: [{ content: "Hi" }] }] }),
      ),
      await createChatHandler(runtime, { authorize })(post("/echo", { id: "c1", messages: [message] })),
      await createAgUiHandler(runtime, { authorize })(
        post("/echo", { threadId: "t1", runId: "r1", messages: [message] }),
      ),
      await createInspectorHandler(runtime, { authorize: authorize as never })(new Request("http://service/api/start")),
    ];
    expect(answers.map(({ status }) => status)).toEqual([403, 403, 403, 403]);
    for (const answer of answers) expect(await answer.text()).not.toMatch(/agents|tenant|principal|No\./);
    expect(await runtime.scope({ tenant: "" }).listRuns()).toEqual([]);
    expect(await runtime.scope({ tenant: "blue" }).listRuns()).toEqual([]);
    if (typeof wrong[name] === "object" && wrong[name] !== null && !("status" in wrong[name]))
      expect(said).not.toEqual([]);
  });
});

it.each([
  ["no right", {}],
  ["an object without a prototype", Object.assign(Object.create(null), { tenant: "blue" })],
  [
    "all rights",
    {
      ...{ tenant: "blue", principal: { id: "ada" }, owns: true, readOnly: false, answers: ["approval"] },
      ...{ agents: ["echo"], roles: ["user"] },
    },
  ],
  ["a function of agents", { agents: (name: string) => name === "echo" }],
  ["a promise of rights", Promise.resolve({ tenant: "blue", principal: null })],
])("authorize that returns %s lets the request pass", async (_what, answer) => {
  const { runtime, authorize } = open(answer);
  const body = { agent_name: "echo", input: [{ parts: [{ content: "Hi" }] }] };
  expect((await createAcpHandler(runtime, { authorize })(post("/runs", body))).status).toBe(200);
});
