import type { Clock } from "cadenza";
import { describe, expect, it } from "vitest";
import type { Replica } from "../harness/world/replicas.ts";
import { inMemory } from "../harness/world/replicas.ts";

const QUESTION_MS = 5_000;

function register({ runtime }: Replica): void {
  runtime.register("agent", { durable: true }, async (_input, { ask }) => {
    return JSON.stringify(await ask("Well?", { timeoutMs: QUESTION_MS, default: { late: true } }));
  });
}

/** A clock that shows another time, and runs at the same rate. */
function shifted(base: Clock, byMs: number): Clock {
  return {
    now: () => base.now() + byMs,
    setTimeout: (callback, ms) => base.setTimeout(callback, ms),
    turn: () => base.turn(),
    ...(base.hold !== undefined && { hold: () => base.hold?.() ?? (() => {}) }),
  };
}

describe.each([-600_000, -1_000, 600_000])("a process whose clock is off by %s ms", (offMs) => {
  it("expires a question that another process has asked", async () => {
    const replicas = inMemory();
    const first = replicas.start();
    register(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
    first.kill();
    const second = replicas.start({ clock: shifted(replicas.clock, offMs) });
    register(second);
    await replicas.clock.advance(QUESTION_MS + 2_000);
    expect((await second.runtime.getRun(run_id)).status).toBe("completed");
  });

  it("expires a question of a run that it has loaded", async () => {
    const replicas = inMemory();
    const first = replicas.start();
    register(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
    const second = replicas.start({ clock: shifted(replicas.clock, offMs) });
    register(second);
    // An answer that is refused loads the run.
    await expect(second.runtime.resume({ run_id, await_id: "ask#2", await_resume: {} })).rejects.toThrow();
    first.kill();
    await replicas.clock.advance(QUESTION_MS + 2_000);
    expect((await second.runtime.getRun(run_id)).status).toBe("completed");
  });
});

it("a process whose clock is behind keeps a run until the active time of the run is over by both clocks", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const options = { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } };
  const agents = ({ runtime }: Replica): void => {
    runtime.register("parent", { durable: true, timeoutMs: 5_000 }, async (_input, { run }) => {
      await run("child", "");
    });
    runtime.register("child", { durable: true }, (_input, { sleep }) => sleep("1h"));
  };
  const first = replicas.start(options);
  agents(first);
  const { run_id } = await first.runtime.createRun({ agent_name: "parent", input: "", mode: "async" });
  await clock.advance(1_000);
  first.kill();
  const second = replicas.start({ ...options, clock: shifted(clock, -2_000) });
  agents(second);
  const epochOf = async () => (await second.store.find({ tenant: "", run_id }))?.head.epoch;
  await clock.advance(4_500);
  const epoch = await epochOf();
  await clock.advance(1_000);
  expect(await epochOf()).toBe(epoch);
  expect((await second.runtime.getRun(run_id)).status).toBe("in-progress");
  await clock.advance(1_000);
  expect((await second.runtime.getRun(run_id)).status).toBe("failed");
});
