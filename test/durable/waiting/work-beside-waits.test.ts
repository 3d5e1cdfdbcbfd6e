import type { AgentContext, AgentOptions } from "cadenza";
import { describe, expect, it } from "vitest";
import type { FakeClock } from "../../harness/clock.ts";
import { setUp } from "../../harness/runtimes.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/* A step at work is work, whatever its run waits for at the same time. */

const STEP_MS = 3_000;
const RUNS = 4;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };

/** What an agent may wait for beside its step. */
const waits = {
  "a question": ({ ask }: AgentContext) => ask("Well?", { name: "beside" }),
  "a sleep": ({ sleep }: AgentContext) => sleep("10m"),
  "a receive": ({ receive }: AgentContext) => receive("news"),
} as const satisfies Record<string, (context: AgentContext) => unknown>;

/** Counts the bodies at work. A body is at work in its process until it ends, also if its run has been lost there. */
class Bodies {
  readonly begun: string[] = [];
  readonly #clock: FakeClock;
  atWork = 0;
  most = 0;

  constructor(clock: FakeClock) {
    this.#clock = clock;
  }

  async work(name: string): Promise<string> {
    this.begun.push(name);
    this.atWork += 1;
    this.most = Math.max(this.most, this.atWork);
    await new Promise<void>((resolve) => void this.#clock.setTimeout(resolve, STEP_MS));
    this.atWork -= 1;
    return name;
  }
}

type Wait = (context: AgentContext) => unknown;

function register(
  { runtime }: Pick<Replica, "runtime">,
  name: string,
  bodies: Bodies,
  wait: Wait,
  options: AgentOptions = {},
): void {
  runtime.register(
    "agent",
    { durable: true, ...options } as AgentOptions,
    async (_input: unknown, context: AgentContext) => {
      await Promise.race([context.step("work", () => bodies.work(name)), wait(context)]);
    },
  );
}

describe.each(Object.entries(waits))("a step at work beside %s", (_name, wait) => {
  it.each([true, false])("is waited for by close (durable: %s)", async (durable) => {
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies = new Bodies(clock);
    const [first, second] = [replicas.start({ durability }), replicas.start({ durability })];
    register(first, "first", bodies, wait, { durable } as AgentOptions);
    const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.advance(500);
    register(second, "second", bodies, wait, { durable } as AgentOptions);
    let isClosed = false;
    const closing = first.runtime.close({ drainMs: 6 * STEP_MS }).then(() => {
      isClosed = true;
    });
    await clock.advance(STEP_MS - 600);
    expect(isClosed).toBe(false);
    await clock.advance(600);
    await closing;
    await clock.advance(2 * STEP_MS);
    expect(bodies.begun).toEqual(["first"]);
    expect((await second.runtime.getRun(run_id)).status).toBe("completed");
  });

  it.each([
    { per: "agent", processes: 1 },
    { per: "agent", processes: 2 },
    { per: "process", processes: 1 },
  ] as const)("holds its slot ($per, $processes processes)", async ({ per, processes }) => {
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies = new Bodies(clock);
    const started = Array.from({ length: processes }, () => replicas.start({ durability }));
    for (const replica of started) register(replica, "body", bodies, wait, { concurrency: { max: 1, per } });
    const ids: string[] = [];
    for (let n = 0; n < RUNS; n++) {
      const { runtime } = started[n % processes] ?? replicas.start({ durability });
      ids.push((await runtime.createRun({ agent_name: "agent", input: "", mode: "async" })).run_id);
    }
    await clock.advance((RUNS + 3) * STEP_MS);
    expect(bodies.most).toBe(1);
    expect(bodies.begun).toHaveLength(RUNS);
    for (const id of ids) expect((await started[0]?.runtime.getRun(id))?.status).toBe("completed");
  });

  it.each([
    { per: "agent", processes: 1, durable: true },
    { per: "agent", processes: 2, durable: true },
    { per: "process", processes: 1, durable: true },
    { per: "agent", processes: 1, durable: false },
    { per: "process", processes: 1, durable: false },
  ] as const)("holds its slot in a sub-run ($per, $processes processes, durable: $durable)", async (how) => {
    const { per, processes, durable } = how;
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies = new Bodies(clock);
    const started = Array.from({ length: processes }, () => replicas.start({ durability }));
    for (const { runtime } of started) {
      runtime.register("child", { durable } as AgentOptions, async (_input: unknown, context: AgentContext) => {
        await context.step("work", () => bodies.work("body"));
        await wait(context);
      });
      const options = { durable, concurrency: { max: 1, per } } as AgentOptions;
      runtime.register("agent", options, async (_input: unknown, context: AgentContext) => {
        // The sub-run is given up at the end of the sleep, which lasts longer than its work.
        await Promise.race([context.run("child", ""), wait(context)]);
      });
    }
    for (let n = 0; n < RUNS; n++) {
      const { runtime } = started[n % processes] ?? replicas.start({ durability });
      await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    }
    await clock.advance(STEP_MS / 2);
    expect(bodies.begun).toHaveLength(1);
    // A run that waits with its sub-run gives its slot back, so that the next one begins.
    await clock.advance((RUNS + 3) * STEP_MS);
    expect(bodies.begun).toHaveLength(RUNS);
    expect(bodies.most).toBe(1);
  });

  it("counts for the room of its process", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies = new Bodies(clock);
    const web = replicas.start({ durability, work: false });
    web.runtime.declare({ name: "agent", durable: true });
    for (let n = 0; n < RUNS; n++) await web.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    register(replicas.start({ durability, work: { max: 2 } }), "body", bodies, wait);
    await clock.advance((RUNS + 1) * STEP_MS);
    expect(bodies.begun).toHaveLength(RUNS);
    expect(bodies.most).toBe(2);
  });

  it("takes the slot again that the run has given back while it waited", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies = new Bodies(clock);
    const { runtime } = replicas.start({ durability });
    runtime.register("agent", { durable: true, concurrency: { max: 1 } }, async (_input, context) => {
      const beside = wait(context);
      await context.ask("Begin?", { name: "first" });
      await Promise.race([context.step("work", () => bodies.work("body")), beside]);
    });
    const ids: string[] = [];
    for (let n = 0; n < RUNS; n++)
      ids.push((await runtime.createRun({ agent_name: "agent", input: "", mode: "async" })).run_id);
    await clock.advance(100);
    for (const run_id of ids) {
      const { await_requests } = await runtime.details(run_id);
      const await_id = await_requests.find(({ name }) => name === "first")?.await_id;
      await runtime.resume({ run_id, await_id, await_resume: {}, mode: "async" });
    }
    await clock.advance((RUNS + 3) * STEP_MS);
    expect(bodies.begun).toHaveLength(RUNS);
    expect(bodies.most).toBe(1);
    for (const id of ids) expect((await runtime.getRun(id)).status).toBe("completed");
  });

  it("holds the process open, and lets it go when the run only waits", async () => {
    const { runtime, clock } = setUp();
    const bodies = new Bodies(clock);
    runtime.register("agent", async (_input, context) => {
      const beside = wait(context);
      await context.step("work", () => bodies.work("body"));
      await beside;
    });
    await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.advance(STEP_MS - 1);
    expect(clock.holds).toBe(1);
    await clock.advance(1);
    expect(clock.holds).toBe(0);
  });
});
