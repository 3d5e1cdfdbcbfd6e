/**
 * Measures what waits for time and for messages: `npm run test:waits -- --sleepers 100000 --waking 10000 --messages
 * 10000`. Exits with 1 if sleeping runs hold more than 30 MB of heap, are loaded before their time, are lost, wake at
 * less than half the rate of durable runs, or block the event loop for more than 50 ms at the 99th percentile; and if a
 * message of several processes to one run at work is lost, comes twice, overtakes one of its sender, or if the last
 * messages take more than twice as long as the first.
 */
import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { openDatabase, withFile } from "../test/harness/sqlite-files.ts";

const AT_ONCE = 50;
const SENDERS = 4;
const MAX_HEAP_MB = 30;
const MAX_P99_MS = 50;
const LEAST_SHARE = 0.5;
const MAX_GROWTH = 2;
const keepAll = { limits: { maxLiveRuns: Number.POSITIVE_INFINITY } };

const { values } = parseArgs({
  options: {
    sleepers: { type: "string", default: "100000" },
    waking: { type: "string", default: "10000" },
    messages: { type: "string", default: "10000" },
    send: { type: "string" },
    file: { type: "string", default: "" },
    to: { type: "string", default: "" },
  },
});

if (values.send === undefined) await measure();
else await send(values.send, values.file, values.to, Number(values.messages) / SENDERS);

async function measure(): Promise<void> {
  const own = await ownRate(5_000);
  console.log(`completes ${Math.round(own)} durable runs/s, ${AT_ONCE} at once`);
  const wrong = [
    ...(await sleepers(Number(values.waking), own)),
    ...(await sleepers(Number(values.sleepers), own)),
    ...(await messages(Number(values.messages))),
  ];
  for (const what of wrong) console.error(what);
  process.exitCode = wrong.length > 0 ? 1 : 0;
}

/** How many durable runs with one step this process completes in a second. */
async function ownRate(count: number): Promise<number> {
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
async function sleepers(count: number, own: number): Promise<readonly string[]> {
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
    const share = rate / own;
    console.log(
      `${count} sleepers: ${mb.toFixed(1)} MB of heap, ${early} loaded early, ${completed - 200} woke at ${Math.round(rate)} runs/s (${share.toFixed(2)} of the own rate), event loop p99 ${p99.toFixed(1)} ms`,
    );
    return [
      ...(isLate ? [`${count} sleepers: they began to sleep after their time; nothing is measured`] : []),
      ...(mb > MAX_HEAP_MB ? [`${count} sleepers hold ${mb.toFixed(1)} MB of heap`] : []),
      ...(early > 0 ? [`${early} sleepers were loaded before their time`] : []),
      ...(completed === count + 200 ? [] : [`${count + 200 - completed} of ${count} sleepers are lost`]),
      ...(share >= LEAST_SHARE ? [] : [`${count} sleepers wake at ${share.toFixed(2)} of the own rate`]),
      ...(p99 <= MAX_P99_MS ? [] : [`the event loop is blocked for ${p99.toFixed(1)} ms`]),
    ];
  });
}

/** Several processes send messages to one run at work, which takes each, and tells whose it was. */
async function messages(count: number): Promise<readonly string[]> {
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
      child(["--send", `${index}`, "--file", file, "--to", run_id, "--messages", `${count}`]),
    );
    const sent = Promise.all(senders.map(ended));
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
    console.log(
      `${count} messages of ${SENDERS} processes: ${new Set(taken).size} arrived, ${Math.round(perSecond)} a second; the last tenth took ${growth.toFixed(2)} of the time of the first`,
    );
    return [
      ...(new Set(taken).size === count && taken.length === count
        ? []
        : [`${taken.length} of ${count} messages arrived`]),
      ...(overtaken.length === 0 ? [] : [`${overtaken.length} messages came in another order than they were sent`]),
      ...(growth <= MAX_GROWTH ? [] : [`the last messages took ${growth.toFixed(2)} of the time of the first`]),
    ];
  });
}

/** In a process of its own: sends each message when the one before it is acknowledged. */
async function send(name: string, file: string, to: string, count: number): Promise<void> {
  const runtime = new AgentRuntime({ store: durable(storeOn(file)) });
  for (let n = 0; n < count; n++) await runtime.send({ to, name: "order", data: `${name}-${n}` });
  await runtime.close({ drainMs: 0 });
}

function storeOn(file: string): Store {
  return new SqliteStore(openDatabase(file), { synchronous: "NORMAL", closeDatabase: true });
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

function child(args: readonly string[]): ChildProcess {
  return fork(fileURLToPath(import.meta.url), args, { execArgv: process.execArgv });
}

function ended(one: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    one.once("exit", (code) => (code === 0 ? resolve() : reject(new Error(`A sender ended with ${code}.`))));
  });
}
