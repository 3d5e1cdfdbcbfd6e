import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { createInspectorNodeListener } from "cadenza/inspector";
import type { Page } from "puppeteer-core";
import { openBrowser } from "../browser/browser.ts";
import { openShop } from "../browser/inspector-seed.ts";
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
    "Measures what the page of the inspector costs a browser: a minute on the list of 1,000 live runs among 100,000, ten more of which emit 50 parts a second, a minute on the page of one of these, and a minute on the questions. Then it opens the waterfall of a run of 10,000 operations, and scrolls it from end to end.",
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
    await close();
    await openLong(page, report);
    await browser.close();
    return "4 views";
  },
});

/** How often a run is opened. */
const OPENED = 5;
const MAX_OPEN_RATIO = 2;
const MAX_SCROLL_TASK_MS = 50;

/** Opens a run of 10,000 operations, 200 of them sub-runs, and one of 100, and scrolls the first one from end to end. */
async function openLong(page: Page, report: Report): Promise<void> {
  const shop = await openShop();
  const server = createServer(createInspectorNodeListener(shop.runtime, { token: TOKEN })).listen(0, "127.0.0.1");
  await once(server, "listening");
  const create = async (agent_name: string, input: string): Promise<string> => {
    const { run_id } = await shop.runtime.createRun({ agent_name, input, mode: "async" });
    while ((await shop.runtime.getRun(run_id)).status !== "completed") await shop.clock.advance(10);
    return run_id;
  };
  const ofShort = await create("long", "100");
  const ofLong = await create("long", "10000");
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/?token=${TOKEN}#/runs`);
  /** How long it takes until the first lines are drawn, and until all of them are there. */
  const openMs = async (run_id: string, lines: string): Promise<readonly [number, number]> => {
    await page.evaluate("location.hash = '#/nowhere'");
    await page.waitForFunction("document.querySelector('main').innerText.includes('There is nothing here')");
    const begin = performance.now();
    await page.evaluate(`location.hash = "#/run//${run_id}"`);
    await page.waitForFunction("document.querySelectorAll('.line .bar').length > 20", { polling: "raf" });
    const drawn = performance.now() - begin;
    const all = `document.querySelector("main").innerText.includes(${JSON.stringify(lines)})`;
    await page.waitForFunction(all, { polling: "raf" });
    return [drawn, performance.now() - begin];
  };
  const short: number[] = [];
  const long: number[] = [];
  const whole: number[] = [];
  for (let turn = 0; turn < OPENED; turn++) {
    short.push((await openMs(ofShort, "101 lines"))[0]);
    const [drawn, all] = await openMs(ofLong, "10,001 lines");
    long.push(drawn);
    whole.push(all);
  }
  report.check(
    median(long) <= MAX_OPEN_RATIO * median(short),
    `a run of 10,000 operations is drawn after ${median(long).toFixed(0)} ms, one of 100 after ${median(short).toFixed(0)} ms (at most ${MAX_OPEN_RATIO} times); all of its lines are there after ${median(whole).toFixed(0)} ms`,
  );
  await wait(1_000);
  await page.tracing.start({ categories: ["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel"] });
  await page.evaluate(`new Promise((resolve) => {
    const grid = document.querySelector(".grid");
    const scroll = () => {
      grid.scrollTop += 400;
      if (grid.scrollTop + grid.clientHeight >= grid.scrollHeight) resolve();
      else requestAnimationFrame(scroll);
    };
    scroll();
  })`);
  const longest = longestTask(await page.tracing.stop());
  report.check(
    longest <= MAX_SCROLL_TASK_MS,
    `while it scrolls from end to end: the longest task of the page takes ${longest.toFixed(1)} ms of its processor (at most ${MAX_SCROLL_TASK_MS})`,
  );
  server.closeAllConnections();
  server.close();
  await shop.close();
}

/** The longest task of the page in a trace, in milliseconds of processor time: other processes do not count. */
function longestTask(trace: Uint8Array | undefined): number {
  const { traceEvents } = JSON.parse(new TextDecoder().decode(trace)) as {
    readonly traceEvents: readonly {
      readonly name: string;
      readonly pid: number;
      readonly tid: number;
      readonly tdur?: number;
      readonly args: { readonly name?: string };
    }[];
  };
  const threads = traceEvents.filter(
    ({ name, args }) =>
      name === "thread_name" && /^(CrRendererMain|Chrome_InProcRendererThread)$/.test(args.name ?? ""),
  );
  const tasks = traceEvents.filter(
    ({ name, pid, tid }) => name === "RunTask" && threads.some((thread) => thread.pid === pid && thread.tid === tid),
  );
  return Math.max(0, ...tasks.map(({ tdur = 0 }) => tdur / 1_000));
}

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0;
}

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
