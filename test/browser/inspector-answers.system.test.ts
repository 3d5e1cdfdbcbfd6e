import type { Browser, Page } from "puppeteer-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openBrowser, until } from "./browser.ts";
import type { Operator, ShopPage } from "./inspector-page.ts";
import { openShopPage } from "./inspector-page.ts";
import type { Shop } from "./inspector-seed.ts";

const browser = await openBrowser();
/** With how many clicks each question is answered at most, from the list of runs on. */
const MOST_CLICKS = 3;

let shop: Shop;
let page: Page;
let operator: Operator;
let close: ShopPage["close"];
let clicks = 0;

describe.skipIf(browser === undefined)("an operator finds in a few clicks", () => {
  beforeAll(async () => {
    ({ shop, page, operator, close } = await openShopPage(browser as Browser));
  }, 60_000);

  beforeEach(async () => {
    await operator.go("#/runs");
    await operator.sees("refund 7");
    clicks = 0;
  });

  afterEach(() => {
    expect(clicks).toBeLessThanOrEqual(MOST_CLICKS);
    expect(operator.wrong.splice(0)).toEqual([]);
  });

  afterAll(() => close(), 60_000);

  it("why a run is slow: its searches waited for each other's slot", async () => {
    await click("a.row", short("fanOut"));
    await click(".longest button", "search");
    await click(".details a", "Open the run");
    await operator.sees("waits for a slot");
    const times = await textOf(".legend");
    expect(times).toMatch(/waits for a slot 5\.7 s.*work 4\.6 s/);
  });

  it("who has to answer: who approves the refund of order A-1003 of acme", async () => {
    await click("nav a", "Questions");
    for (const text of ["A-1003", "acme", "approval", "Refund 40 €?"]) await operator.sees(text);
  });

  it("what it cost: tokens by model", async () => {
    await click("nav a", "Figures");
    await click("button", "Model");
    await operator.sees("large-model");
    expect(await rowOf("large-model")).toEqual(["large-model", "7", "8.4K", "672", "9.1K"]);
  });

  it("what changed between the versions: version 7 checks for fraud, and version 6 does not", async () => {
    await click("a.row", short("refunded"));
    await click("button", "Compare with …");
    await click(".offered a", "version 6");
    await operator.sees("first difference");
    const first = await textOf("tr.first");
    expect(first).toContain("run:fraud-check#1");
    expect(first).toContain("did not come to it");
  });

  it("which attempt failed, and why: each of three, since the bank did not answer", async () => {
    await click("a.row", short("failed"));
    await click(".line", "pay");
    await operator.sees("3 attempts");
    expect((await textOf(".details")).match(/TypeError: The bank does not answer\./g)?.length).toBeGreaterThanOrEqual(
      3,
    );
  });

  it("what waits for a slot: the second export", async () => {
    await click("nav a", "Figures");
    await operator.sees("Waiting for slots");
    await operator.sees("1 of 1");
    const row = await textOf(".lines-of-slots tbody tr");
    expect(row).toMatch(/^export.*1 of 1/);
    expect(row).toContain(short("queued"));
  });

  it("when a schedule runs next", async () => {
    const [next = ""] = await shop.plans.next("hourly-triage", 1, { tenant: "acme" });
    await click("nav a", "Schedules");
    await operator.sees("hourly-triage acme");
    const card = "[...document.querySelectorAll('.schedule')].find((e) => e.textContent.includes('hourly-triage'))";
    expect(await page.evaluate(`${card}.querySelector("time").dateTime`)).toBe(next);
  });

  it("which tenant uses the most tokens: acme", async () => {
    await click("nav a", "Figures");
    await click("button", "Tenant");
    await operator.sees("globex");
    await until(page, "document.querySelector('.groups tbody th')?.textContent === 'acme'");
    const [tokens, others] = [await rowOf("acme"), await rowOf("globex")].map((row) => row.at(-5));
    expect([tokens, others]).toEqual(["54.8K", "22.5K"]);
  });

  it("what a step of a chart has, by keys alone, and in a table", async () => {
    await page.keyboard.type("gf");
    await operator.sees("Runs that ended");
    await page.focus(".plot");
    const said = (): Promise<unknown> => page.evaluate("document.activeElement.getAttribute('aria-valuetext')");
    await page.keyboard.press("End");
    await until(page, "document.activeElement.getAttribute('aria-valuenow') === '47'");
    await until(page, "!document.activeElement.getAttribute('aria-valuetext').startsWith('all times')");
    await page.keyboard.press("ArrowLeft");
    await until(page, "document.activeElement.getAttribute('aria-valuenow') === '46'");
    const text = String(await said());
    const row = (await page.evaluate(
      "[...document.querySelectorAll('.chart tbody tr')][46].innerText || [...document.querySelectorAll('.chart tbody tr')][46].textContent",
    )) as string;
    const [, time = "", completed = ""] = /^(.*): completed (\d+),/.exec(text) ?? [];
    expect(row.replace(/\s+/g, "")).toContain(`${time}${completed}`.replace(/\s+/g, ""));
    await page.keyboard.press("Escape");
    await until(page, "document.activeElement.getAttribute('aria-valuetext').startsWith('all times')");
  });

  it.each(["light", "dark"])("figures in which axe would mend nothing, %s", async (theme) => {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    await operator.go("#/figures?by=tenant");
    await operator.sees("globex");
    await operator.sees("Workers");
    for (const summary of await page.$$(".chart summary")) await summary.click();
    expect(await operator.violations()).toEqual([]);
    await page.emulateMediaFeatures([]);
  });
});

function short(name: keyof Shop["runs"]): string {
  return shop.runs[name].slice(0, 8);
}

/** Clicks what matches a selector and shows a text, with the mouse. */
async function click(selector: string, text: string): Promise<void> {
  const element = `[...document.querySelectorAll(${JSON.stringify(selector)})].find((e) => e.textContent.includes(${JSON.stringify(text)}))`;
  await until(page, `${element} !== undefined`);
  const at = (await page.evaluate(`(() => {
    const element = ${element};
    element.scrollIntoView({ block: "center" });
    const { left, top, width, height } = element.getBoundingClientRect();
    return { x: left + Math.min(width / 2, 60), y: top + height / 2 };
  })()`)) as { readonly x: number; readonly y: number };
  await page.mouse.click(at.x, at.y);
  clicks += 1;
}

async function textOf(selector: string): Promise<string> {
  await until(page, `document.querySelector(${JSON.stringify(selector)}) !== null`);
  const text = await page.evaluate(`document.querySelector(${JSON.stringify(selector)}).innerText`);
  return String(text).replace(/\s+/g, " ");
}

/** The cells of the line of the table of groups with this name. */
async function rowOf(name: string): Promise<readonly string[]> {
  const rows = (await page.evaluate(
    `[...document.querySelectorAll(".groups tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent))`,
  )) as readonly (readonly string[])[];
  return rows.find(([first]) => first === name) ?? [];
}
