/*
 * A process that acts on many runs, and tells how long its event loop is taken up. Its one parameter holds its settings.
 */
import { AgentRuntime, CadenzaError } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { openPlace } from "../crash/place.ts";
import { textOf } from "../program-player.ts";
import type { ActingOrder, ActingReport, ActingSettings } from "./messages.ts";
import { durability } from "./messages.ts";

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
  let last = processorMs();
  setInterval(() => {
    const now = processorMs();
    if (now - last > longest) {
      longest = now - last;
      say({ is: "turn", ms: longest });
    }
    last = processorMs();
  }, 1);
}

/** Before Node 24 it is that of all threads of the process. */
function processorMs(): number {
  const { threadCpuUsage = process.cpuUsage } = process as { readonly threadCpuUsage?: typeof process.cpuUsage };
  const { user, system } = threadCpuUsage.call(process);
  return (user + system) / 1_000;
}

function say(report: ActingReport): void {
  if (process.connected) process.send?.(report);
}
