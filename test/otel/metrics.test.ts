import type { MeterOptions } from "@opentelemetry/api";
import { MeterProvider, MetricReader } from "@opentelemetry/sdk-metrics";
import * as conventions from "@opentelemetry/semantic-conventions/incubating";
import { AgentRuntime } from "cadenza";
import { measureRuntime } from "cadenza/otel";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../harness/clock.ts";
import { setUp } from "../harness/runtimes.ts";
import { lastingStore } from "../harness/store-proxy.ts";
import { createMany, given } from "../harness/world/calls.ts";
import { World } from "../harness/world/world.ts";

class Reader extends MetricReader {
  protected async onForceFlush(): Promise<void> {}
  protected async onShutdown(): Promise<void> {}
}

/** A meter whose instruments are read when a test asks. */
class Measured {
  readonly #reader = new Reader();
  readonly #provider = new MeterProvider({ readers: [this.#reader] });

  meter(name = "test", options?: MeterOptions) {
    return this.#provider.getMeter(name, undefined, options);
  }

  /** The values of an instrument, by its attributes without the agent's name. Of a histogram, the sums. */
  async of(instrument: string, agent?: string): Promise<Record<string, number>> {
    const { resourceMetrics, errors } = await this.#reader.collect();
    expect(errors).toEqual([]);
    const found: Record<string, number> = {};
    for (const { descriptor, dataPoints } of resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics)) {
      if (descriptor.name !== instrument) continue;
      for (const { attributes, value } of dataPoints) {
        const { [conventions.ATTR_GEN_AI_AGENT_NAME]: of, ...others } = attributes;
        if (agent !== undefined && of !== agent) continue;
        const sum = typeof value === "number" ? value : (value.sum ?? 0);
        found[Object.values(others).join(" ")] = sum;
      }
    }
    return found;
  }
}

describe("the metrics of a runtime", () => {
  it("agree with its statistics", async () => {
    const { runtime, clock } = setUp();
    const measured = new Measured();
    measureRuntime(runtime, { meter: measured.meter() });
    runtime.register("model", async (input, { ask, sleep, usage }) => {
      usage.add({ input_tokens: 90, output_tokens: 10, cached_input_tokens: 40 });
      const text = input[0]?.parts[0]?.content;
      if (text === "fail") throw new Error("No.");
      if (text === "ask") await ask("Go on?");
      if (text === "sleep") await sleep(5_000);
    });
    for (const input of ["a", "b", "fail"]) await runtime.createRun({ agent_name: "model", input });
    const waiting = await runtime.createRun({ agent_name: "model", input: "ask" });
    const stopped = await runtime.createRun({ agent_name: "model", input: "ask" });
    await clock.advance(3_000);
    await runtime.cancel(stopped.run_id);
    for await (const _event of runtime.events(stopped.run_id));
    const sleeping = runtime.createRun({ agent_name: "model", input: "sleep" });
    await clock.advance(5_000);
    await sleeping;

    const { agents, live } = await runtime.stats();
    const counters = agents["model"];
    expect(counters).toMatchObject({ completed: 3, failed: 1, cancelled: 1, input_tokens: 450 });
    expect(await measured.of("cadenza.runs", "model")).toEqual({
      completed: 3,
      "failed agent_failed": 1,
      cancelled: 1,
    });
    expect(await measured.of("cadenza.run.tokens", "model")).toEqual({
      input: counters?.input_tokens,
      output: counters?.output_tokens,
      cached_input: counters?.cached_input_tokens,
    });
    const waits = Object.values(await measured.of("cadenza.run.waiting_time", "model"));
    expect(1_000 * waits.reduce((a, b) => a + b, 0)).toBe(counters?.waiting_ms);
    const times = Object.values(await measured.of("cadenza.run.active_time", "model"));
    expect(1_000 * times.reduce((a, b) => a + b, 0)).toBe(counters?.active_ms);
    expect(live).toEqual({ awaiting: 1 });
    expect(await measured.of("cadenza.runs.live")).toEqual(live);
    expect(await measured.of("cadenza.runs.queued")).toEqual({ "": 0 });
    expect(await measured.of("cadenza.pauses")).toEqual({ "": 0 });
    await runtime.resume({ run_id: waiting.run_id, await_resume: {} });
    expect(await measured.of("cadenza.runs", "model")).toMatchObject({ completed: 4 });
  });

  it("say how many runs wait for the slots of an agent, and for how long", async () => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime({ store: durable(lastingStore(clock)), clock });
    const measured = new Measured();
    measureRuntime(runtime, { meter: measured.meter() });
    const options = { durable: true, concurrency: { max: 1, per: "tenant" } } as const;
    runtime.register("busy", options, (_input, { step }) =>
      step("work", ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", reject))),
    );
    for (const tenant of ["acme", "acme", "blue", "blue", "blue"]) {
      await runtime.scope({ tenant }).createRun({ agent_name: "busy", input: "", mode: "async" });
      await clock.advance(1_000);
    }
    const { lines } = await runtime.stats();
    expect(lines).toMatchObject([{ waiting: 1 }, { waiting: 2 }]);
    await clock.advance(5_000);
    expect(await measured.of("cadenza.slots.waiting", "busy")).toEqual({ "": 3 });
    const since = Date.parse(lines[0]?.since ?? "");
    expect(await measured.of("cadenza.slots.waiting_time", "busy")).toEqual({ "": (clock.now() - since) / 1_000 });
    await runtime.close({ drainMs: 0 });
  });

  it("count each run once over all processes, also one that is taken over or evicted", async () => {
    const measured: Measured[] = [];
    const world = new World({
      runtime: { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 0 } },
      register: (process) => {
        const { runtime } = process;
        const own = new Measured();
        measured.push(own);
        measureRuntime(runtime, { meter: own.meter() });
        runtime.register("agent", { durable: true }, async (_input, { ask, step, usage }) => {
          await step("think", () => usage.add({ input_tokens: 7, output_tokens: 1 }));
          await ask("Go on?");
          await step("work", () => (process.name === "process-1" ? process.wait(60_000) : undefined));
        });
      },
    });
    const first = world.start();
    const ids = await createMany(world, first, 4);
    await world.pass(500);
    for (const run_id of ids.slice(0, 2))
      given(await world.until(first.runtime.resume({ run_id, await_resume: {}, mode: "async" }), first));
    await world.pass(100);
    first.kill();
    const second = world.start();
    await world.pass(3_000);
    for (const run_id of ids.slice(2))
      given(await world.until(second.runtime.resume({ run_id, await_resume: {}, mode: "async" }), second));
    await world.pass(1_000);
    const { agents, heartbeatAgeMs } = given(await world.until(second.runtime.stats(), second));
    expect(agents["agent"]).toMatchObject({ completed: 4, input_tokens: 28 });
    const [, ofSecond] = measured;
    const collecting = async (name: string) =>
      given(
        await world.until(
          (ofSecond as Measured).of(name, name === "cadenza.heartbeat.age" ? undefined : "agent"),
          second,
        ),
      );
    expect(await collecting("cadenza.runs")).toEqual({ completed: 4 });
    expect(await collecting("cadenza.run.tokens")).toEqual({ input: 28, output: 4 });
    expect(heartbeatAgeMs).toBeLessThanOrEqual(300);
    expect(await collecting("cadenza.heartbeat.age")).toEqual({ "": (heartbeatAgeMs ?? Number.NaN) / 1_000 });
  });

  it("end with the function that it gives, and there are none without an SDK", async () => {
    const measured = new Measured();
    const runtime = new AgentRuntime().register("echo", (input) => input);
    const stop = measureRuntime(runtime, { meter: measured.meter() });
    const { run_id } = await runtime.createRun({ agent_name: "echo", input: "" });
    for await (const _event of runtime.events(run_id)); // by now the listener has been called
    stop();
    await runtime.createRun({ agent_name: "echo", input: "" });
    expect(await measured.of("cadenza.runs", "echo")).toEqual({ completed: 1 });
    expect(await measured.of("cadenza.runs.live")).toEqual({});
    measureRuntime(runtime)();
  });
});
