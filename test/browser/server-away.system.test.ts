import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { AgentRuntime } from "cadenza";
import { createChatNodeListener } from "cadenza/ai-sdk";
import { SqliteStore } from "cadenza/sqlite";
import { afterAll, beforeAll, it } from "vitest";
import type { Deferred } from "../harness/promises.ts";
import { deferred } from "../harness/promises.ts";
import { openDatabase } from "../harness/sqlite-files.ts";
import { openBrowser } from "./browser.ts";
import { chatVersions } from "./chat-rows.ts";
import { chatProgram } from "./chat-server.ts";
import { waitingDesk } from "./waiting-desk.ts";
import type { Happening, Site } from "./waiting-pages.ts";
import { goOnWith, pageAt, waitMsOf } from "./waiting-pages.ts";

/*
 * A page with `chatOptions` whose server is away for a while goes on by itself, and shows each text once.
 * `CADENZA_AWAY_S=60 npx vitest run test/browser/server-away.system.test.ts` is away for longer.
 */

const AWAY_S = Number(process.env["CADENZA_AWAY_S"] ?? 2);
const WAIT_MS = waitMsOf(AWAY_S);

/** A server on a file, which may be away, or replaced by another runtime on the same file. */
class Place implements Site {
  readonly #folder = mkdtempSync(join(tmpdir(), "cadenza-away-"));
  readonly #programs = new Map<string, string>();
  /** What the runs wait for, by their words. */
  readonly #gates = new Map<string, Deferred<void>>();
  #runtime: AgentRuntime | undefined;
  #answer: ReturnType<typeof createChatNodeListener> | undefined;
  #server: Server | undefined;
  #port = 0;

  async build(): Promise<void> {
    for (const version of chatVersions) this.#programs.set(version, await chatProgram(version));
    this.#start();
    await this.listen();
  }

  async listen(): Promise<void> {
    this.#server = createServer((request, response) => {
      const url = new URL(request.url ?? "", "http://localhost");
      if (url.pathname.startsWith("/chat/")) return void this.#answer?.(request, response);
      if (url.pathname !== "/page.js") return void response.setHeader("content-type", "text/html").end(pageAt(url));
      return void response
        .setHeader("content-type", "text/javascript")
        .end(this.#programs.get(url.searchParams.get("version") ?? ""));
    });
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** The connections break off, and the process ends. */
  async leave(): Promise<void> {
    const server = this.#server;
    server?.closeAllConnections();
    await new Promise((resolve) => server?.close(resolve));
    await this.#runtime?.close({ drainMs: 0 });
  }

  async comeBack(): Promise<void> {
    this.#start();
    await this.listen();
  }

  /** Another runtime takes over, and this one is closed as in a deployment. */
  async replace(): Promise<void> {
    const before = this.#runtime;
    this.#start();
    await before?.close({ drainMs: 100 });
  }

  get origin(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  goOn(words: string): void {
    this.#gate(words).resolve();
  }

  async statuses(): Promise<readonly string[]> {
    return ((await this.#runtime?.listRuns()) ?? []).map(({ status }) => status);
  }

  async close(): Promise<void> {
    this.#server?.closeAllConnections();
    this.#server?.close();
    await this.#runtime?.close({ drainMs: 0 });
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #start(): void {
    const store = new SqliteStore(openDatabase(join(this.#folder, "runs.db")), { closeDatabase: true });
    const desk = waitingDesk((words) => this.#gate(words).promise);
    this.#runtime = new AgentRuntime({ store, agents: [desk] });
    this.#answer = createChatNodeListener(this.#runtime, { basePath: "/chat" });
  }

  #gate(words: string): Deferred<void> {
    const gate = this.#gates.get(words) ?? deferred();
    this.#gates.set(words, gate);
    return gate;
  }
}

const browser = await openBrowser();
const place = new Place();

beforeAll(async () => {
  if (browser !== undefined) await place.build();
}, 120_000);
afterAll(async () => {
  await browser?.close();
  await place.close();
});

async function pagesGoOn(name: string, happen: (happening: Happening) => Promise<void>): Promise<void> {
  if (browser !== undefined) await goOnWith(browser, place, name, WAIT_MS, happen);
}

it.skipIf(browser === undefined)(
  `pages go on when their server was away for ${AWAY_S} seconds, and an answer that is given meanwhile is sent`,
  () =>
    pagesGoOn("away", async ({ answer, goOn }) => {
      await place.leave();
      await answer();
      await setTimeout(AWAY_S * 1_000);
      await place.comeBack();
      goOn();
    }),
  120_000 + WAIT_MS,
);

it.skipIf(browser === undefined)(
  "pages go on when another runtime takes the place of their server's",
  () =>
    pagesGoOn("replaced", async ({ answer, goOn }) => {
      await place.replace();
      await answer();
      goOn();
    }),
  120_000 + WAIT_MS,
);
