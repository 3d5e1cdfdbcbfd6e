import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createInspectorNodeListener } from "cadenza/inspector";
import type { Page } from "puppeteer-core";
import { openStore } from "../../examples/durable-approval/store.ts";
import { openBrowser, until } from "./browser.ts";
import { noKeys } from "./servers.ts";
import type { Frame } from "./webp.ts";
import { animatedWebp } from "./webp.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TOKEN = "the-token-of-the-pictures";
const [WIDTH, HEIGHT] = [940, 700];
/** The part of the picture that shows what the demo prints. */
const TERMINAL = 264;
const LINES = 14;
/** The pause between two frames, and how long the last one is shown, in milliseconds. */
const PAUSE_MS = 120;
const LAST_MS = 4_000;

/** Makes docs/pictures/killed.webp and killed-dark.webp: the demo, and its run in the inspector meanwhile. */
export async function takeMovingPicture(onTaken: (path: string) => void): Promise<void> {
  const browser = await openBrowser();
  if (browser === undefined) throw new Error("There is no browser.");
  mkdirSync(`${ROOT}docs/pictures`, { recursive: true });
  for (const scheme of ["light", "dark"]) {
    const page = await browser.newPage();
    await page.setViewport({ width: WIDTH, height: HEIGHT });
    await page.emulateMediaFeatures([
      { name: "prefers-color-scheme", value: scheme },
      { name: "prefers-reduced-motion", value: "reduce" },
    ]);
    const path = `docs/pictures/killed${scheme === "dark" ? "-dark" : ""}.webp`;
    writeFileSync(ROOT + path, await animatedWebp(await browser.newPage(), await film(page)));
    onTaken(path);
  }
  await browser.close();
}

/** Runs the demo, and takes pictures of its run until it has ended. */
async function film(page: Page): Promise<readonly Frame[]> {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-pictures-"));
  const file = join(folder, "demo.db");
  const store = await openStore(file);
  const listener = createInspectorNodeListener({ store }, { token: TOKEN, refreshMs: 100 });
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/?token=${TOKEN}`);
  const demo = await startDemo(file);
  await openRun(page, demo.run_id);

  const frames: Frame[] = [];
  for (let isLast = false; !isLast; ) {
    isLast = demo.isOver();
    if (isLast) await until(page, "document.querySelector('main').innerText.includes('completed')");
    const begun = performance.now();
    await page.evaluate(`show(${JSON.stringify(demo.printed())})`);
    const png = await page.screenshot({ optimizeForSpeed: true });
    await sleep(PAUSE_MS);
    frames.push({ png, ms: isLast ? LAST_MS : performance.now() - begun });
  }
  server.closeAllConnections();
  server.close();
  await store.close?.();
  rmSync(folder, { recursive: true, force: true });
  return frames;
}

interface Demo {
  readonly run_id: string;
  /** What it has printed, as lines. */
  printed(): readonly string[];
  isOver(): boolean;
}

/** Starts the demo. Resolves when its run has begun. */
async function startDemo(file: string): Promise<Demo> {
  const program = ["--import", "tsx", "--no-warnings", "examples/demo/main.ts", file];
  const { stdout } = spawn(process.execPath, program, {
    cwd: ROOT,
    env: { ...process.env, ...noKeys },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let printed = "$ npm run demo\n";
  let isOver = false;
  stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  stdout.once("end", () => {
    isOver = true;
  });
  for (;;) {
    const [, run_id] = /begins +run (\S+)\n/.exec(printed) ?? [];
    if (run_id !== undefined)
      return { run_id, printed: () => printed.split("\n").filter((line) => line !== ""), isOver: () => isOver };
    await once(stdout, "data");
  }
}

/** Opens the page of a run, without its header, and with a terminal below it. */
async function openRun(page: Page, run_id: string): Promise<void> {
  await page.evaluate(`location.hash = ${JSON.stringify(`#/run//${run_id}`)}`);
  await until(page, "document.querySelector('main').innerText.includes('refund-desk')");
  await page.evaluate(`{
    const terminal = document.createElement("pre");
    Object.assign(terminal.style, {
      position: "fixed", inset: "auto 0 0 0", height: "${TERMINAL}px", margin: 0, padding: "12px 16px", boxSizing: "border-box", zIndex: 1000,
      background: "#0d1117", color: "#e6edf3", borderTop: "1px solid #3d444d",
      font: "12.5px/17px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace", overflow: "hidden", whiteSpace: "pre",
    });
    document.body.append(terminal);
    document.querySelector("header").style.display = "none";
    globalThis.show = (lines) => {
      terminal.replaceChildren(...lines.slice(-${LINES}).map((line) => {
        const element = document.createElement("div");
        element.textContent = line;
        if (/kill -9/.test(line)) Object.assign(element.style, { color: "#ff7b72", fontWeight: 700 });
        return element;
      }));
    };
  }`);
}
