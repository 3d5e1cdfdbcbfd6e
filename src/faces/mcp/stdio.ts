import { endOf, inBackground } from "../../core/background.ts";
import type { Grant } from "../../http/options.ts";
import { bad } from "../../http/options.ts";
import { answerRequest } from "../../http/router.ts";
import { lineFrame } from "../../http/rpc-text.ts";
import type { Service } from "../../http/service.ts";
import { runtimeService } from "../../http/service.ts";
import type { WireRequest, WireStream } from "../../http/wire.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { parsedJson } from "../../protocol/json-text.ts";
import type { AgentRuntime } from "../../runtime/api/agent-runtime.ts";
import { mcp } from "./handlers.ts";
import type { McpOptions, McpSettings } from "./options.ts";
import { readMcpOptions } from "./options.ts";

/** How agents are served over standard input and output. Every property may be left out. */
export interface StdioOptions
  extends Pick<McpOptions, "tasks" | "serverInfo" | "instructions" | "ttlMs" | "pollIntervalMs" | "limits"> {
  /** What the client may do, and as whom. Default: everything, in the empty tenant. */
  readonly grant?: Grant | undefined;
}

/** The streams by which a client that has started this program talks with it: `process` has them. */
export interface StdioStreams {
  readonly stdin: AsyncIterable<Uint8Array | string>;
  readonly stdout: StdioOutput;
}

/** What is used of a stream to which messages are written. */
export interface StdioOutput {
  /** `done` is called when the text is written, or cannot be. */
  write(text: string, done: () => void): unknown;
}

/**
 * Serves the agents of a runtime as tools of MCP to the program that has started this one. Nothing else may be written to
 * standard output. Resolves when the client has closed the input; calls that are open by then are cancelled where
 * the client's revision of MCP says that leaving cancels. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts no-run — it reads until its input is closed
 * import { AgentRuntime } from "cadenza";
 * import { serveStdio } from "cadenza/mcp";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * await serveStdio(runtime, process);
 * await runtime.close();
 * ```
 */
export async function serveStdio(
  runtime: AgentRuntime,
  { stdin, stdout }: StdioStreams,
  options: StdioOptions = {},
): Promise<void> {
  const { grant, ...others } = options;
  if (grant !== undefined && !isJsonObject(grant)) throw bad("grant", "an object");
  const settings = readMcpOptions({ ...others, ...(grant !== undefined && { authorize: () => grant }) }, lineFrame);
  await new StdioConnection(runtimeService(runtime, mcp, settings), stdout).serve(stdin);
}

class StdioConnection {
  readonly #service: Service<McpSettings>;
  readonly #output: StdioOutput;
  /** What is being answered, by the id of its request. */
  readonly #open = new Map<unknown, Line>();
  #session: string | undefined;
  /** The write before. */
  #written: Promise<void> = Promise.resolve();

  constructor(service: Service<McpSettings>, output: StdioOutput) {
    this.#service = service;
    this.#output = output;
  }

  async serve(input: AsyncIterable<Uint8Array | string>): Promise<void> {
    const { logger, settings } = this.#service;
    for await (const text of linesOf(input, settings.limits.maxBodyBytes)) inBackground(logger, this.#answer(text));
    for (const line of this.#open.values()) line.leave();
    await this.#written;
  }

  async #answer(text: string): Promise<void> {
    const message = parsedJson(text);
    const { id, method, params } = isJsonObject(message) ? message : {};
    if (method === "notifications/cancelled" && isJsonObject(params)) this.#open.get(params["requestId"])?.leave();
    const line = new Line(text, this.#session);
    if (method !== undefined && id !== undefined) this.#open.set(id, line);
    const { headers, body } = await answerRequest(this.#service, line);
    this.#session = headers["mcp-session-id"] ?? this.#session;
    if (typeof body !== "string") await this.#pump(line, body);
    // What is no request gets no response, unless it is no message at all, such as a list of them.
    else if (body !== "" && (!isJsonObject(message) || this.#open.has(id))) await this.#write(body);
    if (this.#open.get(id) === line) this.#open.delete(id);
  }

  /** Writes whole lines, so that messages of several responses do not mix. */
  async #pump(line: Line, body: WireStream): Promise<void> {
    line.onLeave(() => body.return());
    let text = "";
    for (let piece = await body.next(); piece.done !== true; piece = await body.next()) {
      if (line.hasLeft) return;
      text += piece.value;
      const end = text.lastIndexOf("\n");
      if (end === -1) continue;
      await this.#write(text.slice(0, end));
      text = text.slice(end + 1);
    }
    if (text.trim() !== "" && !line.hasLeft) await this.#write(text);
  }

  #write(text: string): Promise<void> {
    const before = this.#written;
    const write = async (): Promise<void> => {
      await before;
      await new Promise<void>((resolve) => this.#output.write(`${text}\n`, resolve));
    };
    this.#written = endOf(this.#service.logger, write());
    return this.#written;
  }
}

/** The lines of a text that comes in chunks, without empty ones. One that is too long is cut, and so is no JSON. */
async function* linesOf(input: AsyncIterable<Uint8Array | string>, maxLength: number): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of input) {
    const lines = (rest + (typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true }))).split("\n");
    rest = (lines.pop() ?? "").slice(0, maxLength);
    for (const line of lines) if (line.trim() !== "") yield line.slice(0, maxLength);
  }
}

/** A line as the request that it is over HTTP. */
class Line implements WireRequest {
  readonly method = "POST";
  readonly url = "/";
  readonly raw = undefined;
  hasLeft = false;
  readonly #text: string;
  readonly #session: string | undefined;
  readonly #listeners = new Set<() => void>();

  constructor(text: string, session: string | undefined) {
    this.#text = text;
    this.#session = session;
  }

  header(name: string): string | undefined {
    return name === "mcp-session-id" ? this.#session : undefined;
  }

  headers(): Readonly<Record<string, string | undefined>> {
    return {};
  }

  body(): { readonly text: string } {
    return { text: this.#text };
  }

  onLeave(callback: () => void): () => void {
    if (this.hasLeft) callback();
    this.#listeners.add(callback);
    return () => this.#listeners.delete(callback);
  }

  /** The client wants no response any more. */
  leave(): void {
    this.hasLeft = true;
    for (const listener of this.#listeners) listener();
  }

  origin(): string {
    return "";
  }

  mount(): string {
    return "";
  }
}
