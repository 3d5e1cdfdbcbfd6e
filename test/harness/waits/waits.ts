import { fork } from "node:child_process";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AgentRuntime } from "cadenza";
import { durable } from "cadenza/store";
import { endOf } from "../processes.ts";
import { withFile } from "../sqlite-files.ts";
import { storeOn } from "./store.ts";

/* What waits for time, and for messages. */

const SENDER = fileURLToPath(new URL("./sender.ts", import.meta.url));
const AT_ONCE = 50;
/** How many processes send messages. */
const SENDERS = 4;
const keepAll = { limits: { maxLiveRuns: Number.POSITIVE_INFINITY } };

export interface SleepFigures {
  /** The megabytes of heap that sleeping runs hold. */
  readonly mb: number;
  /** How many were loaded before their time. */
  readonly early: number;
  /** Whether the last one began to sleep after its time, so that nothing is measured. */
  readonly isLate: boolean;
  readonly woken: number;
  readonly perSecond: number;
  /** For how long the event loop was blocked, in milliseconds. */
  readonly p99Ms: number;
}

export interface MessageFigures {
  /** Each as the number of its sender and its own number. */
  readonly taken: readonly string[];
  /** How many have overtaken one of their sender. */
  readonly overtaken: number;
  /** The time of the last tenth, in times of the first. */
  readonly growth: number;
  readonly perSecond: number;
}

/** How many durable runs with one step this process completes in a second. */
export async function ownRate(count: number): Promise<number> {
  return withFile(async (file) => {
    const runtime = new AgentRuntime({ store: durable(storeOn(file)), ...keepAll });
    runtime.register("agent", { durable: true }, async (_input, { step }) => `${await step("work", () => 1)}`);
    await atOnce(500, () => runtime.createRun({ agent_name: "agent", input: "" }));
    const began = performance.now();
    await atOnce(count, () => runtime.createRun({ agent_name: "agent", input: "" }));
    const took = performance.now() - began;
    await runtime.close({ drainMs: 0 });
    return (1_000 * count) / took;
  });
}

/** Runs that sleep until a common time: their heap, whether one is loaded early, and how fast they wake. */
export async function sleep(count: number): Promise<SleepFigures> {
  return withFile(async (file) => {
    let until = Number.POSITIVE_INFINITY;
    let early = 0;
    let areAsleep = false;
    const store = storeOn(file);
    const read = store.read.bind(store);
    // While all runs sleep, no log is read.
    store.read = (...parameters) => {
      if (areAsleep && Date.now() < until) early += 1;
      return read(...parameters);
    };
    const runtime = new AgentRuntime({ store: durable(store, { evictAfterMs: 0 }), ...keepAll });
    let completed = 0;
    let firstAt = 0;
    let lastAt = 0;
    runtime.register("sleeper", { durable: true }, async (_input, { sleep }) => {
      await sleep(new Date(until));
      return "awake";
    });
    runtime.on("run.completed", () => {
      completed += 1;
      firstAt ||= Date.now();
      lastAt = Date.now();
    });
    const request = { agent_name: "sleeper", input: "", mode: "async" } as const;
    // The time of all: later than the last of them has begun to sleep.
    until = Date.now() + 10_000 + count * 1.2;
    await atOnce(200, () => runtime.createRun(request));
    await settled(runtime);
    const before = heap();
    await atOnce(count, () => runtime.createRun(request));
    await settled(runtime);
    const mb = (heap() - before) / 1_048_576;
    areAsleep = true;
    const isLate = Date.now() > until;
    const delay = monitorEventLoopDelay({ resolution: 5 });
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, until - Date.now())));
    delay.enable();
    while (completed < count + 200 && Date.now() < until + 300_000)
      await new Promise((resolve) => setTimeout(resolve, 50));
    delay.disable();
    const p99 = delay.percentile(99) / 1e6;
    const rate = (1_000 * (count + 200)) / Math.max(1, lastAt - firstAt);
    await runtime.close({ drainMs: 0 });
    return { mb, early, isLate, woken: completed - 200, perSecond: rate, p99Ms: p99 };
  });
}

/** Several processes send messages to one run at work, which takes each, and tells whose it was. */
export async function takeMessages(count: number): Promise<MessageFigures> {
  return withFile(async (file) => {
    const runtime = new AgentRuntime({ store: durable(storeOn(file), { heartbeatMs: 500 }), ...keepAll });
    const times: number[] = [];
    runtime.register("taker", { durable: true }, async (_input, { receive, step }) => {
      const taken: string[] = [];
      while (taken.length < count) {
        taken.push((await receive("order")) as string);
        if (taken.length % 100 === 0) await step("work", () => taken.length);
        times.push(performance.now());
      }
      return JSON.stringify(taken);
    });
    const { run_id } = await runtime.createRun({ agent_name: "taker", input: "", mode: "async" });
    const senders = Array.from({ length: SENDERS }, (_, index) =>
      fork(SENDER, [`${index}`, file, run_id, `${count / SENDERS}`]),
    );
    const sent = Promise.all(senders.map(endOf));
    for await (const _ of runtime.events(run_id, { until: "end" })) {
      // The run takes all messages, and ends.
    }
    await sent;
    const taken = JSON.parse((await runtime.getRun(run_id)).output[0]?.parts[0]?.content ?? "[]") as string[];
    await runtime.close({ drainMs: 0 });
    const part = Math.floor(count / 10);
    const tookFirst = (times[part - 1] ?? 0) - (times[0] ?? 0);
    const tookLast = (times.at(-1) ?? 0) - (times.at(-part) ?? 0);
    const growth = tookLast / tookFirst;
    const perSecond = (1_000 * count) / ((times.at(-1) ?? 0) - (times[0] ?? 0));
    const overtaken = Array.from({ length: SENDERS }, (_, index) =>
      taken.filter((one) => one.startsWith(`${index}-`)),
    ).flatMap((own) => own.filter((one, index) => one.split("-")[1] !== `${index}`));
    return { taken, overtaken: overtaken.length, growth, perSecond };
  });
}

async function atOnce(count: number, act: () => Promise<unknown>): Promise<void> {
  let left = count;
  const work = async (): Promise<void> => {
    while (left-- > 0) await act();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** Resolves when no run is loaded any more. */
async function settled(runtime: AgentRuntime): Promise<void> {
  for (;;) {
    const { live } = await runtime.stats();
    if (Object.values(live).every((one) => one === 0)) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Bytes on the heap after a collection. */
function heap(): number {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  gc();
  gc();
  return process.memoryUsage().heapUsed;
}
