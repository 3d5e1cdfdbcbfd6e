import type { RequestListener } from "node:http";
import { createServer } from "node:http";
import type { AcpOptions, NodeListener } from "cadenza/http";
import { createAcpNodeListener } from "cadenza/http";
import express from "express";
import { afterEach, describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import type { Json } from "./client.ts";
import { Client } from "./client.ts";
import { pathOf, refused } from "./facts/fact.ts";
import type { OpenPlace } from "./mounts.ts";
import { inProcess, listen, nodeHttp } from "./mounts.ts";
import { makeWorld } from "./world.ts";

const places: OpenPlace[] = [];

afterEach(async () => {
  await Promise.all(places.splice(0).map((place) => place.close()));
});

describe("a session on the wire", () => {
  it("works as the Python client uses it with one server: read it, send it as an object, then name its id", async () => {
    const server = await serve();
    const id = crypto.randomUUID();
    refused(await server.get(`/sessions/${id}`), 404, "not_found", "session_not_found");
    const empty = { id, history: [], state: null };
    const first = await server.postUntyped("/runs", requestOf("one", { session: empty, session_id: null }));
    expect(first.json["session_id"]).toBe(id);
    const second = await server.postUntyped("/runs", requestOf("two", { session: null, session_id: id }));
    expect(outputOf(second.json)).toBe("user:one|agent/memory:");
    expect(await descriptor(server, id)).toHaveLength(4);
    expect((await server.get(`/resources/${id}.state`)).json).toEqual({ runs: 2 });
  });

  it("grows across two servers by one message and then by two for each run", async () => {
    const one = await serve();
    const two = await serve({ sessions: { allowOrigins: [one.base] } });
    const id = crypto.randomUUID();
    await one.run("echo", "first", { session: { id, history: [] } });
    await one.run("echo", "second", { session_id: id });
    const carried = (await one.get(`/sessions/${id}`)).json;
    const third = await two.post("/runs", requestOf("third", { session: carried }));
    expect(outputOf(third.json)).toBe("user:first|agent/echo:first|user:second|agent/echo:second");
    expect(await descriptor(two, id)).toHaveLength(6);
    // The first server still has its own copy.
    expect(await descriptor(one, id)).toHaveLength(4);
  });

  it("has one, three and then seven outputs of an agent that replays it, over two servers", async () => {
    const one = await serve();
    const two = await serve({ sessions: { allowOrigins: [one.base] } });
    const id = crypto.randomUUID();
    const send = (server: Client, more: object) =>
      server.postUntyped("/runs", { ...requestOf("x", more), agent_name: "replay" });
    const first = await send(one, { session: { id, history: [], state: null }, session_id: null });
    const second = await send(one, { session: null, session_id: id });
    const carried = (await one.get(`/sessions/${id}`)).json;
    const third = await send(two, { session: carried, session_id: null });
    const counts = [first, second, third].map(({ json }) => (json["output"] as unknown as Json[]).length);
    expect(counts).toEqual([1, 3, 7]);
  });

  it("that is posted replaces the stored copy, and may refer to messages of this service", async () => {
    const server = await serve();
    const id = crypto.randomUUID();
    await server.run("echo", "one", { session_id: id });
    await server.run("echo", "two", { session_id: id });
    const history = await descriptor(server, id);
    const session = { id, history: [history[2], history[0]], state: null };
    const reply = await server.post("/runs", requestOf("three", { session }));
    expect(outputOf(reply.json)).toBe("user:two|user:one");
    expect(await descriptor(server, id)).toHaveLength(4);
    expect((await server.get(`/resources/${id}.0`)).json).toMatchObject({ parts: [{ content: "two" }] });
  });

  it("that is posted again under the same idempotency key is not reset", async () => {
    const server = await serve();
    const id = crypto.randomUUID();
    const body = requestOf("x", { session: { id, history: [] } });
    const key = { "idempotency-key": "k" };
    const first = await server.post("/runs", body, key);
    expect((await server.post("/runs", body, key)).json["run_id"]).toBe(first.json["run_id"]);
    expect(await descriptor(server, id)).toHaveLength(2);
  });

  it("that has no id gets a new one", async () => {
    const one = await serve();
    const { json } = await one.run("echo", "kept");
    const history = await descriptor(one, String(json["session_id"]));
    const reply = await one.post("/runs", requestOf("x", { session: { history } }));
    expect(outputOf(reply.json)).toBe("user:kept|agent/echo:kept");
    expect(reply.json["session_id"]).toBe(reply.json["run_id"]);
    expect(await descriptor(one, String(reply.json["session_id"]))).toHaveLength(4);
  });

  it("has its state", async () => {
    const one = await serve();
    const two = await serve({ sessions: { allowOrigins: [one.base] } });
    const id = crypto.randomUUID();
    await one.run("memory", "x", { session_id: id });
    const carried = (await one.get(`/sessions/${id}`)).json;
    expect(carried["state"]).toBe(`${one.base}/resources/${id}.state`);
    await two.run("echo", "y", { session: carried });
    expect((await two.get(`/resources/${id}.state`)).json).toEqual({ runs: 0 });
  });

  it("has URLs of the configured address, else of the requested address", async () => {
    const server = await serve({ baseUrl: "https://public.example.com/acp/" });
    const { json } = await server.run("echo", "x");
    const session = (await server.get(`/sessions/${json["session_id"]}`)).json;
    expect(session["history"]).toEqual(
      [0, 1].map((n) => `https://public.example.com/acp/resources/${json["session_id"]}.${n}`),
    );
    const below = new Client(await inProcess.open(makeWorld()));
    const other = await below.run("echo", "x");
    const [url = ""] = await descriptor(below, String(other.json["session_id"]));
    expect((await below.get(pathOf(below, url))).json).toMatchObject({ role: "user" });
  });
});

describe("the addresses of a session's contents", () => {
  it.each<[what: string, options: AcpOptions, mount: (listener: NodeListener) => RequestListener, path: string]>([
    ["below a path that Express strips", {}, (listener) => mounted("/acp", listener), "/acp"],
    ["below a path that Express strips and the host knows", { basePath: "/acp" }, (l) => mounted("/acp", l), "/acp"],
    ["below a path that the service has too", { basePath: "/runs" }, (listener) => mounted("/runs", listener), "/runs"],
    ["below a path with other letters", { basePath: "/bücher/" }, (listener) => listener, "/b%C3%BCcher"],
    ["below two paths", { basePath: "/acp" }, (listener) => mounted("/api", listener), "/api/acp"],
    ["below a path that the host does not strip", { basePath: "/acp" }, (listener) => listener, "/acp"],
    ["below a path that Connect strips", {}, (listener) => stripped("/acp", listener), "/acp"],
  ])("lead to it %s", async (_what, options, mount, path) => {
    const place = await listen(createServer(mount(createAcpNodeListener(makeWorld(), options))), path);
    places.push(place);
    const server = new Client(place);
    const { json } = await server.run("echo", "x");
    const history = await descriptor(server, String(json["session_id"]));
    expect(history[0]).toBe(`${place.base}/resources/${json["session_id"]}.0`);
    expect((await server.get(pathOf(server, history[0] ?? ""))).json).toMatchObject({ role: "user" });
    const [description] = (await server.get("/openapi.json")).json["servers"] as unknown as { url: string }[];
    expect(description).toEqual({ url: path });
    // The service recognises them as its own when a client sends them.
    expect((await server.run("replay", "y", { session: { history } })).json["output"]).toHaveLength(3);
  });
});

describe("contents of a session on another server", () => {
  it("are not fetched: no request is made unless the host allows the origin", async () => {
    const asked: string[] = [];
    const spy = async (url: string | URL | Request): Promise<Response> => {
      asked.push(String(url));
      return Response.json({ role: "user", parts: [] });
    };
    const sessions = { fetch: spy, allowOrigins: ["https://friend.example"] };
    const server = new Client(await inProcess.open(makeWorld(), { sessions }));
    for (const url of [
      ...["http://169.254.169.254/latest", "http://friend.example/x", "https://friend.example.evil.example/x"],
      ...[
        "https://friend.example:444/x",
        "https://user:pass@friend.example/x",
        "http://localhost/x",
        "https://evil.example/#https://friend.example/",
      ],
    ]) {
      const reply = await server.run("echo", "x", { session: { history: [url] } });
      refused(reply, 422, "invalid_input", "invalid_argument");
      expect(reply.json["data"]).toMatchObject({ issues: [{ path: ["session", "history", 0] }] });
    }
    refused(
      await server.run("echo", "x", { session: { history: [], state: "https://evil.example/" } }),
      422,
      "invalid_input",
    );
    for (const url of ["file:///etc/passwd", "/resources/x", "data:application/json,{}"])
      refused(await server.run("echo", "x", { session: { history: [url] } }), 422, "invalid_input");
    expect(asked).toEqual([]);
    expect((await server.run("echo", "x", { session: { history: ["https://friend.example/x"] } })).status).toBe(200);
    expect(asked).toEqual(["https://friend.example/x"]);
  });

  it.each<[what: string, answer: () => Promise<Response>]>([
    ["an error", async () => new Response("no", { status: 500 })],
    ["no JSON", async () => new Response("<html>")],
    ["no message", async () => Response.json({ role: "stranger" })],
    ["too much", async () => Response.json({ role: "user", parts: [{ content: "x".repeat(2_000) }] })],
    ["of too many parts", async () => Response.json({ role: "user", parts: [{}, {}, {}, {}] })],
    ["a failed request", async () => Promise.reject(new Error("secret address"))],
    ["too deep a JSON", async () => new Response("[".repeat(100_000))],
  ])("that are %s are refused, and the session stays as it was", async (_what, answer) => {
    const sessions = { allowOrigins: ["https://friend.example"], fetch: answer, maxBytes: 1_000 };
    const server = new Client(await inProcess.open(makeWorld(), { sessions, limits: { maxParts: 3 } }));
    const id = crypto.randomUUID();
    await server.run("echo", "kept", { session_id: id });
    const reply = await server.run("echo", "x", { session: { id, history: ["https://friend.example/x"] } });
    refused(reply, 422, "invalid_input", "invalid_argument");
    expect(reply.text).not.toContain("secret");
    expect(await descriptor(server, id)).toHaveLength(2);
  });

  it("that are too large in sum are refused, though each is not", async () => {
    const half: typeof fetch = async () => Response.json({ role: "user", parts: [{ content: "x".repeat(500) }] });
    const sessions = { allowOrigins: ["https://friend.example"], fetch: half, maxBytes: 1_000 };
    const server = new Client(await inProcess.open(makeWorld(), { sessions }));
    const url = "https://friend.example/x";
    expect((await server.run("echo", "x", { session: { history: [url] } })).status).toBe(200);
    refused(await server.run("echo", "x", { session: { history: [url, url] } }), 422, "invalid_input");
  });

  it("that redirect are refused, and the redirect is not followed", async () => {
    const paths: unknown[] = [];
    const place = await listen(
      createServer(({ url }, response) => {
        paths.push(url);
        response.writeHead(302, { location: "/secret" }).end();
      }),
    );
    places.push(place);
    const server = await serve({ sessions: { allowOrigins: [place.base] } });
    refused(await server.run("echo", "x", { session: { history: [`${place.base}/x`] } }), 422, "invalid_input");
    expect(paths).toEqual(["/x"]);
  });

  it("that do not arrive in time are refused", async () => {
    const clock = new FakeClock();
    const hangs: typeof fetch = (_url, init) =>
      new Promise((_, reject) => init?.signal?.addEventListener("abort", () => reject(new Error("aborted"))));
    const sessions = { allowOrigins: ["https://friend.example"], fetch: hangs, timeoutMs: 1_000 };
    const server = new Client(await inProcess.open(makeWorld({ clock }), { sessions }));
    const history = Array.from({ length: 40 }, (_, index) => `https://friend.example/${index}`);
    const reply = server.run("echo", "x", { session: { history } });
    await clock.advance(1_000);
    refused(await reply, 422, "invalid_input", "invalid_argument");
    expect(clock.timers).toBe(0);
  });

  it("are kept in order, and no more of them are taken than allowed", async () => {
    const numbered: typeof fetch = async (url) =>
      Response.json({ role: "user", parts: [{ content: String(url).split("/").at(-1) }] });
    const options = {
      sessions: { allowOrigins: ["https://friend.example"], fetch: numbered },
      limits: { maxMessages: 40 },
    };
    const server = new Client(await inProcess.open(makeWorld(), options));
    const history = Array.from({ length: 40 }, (_, index) => `https://friend.example/${index}`);
    const reply = await server.post("/runs", requestOf("x", { session: { history } }));
    expect(outputOf(reply.json)).toBe(history.map((_, index) => `user:${index}`).join("|"));
    refused(await server.run("echo", "x", { session: { history: [...history, history[0]] } }), 422, "invalid_input");
  });
});

/** Strips a path as Connect, Polka and middie do it: the whole address stays in `originalUrl`. */
function stripped(path: string, listener: NodeListener): RequestListener {
  return (request, response) => {
    const originalUrl = request.url ?? "";
    request.url = originalUrl.slice(path.length);
    listener(Object.assign(request, { originalUrl }), response);
  };
}

function mounted(path: string, listener: NodeListener): RequestListener {
  const app = express();
  app.use(path, listener);
  return app as RequestListener;
}

async function serve(options: AcpOptions = {}): Promise<Client> {
  const place = await nodeHttp.open(makeWorld(), options);
  places.push(place);
  return new Client(place);
}

function requestOf(content: string, more: object): object {
  const part = { name: null, content_type: "text/plain", content, content_encoding: "plain", content_url: null };
  return { agent_name: "memory", input: [{ role: "user", parts: [part] }], mode: "sync", ...more };
}

function outputOf(run: Json): unknown {
  const [message] = run["output"] as unknown as { parts: Json[] }[];
  return message?.parts[0]?.["content"];
}

async function descriptor(server: Client, id: string): Promise<readonly string[]> {
  return (await server.get(`/sessions/${id}`)).json["history"] as unknown as string[];
}
