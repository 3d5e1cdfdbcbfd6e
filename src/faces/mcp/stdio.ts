import { endOf, newController } from "../../core/background.ts";
import type { Logger } from "../../core/ports.ts";
import type { Handler } from "../../http/fetch.ts";
import { handlerOf } from "../../http/fetch.ts";
import type { Grant } from "../../http/options.ts";
import { bad } from "../../http/options.ts";
import { lineFrame } from "../../http/rpc-text.ts";
import type { Service } from "../../http/service.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { parsedJson } from "../../protocol/json-text.ts";
import type { AgentRuntime } from "../../runtime/api/agent-runtime.ts";
import { serviceOf } from "./handlers.ts";
import type { McpOptions, McpSettings } from "./options.ts";

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
  const authorize = grant && (() => grant);
  const service = serviceOf(runtime, { ...others, authorize, stallMs: Number.POSITIVE_INFINITY }, lineFrame);
  await new StdioConnection(service, stdout).serve(linesOf(stdin, service.settings.limits.maxBodyBytes));
}

const SESSION = "mcp-session-id";
/** Requests have to have an address. Nothing reads it. */
const ADDRESS = "http://localhost/";

/** Each line is a request over HTTP to a service in this process. */
class StdioConnection {
  readonly #logger: Logger;
  readonly #handle: Handler;
  readonly #output: StdioOutput;
  /** What is being answered. */
  readonly #answers = new Set<Promise<void>>();
  /** What ends a response, by the id of its request: the last one, where a client uses an id twice. */
  readonly #open = new Map<unknown, AbortController>();
  /** The same of all responses. */
  readonly #all = new Set<AbortController>();
  /** The header of the session that a client from before `2026-07-28` has begun. */
  #session: Record<string, string> = {};
  /** The write before. */
  #written: Promise<void> = Promise.resolve();

  constructor(service: Service<McpSettings>, output: StdioOutput) {
    this.#logger = service.logger;
    this.#handle = handlerOf(service);
    this.#output = output;
  }

  async serve(lines: AsyncIterable<string>): Promise<void> {
    for await (const text of lines) {
      const answer = endOf(this.#logger, this.#answer(text)).then(() => {
        this.#answers.delete(answer);
      });
      this.#answers.add(answer);
    }
    for (const controller of this.#all) controller.abort();
    await Promise.all(this.#answers);
  }

  async #answer(text: string): Promise<void> {
    const message = parsedJson(text);
    const { id, method, params } = isJsonObject(message) ? message : {};
    if (method === "notifications/cancelled" && isJsonObject(params)) this.#open.get(params["requestId"])?.abort();
    const controller = newController(this.#logger);
    if (method !== undefined && id !== undefined) {
      this.#open.set(id, controller);
      this.#all.add(controller);
    }
    const headers = { "content-type": "application/json", ...this.#session };
    const { signal } = controller;
    const response = await this.#handle(new Request(ADDRESS, { method: "POST", headers, body: text, signal }));
    const session = response.headers.get(SESSION);
    if (session !== null) this.#session = { [SESSION]: session };
    // What is no request gets no response, unless it is no message at all, such as a list of them.
    if (response.body !== null && (!isJsonObject(message) || this.#open.has(id))) {
      // Whole lines, so that messages of several responses do not mix.
      for await (const line of linesOf(response.body)) await this.#write(line);
    }
    if (this.#open.get(id) === controller) this.#open.delete(id);
    this.#all.delete(controller);
  }

  #write(text: string): Promise<void> {
    const before = this.#written;
    const write = async (): Promise<void> => {
      await before;
      await new Promise<void>((resolve) => this.#output.write(`${text}\n`, resolve));
    };
    this.#written = endOf(this.#logger, write());
    return this.#written;
  }
}

/** The lines of a text that comes in chunks, without empty ones. One that is too long is cut, and still too long. */
async function* linesOf(
  input: AsyncIterable<Uint8Array | string>,
  maxLength = Number.POSITIVE_INFINITY,
): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of input) {
    const lines = (rest + (typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true }))).split("\n");
    rest = (lines.pop() ?? "").slice(0, maxLength + 1);
    for (const line of lines) if (line.trim() !== "") yield line.slice(0, maxLength + 1);
  }
  if (rest.trim() !== "") yield rest;
}
