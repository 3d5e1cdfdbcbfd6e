/*
 * A process that acts on many runs, and tells how long its event loop is taken up. Its one parameter holds its settings.
 */
import { PerformanceObserver } from "node:perf_hooks";
import { AgentRuntime, CadenzaError } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { openPlace } from "../crash/place.ts";
import { processorMs } from "../longest-turn.ts";
import { textOf } from "../program-player.ts";
import type { ActingOrder, ActingReport, ActingSettings } from "./messages.ts";
import { durability } from "./messages.ts";

/** After this time Node has told what the collector has done, in milliseconds. */
const TELLING_MS = 100;

const { place, executes } = JSON.parse(process.argv[2] ?? "") as ActingSettings;
const said = (message: string): void => say({ is: "said", message });
const runtime = new AgentRuntime({
  store: await openPlace(place, { durability }),
  limits: { maxLiveRuns: Number.POSITIVE_INFINITY },
  logger: { debug: () => undefined, info: () => undefined, warn: said, error: said },
});
const admin = createAdmin(runtime);
const durable = { durable: true, version: "1" } as const;
if (executes)
  runtime.register("mail", durable, (input) => {
    say({ is: "began", tenant: textOf(input) });
    return "sent";
  });
for (const name of ["order", "failing"]) runtime.declare({ name, ...durable });
process.on("message", async ({ resume }: ActingOrder) => {
  for (let isOver = false; !isOver; ) isOver = await isResumed(resume);
  say({ is: "resumed" });
});
// What the process does before is its start.
setTimeout(measure, 1_000);
say({ is: "ready" });

/** False: the store has failed. A statement may be late, since the lease is short. */
async function isResumed(tenant: string): Promise<boolean> {
  try {
    await admin.resume({ tenant });
    return true;
  } catch (error) {
    if (CadenzaError.is(error) && error.code === "store_failed") return false;
    throw error;
  }
}

/**
 * Tells of the longest turn of the event loop, by the processor time of this thread: what other processes take is not
 * counted. A timer of 1 ms fires in each turn that is longer.
 */
function measure(): void {
  let longest = 0;
  let last = { at: performance.now(), ms: processorMs() };
  const collections: { readonly startTime: number; readonly duration: number }[] = [];
  new PerformanceObserver((list) => void collections.push(...list.getEntries())).observe({ entryTypes: ["gc"] });
  const tell = (from: number, to: number, ms: number): void => {
    const within = collections.filter(({ startTime }) => startTime >= from && startTime <= to);
    say({ is: "turn", ms, collected: within.reduce((sum, { duration }) => sum + duration, 0) });
  };
  setInterval(() => {
    const now = { at: performance.now(), ms: processorMs() };
    const { at, ms } = last;
    if (now.ms - ms > longest) {
      longest = now.ms - ms;
      // What the collector did is told later.
      setTimeout(tell, TELLING_MS, at, now.at, longest);
    }
    last = { at: performance.now(), ms: processorMs() };
  }, 1);
}

function say(report: ActingReport): void {
  if (process.connected) process.send?.(report);
}
