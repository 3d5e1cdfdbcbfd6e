import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createContext, runInContext } from "node:vm";
import { build } from "tsup";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import publishing from "../../tsup.config.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** An application that runs agents in a worker, and makes the runtime while its modules load. */
const WORKER = `
  import { AgentRuntime } from "./dist/index.js";
  import { createAcpHandler } from "./dist/http.js";
  const runtime = new AgentRuntime();
  runtime.register("echo", async function* (input) { yield* input; });
  globalThis.handle = createAcpHandler(runtime);
`;

describe("in a runtime without Node", () => {
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "cadenza-worker-"));
    // The entries as they are published, without their types.
    const entry = { index: `${ROOT}src/index.ts`, http: `${ROOT}src/http.ts` };
    const outDir = join(folder, "dist");
    await build({ ...publishing, entry, outDir, format: "esm", dts: false, config: false, silent: true });
  }, 120_000);
  afterAll(() => rm(folder, { recursive: true }));

  it("the handler serves runs", async () => {
    await bundle("worker", WORKER);
    let isLoading = true;
    const inRequest = <T extends (...parameters: never[]) => unknown>(act: T): T =>
      ((...parameters: never[]) => {
        if (isLoading) throw new Error("Disallowed operation called within global scope.");
        return act(...parameters);
      }) as T;
    // A worker has the globals of the web, and no others. It refuses random numbers, timers and the network until its
    // first request.
    const worker = createContext({
      ...{ URL, URLSearchParams, TextEncoder, TextDecoder, Request, Response, Headers, ReadableStream },
      ...{ AbortController, AbortSignal, performance, clearTimeout, setTimeout: inRequest(setTimeout) },
      crypto: {
        getRandomValues: inRequest(crypto.getRandomValues.bind(crypto)),
        randomUUID: inRequest(crypto.randomUUID.bind(crypto)),
      },
      fetch: inRequest(() => Promise.reject(new Error("no network"))),
    }) as { handle?: (request: Request) => Promise<Response> };
    runInContext(await readFile(join(folder, "worker.global.js"), "utf8"), worker);
    isLoading = false;
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

  it("an import of a Node module fails, so that the other test is valid", async () => {
    for (const name of ["node:fs", "fs"])
      await expect(bundle("proof", `import "${name}"; ${WORKER}`)).rejects.toThrow(/failed/);
  });

  /** Bundles a program as for a browser: an import of a Node module cannot be resolved. */
  async function bundle(name: string, program: string): Promise<void> {
    await writeFile(join(folder, `${name}.js`), program);
    await build({
      entry: { [name]: join(folder, `${name}.js`) },
      outDir: folder,
      format: "iife",
      platform: "browser",
      noExternal: [/.*/],
      // Otherwise they would be resolved as modules of the worker.
      removeNodeProtocol: false,
      esbuildOptions: (options) => {
        options.nodePaths = [`${ROOT}node_modules`];
        options.logLevel = "silent";
      },
      config: false,
      silent: true,
    });
  }
});
