import type { AgentRuntime } from "cadenza";
import { CadenzaError } from "cadenza";
import { createA2aHandler as createA2a } from "cadenza/a2a";
import { createAgUiHandler as createAgUi } from "cadenza/ag-ui";
import { createChatHandler as createChat } from "cadenza/ai-sdk";
import { ClientError, createClient } from "cadenza/client";
import { createAcpHandler as createAcp } from "cadenza/http";
import { createInspectorHandler } from "cadenza/inspector";
import { createMcpHandler as createMcp } from "cadenza/mcp";
import type { Random } from "../random.ts";
import type { Plan } from "./agents.ts";
import { inputOf } from "./agents.ts";
import { GOOD, hostileJson, hostilePart, hostileText, hostileValue } from "./values.ts";

export const faces = ["ACP", "chat", "AG-UI", "A2A", "MCP", "inspector", "client", "in process"] as const;
export type FaceName = (typeof faces)[number];

/** What a caller got: an acceptance or a refusal. */
export interface Told {
  readonly status: number;
  readonly text: string;
  readonly run_id?: string | undefined;
}

/** One run as a caller of a face talks to it. */
export interface Talk {
  readonly agent: string;
  readonly plan: Plan;
  /** The chat and the thread, whose session the run joins. */
  readonly chat: string;
}

/** What a caller sends: hostile, or what every sound agent takes. */
export type Sends = "hostile" | "good";

export interface OpenQuestion {
  readonly run_id: string;
  readonly await_id: string;
}

/** A caller of one face. Responses that stream are read in the background, until the run rests. */
export interface Face {
  begin(talk: Talk, sends: Sends, random: Random): Promise<Told>;
  answer(talk: Talk, question: OpenQuestion, sends: Sends, random: Random): Promise<Told>;
  /** Undefined: the face has no messages to runs. */
  send?(run_id: string, sends: Sends, random: Random): Promise<Told>;
}

type Send = (request: Request) => Promise<Response>;

const base = "http://localhost";

/** A body as a client writes it. A raw text takes the place of one of its values. */
function post(url: string, body: unknown, raw?: string, more: Record<string, string> = {}): Request {
  const text = JSON.stringify(body) ?? "null";
  const written = raw === undefined ? text : text.replace(RAW, () => raw);
  return new Request(url, { method: "POST", headers: { "content-type": "application/json", ...more }, body: written });
}

const ofA2a = { "a2a-version": "1.0" };
const REVISION = "2026-07-28";

/** A request of a task client of MCP. */
function call(method: string, name: string, params: object, raw?: string): Request {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {
      elicitation: {},
      extensions: { "io.modelcontextprotocol/tasks": {} },
    },
  };
  const body = { jsonrpc: "2.0", id: 1, method, params: { ...params, _meta } };
  return post(`${base}/mcp`, body, raw, {
    ...{ "mcp-protocol-version": REVISION, "mcp-method": method },
    "mcp-name": name,
  });
}

/** The response of MCP: an error in it is a refusal, or a failure of the service. */
async function toldOfMcp(response: Response): Promise<Told & { readonly result: Record<string, unknown> }> {
  const text = await response.text();
  const { result = {}, error } = JSON.parse(text) as {
    readonly result?: Record<string, unknown>;
    readonly error?: { readonly code: number };
  };
  const { taskId } = result;
  const run_id = typeof taskId === "string" ? taskId : undefined;
  const status = error === undefined ? response.status : error.code === -32603 ? 500 : 400;
  return { status, text, result, run_id };
}

const HERE = "the raw text comes here";
const RAW = JSON.stringify(HERE);

/** A hostile value for a body. `raw`: it is written instead of the value. */
function forBody(random: Random): { readonly value: unknown; readonly raw?: string } {
  return random.chance(0.15) ? { value: HERE, raw: hostileText(random).value } : { value: hostileJson(random).value };
}

async function told(response: Response): Promise<Told> {
  return { status: response.status, text: await response.text(), run_id: response.headers.get("run-id") ?? undefined };
}

/** Makes all faces on one runtime. `follow` gets each response that may go on until its run rests. */
export function openFaces(
  runtime: AgentRuntime,
  follow: (run_id: string | undefined, rest: Promise<Told>) => void,
): { readonly faces: Readonly<Record<FaceName, Face>>; read(talk: Talk, run_id: string): Promise<readonly Seen[]> } {
  const acp = createAcp(runtime, { extensions: true });
  const chat = createChat(runtime, { basePath: "/chat" });
  const agUi = createAgUi(runtime, { basePath: "/ag-ui" });
  const a2a = createA2a(runtime, { basePath: "/a2a" });
  const mcp = createMcp(runtime, { basePath: "/mcp", tasks: true });
  const inspector = createInspectorHandler(runtime, {
    basePath: "/inspector",
    refreshMs: 50,
    authorize: () => ({ allTenants: true }),
  });
  const fetch: typeof globalThis.fetch = (url, init) => acp(new Request(url as string, init));
  const client = createClient({ url: base, fetch, backoffMs: 20, attempts: 3 });
  const sessionOf = ({ chat }: Talk): string => runtime.sessionId(chat);

  /** Follows a stream, and gives the caller its beginning. */
  const streamed = async (send: Send, request: Request): Promise<Told> => {
    const response = await send(request);
    const run_id = response.headers.get("run-id") ?? undefined;
    if (run_id === undefined) return told(response);
    follow(run_id, told(response));
    return { status: response.status, text: "", run_id };
  };

  const overAcp: Face = {
    begin({ agent, plan, ...talk }, sends, random) {
      const { value, raw } = forBody(random);
      const parts = sends === "good" ? [] : [hostilePart(random).value];
      const message = { role: "user", parts: [{ content: JSON.stringify(plan) }, ...parts] };
      const input = sends === "hostile" && random.chance(0.2) ? [message, value] : [message];
      const mode = random.pick(["async", "stream"]);
      const body = { agent_name: agent, input, session_id: sessionOf({ agent, plan, ...talk }), mode };
      const odd = sends === "hostile" && random.chance(0.1);
      return streamed(
        acp,
        post(`${base}/runs`, odd ? { ...body, [random.pick(Object.keys(body))]: value } : body, raw),
      );
    },
    answer(_talk, { run_id, await_id }, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : answerFor(random);
      const mode = random.pick(["async", "stream"]);
      return streamed(acp, post(`${base}/runs/${run_id}`, { run_id, await_id, await_resume: value, mode }, raw));
    },
    async send(run_id, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : forBody(random);
      return told(await acp(post(`${base}/runs/${run_id}/messages/m`, value, raw)));
    },
  };

  const overChat: Face = {
    begin({ agent, plan, chat: id }, sends, random) {
      const { value, raw } = forBody(random);
      const parts: unknown[] = [{ type: "text", text: JSON.stringify(plan) }];
      if (sends === "hostile") parts.push(chatPart(random, value));
      const body = { id, trigger: "submit-message", messages: [{ id: "m1", role: "user", parts }] };
      return streamed(chat, post(`${base}/chat/${agent}`, body, raw));
    },
    answer({ agent, chat: id }, { run_id, await_id }, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : forBody(random);
      const call = { type: "dynamic-tool", toolName: "ask", toolCallId: `${run_id}/${await_id}` };
      const state = sends === "good" || random.chance(0.9) ? "output-available" : "approval-responded";
      const inWords = sends === "hostile" && random.chance(0.5);
      const message = inWords
        ? { id: `m${random.bits()}`, role: "user", parts: [chatPart(random, value)] }
        : { id: run_id, role: "assistant", parts: [{ ...call, state, output: value, approval: value }] };
      const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: "x" }] }, message];
      return streamed(chat, post(`${base}/chat/${agent}`, { id, trigger: "submit-message", messages }, raw));
    },
  };

  const overAgUi: Face = {
    begin({ agent, plan, chat: threadId }, sends, random) {
      const { value, raw } = forBody(random);
      const content: unknown[] = [{ type: "text", text: JSON.stringify(plan) }];
      if (sends === "hostile") content.push(agUiPart(random, value));
      const state = sends === "hostile" && random.chance(0.3) ? value : {};
      const messages = [{ id: "m1", role: "user", content }];
      const body = { threadId, runId: "r1", messages, state, tools: [], context: [], forwardedProps: {} };
      return streamed(agUi, post(`${base}/ag-ui/${agent}`, body, raw));
    },
    answer({ agent, chat: threadId }, { run_id, await_id }, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : forBody(random);
      const resume = [{ interruptId: `${run_id}/${await_id}`, status: "resolved", payload: value }];
      const runId = `r${random.bits()}`;
      const body = { threadId, runId, messages: [], state: {}, tools: [], context: [], forwardedProps: {}, resume };
      return streamed(agUi, post(`${base}/ag-ui/${agent}`, body, raw));
    },
  };

  const overA2a: Face = {
    begin({ agent, plan, chat: contextId }, sends, random) {
      const { value, raw } = forBody(random);
      const parts: unknown[] = [{ text: JSON.stringify(plan) }];
      if (sends === "hostile") parts.push(a2aPart(random, value));
      const metadata = sends === "hostile" && random.chance(0.2) ? value : undefined;
      const message = { messageId: "m1", role: "ROLE_USER", contextId, parts };
      return streamed(a2a, post(`${base}/a2a/${agent}/message:stream`, { message, metadata }, raw, ofA2a));
    },
    answer({ agent }, { run_id: taskId }, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : forBody(random);
      const part = sends === "good" || random.chance(0.6) ? { data: value } : a2aPart(random, value);
      const message = { messageId: `m${random.bits()}`, role: "ROLE_USER", taskId, parts: [part] };
      return streamed(a2a, post(`${base}/a2a/${agent}/message:stream`, { message }, raw, ofA2a));
    },
  };

  const overMcp: Face = {
    async begin({ agent, plan }, sends, random) {
      const { value, raw } = forBody(random);
      const message = JSON.stringify(plan);
      const isTyped = agent.startsWith("typed");
      const good = isTyped ? { input: GOOD } : { message };
      const hostile = random.pick<object>([{ ...good, other: value }, { ...good, input: value }, { message: value }]);
      const given = { name: agent, arguments: sends === "good" ? good : isTyped ? { input: value } : hostile };
      return toldOfMcp(await mcp(call("tools/call", agent, given, raw)));
    },
    async answer(_talk, { run_id: taskId, await_id }, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : forBody(random);
      const { result } = await toldOfMcp(await mcp(call("tasks/get", taskId, { taskId })));
      // A form of one field has the whole answer in it.
      const { [await_id]: asked } = (result["inputRequests"] ?? {}) as Readonly<Record<string, Elicitation>>;
      const isOne = Object.hasOwn(asked?.params.requestedSchema.properties ?? {}, "answer");
      const content = isOne ? { answer: value } : value;
      const action = sends === "good" || random.chance(0.8) ? "accept" : value;
      const inputResponses = { [await_id]: { action, content } };
      return toldOfMcp(await mcp(call("tasks/update", taskId, { taskId, inputResponses }, raw)));
    },
  };

  const act = async (name: string, body: object, raw?: string): Promise<Told> => {
    const answer = await told(await inspector(post(`${base}/inspector/api/${name}`, body, raw)));
    if (answer.status !== 200) return answer;
    const { run_id } = JSON.parse(answer.text) as { readonly run_id?: string };
    return { ...answer, run_id };
  };
  const overInspector: Face = {
    begin({ agent: agent_name, plan, ...talk }, sends, random) {
      const { value, raw } = forBody(random);
      const session_id = sessionOf({ agent: agent_name, plan, ...talk });
      const parts = sends === "good" ? [] : [random.chance(0.7) ? hostilePart(random).value : value];
      const input = [{ role: "user", parts: [{ content: JSON.stringify(plan) }, ...parts] }];
      return act("create", { agent_name, input: agent_name.startsWith("typed") ? value : input, session_id }, raw);
    },
    answer(_talk, question, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : answerFor(random);
      return act("answer", { ...question, answer: value }, raw);
    },
    send(run_id, sends, random) {
      const { value, raw } = sends === "good" ? { value: GOOD } : forBody(random);
      return act("send", { run_id, name: "m", data: value }, raw);
    },
  };

  const overClient: Face = {
    begin({ agent, plan, ...talk }, sends, random) {
      const part = random.chance(0.3) ? hostileValue(random) : hostilePart(random);
      const parts = [{ content: JSON.stringify(plan) }, ...(sends === "good" ? [] : [part.value])];
      // An input that is no list of messages becomes one part of JSON.
      const input = sends === "hostile" && random.chance(0.2) ? part.value : [{ role: "user", parts }];
      const session_id = sessionOf({ agent, plan, ...talk });
      return toldBy(async () => (await client.run(agent, input as never, { session_id })).run_id);
    },
    answer({ agent }, question, sends, random) {
      const { value } =
        sends === "good" ? { value: GOOD } : random.chance(0.3) ? hostileValue(random) : answerFor(random);
      return toldBy(async () => {
        await client.attach(agent, question.run_id).answer(question, value as never);
        return question.run_id;
      });
    },
  };

  const inProcess: Face = {
    begin({ agent: agent_name, plan, ...talk }, sends, random) {
      const { value } = hostileValue(random);
      const session_id = sessionOf({ agent: agent_name, plan, ...talk });
      const input = inputOf(plan, sends === "good" ? [] : [value]);
      const request: Record<string, unknown> = { agent_name, input, session_id, mode: "async" };
      const options: Record<string, unknown> = {};
      if (sends === "hostile" && random.chance(0.3)) request["input"] = value;
      else if (sends === "hostile" && random.chance(0.1)) request[random.pick(Object.keys(request))] = value;
      else if (sends === "hostile" && random.chance(0.4))
        options[random.pick(["metadata", "labels", "idempotencyKey", "startAt", "session", "signal"])] = value;
      // A session of a caller may hold anything.
      if (sends === "hostile" && random.chance(0.05)) options["session"] = { history: [], state: value };
      return toldBy(async () => {
        // With a hostile mode the call may give a stream.
        const made: object = await runtime.createRun(request as never, options as never);
        return "run_id" in made ? String(made.run_id) : undefined;
      });
    },
    answer(_talk, question, sends, random) {
      const { value } =
        sends === "good" ? { value: GOOD } : random.chance(0.7) ? hostileValue(random) : answerFor(random);
      const request: Record<string, unknown> = { ...question, await_resume: value, mode: "async" };
      if (sends === "hostile" && random.chance(0.1)) request["decline"] = value;
      return toldBy(async () => {
        await runtime.resume(request as never);
        return question.run_id;
      });
    },
    send(run_id, sends, random) {
      const { value } = sends === "good" ? { value: GOOD } : hostileValue(random);
      return toldBy(async () => {
        await runtime.send({ to: run_id, name: "m", data: value });
        return run_id;
      });
    },
  };

  const get = async (what: string, send: Send, path: string, readsFirst = false): Promise<Seen> => {
    const response = await send(new Request(`${base}/${path}`));
    return { what, status: response.status, text: readsFirst ? await firstOf(response) : await response.text() };
  };
  return {
    faces: {
      ACP: overAcp,
      chat: overChat,
      "AG-UI": overAgUi,
      A2A: overA2a,
      MCP: overMcp,
      inspector: overInspector,
      client: overClient,
      "in process": inProcess,
    },
    async read({ agent, chat: id }, run_id) {
      const session = runtime.sessionId(id);
      return Promise.all([
        get("ACP run", acp, `runs/${run_id}`),
        get("ACP events", acp, `runs/${run_id}/events`),
        get("ACP details", acp, `runs/${run_id}/details`),
        get("ACP session", acp, `sessions/${session}`),
        get("chat messages", chat, `chat/${agent}/${encodeURIComponent(id)}/messages`),
        get("chat stream", chat, `chat/${agent}/${encodeURIComponent(id)}/stream?run_id=${run_id}`),
        get("AG-UI thread", agUi, `ag-ui/${agent}?threadId=${encodeURIComponent(id)}`),
        get("A2A task", a2a, `a2a/${agent}/tasks/${run_id}?A2A-Version=1.0`),
        mcpTask(run_id),
        get("inspector log", inspector, `inspector/api/log?run_id=${run_id}&limit=500`),
        get("inspector cassette", inspector, `inspector/api/cassette?run_id=${run_id}`),
        get("inspector run", inspector, `inspector/api/feed/run?run_id=${run_id}`, true),
        clientEvents(run_id),
      ]);
    },
  };

  async function mcpTask(taskId: string): Promise<Seen> {
    const { status, text } = await toldOfMcp(await mcp(call("tasks/get", taskId, { taskId })));
    return { what: "MCP task", status, text };
  }

  async function clientEvents(run_id: string): Promise<Seen> {
    const { status, text } = await toldBy(async () => {
      const events: unknown[] = [];
      for await (const event of client.attach("durable", run_id).events({ detail: true })) events.push(event);
      return JSON.stringify(events);
    });
    return { what: "client events", status, text };
  }
}

/** What a face shows of a run. */
export interface Seen {
  readonly what: string;
  readonly status: number;
  readonly text: string;
}

/** The first piece of a feed. */
async function firstOf(response: Response): Promise<string> {
  if (response.status !== 200 || response.body === null) return response.text();
  const reader = response.body.getReader();
  const { value } = await reader.read();
  await reader.cancel();
  return new TextDecoder().decode(value);
}

function answerFor(random: Random): { readonly value: unknown; readonly raw?: string } {
  if (!random.chance(0.5)) return forBody(random);
  const parts = [hostilePart(random).value];
  return { value: { type: "message", message: { role: "user", parts } } };
}

function chatPart(random: Random, value: unknown): unknown {
  const { content, content_type: mediaType, name: filename } = hostilePart(random).value as Record<string, unknown>;
  const [type, data] = [mediaType, content].map((each) => (typeof each === "string" ? each : JSON.stringify(each)));
  return random.pick([
    { type: "text", text: typeof value === "string" ? value : (content ?? "x") },
    { type: "text", text: content ?? "x" },
    { type: "file", url: `data:${type},${data}`, mediaType, filename },
    { type: "file", url: `data:${type};base64,${data}`, mediaType, filename },
    { type: "data-x", data: value },
    { type: "source-url", sourceId: content, url: content },
    value,
  ]);
}

interface Elicitation {
  readonly params: { readonly requestedSchema: { readonly properties?: object } };
}

function a2aPart(random: Random, value: unknown): unknown {
  const { content, content_type: mediaType, name: filename } = hostilePart(random).value as Record<string, unknown>;
  return random.pick([
    { text: typeof value === "string" ? value : (content ?? "x"), mediaType, filename },
    { raw: content, mediaType, filename },
    { url: content, mediaType },
    { data: value },
    { text: "x", metadata: value },
    value,
  ]);
}

function agUiPart(random: Random, value: unknown): unknown {
  const { content, content_type: mimeType } = hostilePart(random).value as Record<string, string>;
  return random.pick([
    { type: "text", text: typeof value === "string" ? value : (content ?? "x") },
    { type: "image", source: { type: "data", value: content, mimeType } },
    { type: "document", source: { type: "url", value: content, mimeType } },
    value,
  ]);
}

/** The outcome of a call in process as a status: 400 for a refusal, 500 for anything else that it throws. */
async function toldBy(call: () => Promise<string | undefined>): Promise<Told> {
  try {
    const given = await call();
    return { status: 200, text: given ?? "", run_id: given };
  } catch (error) {
    if (CadenzaError.is(error)) {
      const isRefusal = !["store_failed", "lost_ownership"].includes(error.code);
      return { status: isRefusal ? 400 : 500, text: `${error.code}: ${error.message}` };
    }
    if (error instanceof ClientError) {
      const isRefusal = error.status === undefined ? error.code === "invalid_argument" : error.status < 500;
      return { status: isRefusal ? 400 : 500, text: `${error.code}: ${error.message}` };
    }
    return { status: 500, text: stackOf(error) };
  }
}

/** What was thrown, even if it is a proxy. */
export function stackOf(error: unknown): string {
  try {
    return error instanceof Error ? String(error.stack) : `thrown: ${String(error)}`;
  } catch {
    return "thrown: what cannot be read";
  }
}
