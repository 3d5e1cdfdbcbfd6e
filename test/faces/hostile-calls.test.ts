import type { Logger } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import type { Handler } from "cadenza/http";
import { createMcpHandler } from "cadenza/mcp";
import { expect, it } from "vitest";
import * as z from "zod";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";
import { nextTurn } from "../harness/promises.ts";
import type { Random } from "../harness/random.ts";

/*
 * Any request over A2A and MCP gets an answer of its protocol, and leaves no run at work: no failure of the service, no
 * process that ends, no stream without an end.
 */

const REVISION = "2026-07-28";
const VERSION = "io.modelcontextprotocol/protocolVersion";
const NO_RUN = "00000000-0000-4000-8000-000000000000";
/** Open runs are cancelled after so many requests. */
const ROUND = 200;
const KNOWN = 50;

const odd: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e308, "", "\u0000", "\ud800", "💥", "x".repeat(3_000), "__proto__", "constructor"],
  ...[[], {}, [[]], [null], { text: 1 }, { toString: 1 }, { data: { data: {} } }, { url: "http://" }, { raw: "%" }],
  ...[NO_RUN, NO_RUN.toUpperCase(), `${NO_RUN}/ask#1`, "ROLE_AGENT", "2026-07-28", "1.0", "99.99"],
];

const oddTexts = odd.filter((one) => typeof one === "string");

function oddText(random: Random): string {
  return random.pick(oddTexts);
}

/** A value in which some values are others, and some are left out. */
function broken(random: Random, value: unknown, chance = 0.04): unknown {
  if (random.chance(chance)) return random.pick(odd);
  if (Array.isArray(value)) return value.map((inner) => broken(random, inner, chance));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      random.chance(chance / 2) ? [] : [[key, broken(random, inner, chance)]],
    ),
  );
}

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body?: unknown;
}

/** What the requests so far have made known to clients. */
class Known {
  readonly #random: Random;
  readonly #all: string[] = [NO_RUN];

  constructor(random: Random) {
    this.#random = random;
  }

  one(): string {
    return this.#random.chance(0.05) ? oddText(this.#random) : this.#random.pick(this.#all);
  }

  add(id: unknown): void {
    if (typeof id !== "string" || id === "") return;
    if (this.#all.length < KNOWN) this.#all.push(id);
    else this.#all[this.#random.below(KNOWN)] = id;
  }
}

function open() {
  const failures: unknown[] = [];
  const logger: Logger = {
    debug() {},
    info() {},
    warn() {},
    error: (message, data) => void failures.push([message, data]),
  };
  const runtime = new AgentRuntime({ retention: { maxRuns: 200 }, logger });
  const schema = z.object({ approved: z.boolean(), why: z.string().optional() });
  runtime.register("echo", (input) => input);
  runtime.register("asks", async function* (_input, { ask }) {
    yield "Well. ";
    yield JSON.stringify(await ask("Shall I?", { schema, kind: "approval" }));
  });
  runtime.register(
    defineAgent("typed", { input: z.object({ amount: z.number() }), output: z.object({ paid: z.boolean() }) }).run(
      ({ amount }) => ({ paid: amount > 0 }),
    ),
  );
  runtime.register("slow", async function* (_input, { signal }) {
    for (let word = 0; word < 20 && !signal.aborted; word++) {
      yield `${word} `;
      await nextTurn();
    }
  });
  /** Cancels the runs that wait for an answer. */
  const clear = async (): Promise<void> => {
    for (const { run_id } of await runtime.listRuns({ status: "awaiting" }))
      await runtime.cancel(run_id, { wait: true });
  };
  return { runtime, failures, clear };
}

/** Reads a response, or the beginning of one that need not end. */
async function textOf(response: Response, random: Random, mayEnd: boolean): Promise<string> {
  const reader = response.body?.getReader();
  if (reader === undefined) return "";
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += decoder.decode(value, { stream: true });
    const isStream = response.headers.get("content-type") === "text/event-stream";
    if (!isStream || (mayEnd && !random.chance(0.1))) continue;
    await reader.cancel();
    return text.slice(0, text.lastIndexOf("\n\n") + 2);
  }
}

/** The messages in a response: one, or those of its stream. */
function messagesIn(response: Response, text: string): readonly Record<string, unknown>[] {
  if (response.headers.get("content-type") !== "text/event-stream")
    return text === "" ? [] : [JSON.parse(text) as Record<string, unknown>];
  const lines = text.split("\n").filter((line) => line.startsWith("data: "));
  return lines.map((line) => JSON.parse(line.slice("data: ".length)) as Record<string, unknown>);
}

interface Wire {
  readonly handler: (runtime: AgentRuntime) => Handler;
  request(random: Random, known: Known, serial: number): Sent;
  /** Whether the response has an end, whatever the run does. */
  mayEnd(sent: Sent): boolean;
  /** Throws for what is no answer of the protocol. */
  check(sent: Sent, response: Response, messages: readonly Record<string, unknown>[], known: Known): void;
  /** The statuses and codes that the requests reach. */
  readonly reached: readonly (number | string)[];
}

const agents = ["echo", "asks", "typed", "slow"];

function messageFrom(random: Random, known: Known, serial: number): object {
  const part = random.pick<object>([
    { text: "hi", mediaType: "text/plain", metadata: { trajectory: {} } },
    { data: { approved: true } },
    { data: { amount: 40 } },
    { raw: "aGk=", mediaType: "image/png", filename: "a.png" },
    { url: "https://example.com/a.png", mediaType: "image/png" },
  ]);
  const taskId = random.chance(0.3) ? known.one() : undefined;
  const contextId = random.pick([undefined, undefined, `c${serial % 50}`, "../x", NO_RUN]);
  const message = { messageId: `m${serial}`, role: "ROLE_USER", parts: [part], taskId, contextId };
  const returnImmediately = random.chance(0.5);
  const configuration = { returnImmediately, historyLength: 2, acceptedOutputModes: ["text/plain"] };
  return { message, configuration, metadata: { by: "fuzz" }, extensions: [] };
}

const a2a: Wire = {
  handler: (runtime) => createA2aHandler(runtime, { basePath: "/rpc", root: "echo", limits: { maxBodyBytes: 20_000 } }),
  request(random, known, serial) {
    const agent = random.chance(0.05) ? random.pick(["missing", "%00", "%F0", "__proto__"]) : random.pick(agents);
    const version = random.chance(0.05) ? random.pick(["", "0.3", "1", "1.0.7", "x"]) : "1.0";
    const headers: Record<string, string> = { "content-type": "application/json", "a2a-version": version };
    if (random.chance(0.1)) headers["last-event-id"] = random.pick(["0", "1", "3", "99", "-1", "x"]);
    if (random.chance(0.1)) headers["idempotency-key"] = random.pick(["a", "b", "x".repeat(300)]);
    const id = known.one();
    const list = { pageSize: random.pick([1, 50, 0, "x"]), contextId: "c1", includeArtifacts: true };
    const send = (): unknown => broken(random, messageFrom(random, known, serial));
    if (random.chance(0.6)) {
      const [method, params] = random.pick<readonly [string, unknown]>([
        ...(["SendMessage", "SendMessage", "SendStreamingMessage"] as const).map((name) => [name, send()] as const),
        ...(["GetTask", "CancelTask", "SubscribeToTask"] as const).map((name) => [name, { id }] as const),
        ["ListTasks", { ...list, pageToken: random.pick(["", "w.x", `1.${NO_RUN}`]) }],
        ["GetExtendedAgentCard", {}],
        ["CreateTaskPushNotificationConfig", { taskId: id, url: "https://example.com" }],
        [oddText(random), {}],
      ]);
      const body = broken(random, { jsonrpc: "2.0", id: serial, method, params }, 0.01);
      return { method: "POST", path: `/rpc/${agent}`, headers, body: raw(random, body) };
    }
    const at = encodeURIComponent(wellFormed(id));
    const [method, path, body] = random.pick<readonly [string, string, unknown?]>([
      ["POST", "/message:send", raw(random, send())],
      ["POST", "/message:stream", raw(random, send())],
      ["GET", `/tasks/${at}?historyLength=${random.pick(["1", "x", "-1", ""])}`],
      ["GET", `/tasks?pageSize=${list.pageSize}&contextId=c1&status=${random.pick(["", "TASK_STATE_WORKING", "x"])}`],
      ["POST", `/tasks/${at}:cancel`],
      ["GET", `/tasks/${at}:subscribe`],
      ["GET", `/tasks/${at}/pushNotificationConfigs/x`],
      ["GET", "/.well-known/agent-card.json"],
      [random.pick(["PUT", "DELETE", "GET"]), random.pick(["", "/tasks", "/x/y/z"])],
    ]);
    return { method, path: `/rpc/${agent}${path}`, headers, ...(body !== undefined && { body }) };
  },
  mayEnd: ({ path, body }) => !/:subscribe|SubscribeToTask/.test(path + JSON.stringify(body ?? "")),
  check({ path }, response, messages, known) {
    for (const message of messages) {
      const { jsonrpc, result, error } = message as { jsonrpc?: unknown; result?: unknown; error?: { code?: unknown } };
      if (error !== undefined) expect(error).toMatchObject({ code: expect.any(Number), message: expect.any(String) });
      if (jsonrpc !== undefined) expect([jsonrpc, result === undefined]).toEqual(["2.0", error !== undefined]);
      const shown = (jsonrpc === undefined ? message : result) as { id?: unknown; task?: { id?: unknown } } | undefined;
      known.add(shown?.task?.id ?? (path.includes("agent-card") ? undefined : shown?.id));
    }
    expect(response.status).toBeLessThan(500);
  },
  reached: [200, 400, 404, 405, -32001, -32002, -32003, -32004, -32005, -32009, -32600, -32601, -32602, -32700],
};

/** A body as text, rarely one that is no JSON. */
function raw(random: Random, body: unknown): unknown {
  return random.chance(0.01) ? random.pick(["", "{", "[1", "null", "[]"]) : body;
}

const accept = { action: "accept", content: { approved: true } };

const mcp: Wire = {
  handler: (runtime) =>
    createMcpHandler(runtime, { basePath: "/rpc", tasks: ["asks"], limits: { maxBodyBytes: 20_000 } }),
  request(random, known, serial) {
    const name = random.chance(0.05) ? oddText(random) : random.pick(agents);
    const id = known.one();
    const values = random.pick([{ message: "hi" }, { amount: 40 }]);
    const responses = { inputResponses: { "ask#1": random.pick<object>([accept, { action: "decline" }, {}]) } };
    const [method, params] = random.pick<readonly [string, Record<string, unknown>]>([
      ...Array.from({ length: 4 }, () => ["tools/call", { name, arguments: values }] as const),
      ["tools/call", { name, arguments: values, requestState: id, ...responses }],
      ["tools/list", random.chance(0.1) ? { cursor: "x" } : {}],
      ["server/discover", {}],
      ["initialize", { protocolVersion: "2025-11-25", capabilities: { elicitation: {} }, clientInfo: {} }],
      ["ping", {}],
      ["tasks/get", { taskId: id }],
      ["tasks/update", { taskId: id, ...responses }],
      ["tasks/cancel", { taskId: id }],
      ["subscriptions/listen", { notifications: { taskIds: [id] } }],
      ["notifications/cancelled", { requestId: serial - 1 }],
      [oddText(random), {}],
    ]);
    const isModern = random.chance(0.7);
    const clientCapabilities = random.pick<object>([
      { elicitation: {}, extensions: { "io.modelcontextprotocol/tasks": {} } },
      { elicitation: {} },
      {},
    ]);
    const meta = {
      [VERSION]: REVISION,
      "io.modelcontextprotocol/clientCapabilities": clientCapabilities,
      progressToken: serial,
    };
    const said = isModern ? { ...params, _meta: meta } : params;
    const isNotification = method.startsWith("notifications/");
    const message = random.chance(0.05)
      ? { jsonrpc: "2.0", id: `${id}/ask#1`, result: accept }
      : { jsonrpc: "2.0", ...(!isNotification && { id: serial }), method, params: said };
    const headers: Record<string, string> = { "content-type": "application/json" };
    const repeated = params["name"] ?? params["taskId"];
    if (isModern && !random.chance(0.02)) {
      headers["mcp-protocol-version"] = REVISION;
      headers["mcp-method"] = headerOf(method);
      if (typeof repeated === "string") headers["mcp-name"] = headerOf(repeated);
    } else if (random.chance(0.2)) headers["mcp-session-id"] = headerOf(id);
    if (random.chance(0.02)) {
      meta[VERSION] = headers["mcp-protocol-version"] = random.pick(["2099-01-01", "2025-06-18", "x"]);
    }
    if (random.chance(0.02)) headers["content-type"] = "text/plain";
    const way = random.chance(0.02) ? random.pick(["GET", "DELETE", "PUT"]) : "POST";
    const body = way === "POST" ? raw(random, broken(random, message, 0.02)) : undefined;
    return { method: way, path: "/rpc", headers, ...(body !== undefined && { body }) };
  },
  // A client from before waits for its user, and a subscription for its tasks.
  mayEnd: ({ body }) => !/subscriptions\/listen|"asks"/.test(JSON.stringify(body ?? "")),
  check(_sent, response, messages, known) {
    for (const { jsonrpc, id, method, result, error } of messages) {
      expect(jsonrpc).toBe("2.0");
      if (method !== undefined) continue;
      expect([id !== undefined, (result === undefined) === (error === undefined)]).toEqual([true, false]);
      if (error !== undefined) expect(error).toMatchObject({ code: expect.any(Number), message: expect.any(String) });
      const { taskId, requestState } = (result ?? {}) as Record<string, unknown>;
      known.add(taskId);
      known.add(requestState);
    }
    known.add(response.headers.get("mcp-session-id"));
    expect(response.status).toBeLessThan(500);
  },
  reached: [200, 202, 400, 404, 405, 415, -32600, -32601, -32602, -32700, -32020, -32021, -32022],
};

/** A text without halves of characters, which no address has. */
function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "?");
}

/** A text as the value of a header. */
function headerOf(text: string): string {
  if (/^[\x21-\x7e]+$/.test(text)) return text;
  return `=?base64?${Buffer.from(wellFormed(text)).toString("base64")}?=`;
}

it.each([
  ["A2A", a2a, 2_500],
  ["MCP", mcp, 2_500],
] as const)(
  "any request over %s gets an answer, and leaves no run at work",
  async (_name, wire, share) => {
    const random = seededRandom();
    const { runtime, failures, clear } = open();
    const handler = wire.handler(runtime);
    const known = new Known(random);
    const reached = new Set<unknown>();
    for (let serial = 1; serial <= amount(1_000_000, share); serial++) {
      const sent = wire.request(random, known, serial);
      const { method, path, headers, body } = sent;
      const written = body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body);
      const response = await handler(new Request(`http://localhost${path}`, { method, headers, body: written }));
      const text = await textOf(response, random, wire.mayEnd(sent));
      const messages = messagesIn(response, text);
      reached.add(response.status);
      for (const { error } of messages) reached.add((error as { code?: unknown } | undefined)?.code);
      try {
        wire.check(sent, response, messages, known);
        expect(failures).toEqual([]);
      } catch (error) {
        throw new Error(`${method} ${path} ${JSON.stringify(headers)} ${written}: ${response.status} ${text}`, {
          cause: error,
        });
      }
      if (serial % ROUND === 0) await clear();
    }
    for (const what of wire.reached) expect([what, reached.has(what)]).toEqual([what, true]);
    // What ends lets the next run of its session ask. What works has as many turns as its agent needs.
    const status = ["created", "in-progress", "awaiting", "cancelling"] as const;
    for (let turn = 0; turn < 1_000 && (await runtime.listRuns({ status })).length > 0; turn++) {
      await clear();
      await nextTurn();
    }
    expect(await runtime.listRuns({ status })).toEqual([]);
    await runtime.close({ drainMs: 0 });
  },
  LONG_MS,
);
