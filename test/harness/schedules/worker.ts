import type { Clock } from "cadenza";
import { AgentRuntime } from "cadenza";
import { schedules } from "cadenza/schedules";
import { Cron } from "croner";
import type { Place } from "../crash/place.ts";
import { openPlace } from "../crash/place.ts";
import { machineClock, silentLogger } from "../internals.ts";

/** What a process gets to do. */
export interface ScheduleTask {
  readonly place: Place;
  /** By how much its clock is wrong. */
  readonly aheadMs: number;
}

/** A process that executes schedules and their runs, until it is killed. */
process.once("message", async ({ place, aheadMs }: ScheduleTask) => {
  const machine = machineClock(silentLogger);
  const clock: Clock = { ...machine, now: () => machine.now() + aheadMs };
  const store = await openPlace(place, { durability: { leaseMs: 3_000, heartbeatMs: 900, evictAfterMs: 1_000 } });
  const runtime = new AgentRuntime({ store, ...(aheadMs === 0 ? {} : { clock }) });
  runtime.register("note", { durable: true }, () => undefined);
  schedules(runtime, { cron: Cron });
});
