import { AgentRuntime } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import type { AuthorizeRequest } from "cadenza/http";
import { createAcpHandler } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";
import { expect, it } from "vitest";

/* What the host is asked about each request, on each face. */

type Asked = Omit<AuthorizeRequest, "headers" | "request">;
type Handler = (request: Request) => Promise<Response>;

/** A runtime with an agent that asks for approval, and the questions that `authorize` of each face gets. */
function open() {
  const asked: Asked[] = [];
  const requests = new Set<unknown>();
  const authorize = ({ headers: _, request, ...about }: AuthorizeRequest) => {
    asked.push(about);
    requests.add(request);
    return {};
  };
  const runtime = new AgentRuntime().register("refund", (_input, { ask }) => {
    return ask("Refund 40 €?", { name: "refund", kind: "approval" });
  });
  const options = { authorize };
  const faces = {
    acp: createAcpHandler(runtime, { ...options, extensions: true }),
    chat: createChatHandler(runtime, options),
    agUi: createAgUiHandler(runtime, options),
    a2a: createA2aHandler(runtime, options),
    inspector: createInspectorHandler(runtime, { authorize: (request) => authorize(request as AuthorizeRequest) }),
  };
  /** Sends a request, and gives its status and what was asked about it. The host always gets the same request. */
  const send = async (handler: Handler, method: string, path: string, body?: unknown) => {
    asked.length = 0;
    requests.clear();
    const headers = { "content-type": "application/json" };
    const init = { method, headers, body: body === undefined ? null : JSON.stringify(body) };
    const response = await handler(new Request(`http://service${path}`, init));
    // A feed has no end.
    await (path.startsWith("/api/feed") ? response.body?.cancel() : response.text());
    expect(requests.size).toBe(1);
    return { status: response.status, asked: [...asked] };
  };
  return { runtime, faces, send };
}

const input = [{ parts: [{ content: "40 €" }] }];
const said = (id: string, text: string) => ({ id, role: "user", content: text, parts: [{ type: "text", text }] });

/** A run that waits for an approval, with its question. */
async function waiting(runtime: AgentRuntime, options: { readonly sessionKey?: string } = {}) {
  const { run_id, session_id } = await runtime.createRun({ agent_name: "refund", input: "40 €" }, options);
  return { run_id, session_id, question: questionOf(run_id, session_id) };
}

/** The question of a run, as the host gets it. */
function questionOf(run_id: string, session_id: string) {
  const asked = { await_id: "ask#1", name: "refund", kind: "approval" } as const;
  return { run_id, agent_name: "refund", session_id, creator: null, ...asked };
}

it("authorize is told which run, agent, session and message a request of ACP is about, with ids in their canonical form", async () => {
  const { runtime, faces, send } = open();
  const { run_id, session_id, question } = await waiting(runtime);
  const odd = run_id.toUpperCase().replaceAll("-", "");
  const about = { run_id, agent_name: "refund", session_id, question };
  const table: readonly [string, string, unknown, readonly Asked[]][] = [
    ["GET", "/ping", undefined, [{ action: "ping" }]],
    ["GET", "/openapi.json", undefined, [{ action: "ping" }]],
    ["GET", "/agents", undefined, [{ action: "list" }]],
    ["GET", "/agents/refund", undefined, [{ action: "read", agent_name: "refund" }]],
    ["GET", `/agents/refund?run_id=${run_id}`, undefined, [{ action: "read", agent_name: "refund" }]],
    ["GET", "/runs", undefined, [{ action: "list" }]],
    [
      "GET",
      `/runs?agent_name=refund&session_id=${odd}&run_id=${run_id}`,
      undefined,
      [{ action: "list", agent_name: "refund", session_id: run_id }],
    ],
    ["GET", `/runs/${odd}`, undefined, [{ action: "read", run_id }]],
    ["GET", `/runs/${odd}?run_id=1`, undefined, [{ action: "read", run_id }]],
    ["GET", `/runs/${odd}/events`, undefined, [{ action: "read", run_id }]],
    ["GET", `/runs/${odd}/details`, undefined, [{ action: "read", run_id }]],
    ["GET", `/sessions/${odd}`, undefined, [{ action: "session", session_id: run_id }]],
    ["GET", `/resources/${run_id}.0`, undefined, [{ action: "session", session_id: run_id }]],
    ["POST", `/runs/${odd}/messages/pay%20me`, {}, [{ action: "send", run_id, message_name: "pay me" }]],
    [
      "POST",
      `/runs/${odd}`,
      { await_resume: { approved: true }, mode: "async" },
      [
        { action: "answer", run_id },
        { action: "answer", ...about },
      ],
    ],
    // A repeated answer changes nothing.
    ["POST", `/runs/${odd}`, { await_resume: { approved: true }, mode: "async" }, [{ action: "answer", run_id }]],
    ["POST", `/runs/${odd}/cancel`, undefined, [{ action: "cancel", run_id }]],
    [
      "POST",
      "/runs",
      { agent_name: "refund", input, session_id: odd, mode: "async" },
      [{ action: "create" }, { action: "create", agent_name: "refund", session_id: run_id }],
    ],
    [
      "POST",
      "/runs",
      { agent_name: "refund", input, mode: "async" },
      [{ action: "create" }, { action: "create", agent_name: "refund" }],
    ],
  ];
  for (const [method, path, body, asked] of table)
    expect([method, path, (await send(faces.acp, method, path, body)).asked]).toEqual([method, path, asked]);
});

it("authorize can tell talking from approving in a chat, though both are posted to one path", async () => {
  const { runtime, faces, send } = open();
  const session_id = runtime.sessionId("chat-1");
  const where = { agent_name: "refund", chat_id: "chat-1", session_id };
  const talk = await send(faces.chat, "POST", "/refund", { id: "chat-1", messages: [said("m1", "40 €")] });
  expect(talk.asked).toEqual([
    { action: "read", agent_name: "refund" },
    { action: "create", ...where },
  ]);
  const [run] = await runtime.listRuns({ status: "awaiting" });
  const run_id = String(run?.run_id);
  const question = questionOf(run_id, session_id);
  const part = {
    type: "tool-ask",
    toolCallId: `${run_id}/ask#1`,
    state: "output-available",
    output: { approved: true },
  };
  const reply = { id: "chat-1", messages: [said("m1", "40 €"), { id: run_id, role: "assistant", parts: [part] }] };
  expect((await send(faces.chat, "POST", "/refund", reply)).asked).toEqual([
    { action: "read", agent_name: "refund" },
    { action: "answer", ...where, run_id, question },
  ]);
  const other = await waiting(runtime, { sessionKey: "chat-2" });
  const words = { id: "chat-2", messages: [said("m2", "yes")] };
  expect((await send(faces.chat, "POST", "/refund", words)).asked).toEqual([
    { action: "read", agent_name: "refund" },
    {
      ...{ action: "answer", agent_name: "refund", chat_id: "chat-2", session_id: other.session_id },
      ...{ run_id: other.run_id, question: other.question },
    },
  ]);
  const chat = { agent_name: "refund", chat_id: "chat 3" };
  for (const [method, path, action] of [
    ["GET", "/refund/chat%203/messages", "read"],
    ["GET", "/refund/chat%203/stream", "read"],
    ["DELETE", "/refund/chat%203/stream", "cancel"],
  ] as const)
    expect((await send(faces.chat, method, path)).asked).toEqual([{ action, ...chat }]);
  const named = await send(faces.chat, "GET", `/refund/chat-2/stream?run_id=${other.run_id.toUpperCase()}`);
  expect(named.asked).toEqual([{ action: "read", agent_name: "refund", chat_id: "chat-2", run_id: other.run_id }]);
});

it("authorize can tell talking from resuming an interrupt of AG-UI", async () => {
  const { runtime, faces, send } = open();
  const session_id = runtime.sessionId("thread-1");
  const where = { agent_name: "refund", chat_id: "thread-1", session_id };
  const talk = { threadId: "thread-1", runId: "r1", messages: [said("m1", "40 €")] };
  expect((await send(faces.agUi, "POST", "/refund", talk)).asked).toEqual([
    { action: "read", agent_name: "refund" },
    { action: "create", ...where },
  ]);
  const [run] = await runtime.listRuns({ status: "awaiting" });
  const run_id = String(run?.run_id);
  const question = questionOf(run_id, session_id);
  const resume = [{ interruptId: `${run_id}/ask#1`, status: "resolved", payload: { approved: true } }];
  expect((await send(faces.agUi, "POST", "/refund", { ...talk, runId: "r2", resume })).asked).toEqual([
    { action: "read", agent_name: "refund" },
    { action: "answer", ...where, run_id, question },
  ]);
  const path = "/refund?threadId=thread-1&run_id=1";
  expect((await send(faces.agUi, "GET", path)).asked).toEqual([
    { action: "read", agent_name: "refund", chat_id: "thread-1" },
  ]);
  expect((await send(faces.agUi, "DELETE", path)).asked).toEqual([
    { action: "cancel", agent_name: "refund", chat_id: "thread-1" },
  ]);
});

it("authorize is told the same of requests to the inspector, with the tenant that the request names", async () => {
  const { runtime, faces, send } = open();
  const { run_id, session_id, question } = await waiting(runtime);
  const odd = run_id.toUpperCase();
  const key = { tenant: "", run_id };
  const table: readonly [string, string, unknown, readonly object[]][] = [
    ["GET", "/", undefined, [{ action: "list" }]],
    ["GET", "/api/start", undefined, [{ action: "list" }]],
    ["GET", "/api/feed/runs?tenant=blue", undefined, [{ action: "list", tenant: "blue" }]],
    ["GET", `/api/feed/run?run_id=${odd}`, undefined, [{ action: "read", run_id }]],
    ["GET", `/api/log?run_id=${odd}&tenant=`, undefined, [{ action: "read", ...key }]],
    ["GET", `/api/cassette?run_id=${odd}`, undefined, [{ action: "read", run_id }]],
    ["GET", `/api/feed/session?session_id=${odd}`, undefined, [{ action: "session", session_id: run_id }]],
    [
      "POST",
      "/api/answer",
      { run_id: odd, await_id: "ask#1", answer: { approved: true } },
      [{ action: "answer" }, { action: "answer", ...key, agent_name: "refund", session_id, question }],
    ],
    [
      "POST",
      "/api/send",
      { run_id: odd, name: "note", data: 1 },
      [{ action: "send" }, { action: "send", ...key, message_name: "note" }],
    ],
    ["POST", "/api/cancel", { run_id: odd }, [{ action: "cancel" }, { action: "cancel", ...key }]],
    ["POST", "/api/fork", { run_id: odd }, [{ action: "fork" }, { action: "fork", ...key }]],
    ["POST", "/api/delete", { run_id: odd }, [{ action: "delete" }, { action: "delete", ...key }]],
    [
      "POST",
      "/api/create",
      { agent_name: "refund", input: "40 €" },
      [{ action: "create" }, { action: "create", tenant: "", agent_name: "refund" }],
    ],
  ];
  for (const [method, path, body, asked] of table)
    expect([method, path, (await send(faces.inspector, method, path, body)).asked]).toEqual([method, path, asked]);
});

it("an answer of which the host learns too late is refused, and the question stays open", async () => {
  const runtime = new AgentRuntime().register("refund", (_input, { ask }) => ask("Refund?", { kind: "approval" }));
  const { run_id } = await runtime.createRun({ agent_name: "refund", input: "" });
  const authorize = ({ question }: Pick<AuthorizeRequest, "question">) => (question?.kind === "approval" ? false : {});
  const faces = [createAcpHandler(runtime, { authorize }), createInspectorHandler(runtime, { authorize })];
  const bodies = [
    [`/runs/${run_id}`, { await_resume: { approved: true } }],
    [`/runs/${run_id}`, { await_resume: { approved: true }, mode: "stream" }],
    ["/api/answer", { run_id, await_id: "ask#1", answer: { approved: true } }],
    ["/api/decline", { run_id, await_id: "ask#1" }],
  ] as const;
  for (const [path, body] of bodies) {
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    const handler = faces[path.startsWith("/api") ? 1 : 0] as Handler;
    expect([path, (await handler(new Request(`http://service${path}`, init))).status]).toEqual([path, 403]);
  }
  expect((await runtime.getRun(run_id)).status).toBe("awaiting");
});

it("authorize is told which context a list of tasks of A2A is about, in each binding", async () => {
  const { faces, send } = open();
  const about = { agent_name: "refund", chat_id: "context-1" };
  const inRest = await send(faces.a2a, "GET", "/refund/tasks?contextId=context-1&A2A-Version=1.0");
  expect(inRest).toEqual({ status: 200, asked: [{ action: "list", ...about }] });
  const call = { jsonrpc: "2.0", id: 1, method: "ListTasks", params: { contextId: "context-1" } };
  const { asked } = await send(faces.a2a, "POST", "/refund?A2A-Version=1.0", call);
  expect(asked.at(-1)).toEqual({ action: "list", ...about });
});

it("authorize is told no context by a request of A2A for a task, which may be of another one", async () => {
  const { runtime, faces, send } = open();
  const { run_id } = await waiting(runtime);
  const about = { action: "read", agent_name: "refund", run_id };
  const inRest = await send(faces.a2a, "GET", `/refund/tasks/${run_id}?contextId=context-1&A2A-Version=1.0`);
  expect(inRest).toEqual({ status: 200, asked: [about] });
  const call = { jsonrpc: "2.0", id: 1, method: "GetTask", params: { id: run_id, contextId: "context-1" } };
  const { asked } = await send(faces.a2a, "POST", "/refund?A2A-Version=1.0", call);
  expect(asked.at(-1)).toEqual(about);
});
