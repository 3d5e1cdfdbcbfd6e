/*
 * A process that executes the runs of a trial of moves in both versions, and carries out the acts. Its one parameter holds its
 * settings.
 */
import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { machineTime } from "../crash/messages.ts";
import { openPlace } from "../crash/place.ts";
import { registerBoth } from "./agents.ts";
import type { MovingReport, MovingSettings } from "./messages.ts";
import { durability } from "./messages.ts";

const { place } = JSON.parse(process.argv[2] ?? "") as MovingSettings;
const said = (message: string): void => say({ is: "said", message });
const runtime = new AgentRuntime({
  store: await openPlace(place, { durability }),
  work: { max: 64 },
  limits: { maxLiveRuns: Number.POSITIVE_INFINITY },
  logger: { debug: () => undefined, info: () => undefined, warn: said, error: said },
});
registerBoth(runtime, (run_id, version) => say({ is: "body", run_id, version, at: machineTime() }));
createAdmin(runtime);
// Without an order that it waits for the process would end.
process.on("message", () => undefined);
say({ is: "ready" });

function say(report: MovingReport): void {
  if (process.connected) process.send?.(report);
}
