import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { createServer, request as httpRequest } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { CadenzaError } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import type { AcpOptions } from "cadenza/http";
import { createAcpHandler, createAcpNodeListener } from "cadenza/http";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { withMembers } from "../harness/port-proxy.ts";
import type { Reply } from "./client.ts";
import { Client } from "./client.ts";
import { refused } from "./facts/fact.ts";
import type { OpenPlace } from "./mounts.ts";
import { inProcess, listen, nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

const origin = "https://app.example.com";

async function clientOf(options: AcpOptions = {}): Promise<Client> {
  return new Client(await inProcess.open(makeWorld(), options));
}

describe("a page of another origin", () => {
  it("is refused by its Sec-Fetch-Site header, or else by its Origin header", async () => {
    const client = await clientOf();
    for (const site of ["cross-site", "same-site"])
      refused(await client.with({ "sec-fetch-site": site }).get("/ping"), 403, "invalid_input", "cross_site");
    for (const other of [origin, "null", "garbage"])
      refused(await client.with({ origin: other }).run("echo", "x"), 403, "invalid_input", "cross_site");
    expect((await client.with({ "sec-fetch-site": "same-origin", origin: client.base }).get("/ping")).status).toBe(200);
    expect((await client.with({ "sec-fetch-site": "none" }).get("/ping")).status).toBe(200);
    expect((await client.with({ origin: client.base }).get("/ping")).status).toBe(200);
  });

  it("is allowed if its origin is in the list, or is that of the configured address", async () => {
    const client = await clientOf({ allowedOrigins: [origin], baseUrl: "https://public.example.com/acp" });
    expect((await client.with({ origin, "sec-fetch-site": "cross-site" }).run("echo", "x")).status).toBe(200);
    expect((await client.with({ origin: "https://public.example.com" }).get("/ping")).status).toBe(200);
    refused(await client.with({ origin: "https://app.example.com.evil.example" }).get("/ping"), 403, "invalid_input");
  });

  it("with the same host is refused if it is not encrypted and the address is", async () => {
    const client = await clientOf({ baseUrl: "https://public.example.com/acp" });
    const page = { host: "public.example.com", origin: "http://public.example.com" };
    refused(await client.with(page).get("/ping"), 403, "invalid_input", "cross_site");
    const handler = createAcpHandler(makeWorld());
    const headers = { origin: "http://app.example.com" };
    const plain = await handler(new Request("http://app.example.com/ping", { headers }));
    const encrypted = await handler(new Request("https://app.example.com/ping", { headers }));
    expect([plain.status, encrypted.status]).toEqual([200, 403]);
  });

  it("gets CORS headers only if they are configured and its origin is allowed", async () => {
    const silent = await clientOf({ allowedOrigins: [origin] });
    expect((await silent.with({ origin }).get("/ping")).headers.has("access-control-allow-origin")).toBe(false);
    refused(await silent.send("OPTIONS", "/runs", { headers: { origin } }), 405, "invalid_input");
    const client = await clientOf({ allowedOrigins: [origin], cors: true });
    const reply = await client.with({ origin }).run("echo", "x");
    expect(reply.headers.get("access-control-allow-origin")).toBe(origin);
    expect(reply.headers.get("access-control-expose-headers")).toContain("Run-ID");
    expect(reply.headers.get("vary")).toBe("Origin");
    const events = await client.with({ origin }).get(`/runs/${reply.json["run_id"]}/events`);
    expect(events.headers.get("vary")).toBe("Accept, Origin");
    const preflight = await client.send("OPTIONS", "/runs", { headers: { origin } });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-headers")).toContain("Last-Event-ID");
    const other = await client.send("OPTIONS", "/runs", { headers: { origin: "https://evil.example" } });
    expect(other.status).toBe(403);
    expect(other.headers.has("access-control-allow-origin")).toBe(false);
  });
});

describe("a foreign host name", () => {
  it("is refused, with and without its port", async () => {
    const place = await nodeHttp.open(makeWorld(), { allowedHosts: ["localhost", "127.0.0.1:1"] });
    const { port } = new URL(place.base);
    const status = (host: string) =>
      new Promise((resolve) => {
        httpRequest({ port, host: "127.0.0.1", path: "/ping", headers: { host } }, (response) => {
          response.resume();
          resolve(response.statusCode);
        }).end();
      });
    expect(await status(`localhost:${port}`)).toBe(200);
    expect(await status("LOCALHOST")).toBe(200);
    expect(await status("127.0.0.1:1")).toBe(200);
    expect(await status(`127.0.0.1:${port}`)).toBe(403);
    expect(await status("evil.example")).toBe(403);
    await place.close();
  });
});

describe("authorize", () => {
  it("is called before the body is read, with the parts of the path", async () => {
    const asked: unknown[] = [];
    const handler = createAcpHandler(makeWorld(), {
      authorize: ({ action, agent_name, run_id, headers, request }) => {
        asked.push([action, agent_name, run_id, headers["x-who"], (request as Request).bodyUsed]);
        return { tenant: "t" };
      },
    });
    const send = (method: string, path: string) =>
      handler(
        new Request(`http://x${path}`, {
          method,
          headers: { "x-who": "me" },
          ...(method === "POST" && { body: "{}" }),
        }),
      );
    await send("POST", "/runs");
    await send("GET", "/agents/echo");
    await send("POST", "/runs/7/cancel");
    await send("GET", "/nothing");
    expect(asked).toEqual([
      ["create", undefined, undefined, "me", false],
      ["read", "echo", undefined, "me", false],
      ["cancel", undefined, "7", "me", false],
    ]);
  });

  it("refuses with false, with a status of its own, by throwing, and with any value that is no grant", async () => {
    const answers: readonly (readonly [answer: () => unknown, status: number])[] = [
      [() => false, 403],
      [() => ({ status: 401, message: "Who are you?", headers: { "www-authenticate": "Bearer" } }), 401],
      [() => ({ status: 200 }), 403],
      [() => undefined, 403],
      [() => true, 403],
      [async () => Promise.reject(new Error("secret")), 403],
      [
        () => {
          throw new Error("secret");
        },
        403,
      ],
    ];
    for (const [answer, status] of answers) {
      const client = await clientOf({ authorize: answer as AcpOptions["authorize"] });
      const reply = await client.run("echo", "x");
      refused(reply, status, "invalid_input");
      expect(reply.text).not.toContain("secret");
      if (status === 401) expect(reply.headers.get("www-authenticate")).toBe("Bearer");
    }
  });

  it("names the principal, and the visible agents", async () => {
    const runtime = makeWorld();
    runtime.register("who", (_, { principal }) => JSON.stringify(principal));
    const authorize: AcpOptions["authorize"] = () => ({ principal: { user: 7 }, agents: ["who"] });
    const client = new Client(await inProcess.open(runtime, { authorize }));
    expect((await client.run("who", "x")).text).toContain('{\\"user\\":7}');
    refused(await client.run("echo", "x"), 404, "not_found", "agent_not_found");
  });
});

describe("limits", () => {
  it("on messages, parts, metadata, nesting and values are named in the refusal", async () => {
    const client = await clientOf({
      limits: { maxMessages: 2, maxParts: 3, maxMetadataLength: 50, maxNodes: 60, maxDepth: 8 },
    });
    const message = (parts: number) => ({ parts: Array.from({ length: parts }, () => ({ content: "x" })) });
    expect((await client.run("echo", [message(1), message(2)])).status).toBe(200);
    refused(await client.run("echo", [message(0), message(0), message(0)]), 422, "invalid_input");
    refused(await client.run("echo", [message(2), message(2)]), 422, "invalid_input");
    // What is no part counts too, and is not looked at.
    const wrong = { parts: [1, 2, 3, 4] };
    const issues = async (reply: Promise<Reply>): Promise<unknown> =>
      ((await reply).json["data"] as { issues: unknown }).issues;
    const many = (path: string[]) => [{ path, message: "expected at most 3 parts in all" }];
    expect(await issues(client.run("echo", [wrong]))).toEqual(many(["input"]));
    const asking = await client.run("asker", "x");
    const answer = client.post(`/runs/${asking.json["run_id"]}`, { await_resume: { type: "message", message: wrong } });
    expect(await issues(answer)).toEqual(many(["await_resume", "message"]));
    const metadata = { kind: "citation", title: "x".repeat(60) };
    refused(await client.run("echo", [{ parts: [{ metadata }] }]), 422, "invalid_input");
    refused(
      await client.run("echo", [{ parts: Array.from({ length: 61 }, () => ({})) }]),
      422,
      "invalid_input",
      "too_many_values",
    );
    refused(await client.run("echo", [[[[[[[[]]]]]]]]), 422, "invalid_input", "too_deep");
  });

  it.each([
    ["lists in lists", "[".repeat(500_000), "too_deep"],
    ["objects in objects", '{"a":'.repeat(100_000), "too_deep"],
    ["empty lists", `[${"[],".repeat(300_000)}`, "too_many_values"],
    ["numbers", `[${"1,".repeat(500_000)}`, "too_many_values"],
    ["keys", `{${'"":0,'.repeat(200_000)}`, "too_many_values"],
  ])("a body of too many %s is refused before it is parsed", async (_what, body, reason) => {
    const client = await clientOf({});
    // The body has no end: a parser would refuse it as malformed.
    refused(await client.post("/runs", body), 422, "invalid_input", reason);
    refused(await client.post("/runs", body.slice(0, 3_000)), 400, "invalid_input", "malformed_body");
  });

  it("a body has at most one mebibyte by default, and that of a chat page ten", async () => {
    const client = await clientOf({});
    const whole = (length: number): string => {
      const body = '{"agent_name":"plain","input":[{"role":"user","parts":[{"content":""}]}]}';
      return body.replace('""', `"${"x".repeat(length - body.length)}"`);
    };
    expect((await client.post("/runs", whole(1_048_576))).status).toBe(200);
    refused(await client.post("/runs", whole(1_048_577)), 413, "invalid_input", "body_too_large");
    for (const createHandler of [createChatHandler, createAgUiHandler]) {
      const post = (length: number): Promise<Response> => {
        const headers = { "content-type": "application/json", "content-length": String(length) };
        return createHandler(makeWorld())(new Request("http://x/echo", { method: "POST", headers, body: "{}" }));
      };
      expect((await post(10_485_760)).status).toBe(422);
      expect((await post(10_485_761)).status).toBe(413);
    }
  });

  it("of the runtime are 503 with Retry-After", async () => {
    const client = new Client(await inProcess.open(makeWorld({ limits: { maxLiveRuns: 1 } })));
    await client.run("asker", "x");
    const reply = await client.run("asker", "x");
    refused(reply, 503, "server_error", "limit_reached");
    expect(reply.headers.get("retry-after")).toMatch(/^\d+$/);
  });

  it("on readers are 503, per run and in all, and readers that disconnect count no more", async () => {
    const client = await clientOf({ limits: { maxReaders: 3, maxReadersPerRun: 2 } });
    const { json } = await client.run("waiter", "x", { mode: "async" });
    const attach = () =>
      client.open("GET", `/runs/${json["run_id"]}/events`, { headers: { accept: "text/event-stream" } });
    const [first, second] = [await attach(), await attach()];
    expect((await attach()).status).toBe(503);
    const stream = await client.open("POST", "/runs", { body: { agent_name: "waiter", input: [], mode: "stream" } });
    expect(stream.status).toBe(200);
    refused(await client.run("waiter", "x", { mode: "stream" }), 503, "server_error", "limit_reached");
    await first.body?.cancel();
    const third = await attach();
    expect(third.status).toBe(200);
    await Promise.all([second, third, stream].map(({ body }) => body?.cancel()));
  });

  it("on time: a body that does not arrive is 408, also over a socket", async () => {
    const clock = new FakeClock();
    const runtime = makeWorld({ clock });
    const body = new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode("{")) });
    const request = new Request("http://x/runs", { method: "POST", body, duplex: "half" } as RequestInit);
    const answer = createAcpHandler(runtime)(request);
    await clock.advance(30_000);
    expect((await answer).status).toBe(408);

    const place = await nodeHttp.open(runtime);
    const socket = connect(Number(new URL(place.base).port), "127.0.0.1");
    socket.write("POST /runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{");
    const ends = once(socket, "close");
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk;
    });
    while (clock.timers === 0) await clock.turn();
    await clock.advance(30_000);
    await ends;
    expect(text).toMatch(/^HTTP\/1\.1 408 /);
    expect(text).toContain('"reason":"body_timeout"');
    await place.close();
  });

  it("a body whose Content-Length is too large is refused before it is read, and one without it while it is read", async () => {
    const place = await nodeHttp.open(makeWorld(), { limits: { maxBodyBytes: 1_000 } });
    const client = new Client(place);
    refused(await client.post("/runs", "x".repeat(1_001)), 413, "invalid_input", "body_too_large");
    const socket = connect(Number(new URL(place.base).port), "127.0.0.1");
    socket.on("error", () => {});
    socket.write("POST /runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    const [chunk] = await Promise.all([
      once(socket, "data"),
      socket.write(`${(2_000).toString(16)}\r\n${"x".repeat(2_000)}\r\n`),
    ]);
    expect(String(chunk)).toMatch(/^HTTP\/1\.1 413 /);
    socket.destroy();
    await place.close();
  });
});

describe("a client that stops reading", () => {
  it("a long answer is disconnected after a while, and one that goes on reading gets all of it", async () => {
    const clock = new FakeClock();
    const runtime = makeWorld({ clock });
    const place = await nodeHttp.open(runtime, { stallMs: 5_000 });
    const client = new Client(place);
    // More than the buffers of sockets hold, in surrogate pairs, which must not be split.
    const content = "\u{1F4A5}x".repeat(50_000);
    const parts = Array.from({ length: 60 }, () => ({ content }));
    const { run_id } = await runtime.createRun({ agent_name: "echo", input: { role: "user", parts } });
    expect((await client.get(`/runs/${run_id}`)).json["output"]).toMatchObject([{ parts }]);
    const timers = clock.timers;
    const socket = connect(Number(new URL(place.base).port), "127.0.0.1");
    socket.on("error", () => {});
    socket.write(`GET /runs/${run_id} HTTP/1.1\r\nHost: x\r\n\r\n`);
    while (clock.timers === timers) await clock.turn();
    await clock.advance(5_000);
    socket.resume();
    await once(socket, "close");
    expect(socket.bytesRead).toBeLessThan(15_000_000);
    expect(clock.timers).toBe(timers);
    await place.close();
  });
});

describe.each([inProcess, nodeHttp])("the limit on readers, $name", (mount) => {
  const stream = { headers: { accept: "text/event-stream" } };

  async function open(options: AcpOptions, clock = new FakeClock()) {
    const runtime = makeWorld({ clock });
    const place = await mount.open(runtime, { limits: { maxReaders: 1 }, ...options });
    const { run_id } = await runtime.createRun({ agent_name: "waiter", input: [], mode: "async" });
    const client = new Client(place);
    const attach = (signal?: AbortSignal): Promise<Response> =>
      client.open("GET", `/runs/${run_id}/events`, { ...stream, ...(signal !== undefined && { signal }) });
    return { runtime, client, place, run_id, attach, clock };
  }

  /** Waits until a reader may attach: over a socket, the service learns of a disconnect a little later. */
  async function untilFree(attach: () => Promise<Response>): Promise<void> {
    for (let response = await attach(); ; response = await attach()) {
      const { status } = response;
      await response.body?.cancel();
      if (status === 200) return;
      expect(status).toBe(503);
    }
  }

  it("does not count readers that have disconnected", async () => {
    const { place, attach } = await open({});
    const controller = new AbortController();
    const response = await attach(controller.signal);
    expect((await attach()).status).toBe(503);
    controller.abort();
    await response.text().catch(() => undefined);
    await untilFree(attach);
    await place.close();
  });

  it("does not count readers that were refused", async () => {
    const { client, place, attach, clock } = await open({ limits: { maxReaders: 2, maxReadersPerRun: 1 } });
    for (let times = 0; times < 3; times++)
      expect((await client.run("missing", "x", { mode: "stream" })).status).toBe(404);
    const first = await attach();
    for (let times = 0; times < 3; times++) expect((await attach()).status).toBe(503);
    expect((await client.run("echo", "x", { mode: "stream" })).status).toBe(200);
    await first.body?.cancel();
    await clock.settle();
    await place.close();
  });

  it("does not count HEAD requests", async () => {
    const { client, place, run_id, attach } = await open({});
    for (let times = 0; times < 3; times++)
      expect((await client.send("HEAD", `/runs/${run_id}/events`, stream)).status).toBe(200);
    await untilFree(attach);
    await place.close();
  });
});

describe("a reader of the handler that stops reading", () => {
  it("is disconnected after a while, and counts no more", async () => {
    const clock = new FakeClock();
    const runtime = makeWorld({ clock });
    const options = { stallMs: 5_000, limits: { maxReaders: 1 } };
    const client = new Client(await inProcess.open(runtime, options));
    const body = { agent_name: "words", mode: "stream", input: [{ parts: [{ content: "5000" }] }] };
    await client.run("echo", "x");
    const { timers } = clock;
    const stalled = await client.open("POST", "/runs", { body });
    await clock.advance(4_999);
    expect((await client.run("echo", "x", { mode: "stream" })).status).toBe(503);
    await clock.advance(1);
    expect((await client.run("echo", "x", { mode: "stream" })).status).toBe(200);
    await expect(stalled.text()).rejects.toThrow("took nothing");
    expect(clock.timers).toBe(timers);
  });
});

describe("a host that sets the body of a request", () => {
  const serve = (prepare: (request: IncomingMessage) => unknown): Promise<OpenPlace> => {
    const listener = createAcpNodeListener(makeWorld());
    return listen(
      createServer(async (request, response) => {
        await prepare(request);
        listener(request, response);
      }),
    );
  };

  it("is ignored if it has not read the stream", async () => {
    const place = await serve((request) => Object.assign(request, { body: {} }));
    expect((await new Client(place).run("echo", "x")).status).toBe(200);
    await place.close();
  });

  it("may pass it on as text or bytes", async () => {
    const text = JSON.stringify({ agent_name: "plain", input: [] });
    for (const body of [text, Buffer.from(text)]) {
      const place = await serve(async (request) => {
        await textOf(request);
        Object.assign(request, { body });
      });
      expect((await new Client(place).run("echo", "another")).json).toMatchObject({ agent_name: "plain" });
      await place.close();
    }
  });

  it("is told so if it does not pass on what it has read", async () => {
    const place = await serve(textOf);
    refused(await new Client(place).run("echo", "x"), 400, "invalid_input", "malformed_body");
    await place.close();
  });
});

describe("an internal error", () => {
  it("is told to the host, and not to the client", async () => {
    const told: unknown[] = [];
    const logger = {
      debug: () => {},
      info: () => {},
      warn: () => {},
      error: (message: string, fields: unknown) => told.push([message, fields]),
    };
    const runtime = withMembers(makeWorld({ logger }), {
      listAgents: () => Promise.reject(new Error("disk /dev/sda1 is full")),
      getRun: () => Promise.reject(new CadenzaError("store_failed", "select * from runs")),
    });
    const client = new Client(await inProcess.open(runtime));
    const broken = await client.get("/agents");
    refused(broken, 500, "server_error");
    expect(broken.text).not.toContain("sda1");
    const failed = await client.get("/runs/11111111-1111-4111-8111-111111111111");
    refused(failed, 503, "server_error");
    expect(failed.text).not.toContain("select");
    expect(told).toHaveLength(2);
  });

  it("is answered also when the host's logger fails", async () => {
    const fail = (): void => {
      throw new Error("the log is full");
    };
    const logger = { debug: fail, info: fail, warn: () => {}, error: fail };
    const runtime = withMembers(makeWorld({ logger }), { listAgents: () => Promise.reject(new Error("broken")) });
    const place = await nodeHttp.open(runtime);
    refused(await new Client(place).get("/agents"), 500, "server_error");
    await place.close();
  });

  it("does not follow from bytes that are not HTTP: the server goes on", async () => {
    const place = await listen(createServer(createAcpNodeListener(makeWorld())));
    const { port } = new URL(place.base);
    for (const bytes of [
      "\0\0\0\0",
      "GET\r\n\r\n",
      "POST /runs HTTP/1.1\r\nContent-Length: x\r\n\r\n",
      "GET http://a/ping HTTP/1.1\r\nHost: a\r\n\r\n",
    ]) {
      const socket = connect(Number(port), "127.0.0.1");
      socket.on("error", () => {});
      socket.end(bytes);
      socket.resume();
      await once(socket, "close");
    }
    expect((await fetch(`${place.base}/ping`)).status).toBe(200);
    await place.close();
  });
});

describe("over HTTP/2", () => {
  it("runs are served and streamed, and requests refused", async () => {
    const options = { allowedHosts: ["127.0.0.1"], limits: { maxBodyBytes: 200 } };
    const server = createHttp2Server(createAcpNodeListener(makeWorld(), options));
    await once(server.listen(0, "127.0.0.1"), "listening");
    const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const send = async (headers: object, body = ""): Promise<readonly [status: unknown, text: string]> => {
      const stream = session.request({ ":method": "POST", ":path": "/runs", ...headers });
      stream.end(body);
      const [head] = (await once(stream, "response")) as [Record<string, unknown>];
      return [head[":status"], await textOf(stream)];
    };
    const body = (mode: string): string => JSON.stringify({ agent_name: "plain", mode, input: [] });
    expect(await send({}, body("sync"))).toMatchObject([200, expect.stringContaining('"completed"')]);
    expect(await send({}, body("stream"))).toMatchObject([200, expect.stringContaining("event: run.completed\n")]);
    expect(await send({}, "x".repeat(300))).toMatchObject([413, expect.stringContaining("body_too_large")]);
    expect(await send({ ":authority": "evil.example" })).toMatchObject([403, expect.stringContaining("host_not")]);
    session.close();
    server.close();
    await once(server, "close");
  });
});

describe("options", () => {
  it.each<[string, unknown]>([
    ["basePath", "/a?b"],
    ["baseUrl", "/relative"],
    ["authorize", "yes"],
    ["allowedOrigins", ["app.example.com"]],
    ["allowedHosts", ["http://localhost"]],
    ["allowedHosts", new Array(1)],
    ["cors", "yes"],
    ["onDisconnect", "stop"],
    ["onDisconnect", null],
    ["onDisconnect", {}],
    ["onDisconnect", { cancelAfterMs: -1 }],
    ["onDisconnect", { cancelAfterMs: 1, other: 1 }],
    ["extensions", "all"],
    ["heartbeatMs", -1],
    ["stallMs", Number.NaN],
    ["limits", { maxBodyBytes: "1" }],
    ["limits", { maxReaders: 1.5 }],
    ["limits", { maxSize: 1 }],
    ["sessions", { allowOrigins: ["x"] }],
    ["sessions", { fetch: true }],
    ["basepath", "/x"],
  ])("a bad %s (%j) is refused when the handler is created", (name, value) => {
    const options = { [name]: value } as AcpOptions;
    expect(() => createAcpHandler(makeWorld(), options)).toThrow(CadenzaError);
    expect(() => createAcpNodeListener(makeWorld(), options)).toThrow(/expected/);
  });
});
