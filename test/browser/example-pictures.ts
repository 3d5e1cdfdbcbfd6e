import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser, Page } from "puppeteer-core";
import { appears, click, openBrowser, until } from "./browser.ts";
import { freePort, startExample } from "./servers.ts";

const FOLDER = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));

/**
 * Makes the pictures of the chat and of the travel desk in docs/pictures, from the demos themselves: before their server
 * is killed, while it is away, and after.
 */
export async function takeExamples(onTaken: (path: string) => void): Promise<void> {
  const browser = await openBrowser();
  if (browser === undefined) throw new Error("There is no browser.");
  const files = mkdtempSync(join(tmpdir(), "cadenza-pictures-"));
  mkdirSync(FOLDER, { recursive: true });
  const take: Take = async (page, name) => {
    await page.screenshot({ path: `${FOLDER}${name}.png`, optimizeForSpeed: false });
    onTaken(`docs/pictures/${name}.png`);
  };
  await takeChat(browser, files, take);
  await takeDesk(browser, files, take);
  await browser.close();
  rmSync(files, { recursive: true, force: true });
}

type Take = (page: Page, name: string) => Promise<void>;

/** The chat, whose server is killed by a button and started again by itself. */
async function takeChat(browser: Browser, files: string, take: Take): Promise<void> {
  const [server, address] = await startExample("chat/main.ts", await freePort(), join(files, "chat.db"), "150");
  const page = await opened(browser, `${address}/?chat=picture`);
  await page.type("input", "I want a refund for my train, please");
  await page.keyboard.press("Enter");
  await shows(page, "Penzance");
  await take(page, "chat-before");
  await click(page, "#kill");
  await appears(page, "[data-server=away]");
  await take(page, "chat-killed");
  await click(page, "#yes");
  await shows(page, "on their way");
  await until(page, `document.querySelector("#refunds").innerText === "1"`);
  await until(page, `document.querySelector("#status").innerText === "ready"`);
  await take(page, "chat-after");
  await ended(server);
}

/** The desk, whose server is killed while a form waits, and started again by hand. */
async function takeDesk(browser: Browser, files: string, take: Take): Promise<void> {
  const port = await freePort();
  const start = () => startExample("desk/server.ts", port, join(files, "desk.db"), "60");
  const [first, address] = await start();
  const page = await opened(browser, `${address}/?user=ada`);
  await page.type("[name=wish]", "My train was five hours late");
  await page.keyboard.press("Enter");
  await shows(page, "night train");
  await take(page, "desk-before");
  await appears(page, "#euros");
  await click(page, "#approved");
  await page.type("#euros", "40");
  await page.select("#reason", "late");
  first.kill("SIGKILL");
  await once(first, "exit");
  await appears(page, "[data-server=away]");
  await take(page, "desk-killed");
  const [second] = await start();
  await appears(page, "[data-server=up]");
  await click(page, "#reply");
  await shows(page, "You get 40 €.");
  for (const name of ["refund", "search"]) await shows(page, `${name} (completed)`);
  await take(page, "desk-after");
  await ended(second);
}

async function opened(browser: Browser, address: string): Promise<Page> {
  const page = await browser.newPage();
  await page.setViewport({ width: 960, height: 660 });
  await page.goto(address);
  await appears(page, "#status");
  return page;
}

async function shows(page: Page, text: string): Promise<void> {
  await until(page, `document.body.innerText.includes(${JSON.stringify(text)})`);
}

async function ended(server: Awaited<ReturnType<typeof startExample>>[0]): Promise<void> {
  server.kill("SIGTERM");
  if (server.exitCode === null) await once(server, "exit");
}
