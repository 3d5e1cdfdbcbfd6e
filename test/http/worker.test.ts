import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createContext, runInContext } from "node:vm";
import { build } from "tsup";
import { expect, onTestFinished, test } from "vitest";

const source = (entry: string): string =>
  JSON.stringify(fileURLToPath(new URL(`../../src/${entry}.ts`, import.meta.url)));

const WORKER = `
  import { AgentRuntime } from ${source("index")};
  import { createHandler } from ${source("http")};
  const runtime = new AgentRuntime();
  runtime.register("echo", async function* (input) { yield* input; });
  globalThis.handle = createHandler(runtime);
`;

test("the handler serves runs where there is no Node", async () => {
  const folder = await mkdtemp(join(tmpdir(), "cadenza-worker-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, "worker.ts"), WORKER);
  await build({
    entry: { worker: join(folder, "worker.ts") },
    outDir: folder,
    format: "iife",
    // Nothing of Node can be found here: an import of it fails the build.
    platform: "browser",
    noExternal: [/.*/],
    config: false,
    silent: true,
  });
  // What a worker has: the web's own globals, and no others.
  const worker = createContext({
    ...{ URL, URLSearchParams, TextEncoder, TextDecoder, Request, Response, Headers, ReadableStream },
    ...{
      AbortController,
      AbortSignal,
      crypto,
      setTimeout,
      clearTimeout,
      fetch: () => Promise.reject(new Error("no network")),
    },
  }) as { handle?: (request: Request) => Promise<Response> };
  runInContext(await readFile(join(folder, "worker.global.js"), "utf8"), worker);
  const send = async (mode: string): Promise<Response | undefined> => {
    const body = JSON.stringify({ agent_name: "echo", mode, input: [{ parts: [{ content: "hi" }] }] });
    const headers = { "content-type": "application/json" };
    return worker.handle?.(new Request("https://worker.example/runs", { method: "POST", body, headers }));
  };
  expect(await (await send("sync"))?.json()).toMatchObject({
    status: "completed",
    output: [{ parts: [{ content: "hi" }] }],
  });
  expect(await (await send("stream"))?.text()).toContain("event: run.completed\n");
  expect((await send("async"))?.status).toBe(202);
});
