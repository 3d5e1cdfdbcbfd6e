import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import type { AgentRuntime } from "cadenza";
import { withFile } from "../sqlite-files.ts";
import type { Seen } from "./agents.ts";
import { AT_ONCE, createMany, open, shortLease } from "./agents.ts";

/* How fast a process completes its own runs, and those of another process. */

const READS = 200;
/** How much longer each commit takes where commits are slow, in milliseconds. */
const SLOWER_MS = 25;
/** How many runs are taken over where commits are slow. */
export const SLOW_RUNS = 500;

/** How fast runs were completed, and for how long the event loop was blocked. */
export interface Rate {
  readonly perSecond: number;
  readonly p99Ms: number;
}

/** How late events of another process were seen at the 99th percentile, and how many records were too old. */
export interface ReadFigures {
  readonly p99Ms: number;
  readonly outdated: number;
}

/** How many runs were completed, and how many begun twice. */
export interface SlowFigures {
  readonly completed: number;
  readonly twice: number;
}

/** Runs a second that a process creates and completes, `AT_ONCE` at a time. */
export async function ownRate(count: number): Promise<number> {
  return withFile(async (file) => {
    const { runtime, seen, close } = open(file, "works");
    const begun = performance.now();
    let left = count;
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        while (left-- > 0) await runtime.createRun({ agent_name: "steps", input: "" });
      }),
    );
    const seconds = (performance.now() - begun) / 1_000;
    // A listener hears of a completed run after the caller.
    const giveUpAt = Date.now() + 5_000;
    while (seen.completed < count && Date.now() < giveUpAt) await new Promise((resolve) => setTimeout(resolve, 5));
    if (seen.completed !== count) throw new Error(`${seen.completed} of ${count} runs completed.`);
    await close();
    return count / seconds;
  });
}

/** Runs a second that are taken over from a process that was killed, and completed. */
export async function takeOver(count: number): Promise<Rate> {
  return withFile(async (file) => {
    const dying = await left("hangs", file, count, 0);
    dying.kill("SIGKILL");
    return drained(file, count, shortLease);
  });
}

/** Questions a second that get their default, once their common deadline has passed. */
export async function deadlines(count: number, isRestarted: boolean): Promise<Rate> {
  return withFile(async (file) => {
    const until = Date.now() + 3_000 + count;
    if (isRestarted) {
      const first = await left("asks", file, count, until);
      first.kill("SIGKILL");
      await new Promise((resolve) => setTimeout(resolve, until + 500 - Date.now()));
      return drained(file, count, shortLease);
    }
    const { runtime, seen, close } = open(file, "works");
    await createMany(runtime, "asks", count, `${until}`);
    const rate = await untilCompleted(seen, count, until);
    await close();
    return rate;
  });
}

async function drained(file: string, count: number, durability: object): Promise<Rate> {
  const { seen, close } = open(file, "works", durability);
  const rate = await untilCompleted(seen, count);
  await close();
  return rate;
}

/** From the first run that goes on, or from a time, to the last one. */
async function untilCompleted(seen: Seen, count: number, from?: number): Promise<Rate> {
  const giveUpAt = Date.now() + 180_000;
  while (seen.firstAt === 0 && Date.now() < giveUpAt) await new Promise((resolve) => setTimeout(resolve, 1));
  const delays = monitorEventLoopDelay({ resolution: 1 });
  delays.enable();
  while (seen.completed < count && Date.now() < giveUpAt) await new Promise((resolve) => setTimeout(resolve, 5));
  delays.disable();
  if (seen.completed < count) throw new Error(`Only ${seen.completed} of ${count} runs completed.`);
  const seconds = (seen.lastAt - Math.min(seen.firstAt, from ?? seen.firstAt)) / 1_000;
  return { perSecond: count / seconds, p99Ms: delays.percentile(99) / 1e6 };
}

/**
 * How late a reader in the process that created a run sees the events of another process, and how old its record is.
 */
export async function readElsewhere(): Promise<ReadFigures> {
  return withFile(async (file) => {
    const first = open(file, "works");
    const second = open(file, "works");
    const delays: number[] = [];
    let outdated = 0;
    for (let read = 0; read < 2 * READS; read++) {
      const { run_id } = await first.runtime.createRun({ agent_name: "asks", input: "" });
      const seen = nextEvents(first.runtime, run_id);
      // Readers begin at different times between two scans of their process.
      await new Promise((resolve) => setTimeout(resolve, 17 * (read % 12)));
      await second.runtime.resume({ run_id, await_resume: { ok: true } });
      const acknowledgedAt = performance.now();
      // Reading the record would bring the events along.
      if (read % 2 === 0) delays.push((await seen) - acknowledgedAt);
      else if ((await first.runtime.getRun(run_id)).status !== "completed") outdated += 1;
    }
    await first.close();
    await second.close();
    const p99Ms = delays.toSorted((a, b) => a - b)[Math.ceil(0.99 * READS) - 1] ?? 0;
    return { p99Ms, outdated };
  });
}

/** When the last event of a run was seen. */
async function nextEvents(runtime: AgentRuntime, run_id: string): Promise<number> {
  for await (const event of runtime.events(run_id, { until: "end" })) if (event.type === "run.completed") break;
  return performance.now();
}

/** Two processes on a file with slow commits that take over many runs of a third. */
export async function slowCommits(): Promise<SlowFigures> {
  return withFile(async (file) => {
    const dying = await left("hangs", file, SLOW_RUNS, 0);
    dying.kill("SIGKILL");
    const first = open(file, "works", {}, SLOWER_MS);
    const second = open(file, "works", {}, SLOWER_MS);
    const giveUpAt = Date.now() + 60_000;
    while (first.seen.completed + second.seen.completed < SLOW_RUNS && Date.now() < giveUpAt)
      await new Promise((resolve) => setTimeout(resolve, 20));
    const completed = first.seen.completed + second.seen.completed;
    const twice = [...first.seen.begun].filter(([run, times]) => times > 1 || second.seen.begun.has(run));
    await first.close();
    await second.close();
    return { completed, twice: twice.length };
  });
}

/** Starts a process that creates so many runs and leaves them unfinished. */
async function left(what: string, file: string, count: number, until: number): Promise<ChildProcess> {
  const leaver = fileURLToPath(new URL("./leaver.ts", import.meta.url));
  const child = fork(leaver, [what, file, `${count}`, `${until}`]);
  await new Promise<void>((resolve, reject) => {
    child.once("message", () => resolve());
    child.once("exit", (code) => reject(new Error(`The process ended with ${code}.`)));
  });
  child.removeAllListeners("exit");
  return child;
}
