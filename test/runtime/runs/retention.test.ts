import type { RuntimeOptions } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import type { Retention, Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { refusal } from "../../harness/runtimes.ts";
import { hookedStore, persistent } from "../../harness/store-proxy.ts";

/** More runs than a store in memory retains, and more than it may exceed that between two prunings. */
const MANY = 11_000;

async function orderThenMany(runtime: AgentRuntime): Promise<string> {
  runtime.register("order", () => "ordered");
  const request = { agent_name: "order", input: "" };
  const { run_id } = await runtime.createRun(request, { idempotencyKey: "order 17" });
  for (let count = 0; count < MANY; count++) await runtime.createRun(request);
  return run_id;
}

it("a persistent store retains all runs by default, and a request that is repeated much later creates no second run", async () => {
  const runtime = new AgentRuntime({ store: persistent(new MemoryStore()) });
  const run_id = await orderThenMany(runtime);
  const again = await runtime.createRun({ agent_name: "order", input: "" }, { idempotencyKey: "order 17" });
  expect(again.run_id).toBe(run_id);
  expect(await runtime.listRuns({ limit: 2 * MANY })).toHaveLength(MANY + 1);
  await runtime.close();
});

it("a store in memory removes the oldest runs, and their idempotency keys with them", async () => {
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

describe("rules of the retention", () => {
  it.each([
    { of: "a store in memory", storeOf: (clock: FakeClock): Store => new MemoryStore({ clock }) },
    { of: "a store that persists", storeOf: (clock: FakeClock) => persistent(new MemoryStore({ clock })) },
  ])("keep runs by agent, tenant and label, in $of", async ({ storeOf }) => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime({
      store: storeOf(clock),
      clock,
      retention: {
        maxAgeMs: 3 * DAY_MS,
        maxRuns: Number.POSITIVE_INFINITY,
        rules: [
          { labels: { hold: "legal" }, maxAgeMs: Number.POSITIVE_INFINITY },
          { agent_name: "heartbeat", maxRuns: 2 },
          { tenant: "trial", maxAgeMs: DAY_MS },
        ],
      },
    });
    runtime.register("heartbeat", () => "alive").register("order", () => "ordered");
    const trial = runtime.scope({ tenant: "trial" });
    for (let count = 0; count < 4; count++) {
      await runtime.createRun({ agent_name: "heartbeat", input: "" });
      await runtime.createRun({ agent_name: "order", input: "" });
      await trial.createRun({ agent_name: "order", input: "" });
      await trial.createRun({ agent_name: "order", input: "" }, { labels: { hold: "legal" } });
    }
    const counts = async () => [
      (await runtime.listRuns({ agent_name: "heartbeat" })).length,
      (await runtime.listRuns({ agent_name: "order" })).length,
      (await trial.listRuns()).length,
    ];
    await clock.advance(DAY_MS / 2);
    expect(await counts()).toEqual([2, 4, 8]);
    await clock.advance(DAY_MS);
    expect(await counts()).toEqual([2, 4, 4]);
    await clock.advance(2 * DAY_MS);
    expect(await counts()).toEqual([0, 0, 4]);
    await clock.advance(400 * DAY_MS);
    expect(await counts()).toEqual([0, 0, 4]);
    await runtime.close();
    expect(clock.timers).toBe(0);
  });

  it("begin while others are at work: the next pruning waits for the one before", async () => {
    const clock = new FakeClock();
    let [atOnce, most] = [0, 0];
    const ends: (() => void)[] = [];
    const store = hookedStore(
      (call, method) => {
        if (method !== "prune") return call();
        atOnce += 1;
        most = Math.max(most, atOnce);
        return new Promise((resolve) => {
          ends.push(() => {
            atOnce -= 1;
            resolve(call());
          });
        });
      },
      persistent(new MemoryStore({ clock })),
    );
    const rules = [{ agent_name: "order", maxRuns: 1 }];
    const runtime = new AgentRuntime({ store, clock, retention: { rules } }).register("order", () => "ordered");
    for (let count = 0; count < 5; count++) {
      await runtime.createRun({ agent_name: "order", input: "" });
      await clock.advance(10 * MINUTE_MS);
    }
    expect([ends.length, most]).toEqual([1, 1]);
    ends[0]?.();
    await clock.advance(10 * MINUTE_MS);
    expect([ends.length, most]).toEqual([2, 1]);
    ends[1]?.();
    await runtime.close();
  });

  it.each([
    { rules: {}, message: "options.retention.rules: expected an array of rules, received an object." },
    { rules: [7], message: "options.retention.rules[0]: expected an object, received 7." },
    {
      rules: [{ agent_name: "a" }],
      message: "options.retention.rules[0]: expected a rule with maxAgeMs, maxRuns or both",
    },
    { rules: [{ agent: "a", maxRuns: 1 }], message: 'there is no option "agent"' },
    { rules: [{ maxRuns: 1.5 }], message: "options.retention.rules[0].maxRuns: expected a whole number" },
    { rules: [{ maxAgeMs: -1 }], message: "options.retention.rules[0].maxAgeMs: expected a number from 0" },
    { rules: [{ tenant: 7, maxRuns: 1 }], message: "options.retention.rules[0].tenant: expected a string" },
    { rules: [{ agent_name: "", maxRuns: 1 }], message: "options.retention.rules[0].agent_name: expected a string" },
    { rules: [{ labels: { a: 1 }, maxRuns: 1 }], message: "options.retention.rules[0].labels: expected a string" },
    {
      rules: Array(101).fill({ maxRuns: 1 }),
      message: "options.retention.rules: expected at most 100 rules, received 101.",
    },
    {
      rules: [
        { agent_name: "a", maxRuns: 1 },
        { tenant: "t", maxRuns: 1 },
        { tenant: "t", agent_name: "b", labels: { c: "d" }, maxRuns: 1 },
      ],
      message: "options.retention.rules[2]: expected a rule for runs that rule 1 does not match",
    },
  ])("are refused: $message", ({ rules, message }) => {
    const retention = { rules } as unknown as NonNullable<RuntimeOptions["retention"]>;
    expect(() => new AgentRuntime({ retention })).toThrow(message);
  });
});

/** Runs of tenants, which end at once. */
class Customers {
  readonly #runtime: AgentRuntime;

  constructor(runtime: AgentRuntime) {
    runtime.register("order", () => "ordered");
    this.#runtime = runtime;
  }

  async order(tenant: string, count: number, more: { readonly session_id?: string } = {}): Promise<void> {
    const scope = this.#runtime.scope({ tenant });
    for (let index = 0; index < count; index++) await scope.createRun({ agent_name: "order", input: "", ...more });
  }

  /** The id of the run with a key. */
  async keyed(tenant: string): Promise<string> {
    const request = { agent_name: "order", input: "" };
    return (await this.#runtime.scope({ tenant }).createRun(request, { idempotencyKey: "order 17" })).run_id;
  }

  async count(tenant: string): Promise<number> {
    return (await this.#runtime.scope({ tenant }).listRuns({ limit: 2 * MANY })).length;
  }
}

describe("a store in memory", () => {
  it("removes runs of the tenants with the most, and no key of another", async () => {
    const runtime = new AgentRuntime();
    const customers = new Customers(runtime);
    const key = await customers.keyed("red");
    await customers.order("green", 300);
    await customers.order("blue", MANY);
    expect(await customers.keyed("red")).toBe(key);
    expect(await customers.count("green")).toBe(300);
    expect(await customers.count("blue")).toBeLessThanOrEqual(10_625);
    await runtime.close();
  });

  it("keeps within its number, those that ended last, also where it is less than one run a tenant", async () => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime({ clock, retention: { maxRuns: 4 } });
    const customers = new Customers(runtime);
    const tenants = ["a", "b", "c", "d", "e", "f"];
    for (const tenant of tenants) {
      await customers.order(tenant, 2);
      await clock.advance(1);
    }
    expect(await Promise.all(tenants.map((tenant) => customers.count(tenant)))).toEqual([0, 0, 1, 1, 1, 1]);
    await runtime.close();
  });
});

describe("what a store that persists keeps of each tenant", () => {
  const limited = (clock: FakeClock, store: Store, perTenant: NonNullable<RuntimeOptions["limits"]>["perTenant"]) =>
    new AgentRuntime({ store, clock, limits: { perTenant } });

  it("is limited in runs, although each process lives for seconds", async () => {
    const store = persistent(new MemoryStore({ clock: new FakeClock() }));
    let kept: Customers | undefined;
    for (let count = 0; count < 20; count++) {
      const clock = new FakeClock();
      kept = new Customers(limited(clock, store, { storedRuns: 16 }));
      if (count < 10) await kept.order("red", 1);
      await kept.order("blue", 5);
      // Its timers end with the process.
      await clock.advance(2_000);
    }
    expect(await kept?.count("blue")).toBe(16);
    expect(await kept?.count("red")).toBe(10);
  });

  it("is limited in sessions", async () => {
    const clock = new FakeClock();
    const runtime = limited(clock, persistent(new MemoryStore({ clock })), { sessions: 16 });
    const customers = new Customers(runtime);
    const sessions = Array.from({ length: 20 }, () => crypto.randomUUID());
    for (const tenant of ["blue", "red"])
      for (const session_id of sessions.slice(tenant === "red" ? 10 : 0))
        await customers.order(tenant, 1, { session_id });
    await clock.advance(2_000);
    const left = (tenant: string) =>
      Promise.all(
        sessions.map((id) =>
          runtime
            .scope({ tenant })
            .getSession(id)
            .then(
              () => id,
              () => undefined,
            ),
        ),
      );
    expect((await left("blue")).filter(Boolean)).toEqual(sessions.slice(-16));
    expect((await left("red")).filter(Boolean)).toEqual(sessions.slice(-10));
    await runtime.close();
  });

  it("is looked at once a second, also while the runs of a tenant end all the time", async () => {
    const clock = new FakeClock();
    const prunings: Retention[] = [];
    const store = hookedStore(
      (call, method, [retention]) => {
        if (method === "prune") prunings.push(retention as Retention);
        return call();
      },
      persistent(new MemoryStore({ clock })),
    );
    const runtime = limited(clock, store, { storedRuns: 16 });
    const customers = new Customers(runtime);
    for (let count = 0; count < 500; count++) {
      await customers.order("blue", 1);
      await clock.advance(10);
    }
    expect(prunings.length).toBeGreaterThanOrEqual(5);
    expect(prunings.length).toBeLessThanOrEqual(8);
    expect(await customers.count("blue")).toBeLessThanOrEqual(16 + 100);
    await runtime.close();
  });

  it("is looked at again when the store has failed to delete", async () => {
    const clock = new FakeClock();
    let hasFailed = false;
    const store = hookedStore(
      (call, method, [retention]) => {
        if (method !== "prune" || (retention as Retention).perTenant === undefined || hasFailed) return call();
        hasFailed = true;
        throw new Error("The disk is full.");
      },
      persistent(new MemoryStore({ clock })),
    );
    const runtime = limited(clock, store, { storedRuns: 3 });
    const customers = new Customers(runtime);
    await customers.order("blue", 5);
    await clock.advance(2_000);
    expect([hasFailed, await customers.count("blue")]).toEqual([true, 5]);
    await clock.advance(10 * MINUTE_MS);
    expect(await customers.count("blue")).toBe(3);
    await runtime.close();
  });
});
