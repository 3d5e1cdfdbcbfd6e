import { PerformanceObserver } from "node:perf_hooks";
import { setTimeout as pause } from "node:timers/promises";

/** After this time Node has told what the collector has done, in milliseconds. */
const TELLING_MS = 50;

/** The longest turn of the event loop while something was done. */
export interface LongestTurn {
  /** How much processor time it took, in milliseconds. */
  readonly turnMs: number;
  /** How much of that the collector may have had. */
  readonly collectedMs: number;
  /** How long all of it took. */
  readonly ms: number;
}

/** Does something, and tells of its longest turn by the processor time of this thread: what other processes take is not counted. */
export async function longestTurnOf(work: () => Promise<unknown>): Promise<LongestTurn> {
  const collections: { readonly startTime: number; readonly duration: number }[] = [];
  const observer = new PerformanceObserver((list) => void collections.push(...list.getEntries()));
  observer.observe({ entryTypes: ["gc"] });
  let longest = { turnMs: 0, from: 0, to: 0 };
  let isOver = false;
  const began = performance.now();
  let last = { at: began, ms: processorMs() };
  const turn = (): void => {
    const now = { at: performance.now(), ms: processorMs() };
    const turnMs = now.ms - last.ms;
    if (turnMs > longest.turnMs) longest = { turnMs, from: last.at, to: now.at };
    last = now;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await work();
  const ms = performance.now() - began;
  isOver = true;
  turn();
  await pause(TELLING_MS);
  observer.disconnect();
  const { turnMs, from, to } = longest;
  const within = collections.filter(({ startTime }) => startTime >= from && startTime <= to);
  return { turnMs, collectedMs: within.reduce((sum, { duration }) => sum + duration, 0), ms };
}

/** The processor time of this thread, in milliseconds. Before Node 24 it is that of all threads of the process. */
export function processorMs(): number {
  const { threadCpuUsage = process.cpuUsage } = process as { readonly threadCpuUsage?: typeof process.cpuUsage };
  const { user, system } = threadCpuUsage.call(process);
  return (user + system) / 1_000;
}
