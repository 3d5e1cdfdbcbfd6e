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
  const executablePath = await chromium.executablePath();
  return launch({ executablePath, args: [...chromium.args, "--no-sandbox"], headless: "shell" });
}

/** Clicks a button or an input as soon as it is there and takes it: within the page, since text that streams in above it moves it. */
export async function click(page: Page, selector: string, timeout: number): Promise<void> {
  const element = `document.querySelector(${JSON.stringify(selector)})`;
  await page.waitForFunction(`${element}?.disabled === false && (${element}.click(), true)`, { timeout });
}
