import { AgentError, AgentRuntime } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import type { Handler } from "cadenza/http";
import { createMcpHandler } from "cadenza/mcp";
import { describe, expect, it } from "vitest";
import * as z from "zod";

/*
 * What the specifications of A2A 1.0 and MCP 2026-07-28 demand, a row for each fact. The official suites check more: see
 * a2a/kit.ts and mcp-conformance/run.ts.
 */

type Json = Readonly<Record<string, unknown>>;

function agents(): AgentRuntime {
  const runtime = new AgentRuntime();
  runtime.register("echo", async function* (input) {
    yield* (input[0]?.parts ?? []).map((part) => part.content ?? "");
    yield " Done.";
  });
  runtime.register("asks", async function* (_input, { ask }) {
    yield "Well. ";
    const { ok } = await ask("Shall I?", { schema: z.object({ ok: z.boolean() }) });
    yield ok ? "Yes." : "No.";
  });
  runtime.register("fails", () => {
    throw new AgentError("no_seat", "The train is full.");
  });
  return runtime;
}

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Json;
  /** The data of each event of a stream. */
  readonly items: readonly Json[];
}

async function send(handler: Handler, method: string, path: string, body?: unknown, more: Record<string, string> = {}) {
  const headers = { "content-type": "application/json", ...more };
  const written = body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body);
  const response = await handler(new Request(`http://localhost${path}`, { method, headers, body: written }));
  const text = await response.text();
  const isStream = response.headers.get("content-type") === "text/event-stream";
  const items = [...text.matchAll(/^data: (.*)$/gm)].map(([, data = ""]) => JSON.parse(data) as Json);
  const json = isStream || text === "" ? {} : (JSON.parse(text) as Json);
  return { status: response.status, headers: response.headers, text, json, items } satisfies Answer;
}

const NO_RUN = "00000000-0000-4000-8000-000000000000";
const UTC = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

describe("A2A 1.0", () => {
  const version = { "a2a-version": "1.0" };
  const said = (parts: readonly object[], more: object = {}): object => ({
    message: { messageId: "m1", role: "ROLE_USER", parts, ...more },
  });
  const hi = said([{ text: "hi" }]);

  class A2a {
    readonly #handler = createA2aHandler(agents(), { root: "echo" });

    rest(method: string, path: string, body?: unknown, more: Record<string, string> = version): Promise<Answer> {
      return send(this.#handler, method, path, body, more);
    }

    async rpc(method: string, params: object = {}, path = "/echo"): Promise<Answer> {
      return this.rest("POST", path, { jsonrpc: "2.0", id: "7", method, params });
    }

    async task(agent: string, body: object = hi): Promise<Json & { readonly id: string }> {
      const { json } = await this.rest("POST", `/${agent}/message:send`, body);
      return json["task"] as Json & { readonly id: string };
    }
  }
  const errorOf = ({ json }: Answer): Json => json["error"] as Json;

  it.each<[fact: string, check: (client: A2a) => Promise<void>]>([
    [
      "JSON-RPC answers at the address with and without a slash, in the status 200 and with the id of the request",
      async (client) => {
        for (const path of ["/echo", "/echo/"])
          expect(await client.rpc("ListTasks", {}, path)).toMatchObject({ status: 200, json: { id: "7" } });
        expect(await client.rpc("Unknown")).toMatchObject({ status: 200, json: { id: "7", error: { code: -32601 } } });
      },
    ],
    [
      "the version is a header or in the query, its patch is ignored, and a missing one is 0.3",
      async (client) => {
        const status = async (path: string, more: Record<string, string>): Promise<number> =>
          (await client.rest("GET", path, undefined, more)).status;
        expect(await status("/echo/tasks", { "a2a-version": "1.0.7" })).toBe(200);
        expect(await status("/echo/tasks?A2A-Version=1.0", {})).toBe(200);
        for (const wrong of ["0.3", "1", "2.0"])
          expect(await status("/echo/tasks", { "a2a-version": wrong })).toBe(400);
        expect(errorOf(await client.rest("GET", "/echo/tasks", undefined, {}))["details"]).toMatchObject([
          { reason: "VERSION_NOT_SUPPORTED", domain: "a2a-protocol.org" },
        ]);
      },
    ],
    [
      "REST answers in the media type of A2A where the request names it",
      async (client) => {
        const accept = { ...version, accept: "application/a2a+json" };
        const { headers } = await client.rest("GET", "/echo/tasks", undefined, accept);
        expect(headers.get("content-type")).toBe("application/a2a+json");
      },
    ],
    [
      "states are named in full, times are UTC with milliseconds, and lists are not empty",
      async (client) => {
        const { status, artifacts, history } = await client.task("echo");
        expect(status).toEqual({ state: "TASK_STATE_COMPLETED", timestamp: expect.stringMatching(UTC) });
        expect([artifacts, history]).toMatchObject([[{}], [{ role: "ROLE_USER" }]]);
        expect(await client.task("fails")).not.toHaveProperty("artifacts");
      },
    ],
    [
      "a stream begins with the task, has one thing in each item, and ends at rest",
      async (client) => {
        const { items } = await client.rest("POST", "/asks/message:stream", hi);
        expect(items.map((item) => Object.keys(item))).toEqual([
          ...[["task"], ["statusUpdate"]],
          ...[["artifactUpdate"], ["statusUpdate"]],
        ]);
        expect(items.at(-1)).toMatchObject({ statusUpdate: { status: { state: "TASK_STATE_INPUT_REQUIRED" } } });
      },
    ],
    [
      "a send waits for the task to rest, unless it is to return at once",
      async (client) => {
        expect((await client.task("asks"))["status"]).toMatchObject({ state: "TASK_STATE_INPUT_REQUIRED" });
        const soon = { ...hi, configuration: { returnImmediately: true } };
        const { state } = (await client.task("asks", soon))["status"] as Json;
        expect(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"]).toContain(state);
      },
    ],
    [
      "what is not declared is refused: push notifications and the extended card",
      async (client) => {
        const codes = [
          await client.rpc("CreateTaskPushNotificationConfig", { taskId: NO_RUN }),
          await client.rpc("GetExtendedAgentCard"),
        ].map((answer) => errorOf(answer)["code"]);
        expect(codes).toEqual([-32003, -32004]);
      },
    ],
    [
      "an unknown task is -32001, and one that has ended takes no message, no subscription and no cancel",
      async (client) => {
        const { id } = await client.task("echo");
        const codes = [
          await client.rpc("GetTask", { id: NO_RUN }),
          await client.rpc("SendMessage", said([{ text: "x" }], { taskId: id })),
          await client.rpc("SubscribeToTask", { id }),
          await client.rpc("CancelTask", { id }),
        ].map((answer) => errorOf(answer)["code"]);
        expect(codes).toEqual([-32001, -32004, -32004, -32002]);
      },
    ],
    [
      "a part that says two contents, or none, is a violation that names its field",
      async (client) => {
        for (const part of [{}, { text: "a", data: {} }]) {
          const { data } = errorOf(await client.rpc("SendMessage", said([part]))) as { data?: readonly Json[] };
          expect(data).toMatchObject([{ fieldViolations: [{ field: "message.parts.0" }] }]);
        }
      },
    ],
    [
      "a history of no messages is left out, and one of some has the last ones",
      async (client) => {
        const { id } = await client.task("asks");
        expect((await client.rest("GET", `/asks/tasks/${id}?historyLength=0`)).json).not.toHaveProperty("history");
        expect((await client.rest("GET", `/asks/tasks/${id}?historyLength=1`)).json["history"]).toHaveLength(1);
      },
    ],
    [
      "a list has no artifacts unless they are asked for, and an empty token at its end",
      async (client) => {
        await client.task("echo");
        const list = async (query: string): Promise<Json> => (await client.rest("GET", `/echo/tasks${query}`)).json;
        const [task] = (await list(""))["tasks"] as readonly Json[];
        expect(task).not.toHaveProperty("artifacts");
        expect(await list("?includeArtifacts=true")).toMatchObject({
          ...{ nextPageToken: "", pageSize: 50, totalSize: 1 },
          tasks: [{ artifacts: [{}] }],
        });
        expect((await client.rest("GET", "/echo/tasks?pageSize=101")).status).toBe(400);
      },
    ],
    [
      "a card has absolute addresses, a skill with a tag, and a tag of its own with which it is not sent again",
      async (client) => {
        const path = "/.well-known/agent-card.json";
        const { json, headers } = await client.rest("GET", path, undefined, {});
        expect(json).toMatchObject({
          supportedInterfaces: [{ url: "http://localhost/echo", protocolVersion: "1.0" }, {}],
          skills: [{ id: "echo", tags: ["echo"] }],
        });
        const etag = headers.get("etag") ?? "";
        expect(headers.get("cache-control")).toMatch(/max-age=\d+/);
        expect((await client.rest("GET", path, undefined, { "if-none-match": etag })).status).toBe(304);
      },
    ],
  ])("%s", async (_fact, check) => check(new A2a()));
});

describe("MCP", () => {
  const REVISION = "2026-07-28";
  const meta = "io.modelcontextprotocol/";
  const tasks = { elicitation: {}, extensions: { [`${meta}tasks`]: {} } };

  class Mcp {
    readonly runtime = agents();
    readonly handler: Handler;

    constructor() {
      this.handler = createMcpHandler(this.runtime, { tasks: ["asks"], authorize: () => ({}) });
    }

    post(body: unknown, headers: Record<string, string> = {}): Promise<Answer> {
      return send(this.handler, "POST", "/", body, headers);
    }

    /** A request of 2026-07-28. */
    ask(method: string, params: Json = {}, capabilities: object = tasks, more: Record<string, string> = {}) {
      const _meta = { [`${meta}protocolVersion`]: REVISION, [`${meta}clientCapabilities`]: capabilities };
      const name = params["name"] ?? params["taskId"];
      const headers = {
        ...{ "mcp-protocol-version": REVISION, "mcp-method": method },
        ...(typeof name === "string" && { "mcp-name": name }),
        ...more,
      };
      const said = { ...params, _meta: { ..._meta, ...(params["_meta"] as object | undefined) } };
      return this.post({ jsonrpc: "2.0", id: 7, method, params: said }, headers);
    }

    /** A request of the revisions before. */
    before(method: string, params: Json = {}, headers: Record<string, string> = {}): Promise<Answer> {
      return this.post({ jsonrpc: "2.0", id: 7, method, params }, headers);
    }
  }
  const echo = { name: "echo", arguments: { message: "hi" } };
  const asks = { name: "asks", arguments: { message: "hi" } };
  const errorOf = ({ json, items }: Answer): Json => (json["error"] ?? items.at(-1)?.["error"]) as Json;
  const resultOf = ({ json, items }: Answer): Json => (json["result"] ?? items.at(-1)?.["result"]) as Json;

  it.each<[fact: string, check: (client: Mcp) => Promise<void>]>([
    [
      "one address takes POST alone, JSON alone, and no page of another origin",
      async (client) => {
        for (const method of ["GET", "DELETE"]) expect((await send(client.handler, method, "/")).status).toBe(405);
        const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
        expect((await client.post(ping, { "content-type": "text/plain" })).status).toBe(415);
        expect((await client.post(ping, { origin: "https://evil.example" })).status).toBe(403);
        expect(await client.post(ping)).toMatchObject({ status: 200, json: { result: {} } });
      },
    ],
    [
      "a notification is accepted without a body",
      async (client) => {
        const note = { jsonrpc: "2.0", method: "notifications/initialized" };
        expect(await client.post(note)).toMatchObject({ status: 202, text: "" });
      },
    ],
    [
      "a request says the version and the capabilities of its client, and its headers repeat the body",
      async (client) => {
        const without = { [`${meta}clientCapabilities`]: undefined };
        expect(await client.ask("tools/list", { _meta: without })).toMatchObject({ status: 400 });
        const wrong = [{ "mcp-method": "ping" }, { "mcp-protocol-version": "2025-11-25" }, { "mcp-name": "asks" }];
        for (const headers of wrong) {
          const answer = await client.ask("tools/call", echo, tasks, headers as unknown as Record<string, string>);
          expect([answer.status, errorOf(answer)["code"]]).toEqual([400, -32020]);
        }
        const encoded = { "mcp-name": `=?base64?${btoa("echo")}?=` };
        expect((await client.ask("tools/call", echo, {}, encoded)).status).toBe(200);
      },
    ],
    [
      "an unknown version is -32022 with the known ones, and an unknown method -32601 with the status 404",
      async (client) => {
        const answer = await client.ask("tools/list", { _meta: { [`${meta}protocolVersion`]: "2099-01-01" } }, tasks, {
          "mcp-protocol-version": "2099-01-01",
        });
        expect(answer.status).toBe(400);
        expect(errorOf(answer)).toMatchObject({
          code: -32022,
          data: { supported: [REVISION], requested: "2099-01-01" },
        });
        const unknown = await client.ask("prompts/list");
        expect([unknown.status, errorOf(unknown)["code"]]).toEqual([404, -32601]);
      },
    ],
    [
      "what a client has not declared is -32021 with what it has to declare",
      async (client) => {
        const question = await client.ask("tools/call", asks, {});
        expect([question.status, errorOf(question)]).toMatchObject([400, { code: -32021 }]);
        const task = await client.ask("tasks/get", { taskId: NO_RUN }, {});
        expect(errorOf(task)).toMatchObject({
          code: -32021,
          data: { requiredCapabilities: { extensions: { [`${meta}tasks`]: {} } } },
        });
      },
    ],
    [
      "each result has a type and says who serves, and none of the revisions before has",
      async (client) => {
        for (const method of ["server/discover", "tools/list"])
          expect(resultOf(await client.ask(method))).toMatchObject({
            ...{ resultType: "complete", ttlMs: 60_000, cacheScope: "private" },
            _meta: { [`${meta}serverInfo`]: { name: "cadenza" } },
          });
        expect(Object.keys(resultOf(await client.before("tools/list")))).toEqual(["tools"]);
      },
    ],
    [
      "a tool has a name, a description and the schema of an object, in the same order each time",
      async (client) => {
        const names = async (): Promise<unknown> => {
          const tools = resultOf(await client.ask("tools/list"))["tools"] as readonly Json[];
          for (const { description, inputSchema } of tools)
            expect([description, inputSchema]).toMatchObject([expect.stringMatching(/./), { type: "object" }]);
          return tools.map(({ name }) => name);
        };
        expect(await names()).toEqual(["echo", "asks", "fails"]);
        expect(await names()).toEqual(await names());
      },
    ],
    [
      "the response of a call is a stream of messages without ids, of which progress rises and the last one is the result",
      async (client) => {
        const { headers, text, items } = await client.ask("tools/call", { ...echo, _meta: { progressToken: "t" } });
        expect(headers.get("x-accel-buffering")).toBe("no");
        expect(text).toMatch(/^event: message\ndata: /);
        expect(text).not.toMatch(/^id:/m);
        const told = items.slice(0, -1).map(({ params }) => params as { progressToken: string; progress: number });
        expect(told.map(({ progressToken }) => progressToken)).toEqual(["t", "t"]);
        expect((told[1]?.progress ?? 0) > (told[0]?.progress ?? 0)).toBe(true);
        expect(items.at(-1)).toMatchObject({ id: 7, result: { content: [{ type: "text", text: "hi Done." }] } });
      },
    ],
    [
      "an unknown tool is -32602, and a tool that fails has a result that says so",
      async (client) => {
        expect(errorOf(await client.ask("tools/call", { name: "none" }))["code"]).toBe(-32602);
        const failed = await client.ask("tools/call", { ...echo, name: "fails" });
        expect(resultOf(failed)).toMatchObject({ isError: true, content: [{ text: "The train is full." }] });
      },
    ],
    [
      "a client from before gets the revision that it asks for, or the newest of them",
      async (client) => {
        for (const [asked, given] of [
          ["2025-03-26", "2025-03-26"],
          ["1999-01-01", "2025-11-25"],
        ])
          expect(resultOf(await client.before("initialize", { protocolVersion: asked }))).toMatchObject({
            protocolVersion: given,
          });
        expect((await client.before("ping", {}, { "mcp-protocol-version": "1999-01-01" })).status).toBe(400);
      },
    ],
    [
      "a session of before is visible ASCII, and one that was not given out is not found",
      async (client) => {
        const { headers } = await client.before("initialize", { capabilities: {} });
        const session = headers.get("mcp-session-id") ?? "";
        expect(session).toMatch(/^[\x21-\x7e]+$/);
        expect((await client.before("ping", {}, { "mcp-session-id": session })).status).toBe(200);
        expect((await client.before("ping", {}, { "mcp-session-id": `${session}0` })).status).toBe(404);
      },
    ],
    [
      "a task is flat, readable at once, and asks by keys",
      async (client) => {
        const task = resultOf(await client.ask("tools/call", asks));
        expect(task).toMatchObject({
          ...{ resultType: "task", taskId: expect.any(String), ttlMs: null, pollIntervalMs: 1_000 },
          ...{ createdAt: expect.stringMatching(UTC), lastUpdatedAt: expect.stringMatching(UTC) },
        });
        const taskId = String(task["taskId"]);
        for await (const { type } of client.runtime.events(taskId)) if (type === "run.awaiting") break;
        const { status, inputRequests } = resultOf(await client.ask("tasks/get", { taskId }));
        expect([status, inputRequests]).toMatchObject([
          "input_required",
          { "ask#1": { method: "elicitation/create", params: { mode: "form", message: "Shall I?" } } },
        ]);
        expect(resultOf(await client.ask("tasks/update", { taskId, inputResponses: { none: {} } }))).toMatchObject({
          resultType: "complete",
        });
      },
    ],
    [
      "a cancel of a task that has ended succeeds, and an unknown task is -32602",
      async (client) => {
        const { run_id: taskId } = await client.runtime.createRun({ agent_name: "echo", input: "hi" });
        expect(resultOf(await client.ask("tasks/cancel", { taskId }))).toMatchObject({ resultType: "complete" });
        expect(resultOf(await client.ask("tasks/get", { taskId }))).toMatchObject({ status: "completed" });
        for (const method of ["tasks/get", "tasks/update", "tasks/cancel"])
          for (const id of [NO_RUN, "none", ""])
            expect(errorOf(await client.ask(method, { taskId: id }))["code"]).toBe(-32602);
      },
    ],
  ])("%s", async (_fact, check) => check(new Mcp()));
});
