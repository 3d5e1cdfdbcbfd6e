import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { appears, openBrowser, until } from "../browser/browser.ts";
import { faultOf, runProgram } from "../harness/processes.ts";
import { ROOT } from "./pages.ts";

/** Only what hangs takes longer. */
const BUILD_TIMEOUT_MS = 180_000;
const PHONE = { width: 390, height: 844 };
const browser: Browser | undefined = await openBrowser();

describe.skipIf(browser === undefined)("the site of the documentation", () => {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-site-"));
  let page: Page;

  beforeAll(async () => {
    const program = ["node_modules/tsx/dist/cli.mjs", "scripts/docs/build.ts", folder];
    expect(faultOf(await runProgram(program, { cwd: ROOT, timeoutMs: BUILD_TIMEOUT_MS }))).toBeUndefined();
    page = await (browser as Browser).newPage();
  }, BUILD_TIMEOUT_MS);

  afterAll(async () => {
    await browser?.close();
    rmSync(folder, { recursive: true });
  });

  const open = async (path: string): Promise<void> => {
    await page.goto(pathToFileURL(join(folder, path)).href);
  };

  it.each([
    ["a method by its name", "resume", "AgentRuntime.resume", "resume"],
    ["a page by what it tells", "Kubernetes", "Many machines", "Kubernetes"],
  ])("finds %s, without a server", async (_, query, result, told) => {
    await open("index.html");
    await page.click("#tsd-search-trigger");
    await page.type("#tsd-search-input", query);
    const found = `[...document.querySelectorAll("#tsd-search-results a")].find(({ innerText }) => innerText.includes("${result}"))`;
    await until(page, `${found} !== undefined`);
    await page.evaluate(`${found}.click()`);
    await until(page, `document.querySelector(".col-content")?.innerText.includes("${told}")`);
  });

  it.each(["cancel", "session", "postgres"])("brings a page first to who looks for %s", async (query) => {
    await open("index.html");
    await page.click("#tsd-search-trigger");
    await page.type("#tsd-search-input", query);
    const first = `document.querySelector("#tsd-search-results a")`;
    await until(page, `${first} !== null`);
    expect(await page.evaluate(`${first}.href`)).toContain("/documents/");
  });

  it.each([
    "index.html",
    "documents/Concepts.html",
    "documents/Durable_runs.html",
    "documents/Limits.html",
    "modules/cadenza.html",
  ])("%s is no wider than a phone", async (path) => {
    await page.setViewport(PHONE);
    await open(path);
    await appears(page, "h1");
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(PHONE.width);
  });
});
