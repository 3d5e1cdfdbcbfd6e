import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import Database from "libsql";
import { makeProject, write } from "../project.ts";
import { Browser, Command, Writer } from "./processes.ts";

/* What `cadenza inspect` costs a process that writes the same SQLite file, and how soon it shows what that process does. */

/** SQLite moves the log into the file when it has so many pages. */
const CHECKPOINT_PAGES = 1_000;
const SAMPLE_MS = 20;
const CHANGE_MS = 150;
const TIMES = "statement-times.json";

export interface InspectOptions {
  /** How many pairs of turns there are, with the command and without it, and how long each of these takes. */
  readonly pairs: number;
  readonly seconds: number;
  /** How many runs the file holds. */
  readonly runs: number;
  /** How many changes the command has to show. */
  readonly changes: number;
  readonly onPair: (withIt: number, without: number) => void;
}

/** Times in milliseconds. */
export interface InspectFigures {
  /** Runs a second of the writer in each turn. */
  readonly speeds: Readonly<Record<"with" | "without", readonly number[]>>;
  /** How many locks the writer met. */
  readonly busy: number;
  /** The time of each read of the command. */
  readonly reads: readonly number[];
  readonly longest: { readonly ms: number; readonly cpuMs: number; readonly sql: string };
  /** For how long the log was over its checkpoint size at a time, and how many pages it had. */
  readonly logMs: number;
  readonly logPages: number;
  /** How long after its acknowledgement each change was shown. */
  readonly shown: readonly number[];
}

/** Lets a process write a file in turns with the command beside it, and without. */
export async function inspectBeside(options: InspectOptions): Promise<InspectFigures> {
  const { pairs, seconds, runs, changes, onPair } = options;
  const project = await makeProject();
  const cwd = project.folder;
  const file = join(cwd, "inspected.db");
  try {
    write(cwd, "times.mjs", readFileSync(new URL("./statement-times.mjs", import.meta.url), "utf8"));
    await fill(file, runs);
    const writer = new Writer(cwd, file);
    const { run_id } = await writer.order("create");
    await writer.order("load 2000");

    const speeds: Record<"with" | "without", number[]> = { with: [], without: [] };
    const reads: number[] = [];
    let longest = { ms: 0, cpuMs: 0, sql: "" };
    let [busy, logMs, logPages] = [0, 0, 0];
    for (let pair = 0; pair < pairs; pair++) {
      const order = pair % 2 === 0 ? (["with", "without"] as const) : (["without", "with"] as const);
      for (const side of order) {
        const inspected = side === "with" ? await startInspector(cwd, file, run_id) : undefined;
        const log = watchLog(file);
        const answer = await writer.order(`load ${1_000 * seconds}`);
        speeds[side].push(answer.runs / seconds);
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
      onPair(speeds.with.at(-1) ?? 0, speeds.without.at(-1) ?? 0);
    }
    const shown = await latencies(cwd, file, writer, changes);
    await writer.stop("SIGKILL");
    return { speeds, busy, reads, longest, logMs, logPages, shown };
  } finally {
    project.remove();
  }
}

/** Stores runs that have ended. */
async function fill(file: string, runs: number): Promise<void> {
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
async function startInspector(cwd: string, file: string, run_id: string) {
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
function watchLog(file: string) {
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
async function latencies(cwd: string, file: string, writer: Writer, changes: number): Promise<number[]> {
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
