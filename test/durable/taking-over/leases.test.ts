import { AgentRuntime } from "cadenza";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import { World } from "../../harness/world/world.ts";

const LEASE_MS = 1_000;

it.each([
  { after: 0.8 * LEASE_MS, renews: false },
  { after: 0.95 * LEASE_MS, renews: true },
  { after: 1.05 * LEASE_MS, renews: true },
])(
  "a step that begins $after ms after the last heartbeat renews the lease first: $renews",
  async ({ after, renews }) => {
    let before = 0;
    let begun = 0;
    const world = new World({
      // No heartbeat happens by itself.
      runtime: { durability: { leaseMs: LEASE_MS, heartbeatMs: Number.POSITIVE_INFINITY, scanMs: 100_000 } },
      register: (process) => {
        const renewals = (): number => process.storeCalls.filter((method) => method === "renew").length;
        process.runtime.register("agent", { durable: true }, async (_input, { step }) => {
          await step("before", () => process.wait(after));
          before = renewals();
          await step("pay", () => {
            begun = renewals();
          });
        });
      },
    });
    const process = world.start();
    const outcome = await world.until(process.runtime.createRun({ agent_name: "agent", input: "" }), process);
    expect(outcome).toMatchObject({ value: { status: "completed" } });
    expect(begun - before).toBe(renews ? 1 : 0);
  },
);

it("a plain agent whose step begins before its run is written completes, also while the lease is not held", async () => {
  const store = lastingStore();
  const clock = new FakeClock();
  const runtime = new AgentRuntime({ clock, store: durable(store) });
  runtime.register("agent", (_input, { step }) => step("work", () => "done"));
  expect(await runtime.createRun({ agent_name: "agent", input: "" })).toMatchObject({ status: "completed" });
  await runtime.close();
});

it.each([
  { stands: "wall", now: 0, monotonic: 1 },
  { stands: "monotonic", now: 1, monotonic: 0 },
])(
  "a process that was frozen with its $stands clock standing still begins no step that another one has finished",
  async (runs) => {
    const replicas = inMemory();
    const { clock } = replicas;
    const since = { now: clock.now(), monotonic: clock.monotonic() };
    const standing = {
      now: () => since.now + runs.now * (clock.now() - since.now),
      monotonic: () => since.monotonic + runs.monotonic * (clock.monotonic() - since.monotonic),
      setTimeout: (callback: () => void, delayMs: number) => clock.setTimeout(callback, delayMs),
      turn: () => clock.turn(),
    };
    const begun: string[] = [];
    let isFrozen = false;
    const first = replicas.start({ clock: standing }, async (call, method, parameters) => {
      if (isFrozen) return new Promise(() => {});
      const answer = await call();
      const isIntent = method === "append" && JSON.stringify(parameters).includes('"intent"');
      if (!isIntent || begun.length > 0) return answer;
      isFrozen = true;
      // Another process takes the run over, and finishes the step.
      register(replicas.start(), "second");
      await clock.advance(3 * LEASE_MS);
      isFrozen = false;
      return answer;
    });
    const register = ({ runtime }: typeof first, name: string): void => {
      runtime.register("agent", { durable: true }, (_input, { step }) => step("pay", () => void begun.push(name)));
    };
    register(first, "first");
    await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.advance(5 * LEASE_MS);
    expect(begun).toEqual(["second"]);
  },
);
