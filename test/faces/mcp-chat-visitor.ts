import type { AgentRuntime } from "cadenza";
import type { Handler } from "cadenza/http";
import { createMcpHandler } from "cadenza/mcp";
import { Connection } from "./connection.ts";
import type { Desk } from "./desk.ts";
import type { CallResult, Rpc } from "./mcp-visitor.ts";
import { MCP_URL, MODERN, messagesIn, said } from "./mcp-visitor.ts";
import type { FaceUnderTest, View, Visitor } from "./visitor.ts";

const SECRET = "a secret of at least thirty-two characters";

/** A client of MCP that repeats its call with the answers to its questions. */
export const mcpCalls: FaceUnderTest = {
  kind: "mcpCall",
  name: "a client of MCP that calls a tool",
  visit: (desk) => new McpCaller(desk),
};

/** A client of MCP from before 2026-07-28. Its questions come on the stream of its call, which it repeats under its id. */
export const mcpSessions: FaceUnderTest = {
  kind: "mcpSession",
  name: "a client of MCP that has a session",
  visit: (desk) => new McpSessionUser(desk),
};

/** A client of MCP that calls a tool as a task, and follows the states of the task. */
export const mcpTasks: FaceUnderTest = {
  kind: "mcpTask",
  name: "a client of MCP that has a task",
  visit: (desk) => new McpTaskUser(desk),
};

interface Asked {
  readonly params: { readonly message: string };
}

interface Result extends Partial<CallResult> {
  readonly resultType?: string;
  readonly inputRequests?: Readonly<Record<string, Asked>>;
  readonly requestState?: string;
}

/** What the devices of one client have kept of their call, by the store of the server. */
interface Kept {
  call: Record<string, unknown>;
  /** How the call is repeated with an answer, from 2026-07-28 on. */
  state: { readonly requestState: string; readonly key: string } | undefined;
  /** The number of the call, and the session in which it is known by that, before. */
  id: number;
  session: string | undefined;
}

const kept = new WeakMap<Desk["store"], Kept>();

function keptBy({ store }: Desk): Kept {
  const known = kept.get(store) ?? { call: {}, state: undefined, id: 0, session: undefined };
  kept.set(store, known);
  return known;
}

/** Sends messages, and reads what comes of them. */
class Wire {
  readonly connection: Connection;
  readonly #handlers = new Map<AgentRuntime, Handler>();

  constructor(desk: Desk, tasks: boolean) {
    const options = { basePath: "/mcp", secret: SECRET, tasks, ...desk.host };
    this.connection = new Connection(MCP_URL, () => {
      const handler = this.#handlers.get(desk.runtime) ?? createMcpHandler(desk.runtime, options);
      this.#handlers.set(desk.runtime, handler);
      return handler;
    });
  }

  post(message: object, headers: Record<string, string>): Promise<Response> {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    return this.connection.send(MCP_URL, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body,
    });
  }

  /** The last message of a response. `take` gets each of a stream, and says whether that is enough. */
  async read(response: Response, take: (message: Rpc) => boolean = () => false): Promise<Rpc | undefined> {
    if (response.headers.get("content-type") !== "text/event-stream") return messagesIn(await response.text()).at(-1);
    const { items } = this.connection;
    let taken = items.length;
    const reader = response.body?.getReader();
    for (;;) {
      // A connection that breaks off ends it.
      const next = await reader?.read().catch(() => undefined);
      for (; taken < items.length; taken++) {
        const message = items[taken] as Rpc;
        if (!take(message)) continue;
        await reader?.cancel();
        return message;
      }
      if (next === undefined) return undefined;
      if (next.done) return items.at(-1) as Rpc;
    }
  }
}

/** Sends requests of 2026-07-28. */
class Modern extends Wire {
  readonly #capabilities: object;
  #id = 0;

  constructor(desk: Desk, capabilities: object, tasks: boolean) {
    super(desk, tasks);
    this.#capabilities = capabilities;
  }

  send(method: string, params: Record<string, unknown>): Promise<Response> {
    const _meta = {
      "io.modelcontextprotocol/protocolVersion": MODERN,
      "io.modelcontextprotocol/clientCapabilities": this.#capabilities,
      progressToken: 1,
    };
    const name = params["name"] ?? params["taskId"];
    const headers = {
      ...{ "mcp-protocol-version": MODERN, "mcp-method": method },
      ...(typeof name === "string" && { "mcp-name": name }),
    };
    return this.post({ id: ++this.#id, method, params: { ...params, _meta } }, headers);
  }
}

class McpCaller implements Visitor {
  /** A device that repeats a call gets the text with its result. */
  isSilent = true;
  readonly #desk: Desk;
  readonly #wire: Modern;
  readonly #kept: Kept;
  #view: View = { text: "", question: null, error: null };

  constructor(desk: Desk) {
    this.#desk = desk;
    this.#kept = keptBy(desk);
    this.#wire = new Modern(desk, { elicitation: { form: {} } }, false);
  }

  get connection(): Connection {
    return this.#wire.connection;
  }

  get view(): View {
    return this.#view;
  }

  say(text: string): Promise<void> {
    if (this.#view.question !== null) return this.#reply({ action: "accept", content: { answer: text } });
    this.isSilent = false;
    this.#kept.call = { name: "desk", arguments: { message: text } };
    this.#kept.state = undefined;
    return this.#send({});
  }

  answer(content: object): Promise<void> {
    return this.#reply({ action: "accept", content });
  }

  decline(): Promise<void> {
    return this.#reply({ action: "decline" });
  }

  #reply(result: object): Promise<void> {
    const { key = "", requestState = "" } = this.#kept.state ?? {};
    return this.#send({ inputResponses: { [key]: result }, requestState });
  }

  async #send(more: object): Promise<void> {
    this.#view = { ...this.#view, error: null };
    const response = await this.#wire.send("tools/call", { ...this.#kept.call, ...more });
    const last = await this.#wire.read(response, ({ params }) => {
      const { message = "" } = (params ?? {}) as { readonly message?: string };
      this.#view = { ...this.#view, text: this.#view.text + message };
      return false;
    });
    const result = last?.["result"] as Result | undefined;
    if (result !== undefined) this.#show(result);
  }

  #show({ resultType, inputRequests = {}, requestState = "", isError, content = [] }: Result): void {
    const [asked] = Object.entries(inputRequests);
    if (resultType === "input_required" && asked !== undefined) {
      const [key, { params }] = asked;
      const [question = "", reason] = params.message.split("\n\n");
      this.#kept.state = { key, requestState };
      this.#view = { ...this.#view, question, error: reason ?? null };
      return;
    }
    const text = said({ content });
    this.#view =
      isError === true ? { ...this.#view, question: null, error: text } : { text, question: null, error: null };
  }

  /** It closes the response. */
  async stop(): Promise<void> {
    this.connection.breakOff();
    await this.#desk.clock.settle();
  }

  disconnect(): Promise<void> {
    return this.stop();
  }

  /** It repeats the call, without an answer. */
  async open(): Promise<void> {
    const { state } = this.#kept;
    if (state !== undefined) await this.#send({ requestState: state.requestState });
  }
}

class McpSessionUser implements Visitor {
  readonly #desk: Desk;
  readonly #wire: Wire;
  readonly #kept: Kept;
  #text = "";
  #error: string | null = null;
  /** The open questions, by the ids of the requests that ask them. */
  readonly #questions = new Map<unknown, string>();
  /** Resolves what waits for a question, or for the end of the call. */
  #rest = (): void => {};

  constructor(desk: Desk) {
    this.#desk = desk;
    this.#kept = keptBy(desk);
    this.#wire = new Wire(desk, false);
  }

  get connection(): Connection {
    return this.#wire.connection;
  }

  get view(): View {
    const [question = null] = this.#questions.values();
    return { text: this.#text, question, error: this.#error };
  }

  async say(text: string): Promise<void> {
    if (this.#questions.size > 0) return this.#reply({ action: "accept", content: { answer: text } });
    const _meta = { progressToken: 1 };
    this.#kept.call = { name: "desk", arguments: { message: text }, _meta };
    this.#kept.id += 1;
    return this.open();
  }

  answer(content: object): Promise<void> {
    return this.#reply({ action: "accept", content });
  }

  decline(): Promise<void> {
    return this.#reply({ action: "decline" });
  }

  async #reply(result: object): Promise<void> {
    const [id] = this.#questions.keys();
    this.#questions.delete(id);
    this.#error = null;
    const rests = this.#untilRest();
    await this.#send({ id, result });
    if (this.#questions.size === 0) await rests;
  }

  #untilRest(): Promise<void> {
    return new Promise((resolve) => {
      this.#rest = resolve;
    });
  }

  async #send(message: object): Promise<Response> {
    if (this.#kept.session === undefined) {
      const params = { protocolVersion: "2025-11-25", capabilities: { elicitation: {} }, clientInfo: {} };
      const { headers } = await this.#wire.post({ id: 0, method: "initialize", params }, {});
      this.#kept.session = headers.get("mcp-session-id") ?? "";
    }
    const headers = { "mcp-protocol-version": "2025-11-25", "mcp-session-id": this.#kept.session };
    return this.#wire.post(message, headers);
  }

  /** It repeats the call under its id. */
  async open(): Promise<void> {
    const { id, call: params } = this.#kept;
    this.#text = "";
    this.#error = null;
    this.#questions.clear();
    const rests = this.#untilRest();
    const response = await this.#send({ id, method: "tools/call", params });
    void this.#read(response);
    await rests;
  }

  /** Reads a response, which waits for answers, to its end. */
  async #read(response: Response): Promise<void> {
    const last = await this.#wire.read(response, (message) => {
      const { message: words = "" } = (message["params"] ?? {}) as { readonly message?: string };
      if (message["method"] === "notifications/progress") this.#text += words;
      if (message["method"] === "elicitation/create") {
        const [question = "", reason = null] = words.split("\n\n");
        this.#questions.set(message.id, question);
        this.#error = reason;
        this.#rest();
      }
      return false;
    });
    const { content = [], isError } = (last?.["result"] ?? {}) as Result;
    if (last?.["result"] !== undefined) {
      this.#questions.clear();
      if (isError === true) this.#error = said({ content });
      else this.#text = said({ content });
    }
    this.#rest();
  }

  /** It takes no response any more. */
  async stop(): Promise<void> {
    const { id } = this.#kept;
    this.connection.breakOff();
    await this.#send({ method: "notifications/cancelled", params: { requestId: id } });
    await this.#desk.clock.settle();
  }

  async disconnect(): Promise<void> {
    this.connection.breakOff();
    await this.#desk.clock.settle();
  }
}

interface Task extends Result {
  readonly taskId: string;
  readonly status: string;
  readonly result?: Result;
  readonly error?: { readonly message: string };
}

class McpTaskUser implements Visitor {
  /** A task tells its text with its result. */
  readonly isSilent = true;
  readonly #desk: Desk;
  readonly #wire: Modern;
  #task: Task | undefined;
  #error: string | null = null;

  constructor(desk: Desk) {
    this.#desk = desk;
    const extensions = { "io.modelcontextprotocol/tasks": {} };
    this.#wire = new Modern(desk, { elicitation: { form: {} }, extensions }, true);
  }

  get connection(): Connection {
    return this.#wire.connection;
  }

  get view(): View {
    const { result, error } = this.#task ?? {};
    const text = said({ content: result?.content ?? [] });
    const isFailed = result?.isError === true;
    const [asked] = Object.values(this.#task?.inputRequests ?? {});
    return {
      text: isFailed ? "" : text,
      question: asked?.params.message ?? null,
      error: this.#error ?? error?.message ?? (isFailed ? text : null),
    };
  }

  async say(text: string): Promise<void> {
    if (this.#task?.inputRequests !== undefined) return this.#reply({ action: "accept", content: { answer: text } });
    const message = await this.#ask("tools/call", { name: "desk", arguments: { message: text } });
    this.#task = message?.["result"] as Task;
    await this.#follow();
  }

  answer(content: object): Promise<void> {
    return this.#reply({ action: "accept", content });
  }

  decline(): Promise<void> {
    return this.#reply({ action: "decline" });
  }

  async #reply(result: object): Promise<void> {
    const [key = ""] = Object.keys(this.#task?.inputRequests ?? {});
    const inputResponses = { [key]: result };
    const answer = await this.#ask("tasks/update", { taskId: this.#task?.taskId, inputResponses });
    const { error } = answer as { readonly error?: { readonly message: string } };
    this.#error = error?.message ?? null;
    if (error === undefined) await this.#follow();
  }

  async #ask(method: string, params: Record<string, unknown>): Promise<Rpc | undefined> {
    return this.#wire.read(await this.#wire.send(method, params));
  }

  /** Follows the task until it rests. */
  async #follow(): Promise<void> {
    const notifications = { taskIds: [this.#task?.taskId] };
    const response = await this.#wire.send("subscriptions/listen", { notifications });
    await this.#wire.read(response, ({ method, params }) => {
      if (method !== "notifications/tasks") return false;
      this.#task = params as Task;
      return this.#task.status === "input_required";
    });
  }

  async stop(): Promise<void> {
    await this.#ask("tasks/cancel", { taskId: this.#task?.taskId });
    await this.#desk.clock.settle();
  }

  async disconnect(): Promise<void> {
    this.connection.breakOff();
    await this.#desk.clock.settle();
  }

  /** The client has kept the id of its task. */
  async open(): Promise<void> {
    const [run] = await this.#desk.runtime.listRuns({ limit: 1 });
    const message = await this.#ask("tasks/get", { taskId: run?.run_id });
    this.#task = message?.["result"] as Task;
    if (this.#task.status === "working") await this.#follow();
  }
}
