import { setTimeout as wait } from "node:timers/promises";
import type { Page } from "puppeteer-core";
import { openBrowser } from "../browser/browser.ts";
import { command } from "../harness/commands/commands.ts";
import type { Report } from "../harness/commands/report.ts";
import { serveBusyInspector } from "./busy-inspector.ts";

const VIEW_MS = 60_000;
const MAX_TASK_MS = 100;
const MAX_HEAP_MB = 80;
const MAX_NODES = 3_000;
const TOKEN = "the-token-of-the-bench";

export const bench = command({
  about:
    "Measures what the page of the inspector costs a browser: a minute on the list of 1,000 live runs among 100,000, ten more of which emit 50 parts a second, a minute on the page of one of these, and a minute on the questions.",
  options: {},
  async run(_, report) {
    const browser = await openBrowser();
    if (browser === undefined) return { skipped: "there is no browser" };
    const { origin, run_id, close } = await serveBusyInspector(report, { token: TOKEN });
    const page = await browser.newPage();
    await page.setViewport({ width: 1200, height: 900 });
    await page.evaluateOnNewDocument(`window.tasks = [];
      new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({ duration }) => duration)))
        .observe({ type: "longtask", buffered: true });`);
    await page.goto(`${origin}/?token=${TOKEN}`);
    await watch(page, "the list", "#/runs?status=created,in-progress,awaiting,cancelling&limit=2000", "1,0", report);
    await watch(page, "a run", `#/run//${run_id}`, "la la la", report);
    await watch(page, "the questions", "#/questions", "open question", report);
    await browser.close();
    await close();
    return "3 views";
  },
});

/** Looks at a view for a minute, and scrolls each second. */
async function watch(page: Page, name: string, hash: string, text: string, report: Report): Promise<void> {
  await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
  await page.waitForFunction(`document.querySelector("main").innerText.includes(${JSON.stringify(text)})`);
  const session = await page.createCDPSession();
  let nodes = 0;
  for (const end = Date.now() + VIEW_MS; Date.now() < end; ) {
    await page.mouse.wheel({ deltaY: 3_000 });
    await wait(1_000);
    nodes = Math.max(nodes, (await page.evaluate("document.querySelectorAll('*').length")) as number);
  }
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  const tasks = (await page.evaluate("window.tasks.splice(0)")) as readonly number[];
  const longest = Math.max(0, ...tasks);
  const heap = usedSize / 2 ** 20;
  report.check(
    longest <= MAX_TASK_MS && heap <= MAX_HEAP_MB && nodes <= MAX_NODES,
    `${name}: longest task ${longest} ms (at most ${MAX_TASK_MS}), ${tasks.length} above 50; heap ${heap.toFixed(1)} MB (${MAX_HEAP_MB}); nodes ${nodes} (${MAX_NODES})`,
  );
}
