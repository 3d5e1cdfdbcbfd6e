import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import type { Server } from "node:http";
import { createServer } from "node:http";
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
import { textOf } from "../harness/program-player.ts";
import { appears, click, openBrowser, until } from "./browser.ts";
import { bank, chatter, endlessly, hostile, hostileTexts, refund, slow } from "./inspector-agents.ts";
import { Operator } from "./inspector-page.ts";

const browser = await openBrowser();
const TOKEN = "the-token-of-the-test";
const MOUNT = "/ops/inspector";
/** Of the processes on the file. */
const LEASE_MS = 1_500;
const SCAN_MS = 300;

const folder = mkdtempSync(join(tmpdir(), "cadenza-inspector-"));
const file = join(folder, "runs.db");
let runtime: AgentRuntime;
let server: Server;
let origin: string;
let page: Page;
let operator: Operator;
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
    operator = new Operator(page);
    await operator.open(origin, `${MOUNT}?token=${TOKEN}#/runs`);
  }, 60_000);

  afterEach(() => {
    expect(operator.wrong.splice(0)).toEqual([]);
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
    await operator.sees("No runs.");
    const { run_id } = await start();
    await operator.sees(`awaiting refund 1 ${run_id.slice(0, 8)}`);
    await operator.go("#/questions");
    await operator.sees("1 open question Refund 40 €?".slice(0, 15));
    await operator.go("#/runs?status=completed");
    await operator.sees("No runs.");
    await runtime.resume({ run_id, await_resume: { note: "fine", urgent: false } });
    await operator.sees(`completed refund 1 ${run_id.slice(0, 8)}`);
    await operator.go("#/runs");
    await runtime.delete(run_id);
    await operator.sees("No runs.");
  });

  it("asks with a form, shows what does not fit at its field, and a run's page follows the answer", async () => {
    const { run_id } = await start();
    await operator.go(`#/run//${run_id}`);
    await operator.sees("Waits for 1 answer Refund 40 €?");
    await operator.type("note", "no");
    await operator.press("Answer");
    await operator.sees("too short to be understood");
    expect(await page.evaluate("document.activeElement.getAttribute('aria-invalid')")).toBe("true");
    expect((await runtime.getRun(run_id)).status).toBe("awaiting");
    await operator.type("note", " doubt");
    await click(page, "input[type=radio]");
    await operator.press("Answer");
    await operator.sees("Paid: no doubt.");
    await operator.sees("completed");
    expect((await runtime.getRun(run_id)).status).toBe("completed");
  });

  it("answers in the inbox, declines, and keeps what is typed while other questions come", async () => {
    const { run_id } = await start();
    await operator.go("#/questions");
    await operator.type("note", "typed");
    const other = await start();
    await operator.sees("2 open questions");
    expect(await page.$$eval("input[type=text]", (fields) => fields.map(({ value }) => value))).toEqual(["typed"]);
    await runtime.cancel(other.run_id, { wait: true });
    await operator.sees("1 open question");
    await operator.press("Decline");
    await operator.press("Decline the question");
    await operator.sees("No run waits for an answer.");
    expect(await ended(run_id)).toMatchObject({ status: "failed" });
  });

  it("a failed run becomes a fork that completes, and a cassette that passes as a test", async () => {
    bank.isOpen = false;
    const { run_id } = await start();
    await runtime.resume({ run_id, await_resume: { note: "again", urgent: true } });
    await operator.go(`#/run//${run_id}`);
    await operator.sees("TypeError: The bank is closed.");
    await operator.sees("The agent failed.");
    await operator.press("Copy as cassette");
    await operator.sees("The cassette is in the clipboard.");
    const text = (await page.evaluate("navigator.clipboard.readText()")) as string;
    await expect(replay(refund, JSON.parse(text) as Cassette)).resolves.toMatchObject({ status: "failed" });
    bank.isOpen = true;
    await operator.press("Try again in a fork");
    await operator.sees("It does again, with its effects: pay.");
    await operator.press("Leave it");
    await operator.press("Try again in a fork");
    await operator.press("Fork");
    await operator.sees("Fork of");
    await operator.sees("Paid: again.");
    const [fork] = await runtime.listRuns({ limit: 1 });
    expect(fork).toMatchObject({ status: "completed" });
    expect(fork?.run_id).not.toBe(run_id);
  });

  it("a run of a killed process is lost, until another one has taken it", async () => {
    const first = await startWorker();
    const { run_id } = await runtime.createRun({ agent_name: "slow", input: "", mode: "async" });
    await operator.go(`#/run//${run_id}`);
    await operator.sees("in progress");
    const workerOf =
      "[...document.querySelectorAll('dt')].find((e) => e.textContent === 'Worker')?.nextSibling.textContent";
    await until(page, `${workerOf} !== undefined`);
    const before = await page.evaluate(workerOf);
    first.kill("SIGKILL");
    await once(first, "exit");
    await operator.sees("lost");
    await operator.go("#/stuck");
    await operator.sees(`lost slow ${run_id.slice(0, 8)}`);
    await operator.go(`#/run//${run_id}`);
    const second = await startWorker();
    await until(page, `![undefined, ${JSON.stringify(before)}].includes(${workerOf})`);
    await operator.sees("in progress");
    await operator.press("Send a message");
    await page.type("#message-name", "stop");
    await operator.press("Send");
    await operator.sees("completed");
    second.kill("SIGKILL");
    await once(second, "exit");
  });

  it("creates runs from a form, and chats", async () => {
    await operator.go("#/new/chatter");
    await operator.type("Input", "hello");
    await operator.press("Create the run");
    await operator.sees("You said this: hello");
    await operator.go("#/new/chatter");
    await operator.press("Chat");
    await operator.sees("Chat with chatter");
    await operator.type("Message", "first");
    await operator.press("Send");
    await operator.sees("You said this: first");
    await page.reload();
    await operator.sees("You said this: first");
    await operator.type("Message", "second");
    await operator.press("Send");
    await operator.sees("You said this: first second You said this: second");
  });

  it("goes by keys, and finds runs by their id", async () => {
    const { run_id } = await start();
    await operator.go("#/figures");
    await operator.sees("Workers");
    await page.keyboard.type("gr");
    await operator.sees(run_id.slice(0, 8));
    await page.keyboard.press("/");
    await page.keyboard.type(run_id.slice(0, 6));
    await page.keyboard.press("Enter");
    await operator.sees("1 run ");
    await page.evaluate("document.activeElement.blur()");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await operator.sees("Timeline");
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
      await operator.go(place);
      await operator.sees(text);
      const violations = await operator.violations();
      expect([place, violations]).toEqual([place, []]);
    }
    await runtime.cancel(run_id, { wait: true });
  });

  it("says what to do where there is nothing, and while the server does not answer", async () => {
    await operator.go("#/runs?status=cancelled&agent=nothing");
    await operator.sees("No runs. None matches the filters. Clear the filters");
    await page.evaluate(
      "[...document.querySelectorAll('main a')].find((e) => e.textContent === 'Clear the filters').click()",
    );
    await until(page, "location.hash === '#/runs'");
    const { port } = server.address() as AddressInfo;
    server.close();
    server.closeAllConnections();
    await operator.sees("The server does not answer, so what is shown may be old.");
    server.listen(port, "127.0.0.1");
    await until(page, "!document.body.innerText.includes('The server does not answer')");
  });

  it("fits narrow screens, moves nothing for users who want it so, and tells times in full", async () => {
    const { run_id } = await start();
    await page.setViewport({ width: 340, height: 700 });
    await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
    for (const [place, text] of [
      ["#/runs", "refund"],
      [`#/run//${run_id}`, "Refund 40 €?"],
      ["#/questions", "Refund 40 €?"],
      ["#/new/refund", "Create the run"],
      ["#/figures", "This process"],
    ] as const) {
      await operator.go(place);
      await operator.sees(text);
      expect([place, await page.evaluate("document.scrollingElement.scrollWidth")]).toEqual([place, 340]);
      expect(await page.evaluate("document.getAnimations().length")).toBe(0);
    }
    await operator.go("#/runs");
    const asked = await page.waitForSelector("main time[title]");
    const title = await asked?.evaluate((time) => time.getAttribute("title"));
    expect(title).toMatch(/\d{4}/);
    await page.emulateMediaFeatures([]);
    await page.setViewport({ width: 1100, height: 800 });
    await runtime.cancel(run_id, { wait: true });
  });

  it("keeps what is typed into a filter while the list changes", async () => {
    await operator.go("#/runs");
    await operator.sees("Runs");
    await page.focus("input[name=agent]");
    await page.keyboard.type("ref");
    const { run_id } = await start();
    await operator.sees(run_id.slice(0, 8));
    await page.keyboard.type("und");
    expect(await page.evaluate("document.querySelector('input[name=agent]').value")).toBe("refund");
    expect(await page.evaluate("location.hash")).toBe("#/runs");
    await page.keyboard.press("Enter");
    await until(page, "location.hash === '#/runs?agent=refund'");
    await operator.sees(run_id.slice(0, 8));
    await runtime.cancel(run_id, { wait: true });
  });

  it("cancels all runs that the filters select, when it was told so with their number", async () => {
    const runs = [await start(), await start()];
    await operator.go("#/runs");
    await operator.sees(runs[1]?.run_id.slice(0, 8) ?? "");
    expect(await page.evaluate("document.body.innerText.includes('Cancel all that match')")).toBe(false);
    await operator.go("#/runs?agent=refund&status=awaiting");
    await operator.press("Cancel all that match");
    await operator.sees("The filters match 2 runs.");
    await operator.press("Leave them");
    await operator.press("Cancel all that match");
    await operator.press("Cancel 2 runs");
    await operator.sees("Done: 2 of 2 cancelled, 0 left alone, 0 refused.");
    for (const { run_id } of runs) expect(await ended(run_id)).toMatchObject({ status: "cancelled" });
    await operator.press("Close");
    await until(page, "!document.body.innerText.includes('Done: 2 of 2')");
  });

  it("moves all runs that the filters select to another version, and names those whose histories do not match", async () => {
    const register = (version: string): void => {
      runtime.register("parcel", { durable: true, version, current: version === "1" }, async (input, { ask, step }) => {
        const isFragile = version === "2" && textOf(input) === "fragile";
        if (isFragile) await step("wrap", () => "wrapped");
        await ask("Send it?");
        return `Sent by version ${version}.`;
      });
    };
    register("1");
    register("2");
    const sturdy = await runtime.createRun({ agent_name: "parcel", input: "sturdy" });
    const fragile = await runtime.createRun({ agent_name: "parcel", input: "fragile" });
    await operator.go("#/runs?agent=parcel");
    await operator.press("Move all that match to a version");
    await operator.sees("The filters match 2 runs.");
    await operator.type("To the version", "2");
    expect(await operator.violations()).toEqual([]);
    await operator.press("Move 2 runs");
    await operator.sees("Done: 1 of 2 moved, 0 left alone, 1 refused.");
    const names = "document.querySelector('main details summary')";
    await until(page, `${names} !== null && (${names}.click(), true)`);
    await operator.sees(`${fragile.run_id}: Run ${fragile.run_id} stays with its version`);
    const versions = await Promise.all([sturdy, fragile].map(({ run_id }) => runtime.details(run_id)));
    expect(versions.map(({ version }) => version)).toEqual(["2", "1"]);
    await operator.press("Close");
    for (const { run_id } of [sturdy, fragile]) await runtime.cancel(run_id, { wait: true });
  });

  it("shows forms for schemas that contain themselves, and the other questions beside them", async () => {
    const { run_id } = await runtime.createRun({ agent_name: "endlessly", input: "" });
    const other = await start();
    await operator.go("#/questions");
    for (const text of ["Endless 0?", "Endless 1?", "Endless 2?", "Endless 3?", "Endless 4?", "Refund 40 €?"])
      await operator.sees(text);
    await operator.sees("Add parent");
    await operator.press("Add parent");
    await operator.sees("Remove parent");
    await operator.go(`#/run//${run_id}`);
    await operator.sees("Endless 4?");
    expect(await page.$$eval("input, textarea, select", (fields) => fields.length)).toBeLessThan(100);
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
      await operator.go(`#/run/${encodeURIComponent(tenant)}/${run_id}`);
      await operator.sees("Waits for");
      await page.evaluate("for (const e of document.querySelectorAll('[role=row]')) e.click()");
      await operator.press("Tree");
      await operator.sees("open question");
      await operator.press("Timeline");
      await page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true");
      await operator.sees(tenant);
    }
    // The last ones turn the order of what follows: that is shown, and does not happen.
    await operator.sees("\\u202e");
    expect(await page.evaluate("document.body.innerText.includes('\\u202e')")).toBe(false);
    for (const place of ["#/runs", "#/questions", "#/stuck", "#/new", "#/figures"]) {
      await operator.go(place);
      await operator.sees(place === "#/runs" ? "hostile" : "");
    }
    const [one] = runs;
    await operator.go(`#/compare/${encodeURIComponent(one?.tenant ?? "")}/${one?.run_id}/${one?.run_id}`);
    await operator.sees("Both did the same.");
    await page.click(".compared td button.link");
    await page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true");
    await operator.go(`#/chat/${encodeURIComponent(one?.tenant ?? "")}/hostile/${one?.run_id}`);
    await operator.sees("Chat with hostile");
    await operator.go(
      `#/runs?tenant=${encodeURIComponent(hostileTexts[1] ?? "")}&label=${encodeURIComponent(hostileTexts[2] ?? "")}`,
    );
    await operator.sees("Runs");
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
