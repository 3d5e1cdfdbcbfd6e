import { once } from "node:events";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import { createInspectorNodeListener } from "cadenza/inspector";
import { durable } from "cadenza/store";
import type { Browser, HTTPRequest, Page } from "puppeteer-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { persistent } from "../harness/store-proxy.ts";
import { appears, openBrowser, until } from "./browser.ts";
import { hostile, hostileTexts, refund } from "./inspector-agents.ts";
import { Operator } from "./inspector-page.ts";

const browser = await openBrowser();
const team = new Map([
  ["Ada", { allTenants: true, principal: { name: "Ada" } }],
  ["Eve", { allTenants: true, readOnly: true }],
]);

const approve = defineAgent("approve", { durable: true, version: "3" }, async (input, { ask, step }) => {
  await step("look up", () => ({ total: 40 }));
  const order = input[0]?.parts[0]?.content;
  const isApproved = await ask(`Ship ${order}?`, { schema: z.boolean(), kind: "approval", timeoutMs: 7_200_000 });
  return isApproved ? "Shipped." : "Kept.";
});
const choose = defineAgent("choose", { durable: true }, async (_input, { ask }) =>
  ask("Which way?", { schema: z.enum(["air", "sea"]) }),
);

let runtime: AgentRuntime;
let server: Server;
let origin: string;
let page: Page;
let operator: Operator;

describe.skipIf(browser === undefined)("the inbox", () => {
  beforeAll(async () => {
    const store = durable(persistent(new MemoryStore()));
    runtime = new AgentRuntime({ store, agents: [approve, choose, refund, hostile] });
    const listener = createInspectorNodeListener(runtime, {
      refreshMs: 100,
      // The name comes as a cookie, as that of a session would.
      authorize: ({ headers }) => team.get(/user=(\w+)/.exec(headers["cookie"] ?? "")?.[1] ?? "Ada") ?? false,
    });
    server = createServer(listener).listen(0, "127.0.0.1");
    await once(server, "listening");
    origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    page = await (browser as Browser).newPage();
    await page.setViewport({ width: 1280, height: 800 });
    operator = new Operator(page);
    await operator.open(origin, "/#/questions");
  }, 60_000);

  beforeEach(async () => {
    await operator.go("#/questions");
    await operator.sees("No run waits for an answer.");
  });

  afterEach(async () => {
    expect(operator.wrong.splice(0)).toEqual([]);
    await operator.go("#/runs");
    for (const tenant of ["", "acme"])
      for (const { run_id } of await runtime.scope({ tenant }).listRuns({ limit: 200, status: "awaiting" }))
        await runtime.scope({ tenant }).cancel(run_id, { wait: true });
  }, 60_000);

  afterAll(async () => {
    await browser?.close();
    server.closeAllConnections();
    server.close();
    await runtime.close({ drainMs: 0 });
  }, 60_000);

  it("answers a yes-or-no by one click, shows its context, and goes to the next question", async () => {
    const first = await begin("approve", "O-1");
    const second = await begin("approve", "O-2");
    await operator.sees("2 open questions");
    await operator.sees("1 of 2");
    await operator.sees("Ship O-1?");
    await operator.sees("What the run did before look up");
    await operator.sees("Input O-1");
    expect(await page.$$eval("#question input", (fields) => fields.length)).toBe(0);
    await operator.press("Yes");
    await operator.sees("Answered. 1 open question");
    await operator.sees("1 of 1");
    await asks("Ship O-2?");
    await operator.press("No");
    await operator.sees("No run waits for an answer.");
    expect(await outputs(first, second)).toEqual(["Shipped.", "Kept."]);
  });

  it("is worked through by keyboard alone", async () => {
    const runs = [
      await begin("approve", "O-1"),
      await begin("refund"),
      await begin("choose"),
      await begin("approve", "O-4"),
    ];
    await operator.sees("1 of 4");
    await page.evaluate("document.activeElement.blur()");
    await page.keyboard.press("?");
    await appears(page, "dialog[open]");
    expect(await textOf("dialog")).toContain("decline, with a reason");
    await page.keyboard.press("Escape");
    await page.keyboard.type("jj");
    await operator.sees("3 of 4");
    await page.keyboard.type("k");
    await operator.sees("2 of 4");
    await asks("Refund 40 €?");
    await page.keyboard.press("a");
    await page.keyboard.type("a fine note");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await page.keyboard.down("Control");
    await page.keyboard.press("Enter");
    await page.keyboard.up("Control");
    await operator.sees("Answered. 3 open questions");
    await asks("Which way?");
    await page.keyboard.press("2");
    await page.keyboard.press("Enter");
    await operator.sees("Answered. 2 open questions");
    await asks("Ship O-4?");
    await page.keyboard.press("d");
    await operator.sees("The agent gets an error in place of an answer.");
    await page.keyboard.type("Not today.");
    await page.keyboard.press("Enter");
    await operator.sees("Declined. 1 open question");
    await asks("Ship O-1?");
    await page.keyboard.press("y");
    expect((await runtime.getRun(runs[0] ?? "")).status).toBe("awaiting");
    await page.keyboard.press("Enter");
    await operator.sees("No run waits for an answer.");
    expect(await outputs(...runs)).toEqual(["Shipped.", expect.stringContaining("Paid: a fine note."), "sea", ""]);
  });

  it("shows an answer of another meanwhile, with what was typed here", async () => {
    const mine = await begin("refund");
    const other = await begin("refund");
    await operator.sees("1 of 2");
    await operator.type("note", "typed by Ada");
    const grace = runtime.scope({ principal: { name: "Grace" } });
    await grace.resume({ run_id: mine, await_resume: { note: "hers", urgent: true }, mode: "async" });
    await operator.sees("Grace answered this question");
    await operator.sees("What was typed here was not sent.");
    expect(
      await page.$eval("#question input[type=text]", (field) => [field.value, field.matches(":disabled")]),
    ).toEqual(["typed by Ada", true]);
    await page.evaluate("document.activeElement.blur()");
    await page.keyboard.type("j");
    await operator.sees("1 of 1");
    await appears(page, "#question input[type=text]:enabled");
    expect(await page.$eval("#question input[type=text]", (field) => field.value)).toBe("");
    await operator.press("Answered");
    await operator.sees("hers");
    await operator.sees("Grace");
    await runtime.cancel(other, { wait: true });
  });

  it("keeps what is typed while one looks at other questions, and a question that was chosen", async () => {
    await begin("refund");
    await begin("approve", "O-2");
    await operator.sees("1 of 2");
    await operator.type("note", "half a note");
    await page.evaluate("document.activeElement.blur()");
    await page.keyboard.type("j");
    await asks("Ship O-2?");
    await page.keyboard.type("k");
    await asks("Refund 40 €?");
    expect(await page.$eval("#question input[type=text]", (field) => field.value)).toBe("half a note");
    await page.select("main select", "newest");
    await operator.sees("2 of 2");
    expect(await page.$eval("#question input[type=text]", (field) => field.value)).toBe("half a note");
  });

  it("has its order, its filters and its question in the address", async () => {
    await begin("refund");
    const run_id = await begin("approve", "O-2", "acme");
    await operator.sees("2 open questions");
    await page.select("main select", "deadline");
    await until(
      page,
      "[...document.querySelectorAll('.asking .text')].map((e) => e.textContent).join() === 'Ship O-2?,Refund 40 €?'",
    );
    await operator.sees("expires in 1 h 59 min");
    await page.select("main label:nth-of-type(3) select", "acme");
    await operator.sees("1 open question");
    await until(page, `location.hash.includes("at=acme%2F${run_id}%2Fask%231")`);
    const address = (await page.evaluate("location.href")) as string;
    const visitor = await (browser as Browser).newPage();
    await visitor.goto(address);
    await until(visitor, "document.querySelector('#question .asked')?.textContent === 'Ship O-2?'");
    expect(await visitor.$eval("main select", (select) => select.value)).toBe("deadline");
    await visitor.close();
  });

  it("lets a user who may only look read, and answer nothing", async () => {
    await begin("approve", "O-1");
    await page.setCookie({ name: "user", value: "Eve", url: origin });
    await page.goto(`${origin}/#/questions`);
    await page.reload();
    await operator.sees("You may not answer questions here.");
    expect(await page.$$eval("#question form", (forms) => forms.length)).toBe(0);
    await page.deleteCookie({ name: "user", url: origin });
    await page.reload();
    await operator.sees("1 of 1");
  });

  it("does not hold a user back who goes elsewhere while it changes its address", async () => {
    await page.evaluate(() => {
      const { document, location } = globalThis as unknown as {
        readonly document: { querySelector(selector: string): { click(): void } };
        readonly location: { hash: string };
      };
      location.hash = "#/runs";
      document.querySelector("main [aria-pressed=false]").click();
    });
    await operator.sees("without sub-runs");
  });

  it("does what a key says as soon as a question that is loading is there", async () => {
    await begin("refund");
    await begin("choose");
    await operator.sees("1 of 2");
    const held: HTTPRequest[] = [];
    const hold = (request: HTTPRequest): void => {
      if (request.url().includes("api/question?")) held.push(request);
      else void request.continue();
    };
    await page.setRequestInterception(true);
    page.on("request", hold);
    await page.evaluate("document.activeElement.blur()");
    await page.keyboard.type("j");
    await appears(page, "#question > [role=status]");
    await page.keyboard.type("d");
    page.off("request", hold);
    await Promise.all(held.map((request) => request.continue()));
    await page.setRequestInterception(false);
    await operator.sees("Leave it open");
  });

  it.each(["light", "dark"])("axe finds nothing to mend, wide and narrow, %s", async (theme) => {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    const run_id = await begin("refund");
    await begin("approve", "O-2");
    await begin("choose");
    for (const width of [1280, 390]) {
      await page.setViewport({ width, height: 800 });
      for (const [key, text] of [
        ["", "1 of 3"],
        ["j", "Ship O-2?"],
        ["j", "Which way?"],
        ["d", "Leave it open"],
      ] as const) {
        await page.evaluate("document.activeElement.blur()");
        if (key !== "") await page.keyboard.press(key);
        await operator.sees(text);
        expect([text, await operator.violations()]).toEqual([text, []]);
        expect([text, await page.evaluate("document.scrollingElement.scrollWidth")]).toEqual([text, width]);
      }
      await operator.go("#/questions?show=answered");
      await operator.sees("settled in");
      expect(await operator.violations()).toEqual([]);
      await operator.go("#/questions");
      await operator.sees("1 of 3");
    }
    await page.setViewport({ width: 1280, height: 800 });
    await runtime.cancel(run_id, { wait: true });
  });

  it("text of agents never runs, in the list, the question, its context and the answers", async () => {
    for (let from = 0; from < hostileTexts.length; from += 40) {
      const texts = hostileTexts.slice(from, from + 40).map((text) => text.replaceAll("\ud800", ""));
      const run = await runtime.createRun(
        { agent_name: "hostile", input: JSON.stringify(texts) },
        { labels: { label: texts[1]?.slice(0, 60) ?? "" } },
      );
      await operator.go(`#/questions?at=${encodeURIComponent(`/${run.run_id}/ask#1`)}`);
      await operator.sees("What the run did before");
      await page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true");
      await runtime
        .scope({ principal: { name: texts[2] ?? "" } })
        .resume({ run_id: run.run_id, decline: { reason: texts[3] ?? "" }, mode: "async" });
      await operator.sees("declined this question");
    }
    await operator.go("#/questions?show=answered");
    await operator.sees("settled in");
    await page.evaluate("for (const e of document.querySelectorAll('details')) e.open = true");
    expect(await page.evaluate("window.attacked ?? 0")).toBe(0);
  });
});

/** A run that waits for its answer. */
async function begin(agent_name: string, input = "", tenant = ""): Promise<string> {
  return (await runtime.scope({ tenant }).createRun({ agent_name, input })).run_id;
}

async function outputs(...runs: readonly string[]): Promise<readonly string[]> {
  const found: string[] = [];
  for (const run_id of runs) {
    for await (const _ of runtime.events(run_id, { until: "end" }));
    const { output } = await runtime.getRun(run_id);
    found.push(output.flatMap(({ parts }) => parts.map(({ content }) => content ?? "")).join(""));
  }
  return found;
}

/** Waits until the question beside the list is this one. */
function asks(text: string): Promise<void> {
  return until(page, `document.querySelector("#question .asked")?.textContent === ${JSON.stringify(text)}`);
}

function textOf(selector: string): Promise<string> {
  return page.$eval(selector, (element) => element.textContent ?? "");
}
