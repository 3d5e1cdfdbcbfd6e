import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { AgentRuntime, Clock } from "cadenza";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { evolve } from "../../harness/internals.ts";
import { created, fold, part, started, T0 } from "../../harness/logs.ts";
import { withMembers } from "../../harness/port-proxy.ts";
import { never, nextTurn } from "../../harness/promises.ts";
import { runChild } from "../../harness/run-child.ts";
import { drain, setUp } from "../../harness/runtimes.ts";
import { countingStore } from "../../harness/store-proxy.ts";

/* In a process of its own: it measures time and memory. */

const PARTS = 100_000;

/** An agent that emits `count` parts. */
function* parts(count: number): Generator<string> {
  for (let i = 0; i < count; i++) yield "x";
}

function collectGarbage(): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  return process.memoryUsage().heapUsed;
}

describe("a stream of 100,000 parts", () => {
  it("writes each entry once, and reads each once for a reader", async () => {
    const { store, entries, calls } = countingStore();
    const { runtime } = setUp({ store });
    runtime.register("agent", () => parts(PARTS));
    const events = await drain(runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" }));
    expect(events).toHaveLength(PARTS + 5);
    expect(entries.written).toBe(PARTS + 3);
    expect(entries.read).toBeLessThanOrEqual(PARTS + 3);
    expect((calls.append ?? 0) + (calls.read ?? 0)).toBeLessThanOrEqual(2 * PARTS);
  });

  it("without a reader is written in batches, and never read", async () => {
    const { store, entries, calls } = countingStore();
    const { runtime } = setUp({ store });
    runtime.register("agent", () => parts(PARTS));
    const run = await runtime.createRun({ agent_name: "agent", input: "x" });
    expect(run.output[0]?.parts).toHaveLength(PARTS);
    expect(entries).toEqual({ written: PARTS + 3, read: 0 });
    expect(calls.append).toBeLessThan(PARTS / 100);
  });

  it("is folded entry by entry, each at the same cost", () => {
    const state = fold(created(), started);
    const entry = { type: "emitted", kind: "part", at: T0, part: part("x") } as const;
    evolve(state, { ...entry, opens: true });
    const [message] = state.output;
    for (let i = 1; i < PARTS; i++) evolve(state, entry);
    expect(state.output[0]).toBe(message);
    expect(message?.parts).toHaveLength(PARTS);
    expect(state.events).toBe(PARTS + 3);
    expect(state.last_events).toBe(1);
  });

  it("is read by a late reader in pages, each entry once", async () => {
    const { store, entries, calls } = countingStore();
    const { runtime } = setUp({ store });
    runtime.register("agent", () => parts(PARTS));
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x" });
    expect(await drain(runtime.events(run_id))).toHaveLength(PARTS + 5);
    expect(entries.read).toBe(PARTS + 3);
    expect(calls.read).toBeLessThan(PARTS / 100);
  });
});

describe("readers that stop reading", () => {
  it("do not slow the agent down, and cost nothing while it goes on", async () => {
    const work = async (readers: number): Promise<{ turns: number; heap: number; reads: number }> => {
      const { store, entries } = countingStore();
      let turns = 0;
      const own = new FakeClock();
      const clock = withMembers<Clock>(own, {
        turn: () => {
          turns += 1;
          return own.turn();
        },
      });
      const { runtime } = setUp({ store, clock });
      runtime.register("agent", () => parts(50_000));
      const run = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
      const streams = Array.from({ length: readers }, () => runtime.events(run.run_id, { until: "end" }));
      for (const stream of streams) await stream.next();
      while ((await runtime.getRun(run.run_id)).finished_at === null) await nextTurn();
      const heap = collectGarbage();
      expect(await Promise.all(streams.map((stream) => stream.next()))).toHaveLength(readers);
      return { turns, heap, reads: entries.read };
    };
    await work(1);
    const alone = await work(0);
    const watched = await work(200);
    expect(watched.turns).toBeLessThan(alone.turns + 20);
    expect(watched.reads).toBeLessThan(200 * 600);
    expect(watched.heap).toBeLessThan(alone.heap + 3 * 1024 * 1024);
  });
});

describe("a deep tree of runs", () => {
  /** How often the clock is read while the tree ends: at least once for each command to each run. */
  async function readings(depth: number, end: (runtime: AgentRuntime, run_id: string) => Promise<unknown>) {
    let count = 0;
    const own = new FakeClock();
    const clock = withMembers<Clock>(own, {
      now: () => {
        count += 1;
        return own.now();
      },
    });
    const { runtime } = setUp({ clock, limits: { maxDepth: depth } });
    runtime.register("deep", async (input, { run }) => {
      const left = Number(input[0]?.parts[0]?.content);
      return left === 0 ? never() : (await run("deep", String(left - 1))).status;
    });
    const { run_id } = await runtime.createRun({ agent_name: "deep", input: String(depth), mode: "async" });
    while ((await runtime.listRuns({ limit: depth + 2, roots: false })).length <= depth) await nextTurn();
    await own.settle();
    count = 0;
    await end(runtime, run_id);
    return count;
  }

  it.each<[does: string, end: (runtime: AgentRuntime, run_id: string) => Promise<unknown>]>([
    ["cancelled", (runtime, run_id) => runtime.cancel(run_id)],
    ["closed", (runtime) => runtime.close({ drainMs: 0 })],
  ])("is %s at a cost that is linear in its size", async (_does, end) => {
    const [few, many] = [await readings(50, end), await readings(400, end)];
    expect(many / few).toBeLessThan(8.5);
  });

  it("does not overflow the stack", async () => {
    const { code, out } = await runChild("deep", 60_000, ["--stack-size=200"]);
    const lines = ["cancelled: 0 left", "closed: 1001 left", "closed while it asks: 1001 left"];
    expect({ code, out: out.split("\n") }).toEqual({ code: 0, out: lines });
  });
});
