import { AgentRuntime, MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import { expect, it } from "vitest";
import { foldLog } from "../../src/runtime/log/fold-log.ts";
import type { LogRun } from "../../src/runtime/log/run-log.ts";
import { RunLog } from "../../src/runtime/log/run-log.ts";
import type { ExecutionSettings } from "../../src/runtime/log/shared-by-runs.ts";
import { SharedByRuns } from "../../src/runtime/log/shared-by-runs.ts";
import { StoreClock } from "../../src/runtime/log/store-clock.ts";
import { silentLogger } from "../../src/runtime/log/system.ts";
import { FakeClock } from "../harness/clock.ts";

/*
 * A write whose answer was lost, and a look at the store before the next attempt: the look finds more than is known here.
 * Through a runtime the two meet within one turn of the event loop, while a run comes to rest, so that the log is asked here.
 */
it("what a log has written itself, and finds in the store before it is told, is not decided again", async () => {
  const clock = new FakeClock();
  const memory = new MemoryStore({ clock });
  const runtime = new AgentRuntime({ store: memory, clock }).register("agent", (_input, { ask }) => ask("Well?"));
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  const key = { tenant: "", run_id };
  const found = await memory.find(key);
  const state = await foldLog(memory, key, Number.POSITIVE_INFINITY);
  if (found === undefined || state === undefined) throw new Error("The run is not in the store.");

  let writes = 0;
  const store: Store = new Proxy<Store>(memory, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...given: unknown[]): unknown => {
        const answer: unknown = member.apply(target, given);
        if (name === "append" && ++writes === 1) throw new Error("the connection broke");
        return answer;
      };
    },
  });
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
  log.flush();
  expect([writes, log.isRetrying]).toEqual([1, true]);
  log.onStored({ is: "behind" });
  await clock.advance(1_000);
  const entries = (await memory.read(key, 0, 99)) ?? [];
  expect(entries.filter(({ type }) => type === "step")).toEqual([result]);
  expect(log.committed).toBe(entries.length);
});
