import { once } from "node:events";
import { connect } from "node:net";
import type { AgentRuntime } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { describe, expect, it } from "vitest";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";
import type { Random } from "../harness/random.ts";
import type { Json } from "./client.ts";
import { parseEvents } from "./client.ts";
import type { FuzzRequest } from "./fuzz-requests.ts";
import { fuzzRequest } from "./fuzz-requests.ts";
import { nodeHttp } from "./mounts.ts";
import { checkResponse } from "./openapi-check.ts";
import { checkWithSdk } from "./sdk-check.ts";
import { makeWorld } from "./world.ts";

const KNOWN_IDS = 200;
const AT_ONCE = 100;
const options = { limits: { maxBodyBytes: 20_000, bodyTimeoutMs: 200 }, extensions: true };

describe("any request", () => {
  it(
    "gets an answer that the OpenAPI document allows, in process",
    async () => {
      const random = seededRandom();
      const runtime = makeWorld({ retention: { maxRuns: 500 }, limits: { maxLiveRuns: 2_000 } });
      const handler = createAcpHandler(runtime, options);
      const ids: string[] = [];
      const statuses = new Map<number, number>();
      for (let i = 0; i < amount(1_000_000, 2_500); i++) {
        const { method, path, headers, body } = fuzzRequest(random, ids);
        const hasBody = body !== undefined && method !== "GET" && method !== "HEAD";
        const request = new Request(`http://service.test${path}`, { method, headers, ...(hasBody && { body }) });
        const response = await within(handler(request), request);
        const text = await readSome(response);
        check(response.status, text, method, path);
        // A reader that reconnects after the last event is told to stop: no content.
        if (response.status === 204) expect([method, text]).toEqual(["GET", ""]);
        else if (method === "GET" || method === "POST") checkAnswer(method, path, response, text);
        remember(ids, response.headers.get("run-id"), random);
        statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
        if (i % 500 === 0) await clear(runtime);
      }
      // The requests reach each kind of answer.
      for (const status of [200, 202, 400, 403, 404, 405, 415, 422]) expect(statuses.get(status)).toBeGreaterThan(0);
      await runtime.close({ drainMs: 0 });
    },
    LONG_MS,
  );

  it(
    "gets an answer that the OpenAPI document allows, over sockets",
    async () => {
      const random = seededRandom();
      const runtime = makeWorld({ retention: { maxRuns: 500 }, limits: { maxLiveRuns: 2_000 } });
      const place = await nodeHttp.open(runtime, options);
      const { port } = new URL(place.base);
      const ids: string[] = [];
      const total = amount(20_000, 300);
      let answered = 0;
      const shoot = async (): Promise<void> => {
        const request = fuzzRequest(random, ids);
        const text = await sendRaw(port, toBytes(request, random), random);
        const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
        if (status > 0) answered += 1;
        expect(status === 503 || status < 500, text).toBe(true);
        // Bytes that are not HTTP are answered by Node's server, with a status and no body.
        const { head, body } = splitAnswer(text);
        if (/^content-type: /im.test(head) && body !== "") check(status, body, request.method, request.path);
        remember(ids, /run-id: ([0-9a-f-]{36})/i.exec(text)?.[1] ?? null, random);
      };
      for (let sent = 0; sent < total; sent += AT_ONCE) {
        await Promise.all(Array.from({ length: AT_ONCE }, shoot));
        await clear(runtime);
      }
      expect(answered).toBeGreaterThan(total / 3);
      expect((await fetch(`${place.base}/ping`)).status).toBe(200);
      await place.close();
      await runtime.close({ drainMs: 0 });
    },
    LONG_MS,
  );
});

function check(status: number, text: string, method: string, path: string): void {
  if (status >= 500 && status !== 503) throw new Error(`${method} ${path}: ${status} ${text}`);
  if (status < 400 || method === "HEAD") return;
  const error = JSON.parse(text) as { code?: unknown; message?: unknown };
  const isError = ["invalid_input", "not_found", "server_error"].includes(String(error.code));
  if (!isError || typeof error.message !== "string") throw new Error(`${method} ${path}: ${status} ${text}`);
}

/** Checks an answer against the OpenAPI document, and with the official client. */
function checkAnswer(method: string, path: string, { status, headers }: Response, text: string): void {
  const isStream = headers.get("content-type")?.startsWith("text/event-stream") ?? false;
  const json = isStream ? undefined : (JSON.parse(text) as Json);
  const events = isStream ? parseEvents(text) : [];
  checkResponse(method, path, status, headers, text, json, events);
  checkWithSdk(method, path, status, json, events);
}

/**
 * Sends bytes, and reads until there is an answer, or until the server closes the connection. At times it disconnects
 * before. A server waits for the rest of a head, so nothing follows one that is cut off. A body has a time limit there.
 */
async function sendRaw(port: string, bytes: Uint8Array, random: Random): Promise<string> {
  const socket = connect(Number(port), "127.0.0.1");
  socket.on("error", () => {});
  socket.write(bytes);
  const sent = Buffer.from(bytes).toString("latin1");
  if (random.chance(0.2) || !sent.includes("\r\n\r\n")) socket.end();
  if (random.chance(0.1)) socket.destroy();
  const hasBody = !sent.startsWith("HEAD ");
  let text = "";
  socket.setEncoding("utf8");
  socket.on("data", (chunk) => {
    text = (text + chunk).replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, "");
    if (isAnswer(text, hasBody)) socket.destroy();
  });
  await once(socket, "close");
  return text;
}

/** Whether the bytes hold an answer: of a stream its head, else head and body. */
function isAnswer(text: string, hasBody: boolean): boolean {
  const { head, body } = splitAnswer(text);
  return text.length > head.length && (!hasBody || Buffer.byteLength(body) >= lengthIn(head));
}

/** The first answer; more may follow if the bytes were several requests. */
function splitAnswer(text: string): { readonly head: string; readonly body: string } {
  const [head = ""] = text.split("\r\n\r\n", 1);
  const body = Buffer.from(text.slice(head.length + 4)).subarray(0, lengthIn(head));
  return { head, body: body.toString() };
}

function lengthIn(head: string): number {
  return Number(/^content-length: (\d+)\r?$/im.exec(head)?.[1] ?? 0);
}

/** Waits for an answer. It fails after 10 seconds, since no request here takes that long. */
async function within(answer: Promise<Response>, request: Request): Promise<Response> {
  let stop: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    stop = setTimeout(() => reject(new Error(`no answer to ${request.method} ${request.url}`)), 10_000);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(stop);
  }
}

async function readSome(response: Response): Promise<string> {
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response.text();
  const reader = response.body?.getReader();
  const first = await reader?.read();
  await reader?.cancel();
  return first?.value === undefined ? "" : Buffer.from(first.value).toString();
}

function remember(ids: string[], id: string | null, random: Random): void {
  if (id === null) return;
  if (ids.length < KNOWN_IDS) ids.push(id);
  else ids[random.below(KNOWN_IDS)] = id;
}

/** Cancels the runs that wait for an answer. */
async function clear(runtime: AgentRuntime): Promise<void> {
  for (const { run_id } of await runtime.listRuns({ status: "awaiting" }))
    await runtime.cancel(run_id).catch(() => undefined);
}

/** The request as bytes, at times with a fault of its HTTP. */
function toBytes({ method, path, headers, body }: FuzzRequest, random: Random): Uint8Array {
  const content = body === undefined ? Buffer.alloc(0) : Buffer.from(body as string);
  const lines = [`${method} ${path} HTTP/1.${random.chance(0.95) ? 1 : 0}`, "Host: 127.0.0.1"];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  const length = random.chance(0.9) ? content.length : content.length + random.below(50) - 10;
  if (body !== undefined) lines.push(`Content-Length: ${length}`);
  if (random.chance(0.03)) lines.push("Transfer-Encoding: chunked");
  if (random.chance(0.03)) lines.push("Expect: 100-continue");
  const bytes = Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`), content]);
  return random.chance(0.95) ? bytes : bytes.subarray(0, random.below(bytes.length));
}
