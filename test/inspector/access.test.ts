import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import { AgentRuntime as Runtime } from "cadenza";
import type { InspectorOptions } from "cadenza/inspector";
import { createInspectorHandler, createInspectorNodeListener } from "cadenza/inspector";
import { describe, expect, it } from "vitest";
import { actionNames } from "./visitor.ts";

/** What proxies, tunnels and content networks add to what they pass on. */
const proxyHeaders = [
  ...[
    "Via",
    "X-Real-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "CDN-Loop",
    "X-Original-Forwarded-For",
    "X-Original-Host",
  ],
  ...["CF-Connecting-IP", "CF-Ray", "True-Client-IP", "Fly-Client-IP", "Fly-Forwarded-Port", "Fastly-Client-IP"],
  ...[
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "X-Vercel-Forwarded-For",
    "X-NF-Client-Connection-IP",
    "DO-Connecting-IP",
  ],
  ...["X-AppEngine-User-IP", "X-Envoy-External-Address", "X-Amzn-Trace-Id", "Remote-Addr", "Tailscale-User-Login"],
];

const TOKEN = "a-token-of-the-test";

/** Sends a request over a socket with exactly these headers, which `fetch` would not. */
async function raw(port: number, path: string, headers: Readonly<Record<string, string>>, method = "GET") {
  const lines = Object.entries({ host: `localhost:${port}`, connection: "close", ...headers });
  const socket = connect(port, "127.0.0.1");
  socket.write(`${method} ${path} HTTP/1.1\r\n${lines.map((line) => `${line.join(": ")}\r\n`).join("")}\r\n`);
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  const [head = "", ...body] = text.split("\r\n\r\n");
  return { status: Number(head.split(" ")[1]), head: head.toLowerCase(), body: body.join("\r\n\r\n") };
}

async function withListener(
  options: InspectorOptions,
  act: (port: number, runtime: Runtime, lines: readonly object[]) => Promise<void>,
): Promise<void> {
  const lines: object[] = [];
  const info = (message: string, fields?: object): void => void lines.push({ message, ...fields });
  const none = (): void => {};
  const runtime = new Runtime({ logger: { debug: none, info, warn: none, error: none } });
  runtime.register("echo", (input) => input);
  const server = createServer(createInspectorNodeListener(runtime, options));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await act((server.address() as AddressInfo).port, runtime, lines);
  } finally {
    server.closeAllConnections();
    server.close();
    await runtime.close();
  }
}

/** Opens the page with its token, and gives the cookie. */
async function enter(port: number, token = TOKEN): Promise<string> {
  const { status, head } = await raw(port, `/?token=${token}`, {});
  expect(status).toBe(200);
  return /set-cookie: ([^;]+)/.exec(head)?.[1] ?? "";
}

describe("a Node listener without authorize", () => {
  it("gives the page and a strict cookie for its token, and the rest for the cookie", () =>
    withListener({ token: TOKEN }, async (port, _runtime, lines) => {
      const opened = await raw(port, `/?token=${TOKEN}`, {});
      expect(opened.head).toMatch(
        /set-cookie: cadenza_inspector_[\w-]{8}=[\w-]{43}; httponly; samesite=strict; path=\/\r/,
      );
      expect(opened.head).not.toContain(TOKEN);
      expect(opened.head).toContain("cache-control: no-store");
      const cookie = /set-cookie: ([^;]+)/i.exec((await fetchHead(port)).join("\n"))?.[1] ?? "";
      expect((await raw(port, "/api/start", { cookie: `other=1; ${cookie}` })).status).toBe(200);
      expect((await raw(port, "/", { cookie })).body).toContain("<!doctype html>");
      expect(lines).toEqual([{ message: "The inspector is open.", url: "<where this listener is mounted>/" }]);
    }));

  /** `Set-Cookie` keeps its case. */
  async function fetchHead(port: number): Promise<readonly string[]> {
    const response = await fetch(`http://localhost:${port}/?token=${TOKEN}`);
    return response.headers.getSetCookie().map((cookie) => `set-cookie: ${cookie}`);
  }

  it("says in a line that a request was refused, without its token", () =>
    withListener({ token: TOKEN }, async (port, _runtime, lines) => {
      await raw(port, "/?token=a-wrong-guess-1", {});
      await raw(port, "/api/start", { cookie: "cadenza_inspector=a-wrong-guess-2" });
      await raw(port, "/api/cancel", { via: "1.1 a-proxy" }, "POST");
      const [, ...others] = lines;
      expect(others.map((line) => ({ ...line, action: "" }))).toEqual(
        [
          { status: 401, reason: "unauthorized" },
          { status: 401, reason: "unauthorized" },
          { status: 403, reason: "forwarded" },
        ].map((fields) => ({ message: "A request was refused.", action: "", ...fields })),
      );
      expect(JSON.stringify(others)).not.toMatch(/a-wrong-guess|a-proxy/);
    }));

  it("makes a token of 32 random bytes, which the log has alone", () =>
    withListener({ baseUrl: "http://localhost:4000/ops" }, async (port, _runtime, lines) => {
      const [line] = lines as readonly { readonly url: string }[];
      const token = /^http:\/\/localhost:4000\/ops\/\?token=([\w-]{43})$/.exec(line?.url ?? "")?.[1] ?? "";
      expect(lines).toHaveLength(1);
      await enter(port, token);
      expect((await raw(port, "/?token=x", {})).status).toBe(401);
    }));

  it.each<[string, Record<string, string>, string | undefined]>([
    ["no token", {}, undefined],
    ["a wrong token", {}, "?token=a-token-of-the-tesT"],
    ["an empty token", {}, "?token="],
    ["a longer token", {}, `?token=${TOKEN}x`],
    ["another cookie", { cookie: "cadenza_inspector=1; cadenza_inspector_x=2" }, undefined],
    ["the token as a cookie", { cookie: `cadenza_inspector=${TOKEN}` }, undefined],
  ])("says to a request with %s how to open it", (_what, headers, query = "") =>
    withListener({ token: TOKEN }, async (port) => {
      const page = await raw(port, `/${query}`, headers);
      expect([page.status, page.head.includes("text/html"), page.head.includes("set-cookie")]).toEqual([
        401,
        true,
        false,
      ]);
      expect(page.body).toContain("needs its token");
      const start = await raw(port, `/api/start${query}`, headers);
      expect([start.status, JSON.parse(start.body)]).toMatchObject([401, { data: { reason: "unauthorized" } }]);
    }),
  );

  it.each<[string, Record<string, string>, string]>([
    ["Forwarded", { forwarded: "for=10.0.0.1" }, "forwarded"],
    ["X-Forwarded-For", { "X-Forwarded-For": "127.0.0.1" }, "forwarded"],
    ["an empty X-Forwarded-Host", { "x-forwarded-host": "" }, "forwarded"],
    ["any X-Forwarded header", { "x-forwarded-anything": "1" }, "forwarded"],
    ...proxyHeaders.map((name): [string, Record<string, string>, string] => [
      name,
      { [name]: "127.0.0.1" },
      "forwarded",
    ]),
    ["a foreign Host", { host: "inspector.example.com" }, "host_not_allowed"],
    ["a Host that begins like its own", { host: "localhost.example.com" }, "host_not_allowed"],
    ["an empty Host", { host: "" }, "host_not_allowed"],
    ["a foreign Origin", { origin: "https://example.com" }, "cross_site"],
    ["the Origin of another port", { origin: "http://localhost:1" }, "cross_site"],
    ["an opaque Origin", { origin: "null" }, "cross_site"],
    ["a request from another site", { "sec-fetch-site": "cross-site" }, "cross_site"],
    ["a request from another port", { "sec-fetch-site": "same-site", "sec-fetch-mode": "cors" }, "cross_site"],
    [
      "a frame of another site",
      { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe" },
      "cross_site",
    ],
  ])("refuses %s, also with its token and cookie", (_what, headers, reason) =>
    withListener({ token: TOKEN }, async (port) => {
      const [cookie = ""] = (await fetchHead(port)).map((line) => line.slice("set-cookie: ".length).split(";")[0]);
      for (const path of [`/?token=${TOKEN}`, "/", "/api/start", "/api/feed/runs"]) {
        const { status, body, head } = await raw(port, path, { cookie, ...headers });
        const isPage = head.includes("text/html");
        expect([path, status, isPage || JSON.parse(body).data.reason === reason]).toEqual([path, 403, true]);
        expect(head).not.toContain("set-cookie");
      }
    }),
  );

  it.each(["127.0.0.1", "[::1]", "LOCALHOST", "dev.localhost", "box.lan"])("serves the Host %s", (host) =>
    withListener({ token: TOKEN, allowedHosts: ["box.lan"] }, async (port) => {
      expect((await raw(port, `/?token=${TOKEN}`, { host: `${host}:${port}` })).status).toBe(200);
    }),
  );

  it("refuses other machines, where the host shows their addresses", () =>
    withListener({ token: TOKEN }, async () => {
      const listener = createInspectorNodeListener(new Runtime(), { token: TOKEN });
      for (const [remoteAddress, status] of [
        ["10.0.0.7", 403],
        ["::ffff:10.0.0.7", 403],
        ["127.0.0.1.example", 403],
        ["::ffff:127.0.0.1", 200],
        ["::1", 200],
      ] as const)
        expect([remoteAddress, await statusFor(listener, remoteAddress)]).toEqual([remoteAddress, status]);
    }));

  function statusFor(listener: ReturnType<typeof createInspectorNodeListener>, remoteAddress: string) {
    return new Promise<number>((resolve) => {
      const on = (): void => {};
      const request = { url: `/?token=${TOKEN}`, headers: { host: "localhost" }, socket: { remoteAddress }, on };
      const rest = { write: () => true, end: on, destroy: on, on, removeListener: on };
      const response = { headersSent: false, writableFinished: false, destroyed: false, ...rest };
      listener({ ...request, resume: on }, { ...response, writeHead: resolve });
    });
  }

  it("is opened by a link on any page, which shows nothing without the token", () =>
    withListener({ token: TOKEN }, async (port) => {
      const link = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
      expect((await raw(port, "/", link)).status).toBe(401);
      expect((await raw(port, `/?token=${TOKEN}`, link)).status).toBe(200);
      expect((await raw(port, "/api/cancel", link, "POST")).status).toBe(403);
    }));
});

it("the page and its refusals may run nothing but their own script, in no frame", () =>
  withListener({ token: TOKEN }, async (port) => {
    for (const path of [`/?token=${TOKEN}`, "/"]) {
      const { head } = await raw(port, path, {});
      const policy = /content-security-policy: (.*)/.exec(head)?.[1] ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toMatch(/unsafe|\*|http/);
      for (const line of ["nosniff", "no-referrer", "x-frame-options: deny", "cross-origin-opener-policy: same-origin"])
        expect(head).toContain(line);
    }
    // Refusals too.
    expect((await raw(port, "/nothing", {})).head).toContain("x-content-type-options: nosniff");
  }));

it("the fetch handler without authorize refuses everything", async () => {
  const runtime = new Runtime();
  const handler = createInspectorHandler(runtime);
  for (const path of ["", "?token=x", "api/start", "api/feed/runs", "api/feed/figures", "api/log", "api/cassette"])
    expect([path, (await handler(new Request(`http://localhost/${path}`))).status]).toEqual([path, 403]);
  for (const name of actionNames) {
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
    expect([name, (await handler(new Request(`http://localhost/api/${name}`, init))).status]).toEqual([name, 403]);
  }
  await runtime.close();
});

describe("authorize", () => {
  const open = (options: InspectorOptions) => createInspectorHandler(new Runtime(), options);
  const ask = (handler: ReturnType<typeof open>, path = "api/start") =>
    handler(new Request(`http://localhost/${path}`));

  it.each<[string, unknown, number]>([
    ["false", false, 403],
    ["nothing", undefined, 403],
    ["a text", "yes", 403],
    ["a denial", { status: 401 }, 401],
    ["a misspelt right", { readonly: true }, 403],
    ["a right of another face", { agents: [] }, 403],
    ["a tenant and all tenants", { tenant: "a", allTenants: true }, 403],
    ["the runtime's own tenant", { tenant: "cadenza:operators" }, 403],
    ["a number as the tenant", { tenant: 1 }, 403],
    ["a text as a flag", { readOnly: "false" }, 403],
    ["an empty grant", {}, 200],
  ])("that returns %s", async (_what, grant, status) => {
    expect((await ask(open({ authorize: () => grant as false }))).status).toBe(status);
  });

  it("that throws refuses", async () => {
    const handler = open({
      authorize: () => {
        throw new Error("No.");
      },
    });
    expect((await ask(handler)).status).toBe(403);
    expect((await ask(handler, "")).status).toBe(403);
  });

  it("is told whether the user wants to look or to act", async () => {
    const actions: string[] = [];
    const handler = open({
      authorize: ({ action }) => {
        actions.push(action);
        return { readOnly: true };
      },
    });
    expect(await (await ask(handler)).json()).toMatchObject({ tenant: "", may_write: false });
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
    const refused = await handler(new Request("http://localhost/api/cancel", init));
    expect([refused.status, await refused.json()]).toMatchObject([403, { data: { reason: "read_only" } }]);
    expect(actions).toEqual(["list", "cancel"]);
  });
});

it.each<[string, InspectorOptions, string]>([
  ["a short token", { token: "short" }, "at least 16"],
  ["a token beside authorize", { token: TOKEN, authorize: () => false }, "beside authorize"],
  ["CORS", { cors: true } as InspectorOptions, "options.cors"],
  ["a negative time", { refreshMs: -1 }, "refreshMs"],
])("createInspectorNodeListener refuses %s", (_what, options, message) => {
  expect(() => createInspectorNodeListener(new Runtime(), options)).toThrow(message);
});
