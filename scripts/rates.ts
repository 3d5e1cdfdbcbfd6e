/**
 * Compares how fast a process takes over and completes the runs of another process with how fast it completes its own:
 * `npm run test:rates -- --runs 5000 --questions 10000 --tries 10`. Exits with 1 if a rate is below half of the own
 * rate, if the event loop was blocked for more than 50 ms at the 99th percentile, if a reader in another process saw an
 * event later than 250 ms, or if a living process lost its lease.
 */
import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { never } from "../test/harness/promises.ts";
import { openDatabase, withFile } from "../test/harness/sqlite-files.ts";
import { hookedStore } from "../test/harness/store-proxy.ts";

const AT_ONCE = 50;
const MAX_P99_MS = 50;
const LEAST_SHARE = 0.5;
const DAY_MS = 86_400_000;
const READS = 200;
const MAX_DELAY_MS = 250;
const SLOWER_MS = 25;
const SLOW_RUNS = 500;
const shortLease = { leaseMs: 2_000, heartbeatMs: 600, scanMs: 1_000, evictAfterMs: 1_000 };

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "5000" },
    questions: { type: "string", default: "10000" },
    tries: { type: "string", default: "10" },
    left: { type: "string" },
    file: { type: "string", default: "" },
    count: { type: "string", default: "0" },
    until: { type: "string", default: "0" },
  },
});

/** What is counted of the agents of a process. */
interface Seen {
  completed: number;
  firstAt: number;
  lastAt: number;
  /** How often a body began for a run. */
  readonly begun: Map<string, number>;
}

if (values.left === undefined) await measure();
else await leave(values.left);

async function measure(): Promise<void> {
  const completing = await ownRate(Number(values.runs));
  console.log(`completes ${Math.round(completing)} runs/s, ${AT_ONCE} at once`);
  const wrong = [
    ...judged("takes over", await takeOver(Number(values.runs)), completing),
    ...judged("deadlines, in a living process", await deadlines(Number(values.questions), false), completing),
    ...judged("deadlines, after a restart", await deadlines(Number(values.questions), true), completing),
    ...(await readElsewhere()),
    ...(await slowCommits(Number(values.tries))),
  ];
  for (const what of wrong) console.error(what);
  process.exitCode = wrong.length > 0 ? 1 : 0;
}

interface Rate {
  readonly perSecond: number;
  readonly p99Ms: number;
}

function judged(what: string, { perSecond, p99Ms }: Rate, completing: number): readonly string[] {
  const share = perSecond / completing;
  console.log(
    `${what}: ${Math.round(perSecond)}/s, ${share.toFixed(2)} of that; event loop p99 ${p99Ms.toFixed(1)} ms`,
  );
  const wrong: string[] = [];
  if (share < LEAST_SHARE) wrong.push(`${what}: slower than ${LEAST_SHARE} of the rate of own runs`);
  if (p99Ms > MAX_P99_MS)
    wrong.push(`${what}: the event loop was blocked for ${p99Ms.toFixed(1)} ms at the 99th percentile`);
  return wrong;
}

/** Runs a second that a process creates and completes, `AT_ONCE` at a time. */
async function ownRate(count: number): Promise<number> {
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
    if (seen.completed !== count) throw new Error(`${seen.completed} of ${count} runs completed.`);
    await close();
    return count / seconds;
  });
}

/** Runs a second that are taken over from a process that was killed, and completed. */
async function takeOver(count: number): Promise<Rate> {
  return withFile(async (file) => {
    const dying = await left("hangs", file, count, 0);
    dying.kill("SIGKILL");
    return drained(file, count, shortLease);
  });
}

/** Questions a second that get their default, once their common deadline has passed. */
async function deadlines(count: number, isRestarted: boolean): Promise<Rate> {
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
async function readElsewhere(): Promise<readonly string[]> {
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
    const p99 = delays.toSorted((a, b) => a - b)[Math.ceil(0.99 * READS) - 1] ?? 0;
    console.log(
      `events of another process: p99 of ${READS} ${p99.toFixed(0)} ms; records that were older: ${outdated}`,
    );
    return p99 > MAX_DELAY_MS || outdated > 0 ? ["reads are too old"] : [];
  });
}

/** When the last event of a run was seen. */
async function nextEvents(runtime: AgentRuntime, run_id: string): Promise<number> {
  for await (const event of runtime.events(run_id, { until: "end" })) if (event.type === "run.completed") break;
  return performance.now();
}

/** Whether a process keeps its lease while it takes over many runs, and each commit takes longer. */
async function slowCommits(tries: number): Promise<readonly string[]> {
  const wrong: string[] = [];
  for (let attempt = 1; attempt <= tries; attempt++) {
    await withFile(async (file) => {
      const dying = await left("hangs", file, SLOW_RUNS, 0);
      dying.kill("SIGKILL");
      const first = open(file, "works", {}, SLOWER_MS);
      const second = open(file, "works", {}, SLOWER_MS);
      const giveUpAt = Date.now() + 60_000;
      while (first.seen.completed + second.seen.completed < SLOW_RUNS && Date.now() < giveUpAt)
        await new Promise((resolve) => setTimeout(resolve, 20));
      const completed = first.seen.completed + second.seen.completed;
      const twice = [...first.seen.begun].filter(([run, times]) => times > 1 || second.seen.begun.has(run));
      console.log(
        `commits ${SLOWER_MS} ms slower, try ${attempt}: ${completed} completed, ${twice.length} begun twice`,
      );
      if (completed !== SLOW_RUNS || twice.length > 0) wrong.push(`try ${attempt}: a living process lost its lease`);
      await first.close();
      await second.close();
    });
  }
  return wrong;
}

/** Starts a process that creates so many runs and leaves them unfinished. */
async function left(what: string, file: string, count: number, until: number): Promise<ChildProcess> {
  const parameters = ["--left", what, "--file", file, "--count", `${count}`, "--until", `${until}`];
  const child = fork(fileURLToPath(import.meta.url), parameters);
  await new Promise<void>((resolve, reject) => {
    child.once("message", () => resolve());
    child.once("exit", (code) => reject(new Error(`The process ended with ${code}.`)));
  });
  child.removeAllListeners("exit");
  return child;
}

async function leave(what: string): Promise<void> {
  const { runtime } = open(values.file, "hangs");
  await createMany(runtime, what === "asks" ? "asks" : "steps", Number(values.count), values.until);
  process.send?.("left");
  setInterval(() => undefined, 1_000);
  await never();
}

async function createMany(runtime: AgentRuntime, agent_name: string, count: number, input: string): Promise<void> {
  let left = count;
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (left-- > 0) await runtime.createRun({ agent_name, input, mode: "async" });
    }),
  );
  // The accepted runs begin, and go on until they wait.
  await new Promise((resolve) => setTimeout(resolve, 500));
}

function open(file: string, mode: "works" | "hangs", durability: object = shortLease, slowerMs = 0) {
  const sqlite = new SqliteStore(openDatabase(file), { closeDatabase: true });
  const store = slowerMs === 0 ? sqlite : slower(sqlite, slowerMs);
  const limits = { maxLiveRuns: 100_000 };
  const runtime = new AgentRuntime({ store: durable(store, durability), limits });
  const seen: Seen = { completed: 0, firstAt: 0, lastAt: 0, begun: new Map() };
  const onCompleted = (): void => {
    seen.lastAt = Date.now();
    seen.completed += 1;
  };
  runtime.on("run.completed", onCompleted);
  runtime.register("steps", { durable: true }, async (_input, { step, run_id }) => {
    const result = await step("work", () => {
      seen.firstAt ||= Date.now();
      seen.begun.set(run_id, (seen.begun.get(run_id) ?? 0) + 1);
      return mode === "works" ? 1 : never();
    });
    return `${result}`;
  });
  runtime.register("asks", { durable: true }, async (input, { ask, now }) => {
    const until = Number(input[0]?.parts[0]?.content);
    const timeoutMs = until === 0 ? DAY_MS : Math.max(1, until - now());
    const answer = await ask("Well?", { timeoutMs, default: { late: true } });
    seen.firstAt ||= Date.now();
    return JSON.stringify(answer);
  });
  const close = async (): Promise<void> => {
    await runtime.close({ drainMs: 0 });
    await store.close();
  };
  return { runtime, seen, close };
}

/** The same store, with each write to a run delayed by `ms`. */
function slower(store: Store, ms: number): Store {
  const slow = ["append", "create", "claim"];
  return hookedStore((call, method) => {
    if (!slow.includes(method)) return call();
    return new Promise((resolve) => setTimeout(resolve, ms)).then(call);
  }, store);
}
