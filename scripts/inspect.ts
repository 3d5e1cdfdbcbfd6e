/**
 * What `cadenza inspect` costs a process that writes the same SQLite file, and how soon it shows what that process
 * does: `npm run test:inspect`, with `-- --pairs 2 --seconds 2 --runs 1000` for a short look. It wants a quiet machine.
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import Database from "libsql";
import { median } from "../test/bench/figures.ts";
import { Browser, Command, Writer } from "../test/harness/inspected/processes.ts";
import { makeProject, write } from "../test/harness/project.ts";

const { values } = parseArgs({
  options: {
    pairs: { type: "string", default: "10" },
    seconds: { type: "string", default: "6" },
    runs: { type: "string", default: "20000" },
    changes: { type: "string", default: "50" },
  },
});
const LIMITS = { slower: 0.05, readMs: 50, logMs: 5_000, shownMs: 1_000 };
/** SQLite moves the log into the file when it has so many pages. */
const CHECKPOINT_PAGES = 1_000;
const SAMPLE_MS = 20;
const CHANGE_MS = 150;
const TIMES = "statement-times.json";

const project = await makeProject();
const cwd = project.folder;
const file = join(cwd, "inspected.db");
try {
  write(
    cwd,
    "times.mjs",
    readFileSync(new URL("../test/harness/inspected/statement-times.mjs", import.meta.url), "utf8"),
  );
  await fill(Number(values.runs));
  const writer = new Writer(cwd, file);
  const { run_id } = await writer.order("create");
  await writer.order("load 2000");

  const speeds: Record<"with" | "without", number[]> = { with: [], without: [] };
  const reads: number[] = [];
  let longest = { ms: 0, cpuMs: 0, sql: "" };
  let [busy, logMs, logPages] = [0, 0, 0];
  for (let pair = 0; pair < Number(values.pairs); pair++) {
    const order = pair % 2 === 0 ? (["with", "without"] as const) : (["without", "with"] as const);
    for (const side of order) {
      const inspected = side === "with" ? await startInspector(run_id) : undefined;
      const log = watchLog();
      const answer = await writer.order(`load ${1_000 * Number(values.seconds)}`);
      speeds[side].push(answer.runs / Number(values.seconds));
      const { overMs, mostPages } = log.stop();
      if (inspected !== undefined) {
        logMs = Math.max(logMs, overMs);
        logPages = Math.max(logPages, mostPages);
        const found = await inspected.stop();
        reads.push(...found.times);
        if (found.longest.ms > longest.ms) longest = found.longest;
      }
      busy = answer.busy;
    }
    console.log(
      `pair ${pair + 1}: ${speeds.with.at(-1)?.toFixed(0)} runs/s with, ${speeds.without.at(-1)?.toFixed(0)} without`,
    );
  }
  const shown = await latencies(writer, Number(values.changes));
  await writer.stop("SIGKILL");

  const ratios = speeds.with.map((speed, index) => speed / (speeds.without[index] ?? speed));
  const slower = 1 - median(ratios);
  const sorted = reads.toSorted((one, other) => one - other);
  const quantile = (of: number): string => (sorted[Math.floor(of * (sorted.length - 1))] ?? 0).toFixed(2);
  const lines: readonly (readonly [string, boolean])[] = [
    [
      `the writer is ${(100 * slower).toFixed(1)} % slower in the median of ${ratios.length} pairs (${median(speeds.with).toFixed(0)} and ${median(speeds.without).toFixed(0)} runs/s), at most ${100 * LIMITS.slower}`,
      slower <= LIMITS.slower,
    ],
    [`the writer met ${busy} locks`, busy === 0],
    [
      `the longest of ${reads.length} reads took ${longest.ms.toFixed(1)} ms, of which ${longest.cpuMs.toFixed(1)} on a processor (median ${quantile(0.5)}, p99.9 ${quantile(0.999)}), at most ${LIMITS.readMs}: ${longest.sql.trim().slice(0, 80).replaceAll(/\s+/g, " ")}`,
      longest.ms <= LIMITS.readMs,
    ],
    [
      `the log was over its checkpoint size for ${logMs} ms at a time, at most ${LIMITS.logMs}; it had up to ${logPages} pages`,
      logMs <= LIMITS.logMs,
    ],
    [
      `${shown.length} changes were shown within ${Math.max(...shown)} ms (median ${median(shown)}), at most ${LIMITS.shownMs}`,
      Math.max(...shown) <= LIMITS.shownMs,
    ],
  ];
  for (const [text, holds] of lines) console.log(`${holds ? "ok  " : "OVER"} ${text}`);
  process.exitCode = lines.every(([, holds]) => holds) ? 0 : 1;
} finally {
  project.remove();
}

/** Stores runs that have ended. */
async function fill(runs: number): Promise<void> {
  const store = new SqliteStore(new Database(file), { synchronous: "NORMAL", closeDatabase: true });
  const runtime = new AgentRuntime({ store });
  runtime.register("filled", () => "done");
  for (let left = runs; left > 0; left -= 100)
    await Promise.all(
      Array.from({ length: Math.min(left, 100) }, () => runtime.createRun({ agent_name: "filled", input: "" })),
    );
  await runtime.close();
}

/** The command, with readers of three feeds. */
async function startInspector(run_id: string) {
  const command = new Command(["inspect", file], {
    cwd,
    program: ["--import", "./times.mjs", "node_modules/cadenza/dist/cli.js"],
    env: { CADENZA_TIMES: join(cwd, TIMES) },
  });
  const browser = await Browser.open(await command.address());
  const feeds = ["runs", "questions", `run?tenant=&run_id=${run_id}`].map((path) => browser.feed(`api/feed/${path}`));
  await Promise.all(feeds.map((feed) => feed.next()));
  const followed = Promise.allSettled(feeds.map(readOn));
  return {
    async stop() {
      await command.stop();
      await followed;
      return JSON.parse(readFileSync(join(cwd, TIMES), "utf8")) as {
        times: number[];
        longest: { ms: number; cpuMs: number; sql: string };
      };
    },
  };
}

async function readOn(feed: AsyncIterable<unknown>): Promise<void> {
  for await (const _event of feed);
}

/** Samples how many pages SQLite's log holds: the index of the log, in shared memory, begins with it. */
function watchLog() {
  const index = openSync(`${file}-shm`, "r");
  const pages = Buffer.alloc(4);
  let since: number | undefined;
  let [overMs, mostPages] = [0, 0];
  const timer = setInterval(() => {
    readSync(index, pages, 0, 4, 16);
    const count = pages.readUInt32LE();
    mostPages = Math.max(mostPages, count);
    if (count <= CHECKPOINT_PAGES) since = undefined;
    else since ??= Date.now();
    if (since !== undefined) overMs = Math.max(overMs, Date.now() - since);
  }, SAMPLE_MS);
  return {
    stop() {
      clearInterval(timer);
      closeSync(index);
      return { overMs, mostPages };
    },
  };
}

/** How long after its acknowledgement each new run is shown, in milliseconds. */
async function latencies(writer: Writer, changes: number): Promise<number[]> {
  const command = new Command(["inspect", file], { cwd });
  const browser = await Browser.open(await command.address());
  const feed = browser.feed("api/feed/runs");
  await feed.next();
  const found: number[] = [];
  for (let n = 0; n < changes; n++) {
    const { run_id, at } = await writer.order("create");
    for (;;) {
      const { value, done } = await feed.next();
      if (done) throw new Error("the feed has ended");
      if (JSON.stringify(value).includes(run_id)) break;
    }
    found.push(Date.now() - at);
    // So that the changes fall anywhere between two looks.
    await new Promise((resolve) => setTimeout(resolve, Math.random() * CHANGE_MS * 4));
  }
  await command.stop();
  return found;
}
