import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { appears, click, openBrowser, PAGE_MS, submit, until } from "./browser.ts";
import { freePort, startExample } from "./servers.ts";

const browser = await openBrowser();
const folder = mkdtempSync(join(tmpdir(), "cadenza-desk-"));
let port: string;
let server: ChildProcess;
let address: string;

const start = async (): Promise<void> => {
  [server, address] = await startExample("desk/server.ts", port, join(folder, "desk.db"), "200");
};

beforeAll(async () => {
  if (browser === undefined) return;
  port = await freePort();
  await start();
}, PAGE_MS);

afterAll(async () => {
  await browser?.close();
  server?.kill("SIGTERM");
  if (server?.exitCode === null) await once(server, "exit");
  rmSync(folder, { recursive: true, force: true });
});

/** A page of a user. */
class Tab {
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  static async open(query: string): Promise<Tab> {
    if (browser === undefined) throw new Error("There is no browser.");
    const tab = new Tab(await browser.newPage());
    await tab.page.goto(`${address}/?${query}`);
    await appears(tab.page, "#status");
    return tab;
  }

  /** Sends a wish, and gives the query of the page that shows its run. */
  async wish(text: string): Promise<string> {
    await submit(this.page, "[name=wish]", text);
    await until(this.page, `location.search.includes("run=")`);
    return new URL(this.page.url()).search.slice(1);
  }

  async click(selector: string): Promise<void> {
    await click(this.page, selector);
  }

  /** Fills in the form, and sends it. */
  async reply(values: { readonly reason: string; readonly euros: string; readonly note?: string }): Promise<void> {
    const isApproved = await this.page
      .locator("#approved")
      .setTimeout(PAGE_MS)
      .map((box) => (box as unknown as { checked: boolean }).checked)
      .wait();
    if (!isApproved) await this.click("#approved");
    await this.page.select("#reason", values.reason);
    for (const [name, value] of Object.entries({ euros: values.euros, note: values.note ?? "" })) {
      await this.page.locator(`#${name}`).fill(value);
    }
    await this.click("#reply");
  }

  /** Waits until the text of an element contains a text. */
  async shows(selector: string, text: string): Promise<void> {
    const shown = `(document.querySelector(${JSON.stringify(selector)})?.textContent ?? "")`;
    await until(this.page, `${shown}.includes(${JSON.stringify(text)})`);
  }

  async has(selector: string): Promise<boolean> {
    return (await this.page.$(selector)) !== null;
  }
}

describe.skipIf(browser === undefined)("the page of the desk", () => {
  it("shows sub-agents while they are at work, and asks with a form that tells what does not fit", async () => {
    const tab = await Tab.open("user=ada");
    await tab.wish("My train was late.");
    await tab.shows("#search", "I look ");
    await tab.shows("#refund", "(in-progress): I see");
    await tab.shows("legend", "What do we pay back?");
    await tab.reply({ reason: "late", euros: "500" });
    await tab.shows("[data-field=euros]", "100");
    await tab.reply({ reason: "late", euros: "40", note: "Five hours." });
    await tab.shows("#answer", "You get 40 €.");
    await tab.shows("#refund", "(completed): I see what you may get back. A person has to approve it. I pay 40 €. ");
    await tab.shows("#status", "completed");
    expect(await tab.has("fieldset")).toBe(false);
  }, 120_000);

  it("shows the same after a reload, to a second tab of the user, and to no user of another company", async () => {
    const tab = await Tab.open("user=ada");
    const query = await tab.wish("My bag was damaged.");
    await tab.shows("legend", "What do we pay back?");
    await tab.page.reload();
    await tab.shows("legend", "What do we pay back?");

    const stranger = await Tab.open(query.replace("ada", "bob"));
    await stranger.shows("#error", "There is no run");
    expect(await stranger.has("fieldset")).toBe(false);

    const second = await Tab.open(query);
    await second.reply({ reason: "damaged", euros: "7" });
    await tab.shows("#answer", "You get 7 €.");
    await second.shows("#status", "completed");
  }, 120_000);

  it("goes on by itself when the server is killed in the middle and started again", async () => {
    const tab = await Tab.open("user=ada");
    await tab.wish("My train was late.");
    await tab.shows("#refund", "I see what ");
    server.kill("SIGKILL");
    await once(server, "exit");
    await start();
    await tab.reply({ reason: "late", euros: "12" });
    await tab.shows("#answer", "You get 12 €.");
    await tab.shows("#status", "completed");
  }, 180_000);

  it("declines, and stops", async () => {
    const tab = await Tab.open("user=bob");
    await tab.wish("I want money.");
    await tab.click("#decline");
    await tab.shows("#status", "failed");

    const stopped = await Tab.open("user=bob");
    await stopped.wish("I want money.");
    await stopped.click("#stop");
    await stopped.shows("#status", "cancelled");
  }, 120_000);
});

it("the page of the desk makes no request by itself", () => {
  for (const file of ["page.jsx", "schema-form.jsx", "client.ts"]) {
    const code = readFileSync(new URL(`../../examples/desk/${file}`, import.meta.url), "utf8");
    expect(code).not.toMatch(/fetch|EventSource|XMLHttpRequest|WebSocket/);
  }
});
