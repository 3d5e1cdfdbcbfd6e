import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { AgentRuntime, defineAgent } from "cadenza";
import { createNodeListener } from "cadenza/ai-sdk";
import { SqliteStore } from "cadenza/sqlite";
import type { Page } from "puppeteer-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import type { Deferred } from "../harness/promises.ts";
import { deferred } from "../harness/promises.ts";
import { openDatabase } from "../harness/sqlite-files.ts";
import { openBrowser } from "./browser.ts";
import type { ChatVersion } from "./chat-rows.ts";
import { chatVersions } from "./chat-rows.ts";
import { CHAT_PAGE, chatProgram } from "./chat-server.ts";

/*
 * A page with `chatOptions` whose server is away for a while goes on by itself, and shows each text once.
 * `CADENZA_AWAY_S=60 npx vitest run test/browser/server-away.system.test.ts` is away for longer.
 */

const AWAY_S = Number(process.env["CADENZA_AWAY_S"] ?? 2);
const WAIT_MS = 40_000 + AWAY_S * 1_000;

/** A server on a file, which may be away, or replaced by another process of the same file. */
class Place {
  readonly #folder = mkdtempSync(join(tmpdir(), "cadenza-away-"));
  readonly #programs = new Map<string, string>();
  /** What the runs wait for, by their words. */
  readonly #gates = new Map<string, Deferred<void>>();
  #runtime: AgentRuntime | undefined;
  #answer: ReturnType<typeof createNodeListener> | undefined;
  #server: Server | undefined;
  #port = 0;

  async build(): Promise<void> {
    for (const version of chatVersions) this.#programs.set(version, await chatProgram(version));
    this.#start();
    await this.listen();
  }

  get runtime(): AgentRuntime {
    if (this.#runtime === undefined) throw new Error("The server is away.");
    return this.#runtime;
  }

  async listen(): Promise<void> {
    this.#server = createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url ?? "", "http://localhost");
      if (pathname.startsWith("/chat/")) return void this.#answer?.(request, response);
      if (pathname !== "/page.js") return void response.setHeader("content-type", "text/html").end(page(searchParams));
      return void response
        .setHeader("content-type", "text/javascript")
        .end(this.#programs.get(searchParams.get("version") ?? ""));
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
    await this.runtime.close({ drainMs: 0 });
  }

  async comeBack(): Promise<void> {
    this.#start();
    await this.listen();
  }

  /** Another process takes over, and this one is closed as in a deployment. */
  async replace(): Promise<void> {
    const before = this.runtime;
    this.#start();
    await before.close({ drainMs: 100 });
  }

  gate(words: string): Deferred<void> {
    const gate = this.#gates.get(words) ?? deferred();
    this.#gates.set(words, gate);
    return gate;
  }

  address(version: ChatVersion, chat: string): string {
    const query = new URLSearchParams({ version, chat: `${chat} ${version}`, transport: "chatOptions" });
    return `http://127.0.0.1:${this.#port}/?${query}`;
  }

  async close(): Promise<void> {
    this.#server?.closeAllConnections();
    this.#server?.close();
    await this.#runtime?.close({ drainMs: 0 });
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #start(): void {
    const store = new SqliteStore(openDatabase(join(this.#folder, "runs.db")), { closeDatabase: true });
    this.#runtime = new AgentRuntime({ store, agents: [this.#desk()] });
    this.#answer = createNodeListener(this.#runtime, { basePath: "/chat" });
  }

  #desk() {
    const gate = (words: string): Promise<void> => this.gate(words).promise;
    return defineAgent("desk", { durable: true }, async function* (input, { ask, step }) {
      const words = input.at(-1)?.parts[0]?.content ?? "";
      yield "One ";
      if (words.startsWith("ask")) {
        const { approved } = await ask("Refund 40 €?", { schema: z.object({ approved: z.boolean() }) });
        yield approved ? "yes " : "no ";
      }
      await step("wait", ({ signal }) => Promise.race([gate(words), aborted(signal)]));
      yield "two.";
    });
  }
}

function page(query: URLSearchParams): string {
  return CHAT_PAGE.replace("/page.js", `/page.js?version=${encodeURIComponent(query.get("version") ?? "")}`);
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
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

/** The page of a chat that has sent its words, and shows a text. */
async function open(version: ChatVersion, words: string, text: string): Promise<Page> {
  if (browser === undefined) throw new Error("There is no browser.");
  const tab = await browser.newPage();
  await tab.goto(place.address(version, words));
  await tab.waitForFunction("window.chat !== undefined", { timeout: WAIT_MS });
  await tab.evaluate(`void chat.sendMessage({ text: ${JSON.stringify(words)} })`);
  await shows(tab, text);
  return tab;
}

const SAID = `chat.messages.flatMap(({ role, parts }) =>
  role === "assistant" ? parts.map((part) => part.text ?? "") : []).join("")`;
const QUESTION = `chat.messages.flatMap(({ parts }) => parts).find((part) => part.state === "input-available")`;

async function shows(tab: Page, text: string): Promise<void> {
  await tab.waitForFunction(`${SAID} === ${JSON.stringify(text)}`, { timeout: WAIT_MS });
}

async function asks(tab: Page): Promise<void> {
  await tab.waitForFunction(`${QUESTION} !== undefined && chat.status === "ready"`, { timeout: WAIT_MS });
}

async function answers(tab: Page): Promise<void> {
  await tab.evaluate(`void chat.addToolOutput({
    tool: "ask", toolCallId: ${QUESTION}.toolCallId, output: { approved: true } })`);
}

/** What the page shows when it rests. */
async function atRest(tab: Page): Promise<unknown> {
  await tab.waitForFunction(`chat.status === "ready" || chat.status === "error"`, { timeout: WAIT_MS });
  return tab.evaluate(`({ said: ${SAID}, messages: chat.messages.length, error: chat.error?.message })`);
}

const inStream = { said: "One two.", messages: 2 };
const atQuestion = { said: "One yes two.", messages: 2 };

/** Runs of all versions in a stream, at a question, and after an answer, while something happens to the server. */
async function goOn(name: string, happen: (tabs: readonly Page[]) => Promise<void>): Promise<void> {
  const words = { stream: `stream ${name}`, question: `ask ${name}`, answered: `ask and answer ${name}` };
  const tabs: Page[] = [];
  for (const version of chatVersions) {
    const stream = await open(version, words.stream, "One ");
    const question = await open(version, words.question, "One ");
    const answered = await open(version, words.answered, "One ");
    for (const tab of [question, answered]) await asks(tab);
    await answers(answered);
    await shows(answered, "One yes ");
    tabs.push(stream, question, answered);
  }
  await happen(tabs.filter((_, index) => index % 3 === 1));
  for (const each of Object.values(words)) place.gate(each).resolve();
  for (const [index, tab] of tabs.entries()) {
    const wanted = index % 3 === 0 ? inStream : atQuestion;
    await shows(tab, wanted.said);
    expect(await atRest(tab)).toEqual(wanted);
  }
  expect((await place.runtime.listRuns()).filter(({ status }) => status !== "completed")).toEqual([]);
  await Promise.all(tabs.map((tab) => tab.close()));
}

test.skipIf(browser === undefined)(
  `pages go on when their server was away for ${AWAY_S} seconds, and an answer that is given meanwhile is sent`,
  () =>
    goOn("away", async (asking) => {
      await place.leave();
      await Promise.all(asking.map(answers));
      await setTimeout(AWAY_S * 1_000);
      await place.comeBack();
    }),
  120_000 + WAIT_MS,
);

test.skipIf(browser === undefined)(
  "pages go on when another process takes the place of their server, as in a deployment",
  () =>
    goOn("deployment", async (asking) => {
      await place.replace();
      await Promise.all(asking.map(answers));
    }),
  120_000 + WAIT_MS,
);
