import { existsSync } from "node:fs";
import { platform } from "node:process";
import chromium from "@sparticuz/chromium";
import type { Browser, Page } from "puppeteer-core";
import { launch } from "puppeteer-core";

/** The browser that npm brings on Linux, or the one at `CHROME_PATH`. Undefined, with a printed line: there is none. */
export async function openBrowser(): Promise<Browser | undefined> {
  const own = process.env["CHROME_PATH"];
  if (own !== undefined && existsSync(own)) return launch({ executablePath: own, args: ["--no-sandbox"] });
  if (platform !== "linux") {
    // biome-ignore lint/suspicious/noConsole: it tells who runs the tests why they are skipped.
    console.log("Skipped: the tests in a browser. Set CHROME_PATH to the program of a Chrome.");
    return undefined;
  }
  const executablePath = await unpackBrowser();
  return launch({ executablePath, args: [...chromium.args, "--no-sandbox", "--disable-gpu"], headless: "shell" });
}

/** Unpacks the browser that npm brings, if it is packed, and gives its path. Two processes must not do that at once. */
export function unpackBrowser(): Promise<string> {
  // No page draws with WebGL. What emulates it for the whole browser takes a third of a test's time.
  chromium.setGraphicsMode = false;
  return chromium.executablePath();
}

/** How long a page may need for anything on a busy machine. */
export const PAGE_MS = 40_000;

/** Waits until an expression is true in a page. Fails with what the page shows. */
export async function until(page: Page, condition: string, timeout = PAGE_MS): Promise<void> {
  try {
    await page.waitForFunction(condition, { timeout });
  } catch (cause) {
    const shown = await page.evaluate("document.body.innerText").catch(String);
    throw new Error(`In the page it does not become true that ${condition}. It shows:\n${shown}`, { cause });
  }
}

/** Waits until a page has an element. */
export async function appears(page: Page, selector: string): Promise<void> {
  await until(page, `document.querySelector(${JSON.stringify(selector)}) !== null`);
}

/** Clicks a button or an input as soon as it is there and takes it: within the page, since text that streams in above it moves it. */
export async function click(page: Page, selector: string): Promise<void> {
  const element = `document.querySelector(${JSON.stringify(selector)})`;
  await until(page, `${element}?.disabled === false && (${element}.click(), true)`);
}

/**
 * Fills a field of a form and submits it, within the page: keys that a browser gets while it opens another tab may be lost.
 * React sees a new value by the setter of the browser, and its handlers have it in the next frame.
 */
export async function submit(page: Page, selector: string, text: string): Promise<void> {
  const field = `document.querySelector(${JSON.stringify(selector)})`;
  const fill = `Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(${field}, ${JSON.stringify(text)})`;
  const tell = `${field}.dispatchEvent(new Event("input", { bubbles: true }))`;
  await until(page, `${field}.value === ${JSON.stringify(text)} || (${fill}, ${tell}, false)`);
  await page.evaluate(`${field}.form.requestSubmit()`);
}
