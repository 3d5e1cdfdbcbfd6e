import { AgentRuntime, MemoryStore } from "cadenza";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { setUp } from "../harness/runtimes.ts";
import { lastingStore } from "../harness/store-proxy.ts";

/* `durable(store)`, and durable agents on a store that is not durable. */

describe("durable(store)", () => {
  it("lets a run go on in another runtime on the same store", async () => {
    const store = lastingStore();
    const agent = async (_input: unknown, { ask }: { ask: (question: string) => Promise<unknown> }) =>
      JSON.stringify(await ask("Well?"));
    const first = new AgentRuntime({ store: durable(store) }).register("asks", { durable: true }, agent);
    const { run_id } = await first.createRun({ agent_name: "asks", input: "" });
    await first.close();
    const second = new AgentRuntime({ store: durable(store) }).register("asks", { durable: true }, agent);
    const run = await second.resume({ run_id, await_resume: { go: "on" } });
    expect(run).toMatchObject({ status: "completed", output: [{ parts: [{ content: '{"go":"on"}' }] }] });
    await second.close();
  });

  it("keeps the members of the store, and its private state", async () => {
    class Counting extends MemoryStore {
      readonly engine = { connect: () => "a database" };
      #finds = 0;
      get finds(): number {
        return this.#finds;
      }
      override find(key: Parameters<MemoryStore["find"]>[0]) {
        this.#finds += 1;
        return super.find(key);
      }
    }
    const store = new Counting();
    expect(durable(store)).toBeInstanceOf(Counting);
    await expect(new AgentRuntime({ store: durable(store) }).getRun("none")).rejects.toMatchObject({
      code: "invalid_argument",
    });
    const id = "00000000-0000-4000-8000-000000000001";
    await expect(new AgentRuntime({ store: durable(store) }).getRun(id)).rejects.toMatchObject({
      code: "run_not_found",
    });
    expect(store.finds).toBe(1);
    // A member of the store is not taken for what makes a store durable.
    expect(() => new AgentRuntime({ store })).not.toThrow();
  });

  it.each([
    [{ leaseMs: -1 }, "options.leaseMs"],
    [{ maxTakeovers: 1.5 }, "options.maxTakeovers"],
    [{ leaseMs: "1" }, "options.leaseMs"],
    [{ alwaysReplay: "yes" }, "options.alwaysReplay"],
    [{ leaseMS: 1 }, "leaseMS"],
    [{ leaseMs: 100, heartbeatMs: 3_000 }, "options.heartbeatMs: expected less than leaseMs (100), or Infinity"],
    [{ heartbeatMs: 10_000 }, "options.heartbeatMs"],
  ])("refuses the options %j", (options, named) => {
    expect(() => durable(new MemoryStore(), options as object)).toThrowError(named);
  });
});

describe("A durable agent on a store that is not durable", () => {
  it("completes its runs, and the logger is told once", async () => {
    const said: string[] = [];
    const { logger } = setUp().runtime;
    const runtime = new AgentRuntime({ logger: { ...logger, warn: (message) => void said.push(message) } });
    for (const name of ["one", "two"]) {
      runtime.register(name, { durable: true }, async (_input, { step, ask }) => {
        const made = await step("make", () => ({ at: new Date(0), left: undefined }) as object).catch(String);
        return JSON.stringify([made, await ask("Well?")]);
      });
    }
    const { run_id } = await runtime.createRun({ agent_name: "one", input: "" });
    const run = await runtime.resume({ run_id, await_resume: { go: "on" } });
    expect(run.status).toBe("completed");
    // The result of a step goes through JSON on every store.
    expect(run.output[0]?.parts[0]?.content).toContain('{"go":"on"}');
    expect(said).toEqual([expect.stringMatching(/^An agent is durable, and the store is not/)]);
    expect(await runtime.stats()).toMatchObject({ blocked: [], unregistered: 0, damaged: [] });
    await runtime.close();
  });

  it("fails its open runs when the runtime is closed", async () => {
    const runtime = new AgentRuntime();
    runtime.register("asks", { durable: true }, (_input, { ask }) => ask("Well?"));
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
    const { left } = await runtime.close({ drainMs: 0 });
    expect(left).toMatchObject([{ run_id, status: "awaiting" }]);
    expect(await runtime.getRun(run_id)).toMatchObject({
      status: "failed",
      error: { data: { reason: "interrupted" } },
    });
  });
});
