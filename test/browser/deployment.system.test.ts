import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { request as ask, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { afterAll, beforeAll, expect, it } from "vitest";
import { deferred } from "../harness/promises.ts";
import { openDatabase } from "../harness/sqlite-files.ts";
import type { BuiltProgram } from "../harness/worker-process.ts";
import { buildProgram, WorkerProcess } from "../harness/worker-process.ts";
import { openBrowser } from "./browser.ts";
import { chatVersions } from "./chat-rows.ts";
import { chatProgram } from "./chat-server.ts";
import type { ServerOrder, ServerReport, ServerSettings } from "./deployed-server.ts";
import type { Happening, Site } from "./waiting-pages.ts";
import { goOnWith, pageAt, waitMsOf } from "./waiting-pages.ts";

/*
 * A deployment: two processes on one file, behind a proxy. The old one gets SIGTERM, or is killed, and the new one takes its
 * place. Pages with `chatOptions` go on by themselves, and show each text once.
 * `CADENZA_AWAY_S=60 npx vitest run test/browser/deployment.system.test.ts` takes longer for each.
 */

const AWAY_S = Number(process.env["CADENZA_AWAY_S"] ?? 2);
const WAIT_MS = waitMsOf(AWAY_S);

/** A process with a server, and where it listens. */
class Deployed {
  readonly #process: WorkerProcess<ServerSettings, ServerOrder, ServerReport>;
  readonly port: Promise<number>;

  constructor(program: BuiltProgram, settings: ServerSettings) {
    const { promise, resolve } = deferred<number>();
    this.port = promise;
    this.#process = new WorkerProcess(program, settings, ({ port }) => resolve(port));
  }

  get gone(): Promise<unknown> {
    return this.#process.gone;
  }

  goOn(words: string): void {
    this.#process.order({ words });
  }

  terminate(): void {
    this.#process.terminate();
  }

  kill(): void {
    this.#process.kill();
  }
}

/** Serves the pages, and passes what they ask on to the process that is current. */
class Front implements Site {
  readonly #folder = mkdtempSync(join(tmpdir(), "cadenza-deployment-"));
  readonly #scripts = new Map<string, string>();
  readonly #processes = new Set<Deployed>();
  readonly #server = createServer((request, response) => this.#answer(request, response));
  #program: BuiltProgram | undefined;
  /** Where the current process listens. Undefined: there is none. */
  #port: number | undefined;

  async build(): Promise<void> {
    for (const version of chatVersions) this.#scripts.set(version, await chatProgram(version));
    this.#program = await buildProgram(new URL("./deployed-server.ts", import.meta.url));
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
  }

  /** Starts a process. It gets requests when it is made the current one. */
  async start(drainMs: number): Promise<Deployed> {
    const settings = { name: `server ${this.#processes.size}`, file: this.#file, drainMs };
    const started = new Deployed(this.#program as BuiltProgram, settings);
    this.#processes.add(started);
    await started.port;
    return started;
  }

  async passTo(current: Deployed | undefined): Promise<void> {
    this.#port = await current?.port;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  goOn(words: string): void {
    for (const each of this.#processes) each.goOn(words);
  }

  async statuses(): Promise<readonly string[]> {
    const store = new SqliteStore(openDatabase(this.#file), { closeDatabase: true });
    const runtime = new AgentRuntime({ store });
    try {
      return (await runtime.listRuns()).map(({ status }) => status);
    } finally {
      await runtime.close();
    }
  }

  async endAll(): Promise<void> {
    for (const each of this.#processes) each.kill();
    for (const each of this.#processes) await each.gone;
    this.#processes.clear();
  }

  async close(): Promise<void> {
    await this.endAll();
    this.#server.closeAllConnections();
    this.#server.close();
    this.#program?.remove();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  get #file(): string {
    return join(this.#folder, "runs.db");
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? "", "http://localhost");
    if (url.pathname.startsWith("/chat/")) return void this.#pass(request, response);
    if (url.pathname !== "/page.js") return void response.setHeader("content-type", "text/html").end(pageAt(url));
    return void response
      .setHeader("content-type", "text/javascript")
      .end(this.#scripts.get(url.searchParams.get("version") ?? ""));
  }

  /** As a proxy does: a page of its own where no process answers, and a connection that breaks off where one leaves. */
  #pass(request: IncomingMessage, response: ServerResponse): void {
    const refuse = (): void => {
      if (response.headersSent) response.destroy();
      else response.writeHead(502, { "content-type": "text/html" }).end("<h1>Bad gateway</h1>");
    };
    if (this.#port === undefined) return void refuse();
    const { method, url: path, headers } = request;
    const passed = ask({ host: "127.0.0.1", port: this.#port, method, path, headers, agent: false });
    passed.on("error", refuse);
    passed.on("response", (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
      answer.on("error", refuse);
    });
    response.on("close", () => passed.destroy());
    request.pipe(passed);
  }
}

const browser = await openBrowser();
const front = new Front();

beforeAll(async () => {
  if (browser !== undefined) await front.build();
}, 120_000);
afterAll(async () => {
  await browser?.close();
  await front.close();
});

interface Deployment {
  readonly name: string;
  readonly drainMs: number;
  /** What is done with the old process, and the new one. */
  readonly deploy: (old: Deployed, happening: Happening, start: () => Promise<Deployed>) => Promise<void>;
}

const deployments: readonly Deployment[] = [
  {
    name: "the old process drains while the new one serves, and its runs end meanwhile",
    drainMs: 60_000,
    deploy: async (old, { answer, goOn }, start) => {
      await front.passTo(await start());
      old.terminate();
      await answer();
      await setTimeout(AWAY_S * 1_000);
      goOn();
      await old.gone;
    },
  },
  {
    name: `the old process drains for ${AWAY_S} seconds while the new one serves, and leaves its runs to it`,
    drainMs: AWAY_S * 1_000,
    deploy: async (old, { answer, goOn }, start) => {
      await front.passTo(await start());
      old.terminate();
      await answer();
      await old.gone;
      goOn();
    },
  },
  {
    name: "the old process is killed while the new one serves",
    drainMs: 0,
    deploy: async (old, { answer, goOn }, start) => {
      await front.passTo(await start());
      old.kill();
      await answer();
      await old.gone;
      goOn();
    },
  },
  {
    name: `the old process ends, and no process serves for ${AWAY_S} seconds`,
    drainMs: 100,
    deploy: async (old, { answer, goOn }, start) => {
      old.terminate();
      await front.passTo(undefined);
      await answer();
      await old.gone;
      await setTimeout(AWAY_S * 1_000);
      await front.passTo(await start());
      goOn();
    },
  },
  {
    name: `the old process is killed, and no process serves for ${AWAY_S} seconds`,
    drainMs: 0,
    deploy: async (old, { answer, goOn }, start) => {
      old.kill();
      await front.passTo(undefined);
      await answer();
      await old.gone;
      await setTimeout(AWAY_S * 1_000);
      await front.passTo(await start());
      goOn();
    },
  },
];

it.skipIf(browser === undefined).each(deployments.map((deployment) => [deployment.name, deployment] as const))(
  "pages go on when %s",
  async (name, { drainMs, deploy }) => {
    if (browser === undefined) return;
    const old = await front.start(drainMs);
    await front.passTo(old);
    await goOnWith(browser, front, name, WAIT_MS, (happening) => deploy(old, happening, () => front.start(0)));
    expect(await front.statuses()).not.toEqual([]);
    await front.endAll();
  },
  180_000 + WAIT_MS,
);
