/**
 * Measures how long runs on PostgreSQL stand still when a process fails, with default settings: `npm run test:failures`.
 * Workers are processes of their own; this one accepts the runs and reads their events. A line for each failure, and
 * exit code 1 if a run is lost or a part comes twice. Takes about three minutes.
 */
import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as after } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AgentRuntime, defineAgent } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import type { Waker } from "cadenza/store";
import pg from "pg";
import { startServer } from "../test/harness/postgres-server.ts";

const RUNS = 20;
const STEP_MS = 100;
const HOUR_MS = 3_600_000;

const ticker = defineAgent("ticker", { durable: true }, async function* (input, { step }) {
  const parts = Number(input[0]?.parts[0]?.content);
  for (let part = 0; part < parts; part++) yield await step("tick", () => after(STEP_MS, `${part}`));
});

/** A waker whose server does not answer. */
const down = (): never => {
  throw new Error("The waker is down.");
};
const downWaker: Waker = { wake: down, start: down, stop: down };

const isChild = process.send !== undefined;
if (isChild) await serve(process.argv.slice(2));
else await measure();

// A worker, or a process that creates runs and nothing else.

async function serve([role, fault]: readonly string[]): Promise<void> {
  const realNow = Date.now;
  if (fault === "clock") Date.now = () => realNow() + HOUR_MS;
  const runtime = await open(new pg.Pool({ max: 5 }), role === "worker", fault === "waker");
  process.once("SIGTERM", async () => {
    await runtime.close({ drainMs: 500 });
    process.exit(0);
  });
  if (role === "web")
    for (let run = 0; run < RUNS; run++) {
      const { run_id } = await runtime.createRun({ agent_name: "ticker", input: "40", mode: "async" });
      process.send?.(run_id);
    }
  // Keeps the process open.
  setInterval(() => undefined, HOUR_MS);
  process.send?.("ready");
}

async function open(pool: pg.Pool, work: boolean, isWakerDown: boolean): Promise<AgentRuntime> {
  const durability = isWakerDown ? { waker: downWaker } : {};
  const store = await openPostgresStore({ pool, durability });
  return new AgentRuntime({ store, agents: [ticker], ...(!work && { work }) });
}

// The measurements.

async function measure(): Promise<void> {
  const { address, stop } = await startServer(18);
  if ("missing" in address) throw new Error(address.missing);
  Object.assign(process.env, {
    PGHOST: address.host,
    PGPORT: address.port,
    PGUSER: "postgres",
    PGDATABASE: "postgres",
  });
  const pool = new pg.Pool({ max: 5 });
  const web = await open(pool, false, false);
  const create = async (parts: number): Promise<readonly string[]> => {
    const runs = Array.from({ length: RUNS }, () =>
      web.createRun({ agent_name: "ticker", input: `${parts}`, mode: "async" }),
    );
    return (await Promise.all(runs)).map(({ run_id }) => run_id);
  };
  /** Runs on one worker, which fails when all of them are at work. Another worker is there by then. */
  const failing = async (name: string, parts: number, fail: (worker: ChildProcess) => unknown, fault?: string) => {
    const worker = await start("worker", fault);
    const readers = (await create(parts)).map((run_id) => follow(web, run_id));
    await after(1_500);
    const other = await start("worker");
    await report(name, readers, () => fail(worker));
    await stopAll([worker, other]);
  };

  await failing("no failure", 60, () => undefined);
  await failing("worker: kill -9", 60, (worker) => worker.kill("SIGKILL"));
  await failing("worker: SIGTERM, drainMs 500", 60, (worker) => worker.kill("SIGTERM"));
  await failing("worker: frozen for 20 s", 60, (worker) => {
    worker.kill("SIGSTOP");
    setTimeout(() => worker.kill("SIGCONT"), 20_000);
  });
  await failing("worker: its clock is an hour ahead", 60, () => undefined, "clock");
  const loseListeners = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query = 'SELECT 1'`;
  await failing("LISTEN lost in all processes", 60, () => pool.query(loseListeners));

  const worker = await start("worker");
  const accepted: string[] = [];
  const dying = await start("web", "none", (run_id) => accepted.push(run_id));
  await report(
    "web process: kill -9",
    accepted.map((run_id) => follow(web, run_id)),
    () => dying.kill("SIGKILL"),
  );
  await stopAll([worker]);

  const unwoken = await start("worker", "waker");
  // Its first scan is over.
  await after(2_000);
  await report(
    "waker down",
    (await create(1)).map((run_id) => follow(web, run_id)),
    () => undefined,
  );
  await stopAll([unwoken]);
  await web.close();
  await pool.end();
  await stop();
}

interface Reader {
  /** When each event came. */
  readonly times: number[];
  /** Resolves with the parts when the run has ended. */
  readonly end: Promise<readonly string[]>;
}

function follow(runtime: AgentRuntime, run_id: string): Reader {
  const times: number[] = [];
  const read = async (): Promise<readonly string[]> => {
    const parts: string[] = [];
    for await (const event of runtime.events(run_id, { until: "end" })) {
      times.push(performance.now());
      if (event.type === "message.part") parts.push(event.part.content ?? "");
    }
    const { status } = await runtime.getRun(run_id);
    return status === "completed" ? parts : [`the run is ${status}`];
  };
  return { times, end: read() };
}

/** Prints for how long the readers got no event after the failure began, at the median and at most. */
async function report(name: string, readers: readonly Reader[], fail: () => unknown): Promise<void> {
  const failedAt = performance.now();
  await fail();
  const all = await Promise.all(readers.map(({ end }) => end));
  const gaps = readers.map(({ times }) => longestGap(times, failedAt)).sort((a, b) => a - b);
  const isWrong = all.some((parts) => parts.length === 0 || parts.some((part, index) => part !== `${index}`));
  if (isWrong) process.exitCode = 1;
  const [median, most] = [gaps[gaps.length >> 1], gaps.at(-1)].map((ms) => `${((ms ?? 0) / 1_000).toFixed(2)} s`);
  console.log(
    `${name}: ${readers.length} runs, longest pause ${median} at the median, ${most} at most${isWrong ? ", WRONG" : ""}`,
  );
}

function longestGap(times: readonly number[], from: number): number {
  const later = times.filter((time) => time > from);
  return Math.max(...later.map((time, index) => time - (later[index - 1] ?? from)));
}

/** Starts a process. `onRun` gets the runs that it creates. */
function start(role: "worker" | "web", fault = "none", onRun?: (run_id: string) => void): Promise<ChildProcess> {
  const child = fork(fileURLToPath(import.meta.url), [role, fault]);
  return new Promise((resolve, reject) => {
    child.once("exit", reject);
    child.on("message", (message: string) => {
      if (message === "ready") resolve(child);
      else onRun?.(message);
    });
  });
}

async function stopAll(children: readonly ChildProcess[]): Promise<void> {
  for (const child of children) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }
}
