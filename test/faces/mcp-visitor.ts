import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import type { AgentRuntime } from "cadenza";
import type { Handler } from "cadenza/http";
import type { McpOptions } from "cadenza/mcp";
import { createMcpHandler } from "cadenza/mcp";

export const MCP_URL = "http://localhost/mcp";
export const MODERN = "2026-07-28";

/** How the official client finds out which revision the server speaks. */
export const modes = {
  "by default": undefined,
  automatically: { mode: "auto" },
  "pinned to 2026-07-28": { mode: { pin: MODERN } },
} as const;

export type Mode = keyof typeof modes;

/** What a user does with a form. */
export type Form = { readonly message: string; readonly requestedSchema: object };
export type Filled = { readonly action: "accept" | "decline" | "cancel"; readonly content?: Record<string, unknown> };

/** The official client, and what went over its connection. */
export class McpVisitor {
  readonly client: Client;
  readonly forms: Form[] = [];
  readonly #handler: () => Handler;

  /** `fill`: what the user does with each form, in turn. Undefined: the client shows no forms. */
  constructor(handler: () => Handler, mode: Mode, fill?: (form: Form) => Filled | Promise<Filled>) {
    this.#handler = handler;
    const versionNegotiation = modes[mode];
    const capabilities = fill === undefined ? {} : { elicitation: { form: {} } };
    this.client = new Client(
      { name: "visitor", version: "1.0.0" },
      { capabilities, ...(versionNegotiation !== undefined && { versionNegotiation }) },
    );
    if (fill === undefined) return;
    this.client.setRequestHandler("elicitation/create", async ({ params }) => {
      const form = params as unknown as Form;
      this.forms.push(form);
      return (await fill(form)) as never;
    });
  }

  readonly send = async (url: string | URL | Request, init: RequestInit = {}): Promise<Response> =>
    this.#handler()(new Request(url, init));

  async connect(): Promise<this> {
    await this.client.connect(
      new StreamableHTTPClientTransport(new URL(MCP_URL), { fetch: this.send as typeof fetch }),
    );
    return this;
  }

  /** Calls the tool `desk` with words. */
  async call(message: string, options: Parameters<Client["callTool"]>[1] = {}): Promise<CallResult> {
    return (await this.client.callTool({ name: "desk", arguments: { message } }, options)) as CallResult;
  }
}

export interface CallResult {
  readonly content: readonly { readonly type: string; readonly text?: string }[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
}

/** The text of a result. */
export function said({ content }: CallResult): string {
  return content.map(({ text = "" }) => text).join("");
}

/** The text that is told of a task's `result`. */
export type Rpc = { readonly jsonrpc: "2.0"; readonly id?: unknown } & Record<string, unknown>;

/** Sends messages of `2026-07-28` without the official client, as a task client or an attacker does. */
export class RawMcp {
  readonly handler: Handler;
  readonly capabilities: object;
  #id = 0;

  constructor(runtime: AgentRuntime, options: McpOptions = {}, capabilities: object = everything) {
    this.handler = createMcpHandler(runtime, { basePath: "/mcp", ...options });
    this.capabilities = capabilities;
  }

  /** The response, and the messages in it. */
  async post(body: unknown, headers: Record<string, string> = {}): Promise<{ status: number; messages: Rpc[] }> {
    const all = { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers };
    const response = await this.handler(
      new Request(MCP_URL, {
        method: "POST",
        headers: all,
        body: typeof body === "string" ? body : JSON.stringify(body),
      }),
    );
    return { status: response.status, messages: messagesIn(await response.text()) };
  }

  /** The request of a method, as a client of `2026-07-28` sends it. */
  request(method: string, params: Record<string, unknown> = {}): { body: object; headers: Record<string, string> } {
    const _meta = {
      "io.modelcontextprotocol/protocolVersion": MODERN,
      "io.modelcontextprotocol/clientCapabilities": this.capabilities,
    };
    const name = params["name"] ?? params["taskId"];
    const headers = {
      "mcp-protocol-version": MODERN,
      "mcp-method": method,
      ...(typeof name === "string" && { "mcp-name": name }),
    };
    return { body: { jsonrpc: "2.0", id: ++this.#id, method, params: { ...params, _meta } }, headers };
  }

  /** The response to a method: its result, or its error. */
  async ask(method: string, params?: Record<string, unknown>, more: Record<string, string> = {}): Promise<RpcAnswer> {
    const { body, headers } = this.request(method, params);
    const { messages } = await this.post(body, { ...headers, ...more });
    return messages.at(-1) as unknown as RpcAnswer;
  }
}

export interface RpcAnswer {
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
}

const everything = { elicitation: { form: {} }, extensions: { "io.modelcontextprotocol/tasks": {} } };

/** The messages of a response, which has one or a stream of them. */
export function messagesIn(text: string): Rpc[] {
  if (text === "") return [];
  if (!text.startsWith("event:") && !text.startsWith(":")) return [JSON.parse(text) as Rpc];
  return text.split("\n").flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6)) as Rpc] : []));
}
