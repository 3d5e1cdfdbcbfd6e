import { spawn } from "node:child_process";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as wait } from "node:timers/promises";
import { command } from "../harness/commands/commands.ts";
import { serveBusyInspector } from "./busy-inspector.ts";
import { LIVE } from "./many-runs.ts";

const PAIRS = 6;
const TURN_MS = 10_000;
/** How long the readers have for the first contents of their views. In a minute these would not count. */
const OPENING_MS = 3_000;
/** The delay that is allowed to be added, in milliseconds. */
const MAX_ADDED_MS = 5;
/** How many views are open at the same time, for requests. */
const PAGES = 100;
const BETWEEN_MS = 20;

/** Reads the views that its arguments name, and writes how many bytes it has read when it is stopped. */
const reader = `
  let bytes = 0;
  for (const url of process.argv.slice(1)) fetch(url).then(async ({ body }) => {
    for await (const chunk of body) bytes += chunk.length;
  }).catch(() => {});
  process.on("SIGTERM", () => process.stdout.write(String(bytes), () => process.exit(0)));
`;

export const bench = command({
  about:
    "Measures by how much three open views of the inspector delay the process that serves them, with 100,000 stored runs, 1,000 of them live, and ten more that emit 50 parts a second, on SQLite. The readers are a process of their own. Turns with and without them alternate, and the p99 of the delay of the event loop is compared. Then the median of a run that ends at once is compared, alone and with a hundred open views.",
  options: {},
  async run(_, report) {
    const { origin, run_id, request, close } = await serveBusyInspector(report, {
      authorize: () => ({ allTenants: true }),
    });
    const feeds = `${origin}/api/feed`;
    const views = [
      `${feeds}/runs?status=created,in-progress,awaiting,cancelling&limit=${LIVE}`,
      `${feeds}/run?run_id=${run_id}`,
      `${feeds}/questions?limit=500`,
    ];
    report.say("p99 in milliseconds");
    await wait(2_000);
    const added: number[] = [];
    for (let pair = 0; pair < PAIRS; pair++) {
      const alone = await turn();
      const stop = await follow(views);
      const watched = await turn();
      const bytes = await stop();
      added.push(watched - alone);
      const [one, other, more] = [alone, watched, watched - alone].map((ms) => ms.toFixed(2).padStart(7));
      report.say(`none ${one}   three views ${other}   added ${more}   read ${Math.round(bytes / 1024)} KiB`);
    }
    report.check(
      median(added) <= MAX_ADDED_MS,
      `the views add ${median(added).toFixed(2)} ms to the p99 (median of ${PAIRS} pairs, at most ${MAX_ADDED_MS})`,
    );
    report.say("median of a run that ends at once, in milliseconds");
    const pages = Array.from(
      { length: PAGES },
      (_, n) => [...views, `${feeds}/history?over=month`, `${feeds}/figures`][n % 5] ?? "",
    );
    const slower: number[] = [];
    for (let pair = 0; pair < PAIRS; pair++) {
      const alone = await requests(request);
      const stop = await follow(pages);
      const watched = await requests(request);
      const bytes = await stop();
      slower.push(watched - alone);
      const [one, other, more] = [alone, watched, watched - alone].map((ms) => ms.toFixed(2).padStart(7));
      report.say(`none ${one}   ${PAGES} views ${other}   added ${more}   read ${Math.round(bytes / 1024)} KiB`);
    }
    await close();
    report.check(
      median(slower) <= MAX_ADDED_MS,
      `${PAGES} views add ${median(slower).toFixed(2)} ms to a run (median of ${PAIRS} pairs, at most ${MAX_ADDED_MS})`,
    );
    return `${PAIRS} pairs of turns`;
  },
});

/** Opens views in a process of its own. Resolves when they are open, with what ends them and tells how many bytes were read. */
async function follow(views: readonly string[]): Promise<() => Promise<number>> {
  const child = spawn(process.execPath, ["-e", reader, ...views], { stdio: ["ignore", "pipe", "inherit"] });
  await wait(OPENING_MS);
  return async () => {
    child.kill();
    let bytes = "";
    for await (const chunk of child.stdout) bytes += chunk;
    return Number(bytes);
  };
}

/** The median of the milliseconds that a request takes in one turn. */
async function requests(request: () => Promise<unknown>): Promise<number> {
  const took: number[] = [];
  for (const begin = performance.now(); performance.now() - begin < TURN_MS; ) {
    const before = performance.now();
    await request();
    took.push(performance.now() - before);
    await wait(BETWEEN_MS);
  }
  return median(took);
}

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** The p99 of the delay of the event loop in one turn. */
async function turn(): Promise<number> {
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  await wait(TURN_MS);
  delay.disable();
  return delay.percentile(99) / 1e6;
}
