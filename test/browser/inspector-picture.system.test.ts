import type { Browser, Page } from "puppeteer-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, until } from "./browser.ts";
import type { Operator, ShopPage } from "./inspector-page.ts";
import { openShopPage } from "./inspector-page.ts";
import type { Shop } from "./inspector-seed.ts";

const browser = await openBrowser();

let shop: Shop;
let page: Page;
let operator: Operator;
let close: ShopPage["close"];

describe.skipIf(browser === undefined)("the inspector's pictures", () => {
  beforeAll(async () => {
    ({ shop, page, operator, close } = await openShopPage(browser as Browser));
  }, 60_000);

  afterEach(() => {
    expect(operator.wrong.splice(0)).toEqual([]);
  });

  afterAll(() => close(), 60_000);

  it("show each operation of a run as a line, with what it did in each part of its time", async () => {
    await operator.go(`#/run/acme/${shop.runs.refunded}`);
    await operator.sees("tell the customer");
    expect(await lines()).toEqual([
      "1 refund: work people sleep failed pause work",
      "2 triage: work",
      "2 find the order: work",
      "2 model: work",
      "2 rules call-1: work",
      "2 fraud-check: work",
      "2 Refund 40 €?: people",
      "2 sleep: sleep",
      "2 pay: failed pause work",
      "2 tell the customer: work",
    ]);
    const times = (await page.evaluate("document.querySelector('.legend').innerText")) as string;
    expect(times.replace(/\s+/g, " ")).toMatch(/^waits for people 50 s work \d+ s sleeps 4\.0 s/);
  });

  it("fold the lines of sub-runs, which show their queues", async () => {
    await operator.go(`#/run/globex/${shop.runs.fanOut}`);
    await operator.sees("write");
    expect(await lines()).toHaveLength(7);
    await fold(4);
    await until(page, "document.querySelectorAll('.line').length === 9");
    expect((await lines()).slice(3, 8)).toEqual([
      "2 search: work",
      "2 search: slot work",
      "3 query: slot work",
      "3 read: work",
      "2 search: work",
    ]);
    await fold(4);
    await until(page, "document.querySelectorAll('.line').length === 7");
  });

  it("show what an operation was given and gave, by an address that others can open", async () => {
    await operator.go(`#/run/acme/${shop.runs.refunded}`);
    await operator.sees("Paid: tx-5512.");
    await choose("model");
    await operator.sees("Order A-1001 was five hours late. What do our rules say?");
    await operator.sees("calls rules");
    await page.reload();
    await operator.sees("Order A-1001 was five hours late. What do our rules say?");
    await choose("pay");
    await operator.sees("2 attempts");
    await operator.sees("TypeError: The bank does not answer.");
    await operator.press("Close the details");
    await operator.sees("Paid: tx-5512.");
  });

  it("go by keys alone: to a line, into a sub-run, to the details and back, and closer in time", async () => {
    await operator.go(`#/run/acme/${shop.runs.refunded}`);
    await operator.sees("Paid: tx-5512.");
    await page.keyboard.press("j");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    await until(page, "document.querySelectorAll('.line').length === 11");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await operator.sees("mood");
    expect(await focused()).toContain("classify");
    await page.keyboard.press("Escape");
    await operator.sees("Paid: tx-5512.");
    await page.keyboard.press("ArrowLeft");
    expect(await focused()).toContain("triage");
    await page.keyboard.press("ArrowLeft");
    await until(page, "document.querySelectorAll('.line').length === 10");
    await page.keyboard.press("End");
    expect(await focused()).toContain("tell the customer");
    await page.keyboard.press("+");
    await page.keyboard.press("+");
    await until(page, "[...document.querySelectorAll('.line')].at(-1).querySelector('.away') !== null");
    for (let times = 0; times < 8; times++) await page.keyboard.press("]");
    await until(page, "[...document.querySelectorAll('.line')].at(-1).querySelector('.bar') !== null");
    await page.keyboard.press("0");
    await until(page, "document.querySelector('.away') === null");
    await page.keyboard.press("Home");
    expect(await focused()).toContain("refund");
  });

  it("are zoomed with the wheel and by dragging over the whole time", async () => {
    await operator.go(`#/run/acme/${shop.runs.refunded}`);
    await operator.sees("tell the customer");
    const grid = await page.waitForSelector(".grid");
    const box = await grid?.boundingBox();
    await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) - 40, (box?.y ?? 0) + 100);
    await page.keyboard.down("Control");
    for (let times = 0; times < 6; times++) await page.mouse.wheel({ deltaY: -100 });
    await page.keyboard.up("Control");
    await until(page, "document.querySelectorAll('.away.before').length > 2");
    await operator.press("All");
    await until(page, "document.querySelector('.away') === null");
    const strip = await (await page.waitForSelector(".overview"))?.boundingBox();
    const y = (strip?.y ?? 0) + 10;
    await page.mouse.move((strip?.x ?? 0) + 2, y);
    await page.mouse.down();
    await page.mouse.move((strip?.x ?? 0) + (strip?.width ?? 0) / 8, y, { steps: 4 });
    await page.mouse.up();
    await until(page, "document.querySelectorAll('.away.after').length > 2");
    await operator.press("All");
  });

  it("grow while a run goes on", async () => {
    const { run_id } = await shop.runtime
      .scope({ tenant: "acme" })
      .createRun({ agent_name: "research", input: "", mode: "async" });
    await operator.go(`#/run/acme/${run_id}`);
    await until(page, "document.querySelectorAll('.line').length === 2");
    await until(page, "document.querySelector('.bar.lasts') !== null");
    await shop.clock.advance(2_300);
    await until(page, "document.querySelectorAll('.line').length === 6");
    await fold(5);
    await shop.clock.advance(9_000);
    await operator.sees("read");
    await shop.clock.advance(20_000);
    await operator.sees("Carriers are late in March.");
    await until(page, "document.querySelector('.bar.lasts') === null");
  });

  it("show the generations of a run that continues as new, the last one open", async () => {
    await operator.go(`#/run/acme/${shop.runs.forEver}`);
    await operator.sees("generation 7");
    const shown = await lines();
    expect(shown.slice(1, 3)).toEqual(["2 generation 1: work sleep", "2 generation 2: work sleep"]);
    expect(shown.at(-1)).toMatch(/^3 (sleep: sleep|read prices: work)$/);
  });

  it("take a question where the run is looked at", async () => {
    await operator.go(`#/run/acme/${shop.runs.waiting}`);
    await operator.sees("Waits for 1 answer");
    await operator.type("note", "Sorry for the delay.");
    await operator.press("Yes");
    await operator.sees("The answer was sent.");
    await shop.clock.advance(30_000);
    await until(page, "document.querySelector('.waits .asked') === null");
    await operator.sees("completed");
    await operator.sees("Paid: tx-5512.");
    // What had ended before the page saw the end of the run can be forked from, too.
    await choose("triage");
    await operator.sees("Fork from here");
  });

  it("show the runs that belong to one as a tree, with many alike as one, and take their questions there", async () => {
    await operator.go(`#/run/acme/${shop.runs.family}`);
    await operator.press("Tree");
    await operator.sees("12 × child completed");
    const nodes = async () =>
      (await page.evaluate(
        "[...document.querySelectorAll('.node > a b')].map((name) => name.textContent)",
      )) as readonly string[];
    expect(await nodes()).toEqual([
      ...["campaign", "research", "search", "search", "search", "search"],
      ...["refund", "triage", "fraud-check", "importer"],
    ]);
    await page.click(".node summary");
    await until(page, "document.querySelectorAll('.alike a').length === 12");
    await page.click(".node summary");
    await until(page, "document.querySelector('.alike') === null");
    await operator.sees("1 open question");
    expect(await page.$$eval("main form", (forms) => forms.length)).toBe(1);
    await operator.type("note", "Take it.");
    await operator.press("Yes");
    await operator.sees("The answer was sent.");
    await shop.clock.advance(30_000);
    await until(page, "document.querySelector('.asks') === null");
    await until(page, "document.querySelector('.node.awaiting') === null");
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until(page, "document.querySelector('h1')?.textContent.startsWith('research') === true");
    await operator.sees("campaign");
    expect(await textOf("[aria-current=true] b")).toBe("research");
  });

  it("show where a fork comes from, and which forks there are", async () => {
    await operator.go(`#/run/acme/${shop.runs.failed}?view=tree`);
    await until(page, "document.querySelector('li.fork-of .node') !== null");
    await page.click("li.fork-of .node a");
    await operator.sees("origin");
    expect(await textOf("[aria-current=true]")).toContain("fork");
    expect(await page.evaluate("location.hash")).toContain(shop.runs.fork);
  });

  it("compare a fork with its origin, and mark the first difference", async () => {
    await shop.clock.advance(60_000);
    await operator.go(`#/run/acme/${shop.runs.fork}`);
    await operator.press("compare");
    await operator.sees("Comparison");
    await operator.press("Show the first difference");
    const first = await textOf("tr.first");
    expect(first).toContain("pay#1");
    expect(first).toContain("The bank does not answer.");
    expect(await page.evaluate("document.activeElement.matches('tr.first')")).toBe(true);
    await operator.press("Show the first difference");
    await page.click(".compared td button.link");
    await operator.sees("find the order#1");
    expect(await operator.violations()).toEqual([]);
  });

  it("compare any two runs of a tenant, as of two versions, by their ids", async () => {
    await operator.go(`#/run/acme/${shop.runs.refunded}`);
    await operator.press("Compare with …");
    await operator.type("Id of the other run", shop.runs.failed);
    await page.keyboard.press("Enter");
    await operator.sees("first difference");
    await operator.sees("tokens");
    expect(await page.evaluate("location.hash")).toBe(`#/compare/acme/${shop.runs.failed}/${shop.runs.refunded}`);
  });

  it("show schedules with their next times, pause, resume and trigger them", async () => {
    await operator.go("#/runs");
    await operator.sees("Runs");
    await page.keyboard.type("gc");
    await operator.sees("hourly-triage acme");
    await operator.sees("Runs triage 3 every 1 h.".replace(" 3", ""));
    const card = "[...document.querySelectorAll('.schedule')].find((e) => e.textContent.includes('hourly-triage'))";
    const presses = (label: string): Promise<void> =>
      until(
        page,
        `[...${card}.querySelectorAll("button")].some((e) => e.textContent === ${JSON.stringify(label)} && (e.click(), true))`,
      );
    expect(await page.evaluate(`${card}.querySelectorAll("time").length`)).toBeGreaterThanOrEqual(5);
    await presses("Pause");
    await operator.sees("It creates no runs until it is resumed.");
    await shop.clock.advance(5_000);
    await until(page, `${card}.textContent.includes("Would run")`);
    expect(await shop.plans.get("hourly-triage", { tenant: "acme" })).toMatchObject({ is_paused: true });
    await presses("Resume");
    await operator.sees("It creates runs again.");
    await shop.clock.advance(5_000);
    await until(page, `!${card}.textContent.includes("Would run")`);
    const before = (await shop.plans.get("hourly-triage", { tenant: "acme" })).last?.run_id;
    await presses("Run now");
    await operator.sees("A run was asked for");
    const lastRun = async (): Promise<string | undefined> =>
      (await shop.plans.get("hourly-triage", { tenant: "acme" })).last?.run_id;
    while ((await lastRun()) === before) await shop.clock.advance(1_000);
    const last = (await lastRun()) ?? "";
    // The page learns of it by the same clock.
    await shop.clock.advance(5_000);
    await operator.press(last.slice(0, 8));
    await operator.sees("Schedule hourly-triage");
  });

  it("hold 10,000 operations, of which the page has those that can be seen", { timeout: 120_000 }, async () => {
    const { run_id } = await shop.runtime.createRun({ agent_name: "long", input: "10000", mode: "async" });
    while ((await shop.runtime.getRun(run_id)).status !== "completed") await shop.clock.advance(10);
    await operator.go(`#/run//${run_id}`);
    await operator.sees("10,001 lines");
    const nodes = "document.querySelectorAll('*').length";
    expect(await page.evaluate(nodes)).toBeLessThan(3_000);
    await page.evaluate("document.querySelector('.grid').scrollTop = 150_000");
    await operator.sees("count 4,9");
    expect(await page.evaluate(nodes)).toBeLessThan(3_000);
    await page.keyboard.press("j");
    await page.keyboard.press("End");
    expect(await focused()).toContain("child");
  });

  it.each(["light", "dark"])("have nothing that axe would mend, %s", async (theme) => {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    for (const [place, text] of [
      [`#/run/acme/${shop.runs.refunded}`, "tell the customer"],
      [`#/run/globex/${shop.runs.fanOut}`, "write"],
      [`#/run/acme/${shop.runs.forEver}`, "generation 7"],
      [`#/run/acme/${shop.runs.failed}?view=timeline`, "The bank does not answer."],
      [`#/run/acme/${shop.runs.family}?view=tree`, "12 × child"],
      ["#/schedules", "hourly-triage"],
    ] as const) {
      await operator.go(place);
      await operator.sees(text);
      if ((await page.$("button.fold")) !== null) await page.click("button.fold");
      if (place.includes("refunded")) await choose("pay");
      expect([place, await operator.violations()]).toEqual([place, []]);
    }
    await page.emulateMediaFeatures([]);
  });
});

/** The lines in the page: level, name, and the kinds of their spans, the earliest first. */
async function lines(): Promise<readonly string[]> {
  return (await page.evaluate(`[...document.querySelectorAll(".line")].map((line) => {
    const bars = [...line.querySelectorAll(".bar")].sort((one, other) => parseFloat(one.style.left) - parseFloat(other.style.left));
    const kinds = bars.map((bar) => bar.classList[1]);
    return line.ariaLevel + " " + line.querySelector(".title").textContent + ": " + kinds.join(" ");
  })`)) as string[];
}

/** Opens or closes a line, by its number from 0 on. */
async function fold(index: number): Promise<void> {
  const button = `[...document.querySelectorAll(".line")][${index}]?.querySelector("button.fold")`;
  await until(page, `${button} != null && (${button}.click(), true)`);
}

/** Clicks the line of this name. */
async function choose(name: string): Promise<void> {
  const line = `[...document.querySelectorAll(".line")].find((e) => e.querySelector(".title").textContent === ${JSON.stringify(name)})`;
  await until(page, `${line} !== undefined && (${line}.click(), true)`);
}

async function textOf(selector: string): Promise<string> {
  return (await page.evaluate(`document.querySelector(${JSON.stringify(selector)}).textContent`)) as string;
}

async function focused(): Promise<string> {
  await until(page, "document.activeElement?.matches('.line') === true");
  return (await page.evaluate("document.activeElement.textContent")) as string;
}
