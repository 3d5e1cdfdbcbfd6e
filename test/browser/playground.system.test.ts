import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import { createInspectorNodeListener } from "cadenza/inspector";
import { durable } from "cadenza/store";
import { createPlayground } from "cadenza/testing";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { persistent } from "../harness/store-proxy.ts";
import { openBrowser } from "./browser.ts";
import { Operator } from "./inspector-page.ts";

const browser = await openBrowser();
const TOKEN = "the-token-of-the-test";
const store = persistent(new MemoryStore());
let runtime: AgentRuntime;
let server: Server;
let port = 0;
let page: Page;
let operator: Operator;

/** Loads the code, as a process of `dev` that begins after a save does. */
async function load(weigh: () => string, ship: () => string): Promise<void> {
  const playground = createPlayground();
  const agent = defineAgent("order", { durable: true }, async function* (_input, { step }) {
    yield `Weighs ${await step("weigh", weigh)}. `;
    yield `${await step("ship", ship)}.`;
  });
  runtime = new AgentRuntime({ store: durable(store), interceptors: [playground.interceptor], agents: [agent] });
  server = createServer(createInspectorNodeListener(runtime, { token: TOKEN, playground, refreshMs: 100 }));
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
}

async function unload(): Promise<void> {
  server.closeAllConnections();
  server.close();
  await runtime.close({ drainMs: 0 });
}

describe.skipIf(browser === undefined)("the playground", () => {
  const weighed: string[] = [];
  const weigh = (): string => {
    weighed.push("weighed");
    return "2 kg";
  };

  beforeAll(async () => {
    await load(weigh, () => "Shipped by sea");
    page = await (browser as Browser).newPage();
    await page.setViewport({ width: 1280, height: 800 });
    operator = new Operator(page);
    await operator.open(`http://127.0.0.1:${port}`, `/?token=${TOKEN}#/runs`);
  }, 60_000);

  afterAll(async () => {
    await browser?.close();
    await unload();
  }, 60_000);

  it("says what a save has changed, forks there by a click, and then at each save", async () => {
    const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
    await operator.go(`#/run//${run_id}`);
    await operator.sees("The code does what this run did.");
    expect(await operator.violations()).toEqual([]);

    await unload();
    await load(weigh, () => "Shipped by air");
    await operator.sees("The code of ship#1 differs.");
    await operator.press("Fork before ship#1");
    await operator.sees("Fork of");
    await operator.sees("Shipped by air.");
    expect(weighed).toEqual(["weighed"]);

    await page.click(".playground input[type=checkbox]");
    await operator.sees("Each save does the steps behind the change again");
    expect(await operator.violations()).toEqual([]);
    await unload();
    await load(weigh, () => "Shipped by train");
    await operator.sees("Shipped by train.");
    expect(weighed).toEqual(["weighed"]);
    expect(operator.wrong).toEqual([]);
  });
});
