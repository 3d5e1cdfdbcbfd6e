import { AgentRuntime } from "cadenza";
import { expect, it } from "vitest";
import { foldLog } from "../../../src/runtime/log/fold-log.ts";
import type { LogRun } from "../../../src/runtime/log/run-log.ts";
import { RunLog } from "../../../src/runtime/log/run-log.ts";
import type { ExecutionSettings } from "../../../src/runtime/log/shared-by-runs.ts";
import { SharedByRuns } from "../../../src/runtime/log/shared-by-runs.ts";
import { StoreClock } from "../../../src/runtime/log/store-clock.ts";
import { silentLogger } from "../../../src/runtime/log/system.ts";
import { FakeClock } from "../../harness/clock.ts";
import { failingStore } from "../../harness/store-proxy.ts";

/*
 * A write whose answer was lost, and a look at the store before the next attempt: the look finds more than is known here.
 * Through a runtime the two meet within one turn of the event loop, while a run comes to rest, so that the log is asked here.
 */
it("what a log has written itself, and finds in the store before it is told, is not decided again", async () => {
  const clock = new FakeClock();
  const { store, losing } = failingStore();
  const runtime = new AgentRuntime({ store, clock }).register("agent", (_input, { ask }) => ask("Well?"));
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  const key = { tenant: "", run_id };
  const found = await store.find(key);
  const state = await foldLog(store, key, Number.POSITIVE_INFINITY);
  if (found === undefined || state === undefined) throw new Error("The run is not in the store.");

  const shared = new SharedByRuns(store, new StoreClock(clock, store), silentLogger, {} as ExecutionSettings);
  const run: LogRun = {
    shared,
    sessionAtEnd: () => undefined,
    isEndHeld: false,
    blocked: undefined,
    onCommit: () => {},
    onLost: () => {},
    onReloaded: () => {},
    settleActiveTime: () => {},
  };
  const log = new RunLog(key, run);
  log.adopt(state, found.head);
  const result = { type: "step", at: clock.now(), key: "work#1", result: "done", error: null, usage: null } as const;
  log.decide({ type: "record", entry: result });
  losing.append = 1;
  log.flush();
  expect([losing.append, log.isRetrying]).toEqual([0, true]);
  log.onStored({ is: "behind" });
  await clock.advance(1_000);
  const entries = (await store.read(key, 0, 99)) ?? [];
  expect(entries.filter(({ type }) => type === "step")).toEqual([result]);
  expect(log.committed).toBe(entries.length);
});
