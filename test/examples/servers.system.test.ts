import { exec, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, inject, it } from "vitest";
import { PROCESS_TIMEOUT_MS } from "../harness/processes.ts";
import { Client } from "../http/client.ts";

const FOLDER = fileURLToPath(new URL("../../examples/http/", import.meta.url));
/** The examples of mounting, and where they mount the service. */
const mounts: readonly (readonly [name: string, path: string])[] = [
  ["node-http", ""],
  ["express", "/acp"],
  ["nest", "/acp"],
  ["fastify", "/acp"],
  ["koa", "/acp"],
  ["hono", "/acp"],
];

describe.concurrent("the examples of mounting", { timeout: PROCESS_TIMEOUT_MS }, () => {
  it.each(mounts)("%s serves runs, and ends when it is told to", async (name, path) => {
    await serving(`http/${name}.js`, async ({ port }) => {
      const client = new Client({ base: `http://127.0.0.1:${port}${path}`, fetch: patientFetch });
      expect((await client.run("echo", "hi")).json).toMatchObject({ status: "completed" });
      expect((await client.run("echo", "hi", { mode: "stream" })).events.at(-1)?.event).toBe("run.completed");
      expect((await client.get("/nothing")).status).toBe(404);
    });
  });

  it("are all tried, and are short", () => {
    const files = readdirSync(FOLDER).filter((file) => file.endsWith(".ts"));
    // The example for Workers has no process, and a test of its own.
    expect(files.sort()).toEqual([...mounts.map(([name]) => `${name}.ts`), "worker.ts"].sort());
    for (const file of files) {
      const lines = readFileSync(join(FOLDER, file), "utf8").trimEnd().split("\n");
      expect(lines.length, file).toBeLessThan(35);
    }
  });
});

it("npm run demo -- serve prints three commands that work, and ends when it is told to", {
  timeout: PROCESS_TIMEOUT_MS,
}, async () => {
  await serving("serve.js", async ({ stdout }) => {
    const commands: string[] = [];
    for await (const line of createInterface({ input: stdout })) {
      if (line.startsWith("curl ")) commands.push(line);
      if (commands.length === 3) break;
    }
    const answers = await Promise.all(commands.map(async (command) => (await promisify(exec)(command)).stdout));
    expect(answers[0]).toContain('"name":"echo"');
    expect(answers[1]).toContain("event: run.completed");
    expect(answers[2]).toContain('"status":"awaiting"');
  });
});

interface Served {
  readonly port: number;
  readonly stdout: Readable;
}

/** Starts an example, and stops it with SIGTERM: it has to end with code 0. */
async function serving(file: string, use: (server: Served) => Promise<void>): Promise<void> {
  const port = await freePort();
  const child = spawn(process.execPath, [`examples/${file}`], {
    cwd: inject("projectFolder"),
    env: { ...process.env, PORT: String(port) },
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const ended = once(child, "exit");
    await use({ port, stdout: child.stdout });
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  } finally {
    child.kill("SIGKILL");
  }
}

/** Repeats a request until the server listens. */
async function patientFetch(request: Request): Promise<Response> {
  for (;;) {
    try {
      return await fetch(request.clone());
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
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
