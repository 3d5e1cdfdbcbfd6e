import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import { createChatNodeListener } from "cadenza/ai-sdk";
import type { Page } from "puppeteer-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { deskAgent } from "../../examples/chat/desk.ts";
import { Ledger } from "../../examples/chat/ledger.ts";
import { bundleOf } from "../../examples/page-bundle.ts";
import { appears, click, openBrowser, PAGE_MS, submit, until } from "./browser.ts";

/** The packages of `useChat`, by the version of `ai`. */
const versions = { "ai 5": "ai-sdk-react-5", "ai 6": "@ai-sdk/react", "ai 7": "ai-sdk-react-7" };
const LOOKING = "I am looking for your order. It is the night train to Penzance, which came five hours late. ";

const browser = await openBrowser();
const folder = mkdtempSync(join(tmpdir(), "cadenza-use-chat-"));
const ledger = new Ledger(join(folder, "ledger"));
const runtime = new AgentRuntime({ agents: [deskAgent(ledger, 30)] });
const chat = createChatNodeListener(runtime, { basePath: "/chat" });
let server: Server;
let address: string;

beforeAll(async () => {
  if (browser === undefined) return;
  const entry = fileURLToPath(new URL("../../examples/chat/page.jsx", import.meta.url));
  const bundles = new Map<string, string>();
  for (const name of Object.values(versions)) bundles.set(name, await bundleOf(entry, { "@ai-sdk/react": name }));
  server = createServer((request, response) => {
    const url = new URL(request.url ?? "", "http://localhost");
    const program = bundles.get(url.searchParams.get("with") ?? "");
    if (url.pathname.startsWith("/chat/")) return void chat(request, response);
    if (url.pathname === "/facts") return void response.end(JSON.stringify(ledger.facts));
    if (url.pathname === "/page.js") return void response.setHeader("content-type", "text/javascript").end(program);
    const page = `<!doctype html><main id="page"></main><script type="module" src="/page.js${url.search}"></script>`;
    response.setHeader("content-type", "text/html").end(page);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}, PAGE_MS);

afterAll(async () => {
  await browser?.close();
  server?.closeAllConnections();
  server?.close();
  await runtime.close({ drainMs: 0 });
  rmSync(folder, { recursive: true, force: true });
});

async function open(name: string, id: string): Promise<Page> {
  if (browser === undefined) throw new Error("There is no browser.");
  const page = await browser.newPage();
  await page.goto(`${address}/?with=${name}&chat=${encodeURIComponent(`${name} ${id}`)}`);
  await appears(page, "#status");
  return page;
}

async function send(page: Page, text: string): Promise<void> {
  await submit(page, "input", text);
}

/** Waits until all that the assistant has said begins with a text, or is it. */
async function hears(page: Page, text: string, how: "startsWith" | "endsWith" = "startsWith"): Promise<void> {
  const said = `[...document.querySelectorAll("[data-role=assistant] span")].map((e) => e.textContent).join("")`;
  await until(page, `${said}.${how}(${JSON.stringify(text)})`);
}

it.skipIf(browser === undefined).each(Object.entries(versions))(
  "useChat of %s streams, stops, asks, and shows a question again after a reload",
  async (_, name) => {
    const stopped = await open(name, "stopped");
    await send(stopped, "A story, please");
    await hears(stopped, "And then ");
    await click(stopped, "#stop");
    await until(stopped, `document.querySelector("#status").textContent === "ready"`);

    const page = await open(name, "asked");
    await send(page, "A refund, please");
    await hears(page, LOOKING);
    await appears(page, "#yes");
    await page.reload();
    await click(page, "#yes");
    await hears(page, `${LOOKING}The 40 € are on their way. `);
    await page.reload();
    await hears(page, `${LOOKING}The 40 € are on their way. `);

    const reloaded = await open(name, "reloaded");
    await send(reloaded, "Hello");
    await hears(reloaded, "You said ");
    await reloaded.reload();
    await hears(reloaded, "look into it. ", "endsWith");
    await Promise.all([stopped, page, reloaded].map((each) => each.close()));
  },
  120_000,
);

it.skipIf(browser === undefined)("each refund was paid once", () => {
  expect(ledger.facts.refunds).toBe(Object.keys(versions).length);
});
