import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { nextTurn } from "../harness/promises.ts";
import { appears, click, openBrowser, submit, until } from "./browser.ts";
import { freePort, startExample } from "./servers.ts";

const browser = await openBrowser();
const folder = mkdtempSync(join(tmpdir(), "cadenza-chat-"));
let server: ChildProcess;
let address: string;

beforeAll(async () => {
  if (browser === undefined) return;
  [server, address] = await startExample("chat/main.ts", await freePort(), join(folder, "chat.db"), "150");
}, 30_000);

afterAll(async () => {
  await browser?.close();
  server?.kill("SIGTERM");
  if (server?.exitCode === null) await once(server, "exit");
  rmSync(folder, { recursive: true, force: true });
});

/** The server is started again in between, which takes a while on a busy machine. */
const LOOKING = "I am looking for your order. It is the night train to Penzance, which came five hours late. ";
const PAID = "The 40 € are on their way. ";

/** A page of a chat with helpers to use it. */
class Tab {
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  static async open(chat: string): Promise<Tab> {
    const page = await (browser as Browser).newPage();
    const tab = new Tab(page);
    await page.goto(`${address}/?chat=${chat}`);
    await appears(page, "#status");
    return tab;
  }

  async send(text: string): Promise<void> {
    await submit(this.page, "input", text);
  }

  /** Waits until the assistant has said all of this, or at least so much of it. */
  async hears(text: string): Promise<void> {
    await this.#says("startsWith", text);
  }

  /** Waits until this is the last that the assistant has said. */
  async hearsAtLast(text: string): Promise<void> {
    await this.#says("endsWith", text);
  }

  /** Clicks as soon as the assistant has said so much, within the page, so that it has said little more by then. */
  async clicksWhenItHears(selector: string, text: string): Promise<void> {
    await this.#says("startsWith", text, `(document.querySelector("${selector}").click(), true)`);
  }

  async #says(how: "startsWith" | "endsWith", text: string, then = "true"): Promise<void> {
    const said = `[...document.querySelectorAll("[data-role=assistant] span")].map((e) => e.textContent).join("")`;
    await until(this.page, `${said}.${how}(${JSON.stringify(text)}) && ${then}`);
  }

  /** Clicks when it is there. What React replaces meanwhile is looked for again. */
  async click(selector: string): Promise<void> {
    await click(this.page, selector);
  }

  async text(selector: string): Promise<string> {
    return this.page.$eval(selector, (element) => element.textContent ?? "");
  }

  /** What the assistant has said in the end. */
  async said(): Promise<string> {
    await until(this.page, `document.querySelector("#status").textContent === "ready"`);
    return this.page.$$eval("[data-role=assistant] span", (spans) => spans.map((span) => span.textContent).join(""));
  }

  /** Waits until the page shows so many refunds. */
  async refunds(count: number): Promise<void> {
    await until(this.page, `document.querySelector("#refunds").textContent === "${count}"`);
  }
}

it.skipIf(browser === undefined)(
  "a page shows tokens, a question, a stop, and goes on after a reload and a kill -9",
  async () => {
    const tab = await Tab.open("tour");
    await tab.send("Hello");
    expect(await tab.said()).toContain("You said “Hello”.");

    // Stop.
    const stopped = await Tab.open("stopped");
    await stopped.send("A story, please");
    await stopped.hears("And then ");
    await stopped.click("#stop");
    expect((await stopped.said()).split("And then ").length).toBeLessThan(100);

    // Killed in the middle of a model call: that call alone is made again, and what was shown of it is replaced.
    const refund = await Tab.open("refund");
    const before = await facts();
    await refund.send("A refund, please");
    await refund.clicksWhenItHears("#kill", "I am looking for ");
    await refund.click("#yes");
    await refund.hearsAtLast(PAID);
    expect(await facts()).toEqual({ modelCalls: before.modelCalls + 3, again: 1, refunds: 1 });
    await refund.refunds(1);
    // A page that is loaded while the run is at work shows what the killed attempt has said, one that is loaded after it does not.
    await refund.said();
    await refund.page.reload();
    await refund.hears(LOOKING + PAID);

    // Killed while it waits, and answered from a second tab after a reload.
    const waiting = await Tab.open("waiting");
    await waiting.send("Refund it");
    await appears(waiting.page, "#yes");
    await waiting.click("#kill");
    await isDown();
    const second = await Tab.open("waiting");
    await second.click("#yes");
    await second.hears(LOOKING + PAID);
    await second.refunds(2);
    expect(await facts()).toEqual({ modelCalls: before.modelCalls + 5, again: 1, refunds: 2 });
  },
  180_000,
);

async function facts(): Promise<{ readonly modelCalls: number }> {
  return (await fetch(`${address}/facts`)).json() as Promise<{ readonly modelCalls: number }>;
}

/** Waits until the server that was killed does not answer any more, and the one after it does. */
async function isDown(): Promise<void> {
  const answers = (): Promise<boolean> =>
    fetch(`${address}/facts`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (await answers()) await nextTurn();
  while (!(await answers())) await nextTurn();
}
