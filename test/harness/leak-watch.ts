import { getEventListeners } from "node:events";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Clock } from "cadenza";
import { AgentRuntime } from "cadenza";
import { machineClock, silentLogger } from "./internals.ts";

/** How many runs to watch. */
export interface Counts {
  /** Runs after which the heap has its usual size. */
  readonly warmUp: number;
  readonly finished: number;
  readonly cancelled: number;
}

/** What is left after the runs have ended. */
export interface Figures {
  readonly heapBefore: number;
  readonly heapAfter: number;
  readonly seconds: number;
  /** Timers that are still set while the runtime is open. One is allowed: that of the retention. */
  readonly timers: number;
  readonly timersAfterClose: number;
  /** Listeners on the signals of callers, and on the process. */
  readonly listeners: number;
  readonly liveRuns: number;
  readonly storedRuns: number;
  /** Named sessions whose runs have been removed. */
  readonly sessions: number;
}

export const KEPT_RUNS = 1_000;
const AT_ONCE = 50;
const NEW_SESSION_EVERY = 100;

/** Runs many runs of every kind, and measures what is left of them. */
export async function watchForLeaks({ warmUp, finished, cancelled }: Counts): Promise<Figures> {
  const started = performance.now();
  const processListeners = countProcessListeners();
  const { clock, timers } = countTimers();
  const runtime = new AgentRuntime({
    clock,
    retention: { maxRuns: KEPT_RUNS, maxIdleSessionMs: 1 },
    cancelGraceMs: 50,
  });
  register(runtime);
  const { signal } = new AbortController();
  await cancel(runtime, Math.ceil(cancelled / 50));
  await finish(runtime, signal, warmUp);
  const heapBefore = heapInUse();
  await finish(runtime, signal, finished - warmUp);
  await cancel(runtime, cancelled);
  // The last runs have to be of the same kind as the first, since some of them are retained.
  await finish(runtime, signal, 2 * KEPT_RUNS);
  const { live } = await runtime.stats();
  const storedRuns = (await runtime.listRuns({ limit: 10 * KEPT_RUNS })).length;
  const heapAfter = heapInUse();
  const openTimers = timers();
  const sessions = await countSessions(runtime, finished);
  await runtime.close();
  return {
    heapBefore,
    heapAfter,
    seconds: (performance.now() - started) / 1000,
    timers: openTimers,
    timersAfterClose: timers(),
    listeners: getEventListeners(signal, "abort").length + countProcessListeners() - processListeners,
    liveRuns: Object.keys(live).length,
    storedRuns,
    sessions,
  };
}

function register(runtime: AgentRuntime): void {
  runtime.register("echo", async function* (input) {
    yield* input;
  });
  runtime.register("short", () => "Done.");
  runtime.register("asks", { concurrency: { max: 10 } }, async (_input, { ask }) => {
    await ask("Well?", { timeoutMs: 60_000 });
  });
  runtime.register("orchestrator", { timeoutMs: 60_000 }, async (_input, { run, usage }) => {
    usage.add({ input_tokens: 3, output_tokens: 4 });
    await Promise.all([run("short", "one"), run("short", "two")]);
  });
  runtime.register("endless", async (_input, { signal }) => {
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  });
  runtime.register("stubborn", () => new Promise(() => {}));
}

/** Lets `count` runs finish: most of them small, and some of every other kind. */
async function finish(runtime: AgentRuntime, signal: AbortSignal, count: number): Promise<void> {
  for (let first = 0; first < count; first += AT_ONCE) {
    const runs = Array.from({ length: Math.min(AT_ONCE, count - first) }, (_, index) => {
      return finishOne(runtime, signal, first + index);
    });
    await Promise.all(runs);
  }
}

async function finishOne(runtime: AgentRuntime, signal: AbortSignal, number: number): Promise<void> {
  switch (number % NEW_SESSION_EVERY) {
    case 0:
      await runtime.createRun({ agent_name: "short", input: "Hello.", session_id: sessionId(number) }, { signal });
      return;
    case 1:
    case 2: {
      const listener = () => {};
      runtime.once("run.completed", listener);
      for await (const _ of runtime.createRun({ agent_name: "echo", input: "Hello.", mode: "stream" })) {
        // Reads to the end.
      }
      runtime.off("run.completed", listener);
      return;
    }
    case 3: {
      const { run_id } = await runtime.createRun({ agent_name: "asks", input: "Ask." }, { signal });
      await runtime.resume({ run_id, await_resume: { sure: true } }, { signal });
      return;
    }
    case 4: {
      const { run_id } = await runtime.createRun({ agent_name: "echo", input: "Hello.", mode: "async" });
      for await (const _ of runtime.events(run_id, { until: "end" })) {
        // Reads to the end.
      }
      return;
    }
    case 5:
      await runtime.createRun({ agent_name: "orchestrator", input: "Go." });
      return;
    case 6:
      await runtime.createRun({ agent_name: "short", input: "Hello." }, { idempotencyKey: `number ${number}` });
      return;
    default:
      await runtime.createRun({ agent_name: number % 2 === 0 ? "echo" : "short", input: "Hello." });
  }
}

async function cancel(runtime: AgentRuntime, count: number): Promise<void> {
  for (let first = 0; first < count; first += AT_ONCE) {
    const runs = Array.from({ length: Math.min(AT_ONCE, count - first) }, async (_, index) => {
      const agent_name = ["endless", "asks", "stubborn"][index % 3] ?? "endless";
      const { run_id } = await runtime.createRun({ agent_name, input: "Go.", mode: "async" });
      const events = runtime.events(run_id, { until: "end" });
      await events.next();
      await runtime.cancel(run_id);
      for await (const _ of events) {
        // Until it has ended.
      }
    });
    await Promise.all(runs);
  }
}

async function countSessions(runtime: AgentRuntime, count: number): Promise<number> {
  let found = 0;
  for (let number = 0; number < count; number += 50 * NEW_SESSION_EVERY) {
    found += await runtime.getSession(sessionId(number)).then(
      () => 1,
      () => 0,
    );
  }
  return found;
}

function sessionId(number: number): string {
  return `00000000-0000-4000-9000-${number.toString(16).padStart(12, "0")}`;
}

/** The machine's clock, with a count of the timers that have neither fired nor been cleared. */
function countTimers(): { readonly clock: Clock; readonly timers: () => number } {
  const open = new Set<object>();
  const machine = machineClock(silentLogger);
  const clock: Clock = {
    now: machine.now,
    turn: machine.turn,
    setTimeout: (callback, delayMs) => {
      const timer = {};
      open.add(timer);
      const clear = machine.setTimeout(() => {
        open.delete(timer);
        callback();
      }, delayMs);
      return () => {
        open.delete(timer);
        clear();
      };
    },
  };
  return { clock, timers: () => open.size };
}

function countProcessListeners(): number {
  return process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0);
}

/** The heap in use after a garbage collection. */
function heapInUse(): number {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  for (let round = 0; round < 3; round++) collect();
  return process.memoryUsage().heapUsed;
}
