import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import type { Told } from "./killed-acts.ts";
import { LEASE_MS } from "./killed-acts.ts";

/* A process that executes acts, and tells the processor time of its longest turn until it is killed. */
process.once("message", async (place: Place) => {
  const store = await openPlace(place, { durability: { leaseMs: LEASE_MS } });
  const runtime = new AgentRuntime({ store, limits: { maxLiveRuns: Number.POSITIVE_INFINITY } });
  runtime.declare({ name: "asks", durable: true }, { name: "fails", durable: true });
  createAdmin(runtime);
  runtime.register("none", { durable: true }, () => undefined);
  let before: NodeJS.CpuUsage | undefined;
  let longestMs = 0;
  const turn = (): void => {
    // What starts the process is not a turn of the act.
    const { user, system } = before === undefined ? { user: 0, system: 0 } : process.cpuUsage(before);
    before = process.cpuUsage();
    const ms = (user + system) / 1_000;
    if (ms > longestMs) process.send?.({ longestMs: ms } satisfies Told);
    longestMs = Math.max(longestMs, ms);
    setImmediate(turn);
  };
  setImmediate(turn);
});
