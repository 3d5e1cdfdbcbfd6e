import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { createInspectorNodeListener } from "cadenza/inspector";
import { openBrowser, until } from "./browser.ts";
import { openShop } from "./inspector-seed.ts";

const FOLDER = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));
const TOKEN = "the-token-of-the-pictures";

/** A picture of a view. */
interface Picture {
  readonly name: string;
  readonly hash: string;
  /** What the view shows when it is ready. */
  readonly text: string;
  /** What is clicked before the picture is taken: a selector, and the text of the element; and what is shown then. */
  readonly clicks?: readonly (readonly [selector: string, text: string, shown: string])[];
  readonly isDark?: true;
}

/** Makes the pictures of the inspector in docs/pictures, from the real page with runs of a made-up shop. */
export async function takeInspector(onTaken: (path: string) => void): Promise<void> {
  const browser = await openBrowser();
  if (browser === undefined) throw new Error("There is no browser.");
  const shop = await openShop();
  const options = { token: TOKEN, schedules: shop.plans, refreshMs: 100 };
  const server = createServer(createInspectorNodeListener(shop.runtime, options)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { runs } = shop;
  const open = [
    [".line", "fraud-check", "Open the run"],
    [".line button", "Open fraud-check", "earlier refunds"],
    [".line", "pay", "2 attempts"],
  ] as const;
  const run = { hash: `#/run/acme/${runs.refunded}`, text: "tell the customer", clicks: open };
  const pictures: readonly Picture[] = [
    { name: "runs", hash: "#/runs?roots=true", text: "A-1001" },
    { name: "run", ...run },
    { name: "run-dark", ...run, isDark: true },
    { name: "failed-dark", hash: `#/run/acme/${runs.failed}`, text: "Why it failed", isDark: true },
    { name: "tree", hash: `#/run/acme/${runs.family}?view=tree`, text: "open question" },
    { name: "questions", hash: "#/questions", text: "Refund 40 €?" },
  ];

  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 760 });
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/?token=${TOKEN}#/runs`);
  mkdirSync(FOLDER, { recursive: true });
  const sees = (text: string): Promise<void> =>
    until(page, `document.querySelector("main").innerText.includes(${JSON.stringify(text)})`);
  for (const { name, hash, text, clicks = [], isDark = false } of pictures) {
    await page.emulateMediaFeatures([
      { name: "prefers-color-scheme", value: isDark ? "dark" : "light" },
      { name: "prefers-reduced-motion", value: "reduce" },
    ]);
    await page.evaluate("location.hash = '#/nowhere'");
    await sees("There is nothing here");
    await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    await sees(text);
    for (const [selector, of, shown] of clicks) {
      const element = `[...document.querySelectorAll(${JSON.stringify(selector)})].find((e) => e.textContent.includes(${JSON.stringify(of)}))`;
      await until(page, `${element} !== undefined && (${element}.click(), true)`);
      await sees(shown);
    }
    await until(page, "document.querySelector('.connection.open') !== null");
    await page.screenshot({ path: `${FOLDER}${name}.png`, optimizeForSpeed: false });
    onTaken(`docs/pictures/${name}.png`);
  }

  await browser.close();
  server.closeAllConnections();
  server.close();
  await shop.close();
}
