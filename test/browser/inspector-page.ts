import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { createInspectorNodeListener } from "cadenza/inspector";
import type { Browser, Page } from "puppeteer-core";
import { until } from "./browser.ts";
import type { Shop } from "./inspector-seed.ts";
import { openShop } from "./inspector-seed.ts";

const TOKEN = "the-token-of-the-test";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** An operator at the inspector's page, who clicks and types. */
export class Operator {
  readonly page: Page;
  /** Requests to other places than the server, errors of the page, and what its policy has refused. */
  readonly wrong: string[] = [];

  constructor(page: Page) {
    this.page = page;
  }

  /** Opens the inspector. */
  async open(origin: string, path: string): Promise<void> {
    const { page, wrong } = this;
    page.on("request", (request) => {
      if (!request.url().startsWith(origin)) wrong.push(`request to ${request.url()}`);
    });
    page.on("pageerror", (error) => wrong.push(String(error)));
    await page.exposeFunction("refusedByPolicy", (what: string) => wrong.push(`policy: ${what}`));
    await page.evaluateOnNewDocument(`addEventListener("securitypolicyviolation", (event) => {
      refusedByPolicy(event.violatedDirective + " " + event.blockedURI + " " + event.sample);
    })`);
    await page.goto(`${origin}${path}`);
  }

  /** Shows another place of the page, without loading it again. */
  async go(place: string): Promise<void> {
    await this.page.evaluate((hash) => {
      (globalThis as unknown as { location: { hash: string } }).location.hash = hash;
    }, place);
  }

  /** Waits until the page shows a text. White space does not count. */
  async sees(text: string): Promise<void> {
    const shown = `document.querySelector("main").innerText.replace(/\\s+/g, " ")`;
    const wanted = text.replace(/\s+/g, " ").trim();
    await until(this.page, `${shown}.includes(${JSON.stringify(wanted)})`);
  }

  /** Presses a button, or follows a link, that is named so. */
  async press(label: string): Promise<void> {
    const found = `[...document.querySelectorAll("main button, main a")].find((e) => e.textContent.trim() === ${JSON.stringify(label)} && !e.disabled)`;
    await until(this.page, `${found} !== undefined && (${found}.click(), true)`);
  }

  /** Types into the first field of this name. */
  async type(label: string, text: string): Promise<void> {
    const field = `[...document.querySelectorAll("main label")].find((e) => e.textContent.trim().startsWith(${JSON.stringify(label)}))?.control`;
    await until(this.page, `${field} != null && (${field}.focus(), true)`);
    await this.page.keyboard.type(text);
  }

  /** What axe would mend in the page. */
  async violations(): Promise<readonly string[]> {
    // It is half a megabyte, which a page keeps until it is loaded again.
    if (await this.page.evaluate("globalThis.axe === undefined")) await this.page.evaluate(axe);
    return (await this.page.evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(
      ({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" | ")))`)) as string[];
  }
}

/** The inspector of the made-up shop in a browser. */
export interface ShopPage {
  readonly shop: Shop;
  readonly page: Page;
  readonly operator: Operator;
  /** Closes the browser, too. */
  close(): Promise<void>;
}

/** Opens the shop, and shows its runs in a browser. */
export async function openShopPage(browser: Browser): Promise<ShopPage> {
  const shop = await openShop();
  const options = { token: TOKEN, refreshMs: 200, schedules: shop.plans };
  const server = createServer(createInspectorNodeListener(shop.runtime, options)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  const operator = new Operator(page);
  await operator.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, `/?token=${TOKEN}#/runs`);
  await operator.sees("refund 7");
  const close = async (): Promise<void> => {
    await browser.close();
    server.closeAllConnections();
    server.close();
    await shop.close();
  };
  return { shop, page, operator, close };
}
