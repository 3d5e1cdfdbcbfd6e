import {
  condition,
  continueAsNew,
  defineSignal,
  proxyActivities,
  setHandler,
  workflowInfo,
} from "@temporalio/workflow";
import type { RunKey } from "cadenza/store";

export interface Activities {
  /** Works on a run. Resolves with the time at which to look again, in milliseconds since 1970; null: no need. */
  look(key: RunKey): Promise<number | null>;
}

/** After six seconds without a heartbeat the worker counts as dead, and another one looks. */
const { look } = proxyActivities<Activities>({
  startToCloseTimeout: "365 days",
  heartbeatTimeout: "6 seconds",
  retry: { initialInterval: "500 ms", backoffCoefficient: 1 },
});

export const wake = defineSignal<[at: number]>("wake");

/** One workflow for each run. It knows when to look after the run, and nothing else. */
export async function attend(key: RunKey, next: number | null = null): Promise<void> {
  let at = next;
  setHandler(wake, (time) => {
    at = Math.min(at ?? time, time);
  });
  await condition(() => at !== null);
  while (at !== null) {
    const time: number = at;
    const wait = time - Date.now();
    const isEarlier = wait > 0 && (await condition(() => at !== time, wait));
    if (isEarlier) continue;
    at = null;
    const again = await look(key);
    if (again !== null) at = Math.min(at ?? again, again);
    if (workflowInfo().continueAsNewSuggested) await continueAsNew<typeof attend>(key, at ?? Date.now());
  }
}
