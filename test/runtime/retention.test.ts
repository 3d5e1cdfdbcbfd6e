import { AgentRuntime, MemoryStore } from "cadenza";
import { durable } from "cadenza/durable";
import { describe, expect, it, test } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { refusal } from "../harness/runtimes.ts";
import { hookedStore, persistent } from "../harness/store-proxy.ts";

/** More runs than a store in memory retains, and more than it may exceed that between two prunings. */
const MANY = 11_000;

async function orderThenMany(runtime: AgentRuntime): Promise<string> {
  runtime.register("order", () => "ordered");
  const request = { agent_name: "order", input: "" };
  const { run_id } = await runtime.createRun(request, { idempotencyKey: "order 17" });
  for (let count = 0; count < MANY; count++) await runtime.createRun(request);
  return run_id;
}

test("a persistent store retains all runs by default, and a request that is repeated much later creates no second run", async () => {
  const runtime = new AgentRuntime({ store: persistent(new MemoryStore()) });
  const run_id = await orderThenMany(runtime);
  const again = await runtime.createRun({ agent_name: "order", input: "" }, { idempotencyKey: "order 17" });
  expect(again.run_id).toBe(run_id);
  expect(await runtime.listRuns({ limit: 2 * MANY })).toHaveLength(MANY + 1);
  await runtime.close();
});

test("a store in memory removes the oldest runs, and their idempotency keys with them", async () => {
  const runtime = new AgentRuntime();
  const run_id = await orderThenMany(runtime);
  expect((await refusal(runtime.getRun(run_id))).code).toBe("run_not_found");
  const again = await runtime.createRun({ agent_name: "order", input: "" }, { idempotencyKey: "order 17" });
  expect(again.run_id).not.toBe(run_id);
  await runtime.close();
});

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;

describe("retention in a store that persists", () => {
  it.each([
    { of: "an age", retention: { maxAgeMs: 30 * DAY_MS }, work: true, kept: 31 },
    { of: "an age, without work", retention: { maxAgeMs: 30 * DAY_MS }, work: false, kept: 31 },
    { of: "a number", retention: { maxRuns: 5 }, work: true, kept: 6 },
  ])("of $of holds although each process lives for a minute", async ({ retention, work, kept }) => {
    const clock = new FakeClock();
    const store = persistent(new MemoryStore({ clock }));
    const writer = new AgentRuntime({ store, clock }).register("order", () => "ordered");
    for (let day = 0; day < 90; day++) {
      const { run_id } = await writer.createRun({ agent_name: "order", input: "" });
      // A process that ends without closing its runtime: its timers end with it.
      const its = new FakeClock();
      await its.advance(clock.now() - its.now());
      new AgentRuntime({ store: durable(store), clock: its, retention, ...(!work && { work: false }) });
      await its.advance(MINUTE_MS);
      expect((await writer.getRun(run_id)).status).toBe("completed");
      expect(its.holds).toBe(0);
      await clock.advance(DAY_MS);
    }
    expect((await writer.listRuns({ limit: 200 })).length).toBeLessThanOrEqual(kept);
  });

  it("is applied at least every ten minutes, also where no run ends", async () => {
    const clock = new FakeClock();
    let prunings = 0;
    const store = hookedStore(
      (call, method) => {
        if (method === "prune") prunings += 1;
        return call();
      },
      persistent(new MemoryStore({ clock })),
    );
    const runtime = new AgentRuntime({ store, clock, retention: { maxAgeMs: 30 * DAY_MS } });
    await clock.advance(1_000);
    expect(prunings).toBe(1);
    for (let count = 2; count <= 10; count++) {
      await clock.advance(10 * MINUTE_MS);
      expect(prunings).toBeGreaterThanOrEqual(count);
    }
    await runtime.close();
    expect(clock.timers).toBe(0);
  });

  it("without a limit sets no timer", async () => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime({ store: persistent(new MemoryStore({ clock })), clock });
    expect(clock.timers).toBe(0);
    await runtime.close();
  });
});
