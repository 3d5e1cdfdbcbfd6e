import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import type { Server } from "node:http";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Run } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createInspectorNodeListener } from "cadenza/inspector";
import { SqliteStore } from "cadenza/sqlite";
import { durable } from "cadenza/store";
import type { Cassette } from "cadenza/testing";
import { replay } from "cadenza/testing";
import Database from "libsql";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { appears, click, openBrowser, until } from "./browser.ts";
import { bank, chatter, endlessly, hostile, hostileTexts, refund, slow } from "./inspector-agents.ts";

const browser = await openBrowser();
const TOKEN = "the-token-of-the-test";
const MOUNT = "/ops/inspector";
/** Of the processes on the file. */
const LEASE_MS = 1_500;
const SCAN_MS = 300;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const folder = mkdtempSync(join(tmpdir(), "cadenza-inspector-"));
const file = join(folder, "runs.db");
let runtime: AgentRuntime;
let server: Server;
let origin: string;
let page: Page;
/** Requests to other places than the server, errors of the page, and what its policy has refused. */
let wrong: string[] = [];
const workers: ChildProcess[] = [];

describe.skipIf(browser === undefined)("the inspector", () => {
  beforeAll(async () => {
    const store = new SqliteStore(new Database(file), { closeDatabase: true });
    runtime = new AgentRuntime({
      store: durable(store, { leaseMs: LEASE_MS, heartbeatMs: 300, scanMs: SCAN_MS }),
      agents: [refund, chatter, hostile, endlessly],
    });
    runtime.declare(slow);
    server = createServer(createInspectorNodeListener(runtime, { token: TOKEN, basePath: MOUNT, refreshMs: 200 }));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await (browser as Browser)
      .defaultBrowserContext()
      .overridePermissions(origin, ["clipboard-read", "clipboard-sanitized-write"]);
    page = await (browser as Browser).newPage();
    await page.setViewport({ width: 1100, height: 800 });
    page.on("request", (request) => {
      if (!request.url().startsWith(origin)) wrong.push(`request to ${request.url()}`);
    });
    page.on("pageerror", (error) => wrong.push(String(error)));
    await page.exposeFunction("refusedByPolicy", (what: string) => wrong.push(`policy: ${what}`));
    await page.evaluateOnNewDocument(`addEventListener("securitypolicyviolation", (event) => {
      refusedByPolicy(event.violatedDirective + " " + event.blockedURI + " " + event.sample);
    })`);
    await page.goto(`${origin}${MOUNT}?token=${TOKEN}#/runs`);
  }, 60_000);

  afterEach(() => {
    const found = wrong;
    wrong = [];
    expect(found).toEqual([]);
  });

  afterAll(async () => {
    await browser?.close();
    for (const worker of workers) worker.kill("SIGKILL");
    server.closeAllConnections();
    server.close();
    await runtime.close({ drainMs: 0 });
    rmSync(folder, { recursive: true, force: true });
  }, 60_000);

  it("shows runs as they are added, change and end, without being loaded again, and no token", async () => {
    expect(await page.evaluate("location.href")).toBe(`${origin}${MOUNT}#/runs`);
    await sees("No runs.");
    const { run_id } = await start();
    await sees(`awaiting refund ${run_id.slice(0, 8)}`);
    await go("#/questions");
    await sees("1 open question Refund 40 €?".slice(0, 15));
    await go("#/runs?status=completed");
    await sees("No runs.");
    await runtime.resume({ run_id, await_resume: { note: "fine", urgent: false } });
    await sees(`completed refund ${run_id.slice(0, 8)}`);
    await go("#/runs");
    await runtime.delete(run_id);
    await sees("No runs.");
  });

  it("asks with a form, shows what does not fit at its field, and a run's page follows the answer", async () => {
    const { run_id } = await start();
    await go(`#/run//${run_id}`);
    await sees("Waits for an answer: Refund 40 €?");
    await type("note", "no");
    await press("Answer");
    await sees("too short to be understood");
    expect(await page.evaluate("document.activeElement.getAttribute('aria-invalid')")).toBe("true");
    expect((await runtime.getRun(run_id)).status).toBe("awaiting");
    await type("note", " doubt");
    await click(page, "input[type=radio]");
    await press("Answer");
    await sees("Paid: no doubt.");
    await sees("✓ completed");
    expect((await runtime.getRun(run_id)).status).toBe("completed");
  });

  it("answers in the inbox, declines, and keeps what is typed while other questions come", async () => {
    const { run_id } = await start();
    await go("#/questions");
    await type("note", "typed");
    const other = await start();
    await sees("2 open questions");
    const values = "[...document.querySelectorAll('input[type=text]')].map((e) => e.value).sort().join()";
    expect(await page.evaluate(values)).toBe(",typed");
    await runtime.cancel(other.run_id, { wait: true });
    await sees("1 open question");
    await press("Decline");
    await sees("No run waits for an answer.");
    expect(await ended(run_id)).toMatchObject({ status: "failed" });
  });

  it("a failed run becomes a fork that completes, and a cassette that passes as a test", async () => {
    bank.isOpen = false;
    const { run_id } = await start();
    await runtime.resume({ run_id, await_resume: { note: "again", urgent: true } });
    await go(`#/run//${run_id}`);
    await sees("TypeError: The bank is closed.");
    await sees("The agent failed.");
    await press("Copy as cassette");
    await sees("The cassette is in the clipboard.");
    const text = (await page.evaluate("navigator.clipboard.readText()")) as string;
    await expect(replay(refund, JSON.parse(text) as Cassette)).resolves.toMatchObject({ status: "failed" });
    bank.isOpen = true;
    await press("Try again in a fork");
    await sees("Fork of");
    await sees("Paid: again.");
    const [fork] = await runtime.listRuns({ limit: 1 });
    expect(fork).toMatchObject({ status: "completed" });
    expect(fork?.run_id).not.toBe(run_id);
  });

  it("a run of a killed process is lost, until another one has taken it", async () => {
    const first = await startWorker();
    const { run_id } = await runtime.createRun({ agent_name: "slow", input: "", mode: "async" });
    await go(`#/run//${run_id}`);
    await sees("▶ in progress");
    const workerOf =
      "[...document.querySelectorAll('dt')].find((e) => e.textContent === 'Worker')?.nextSibling.textContent";
    await until(page, `${workerOf} !== undefined`);
    const before = await page.evaluate(workerOf);
    first.kill("SIGKILL");
    await once(first, "exit");
    await sees("! lost");
    await go("#/stuck");
    await sees(`lost slow ${run_id.slice(0, 8)}`);
    await go(`#/run//${run_id}`);
    const second = await startWorker();
    await until(page, `![undefined, ${JSON.stringify(before)}].includes(${workerOf})`);
    await sees("▶ in progress");
    await press("Send a message");
    await page.type("#message-name", "stop");
    await press("Send");
    await sees("✓ completed");
    second.kill("SIGKILL");
    await once(second, "exit");
  });

  it("creates runs from a form, and chats", async () => {
    await go("#/new/chatter");
    await type("Input", "hello");
    await press("Create the run");
    await sees("You said this: hello");
    await go("#/new/chatter");
    await press("Chat");
    await sees("Chat with chatter");
    await type("Message", "first");
    await press("Send");
    await sees("You said this: first");
    await page.reload();
    await sees("You said this: first");
    await type("Message", "second");
    await press("Send");
    await sees("You said this: first second You said this: second");
  });

  it("goes by keys, and finds runs by their id", async () => {
    const { run_id } = await start();
    await go("#/figures");
    await sees("Workers");
    await page.keyboard.type("gr");
    await sees(run_id.slice(0, 8));
    await page.keyboard.press("/");
    await page.keyboard.type(run_id.slice(0, 6));
    await page.keyboard.press("Enter");
    await sees("1 run ");
    await page.evaluate("document.activeElement.blur()");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await sees("Timeline");
    expect(await page.evaluate("location.hash")).toBe(`#/run//${run_id}`);
    await page.keyboard.type("?");
    await appears(page, "dialog[open]");
    await page.keyboard.press("Escape");
    await appears(page, "dialog:not([open])");
    await runtime.cancel(run_id, { wait: true });
  });

  it.each(["light", "dark"])("axe finds nothing to mend in any view, %s", async (theme) => {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    const { run_id } = await start();
    const { run_id: failed } = (await runtime.listRuns({ status: "failed", limit: 1 }))[0] ?? { run_id };
    const places = [
      ["#/runs", run_id.slice(0, 8)],
      [`#/run//${run_id}`, "Refund 40 €?"],
      [`#/run//${failed}`, "failed"],
      ["#/questions", "Refund 40 €?"],
      ["#/stuck", "Lost runs"],
      ["#/new/refund", "Create the run"],
      ["#/figures", "This process"],
      [`#/chat//refund/${run_id}`, "Chat with refund"],
    ] as const;
    for (const [place, text] of places) {
      await go(place);
      await sees(text);
      const violations = (await page.evaluate(`${axe}; axe.run(document, { resultTypes: ["violations"] }).then(
        ({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" | ")))`)) as string[];
      expect([place, violations]).toEqual([place, []]);
    }
    await runtime.cancel(run_id, { wait: true });
  });

  it("keeps what is typed into a filter while the list changes", async () => {
    await go("#/runs");
    await sees("Runs");
    await page.focus("input[name=agent]");
    await page.keyboard.type("ref");
    const { run_id } = await start();
    await sees(run_id.slice(0, 8));
    await page.keyboard.type("und");
    expect(await page.evaluate("document.querySelector('input[name=agent]').value")).toBe("refund");
    expect(await page.evaluate("location.hash")).toBe("#/runs");
    await page.keyboard.press("Enter");
    await until(page, "location.hash === '#/runs?agent=refund'");
    await sees(run_id.slice(0, 8));
    await runtime.cancel(run_id, { wait: true });
  });

  it("cancels all runs that the filters select, when it was told so with their number", async () => {
    const runs = [await start(), await start()];
    await go("#/runs");
    await sees(runs[1]?.run_id.slice(0, 8) ?? "");
    expect(await page.evaluate("document.body.innerText.includes('Cancel all that match')")).toBe(false);
    await go("#/runs?agent=refund&status=awaiting");
    await press("Cancel all that match");
    await sees("The filters match 2 runs.");
    await press("Leave them");
    await press("Cancel all that match");
    await press("Cancel 2 runs");
    await sees("Done: 2 of 2 cancelled, 0 left alone, 0 refused.");
    for (const { run_id } of runs) expect(await ended(run_id)).toMatchObject({ status: "cancelled" });
    await press("Close");
    await until(page, "!document.body.innerText.includes('Done: 2 of 2')");
  });

  it("shows forms for schemas that contain themselves, and the other questions beside them", async () => {
    const { run_id } = await runtime.createRun({ agent_name: "endlessly", input: "" });
    const other = await start();
    await go("#/questions");
    for (const text of ["Endless 0?", "Endless 1?", "Endless 2?", "Endless 3?", "Endless 4?", "Refund 40 €?"])
      await sees(text);
    expect(await page.$$eval("input, textarea, select", (fields) => fields.length)).toBeLessThan(100);
    await sees("Add parent");
    await press("Add parent");
    await sees("Remove parent");
    await go(`#/run//${run_id}`);
    await sees("Endless 4?");
    await runtime.cancel(run_id, { wait: true });
    await runtime.cancel(other.run_id, { wait: true });
  });

  it("text of agents never runs, asks for nothing, and is shown as it is", async () => {
    const runs: { readonly run_id: string; readonly tenant: string }[] = [];
    for (let from = 0; from < hostileTexts.length; from += 20) {
      const texts = hostileTexts.slice(from, from + 20).map((text) => text.replaceAll("\ud800", ""));
      const tenant = texts[0]?.slice(0, 100).replaceAll("\0", "") ?? "";
      const run = await runtime
        .scope({ tenant, principal: texts })
        .createRun(
          { agent_name: "hostile", input: { role: "user", parts: [{ content: JSON.stringify(texts) }] } },
          { labels: { label: texts[1]?.slice(0, 60) ?? "" }, metadata: { [texts[2] ?? ""]: texts } },
        );
      expect(run.status).toBe("awaiting");
      runs.push({ run_id: run.run_id, tenant });
    }
    for (const { run_id, tenant } of runs) {
      await go(`#/run/${encodeURIComponent(tenant)}/${run_id}`);
      await sees("Waits for");
      await page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true");
      await sees(tenant);
    }
    // The last ones turn the order of what follows: that is shown, and does not happen.
    await sees("\\u202e");
    expect(await page.evaluate("document.body.innerText.includes('\\u202e')")).toBe(false);
    for (const place of ["#/runs", "#/questions", "#/stuck", "#/new", "#/figures"]) {
      await go(place);
      await sees(place === "#/runs" ? "hostile" : "");
    }
    const [one] = runs;
    await go(`#/chat/${encodeURIComponent(one?.tenant ?? "")}/hostile/${one?.run_id}`);
    await sees("Chat with hostile");
    await go(
      `#/runs?tenant=${encodeURIComponent(hostileTexts[1] ?? "")}&label=${encodeURIComponent(hostileTexts[2] ?? "")}`,
    );
    await sees("Runs");
    expect(await page.evaluate("window.attacked ?? 0")).toBe(0);
  });
});

function start(): Promise<Run> {
  return runtime.createRun({ agent_name: "refund", input: "" });
}

async function ended(run_id: string): Promise<Run> {
  for await (const _ of runtime.events(run_id, { until: "end" }));
  return runtime.getRun(run_id);
}

async function startWorker(): Promise<ChildProcess> {
  const program = ["--import", "tsx", "test/browser/inspector-worker.ts", file];
  const worker = spawn(process.execPath, program, { stdio: ["ignore", "pipe", "inherit"] });
  workers.push(worker);
  await once(worker.stdout, "data");
  return worker;
}

/** Shows another place of the page, without loading it again. */
async function go(place: string): Promise<void> {
  await page.evaluate((hash) => {
    (globalThis as unknown as { location: { hash: string } }).location.hash = hash;
  }, place);
}

/** Waits until the page shows a text. White space does not count. */
async function sees(text: string): Promise<void> {
  const shown = `document.querySelector("main").innerText.replace(/\\s+/g, " ")`;
  const wanted = text.replace(/\s+/g, " ").trim();
  await until(page, `${shown}.includes(${JSON.stringify(wanted)})`);
}

/** Presses a button, or follows a link, that is named so. */
async function press(label: string): Promise<void> {
  const found = `[...document.querySelectorAll("main button, main a.button")].find((e) => e.textContent.trim() === ${JSON.stringify(label)} && !e.disabled)`;
  await until(page, `${found} !== undefined && (${found}.click(), true)`);
}

/** Types into the first field of this name. */
async function type(label: string, text: string): Promise<void> {
  const field = `[...document.querySelectorAll("main label")].find((e) => e.textContent.trim().startsWith(${JSON.stringify(label)}))?.control`;
  await until(page, `${field} != null && (${field}.focus(), true)`);
  await page.keyboard.type(text);
}
