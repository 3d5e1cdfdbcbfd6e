import { exec, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, describe, expect, test, vi } from "vitest";
import { GET, POST } from "../../examples/http/nextjs/app/api/agents/[...path]/route.ts";
import { agentTransport } from "../../examples/http/nextjs/app/chat/transport.ts";
import worker from "../../examples/http/worker.ts";
import { Client } from "./client.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

afterEach(() => {
  vi.unstubAllEnvs();
  vi.unstubAllGlobals();
});

describe("the examples of mounting", () => {
  test.each([
    ["node-http", ""],
    ["express", "/acp"],
    ["fastify", "/acp"],
    ["koa", "/acp"],
    ["hono", "/acp"],
  ])("%s serves a run", async (name, path) => {
    const port = await freePort();
    vi.stubEnv("PORT", String(port));
    await import(`../../examples/http/${name}.ts`);
    const client = new Client({ base: `http://127.0.0.1:${port}${path}`, fetch: patientFetch });
    expect((await client.run("echo", "hi")).json).toMatchObject({ status: "completed" });
    expect((await client.run("echo", "hi", { mode: "stream" })).events.at(-1)?.event).toBe("run.completed");
    expect((await client.get("/nothing")).status).toBe(404);
  });

  test("are all tried, and are short", () => {
    const files = readdirSync(`${ROOT}examples/http`, { recursive: true, encoding: "utf8" });
    const code = files.filter((file) => /\.(ts|jsx)$/.test(file));
    expect(code).toHaveLength(10);
    for (const file of code) {
      const lines = readFileSync(`${ROOT}examples/http/${file}`, "utf8").trimEnd().split("\n");
      expect(lines.length, file).toBeLessThan(25);
    }
  });

  test("Workers: a run is served, and one that is async is waited for", async () => {
    const waiting: Promise<void>[] = [];
    const context = { waitUntil: (rest: Promise<void>) => waiting.push(rest) };
    const client = new Client({ base: "http://worker.test", fetch: (request) => worker.fetch(request, {}, context) });
    expect((await client.run("echo", "hi")).json).toMatchObject({ status: "completed" });
    expect(waiting).toEqual([]);
    const { json } = await client.run("echo", "hi", { mode: "async" });
    expect(json).toMatchObject({ status: "created" });
    await Promise.all(waiting);
    expect((await client.get(`/runs/${json["run_id"]}`)).json).toMatchObject({ status: "completed" });
  });

  test("Next.js: the route serves runs, and useChat gets its chunks from it", async () => {
    expect((await GET(new Request("http://next.test/api/agents/agents"))).status).toBe(200);
    vi.stubGlobal("fetch", (url: string, init: RequestInit) => POST(new Request(`http://next.test${url}`, init)));
    const send = (text: string) =>
      agentTransport("echo").sendMessages({
        ...{ trigger: "submit-message", messageId: undefined, abortSignal: undefined, chatId: crypto.randomUUID() },
        messages: [{ id: "1", role: "user", parts: [{ type: "text", text }] }],
      });
    const chunks: unknown[] = [];
    for await (const chunk of (await send("a b")) as unknown as AsyncIterable<unknown>) chunks.push(chunk);
    expect(chunks).toEqual([
      { type: "text-start", id: "1" },
      { type: "text-delta", id: "1", delta: "a " },
      { type: "text-delta", id: "1", delta: "b" },
      { type: "text-end", id: "1" },
    ]);
    vi.stubGlobal("fetch", async () => new Response("no", { status: 503 }));
    await expect(send("x")).rejects.toThrow("no");
  });
});

test("npm run demo:serve prints three commands that work", async () => {
  const child = spawn(process.execPath, ["--import", "tsx", "examples/serve.ts"], {
    cwd: ROOT,
    env: { ...process.env, PORT: String(await freePort()) },
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    let said = "";
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (text: string) => {
      said += text;
    });
    while (countOf(said) < 3 && child.exitCode === null)
      await Promise.race([once(child.stdout, "data"), once(child, "close")]);
    const commands = said.match(/^curl .*$/gm) ?? [];
    const answers = await Promise.all(commands.map(async (command) => (await promisify(exec)(command)).stdout));
    expect(answers[0]).toContain('"name":"echo"');
    expect(answers[1]).toContain("event: run.completed");
    expect(answers[2]).toContain('"status":"awaiting"');
  } finally {
    child.kill();
    if (child.exitCode === null && child.signalCode === null) await once(child, "close");
  }
}, 60_000);

function countOf(text: string): number {
  return (text.match(/^curl .*\n/gm) ?? []).length;
}

/** A server that has been told to listen may not do so yet. */
async function patientFetch(request: Request): Promise<Response> {
  for (let tries = 0; ; tries++) {
    try {
      return await fetch(request.clone());
    } catch (error) {
      if (tries === 200) throw error;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
