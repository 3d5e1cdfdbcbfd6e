import { once } from "node:events";
import type { AddressInfo, Server, Socket } from "node:net";
import { createServer } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { calls, plain, World } from "./calls.ts";

/* What breaks on the way, over real sockets: a connection that ends, or is reset, after so many bytes of a response. */

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** A server that sends so many bytes of a response. `respond` gives all of them. */
async function serve(respond: (request: Request, socket: Socket) => Promise<void>): Promise<string> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    readRequest(socket)
      .then((request) => respond(request, socket))
      .catch(() => socket.destroy());
  }).listen(0, "127.0.0.1");
  servers.push(server);
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The one request of a connection. */
async function readRequest(socket: Socket): Promise<Request> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    bytes = Buffer.concat([bytes, chunk as Buffer]);
    const end = bytes.indexOf("\r\n\r\n");
    if (end === -1) continue;
    const [line = "", ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
    const headers = new Headers(lines.map((text) => text.split(": ", 2) as [string, string]));
    const body = bytes.subarray(end + 4);
    if (body.length < Number(headers.get("content-length") ?? 0)) continue;
    const [method = "", path = ""] = line.split(" ");
    return new Request(`http://${headers.get("host")}${path}`, { method, headers, ...(body.length > 0 && { body }) });
  }
  throw new Error("The connection ended.");
}

/** A response as it goes over the wire: with its length, or in chunks for a stream. */
async function wireOf(response: Response): Promise<Buffer> {
  const { status, headers } = response;
  const body = Buffer.from(await response.arrayBuffer());
  const isStream = headers.get("content-type") === "text/event-stream";
  const pieces = isStream ? body.toString().split(/(?<=\n\n)/) : [];
  const chunks = pieces.map((piece) => `${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`).join("");
  const fields = [
    ...headers,
    ["connection", "close"],
    isStream ? ["transfer-encoding", "chunked"] : ["content-length", `${body.length}`],
  ];
  const head = `HTTP/1.1 ${status} X\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
  return Buffer.concat([Buffer.from(head), isStream ? Buffer.from(`${chunks}0\r\n\r\n`) : body]);
}

/** All places in a response are tried with 1 (and `--testTimeout 600000`). */
const STEP = Number(process.env["CADENZA_CUTS"] ?? 61);

describe.each(Object.entries(calls))("%s", (_name, call) => {
  it("has its result and its effects, wherever the connection ends or is reset", async () => {
    /** The request whose response is cut, after how many bytes, and how. */
    let cut = { request: -1, at: 0, how: "ends" };
    let count = 0;
    const sizes: number[] = [];
    let world: World | undefined;
    const url = await serve(async (request, socket) => {
      const bytes = await wireOf((await world?.handle(request)) ?? Response.error());
      const { request: which, at, how } = cut;
      sizes[count] = bytes.length;
      if (count++ !== which) return void socket.end(bytes);
      if (how === "ends") return void socket.end(bytes.subarray(0, at));
      socket.write(bytes.subarray(0, at), () => socket.resetAndDestroy());
      return undefined;
    });
    const outcome = async (next: typeof cut): Promise<unknown> => {
      [cut, count] = [next, 0];
      world = await new World(() => ({ url })).begin();
      const value = plain(await call(world));
      return { value, effects: await world.effects() };
    };
    const expected = await outcome({ request: -1, at: 0, how: "ends" });
    const whole = [...sizes];
    for (const [request, size] of whole.entries()) {
      for (let at = 0; at < size; at += STEP) {
        const next = { request, at, how: (at / STEP) % 2 === 0 ? "ends" : "is reset" };
        expect({ ...next, ...((await outcome(next)) as object) }).toEqual({ ...next, ...(expected as object) });
      }
    }
  });
});

describe.each(Object.entries(calls))("%s", (_name, call) => {
  it.each([301, 302, 303, 307, 308])("sends neither body nor keys to another origin: %i", async (status) => {
    let elsewhere = 0;
    const other = await serve(async (_request, socket) => {
      elsewhere += 1;
      socket.end("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    });
    const moved = `HTTP/1.1 ${status} X\r\nlocation: ${other}/runs\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`;
    let count = 0;
    /** The request that is answered with a redirect. */
    let at = -1;
    let world: World | undefined;
    const url = await serve(async (request, socket) => {
      expect(request.headers.get("x-api-key")).toBe("secret");
      if (count++ === at) return void socket.end(moved);
      return void socket.end(await wireOf((await world?.handle(request)) ?? Response.error()));
    });
    const outcome = async (): Promise<unknown> => {
      count = 0;
      world = await new World(() => ({ url, headers: { "x-api-key": "secret" } })).begin();
      return call(world);
    };
    await outcome();
    const all = count;
    expect(all).toBeGreaterThan(0);
    for (at = 0; at < all; at++) await expect(outcome()).rejects.toMatchObject({ code: "redirected", status });
    expect(elsewhere).toBe(0);
  });
});

it("a server that is not there yet is found when it is", async () => {
  const port = new URL(await serve(async (_request, socket) => void socket.destroy())).port;
  const [server] = servers.splice(0);
  server?.close();
  const world: World = new World(() => ({ url: `http://127.0.0.1:${port}`, onRetry: () => start() }));
  let later: Server | undefined;
  const start = (): void => {
    later ??= createServer((socket) => {
      readRequest(socket)
        .then(async (request) => socket.end(await wireOf(await world.handle(request))))
        .catch(() => socket.destroy());
    }).listen(Number(port), "127.0.0.1");
  };
  await world.begin();
  await world.runtime.resume({ run_id: world.run.run_id, await_resume: { approved: true } });
  expect(await world.run.result()).toHaveLength(2);
  later?.close();
});
