import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";

/** What a worker is to do. */
export interface WorkerTask {
  readonly place: Place;
  readonly do: "work" | "close";
}

/** What a worker tells when it closes. */
export interface WorkerTold {
  readonly maxRssMb: number;
  readonly blockedMs: number;
}

const DAY_MS = 86_400_000;

export function registerAgents(runtime: AgentRuntime): void {
  runtime.register("long", { durable: true }, async (input, { emit, sleep, step }) => {
    await emit("first");
    // A commit is between the two, so that the second part is an entry of its own.
    await step("between", () => 1);
    await emit(input[0]?.parts[0]?.content ?? "");
    await sleep(DAY_MS);
  });
  runtime.register("small", { durable: true }, async (_input, { step }) => {
    await step("one", () => 1);
    await step("two", () => 2);
    return "done";
  });
}

async function work({ place }: WorkerTask): Promise<void> {
  const delays = monitorEventLoopDelay({ resolution: 10 });
  const runtime = new AgentRuntime({ store: await openPlace(place) });
  registerAgents(runtime);
  delays.enable();
  process.once("message", async () => {
    const { maxRSS } = process.resourceUsage();
    const told: WorkerTold = { maxRssMb: Math.round(maxRSS / 1_024), blockedMs: Math.round(delays.max / 1e6) };
    process.send?.(told);
    await runtime.close();
    process.disconnect();
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.once("message", work);
