import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as after } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { AgentRuntime } from "cadenza";
import pg from "pg";
import { startServer } from "../postgres-server.ts";
import type { Fault } from "./agents.ts";
import { open, RUNS } from "./agents.ts";

const PROCESS = fileURLToPath(new URL("./process.ts", import.meta.url));

/** What a failure did to the runs. */
export interface Failure {
  readonly name: string;
  readonly runs: number;
  /** For how long a run had no event, in milliseconds. */
  readonly medianMs: number;
  readonly mostMs: number;
  /** The parts of the runs that have lost one, or have one twice. */
  readonly wrong: readonly (readonly string[])[];
}

/**
 * Lets processes fail in turn, with default settings, and measures how long runs on PostgreSQL stand still. Workers are
 * processes of their own; this one accepts the runs and reads their events.
 */
export async function measureFailures(onMeasured: (failure: Failure) => void): Promise<void> {
  const { address, stop } = await startServer(18);
  if ("missing" in address) throw new Error(address.missing);
  Object.assign(process.env, {
    PGHOST: address.host,
    PGPORT: address.port,
    PGUSER: "postgres",
    PGDATABASE: "postgres",
  });
  const pool = new pg.Pool({ max: 5 });
  const web = await open(pool, false, "none");
  const create = async (parts: number): Promise<readonly string[]> => {
    const runs = Array.from({ length: RUNS }, () =>
      web.createRun({ agent_name: "ticker", input: `${parts}`, mode: "async" }),
    );
    return (await Promise.all(runs)).map(({ run_id }) => run_id);
  };
  /** Runs on one worker, which fails when all of them are at work. Another worker is there by then. */
  const failing = async (name: string, parts: number, fail: (worker: ChildProcess) => unknown, fault?: Fault) => {
    const worker = await start("worker", fault);
    const readers = (await create(parts)).map((run_id) => follow(web, run_id));
    await after(1_500);
    const other = await start("worker");
    onMeasured(await pauses(name, readers, () => fail(worker)));
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
  const ofDying = accepted.map((run_id) => follow(web, run_id));
  onMeasured(await pauses("web process: kill -9", ofDying, () => dying.kill("SIGKILL")));
  await stopAll([worker]);

  const unwoken = await start("worker", "waker");
  // Its first scan is over.
  await after(2_000);
  const unwokenRuns = (await create(1)).map((run_id) => follow(web, run_id));
  onMeasured(await pauses("waker down", unwokenRuns, () => undefined));
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

/** For how long the readers got no event after the failure began. */
async function pauses(name: string, readers: readonly Reader[], fail: () => unknown): Promise<Failure> {
  const failedAt = performance.now();
  await fail();
  const all = await Promise.all(readers.map(({ end }) => end));
  const gaps = readers.map(({ times }) => longestGap(times, failedAt)).sort((a, b) => a - b);
  const wrong = all.filter((parts) => parts.length === 0 || parts.some((part, index) => part !== `${index}`));
  const [medianMs = 0, mostMs = 0] = [gaps[gaps.length >> 1], gaps.at(-1)];
  return { name, runs: readers.length, medianMs, mostMs, wrong };
}

function longestGap(times: readonly number[], from: number): number {
  const later = times.filter((time) => time > from);
  return Math.max(...later.map((time, index) => time - (later[index - 1] ?? from)));
}

/** Starts a process. `onRun` gets the runs that it creates. */
function start(role: "worker" | "web", fault: Fault = "none", onRun?: (run_id: string) => void): Promise<ChildProcess> {
  const child = fork(PROCESS, [role, fault]);
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
