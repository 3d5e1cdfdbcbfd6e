import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { given } from "../../harness/world/calls.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* A rolling deployment: one process has the code that a run needs, and another one without it gets the cancel. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;

type Does = "waits" | "is in a step" | "waits beside a step";

/** Two processes: the first has both versions of the agent, the others only the old one. */
function deployment({ does, late, evictAfterMs }: { does: Does; late: boolean; evictAfterMs: number }) {
  const cleanedUp: string[] = [];
  const world = new World({
    late,
    runtime: { durability: { ...durability, evictAfterMs } },
    register: (process) => {
      const { runtime, name } = process;
      runtime.register("agent", { durable: true, version: "1" }, () => "done by 1");
      if (name !== "process-1") return;
      runtime.register("agent", { durable: true, version: "2" }, async (_input, { ask, step }) => {
        try {
          if (does === "waits") await ask("Well?");
          else if (does === "is in a step") await step("work", () => process.wait(100_000));
          else await Promise.all([ask("Well?"), step("work", () => process.wait(100_000))]);
        } finally {
          cleanedUp.push(name);
        }
      });
    },
  });
  return { world, cleanedUp };
}

async function createIn(world: World, process: Process): Promise<string> {
  const creating = process.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const { run_id } = given(await world.until(creating, process));
  await world.pass(2_000);
  return run_id;
}

describe("while a process that has the code lives, a cancel through one that does not", () => {
  it.each([
    { does: "waits", late: false, evictAfterMs: 60_000 },
    { does: "waits", late: true, evictAfterMs: 60_000 },
    { does: "waits", late: false, evictAfterMs: 50 },
    { does: "waits", late: true, evictAfterMs: 50 },
    { does: "is in a step", late: false, evictAfterMs: 60_000 },
    { does: "waits beside a step", late: false, evictAfterMs: 60_000 },
  ] as const)(
    "runs the finally blocks there (the run $does, late: $late, evicted after $evictAfterMs ms)",
    async (how) => {
      const { world, cleanedUp } = deployment(how);
      const first = world.start();
      const second = world.start();
      const run_id = await createIn(world, first);
      const cancelled = given(await world.until(second.runtime.cancel(run_id), second));
      expect(cancelled.status).toBe("cancelling");
      await world.pass(2 * durability.leaseMs);
      expect((await world.stateOf(run_id)).status).toBe("cancelled");
      expect(cleanedUp).toEqual(["process-1"]);
      for (const process of [first, second])
        expect(given(await world.until(process.runtime.stats(), process)).withoutFinally).toBe(0);
    },
  );
});

describe("while no process has the code, a cancel", () => {
  it("ends the run when the lease has expired, without its finally blocks, and one process counts that", async () => {
    const { world, cleanedUp } = deployment({ does: "waits", late: false, evictAfterMs: 60_000 });
    const first = world.start();
    const run_id = await createIn(world, first);
    first.kill();
    const others = [world.start(), world.start()];
    await world.pass(2_000);
    const [second] = others;
    given(
      await world.until(
        second?.runtime.cancel(run_id) ?? Promise.reject(new Error("There is none.")),
        others[0] ?? first,
      ),
    );
    await world.pass(3 * durability.leaseMs);
    expect((await world.stateOf(run_id)).status).toBe("cancelled");
    expect(cleanedUp).toEqual([]);
    const counts = await Promise.all(
      others.map(async (process) => given(await world.until(process.runtime.stats(), process)).withoutFinally),
    );
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(1);
  });

  it("is carried out with its finally blocks, if a process with the code starts in time", async () => {
    const { world, cleanedUp } = deployment({ does: "waits", late: false, evictAfterMs: 60_000 });
    const first = world.start();
    const second = world.start();
    const run_id = await createIn(world, first);
    // Frozen for less than its lease: it keeps the run.
    first.freeze();
    first.wakesAt = world.now + 0.5 * durability.leaseMs;
    given(await world.until(second.runtime.cancel(run_id), second));
    await world.pass(3 * durability.leaseMs);
    expect((await world.stateOf(run_id)).status).toBe("cancelled");
    expect(cleanedUp).toEqual(["process-1"]);
  });
});

function register({ runtime }: Replica, seen: string[]): void {
  runtime.register("agent", { durable: true }, async (_input, { ask, signal }) => {
    signal.addEventListener("abort", () => seen.push("aborted"));
    try {
      return JSON.stringify(await ask("Well?"));
    } catch (error) {
      seen.push(`threw ${(error as { code?: string }).code}`);
      throw error;
    } finally {
      seen.push("finally");
    }
  });
}

it("A cancel that another process overtakes with an answer stops no agent", async () => {
  const replicas = inMemory();
  const inFirst: string[] = [];
  const inSecond: string[] = [];
  const first = replicas.start();
  register(first, inFirst);
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
  const writing = deferred();
  const second = replicas.start({}, async (call, method) => {
    if (method === "append") await writing.promise;
    return call();
  });
  register(second, inSecond);
  const cancelling = expect(second.runtime.cancel(run_id)).rejects.toMatchObject({ code: "run_finished" });
  await replicas.clock.settle();
  expect((await first.runtime.resume({ run_id, await_resume: { ok: true } })).status).toBe("completed");
  writing.resolve();
  await replicas.clock.advance(1_000);
  await cancelling;
  expect(inFirst).toEqual(["finally", "aborted"]);
  expect(inSecond.filter((what) => what !== "aborted")).toEqual([]);
});

it("A cancel that is decided again, since another process has written, stops no agent before it is committed", async () => {
  const replicas = inMemory();
  const seen: string[] = [];
  const attempts = [deferred(), deferred()];
  let tried = 0;
  let isHeld = false;
  const first = replicas.start({}, async (call, method) => {
    if (method === "append" && isHeld) await attempts[tried++]?.promise;
    return call();
  });
  first.runtime.register("agent", { durable: true }, async (_input, { receive }) => {
    try {
      for (;;) await receive("note");
    } finally {
      seen.push("finally");
    }
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  isHeld = true;
  const cancelling = first.runtime.cancel(run_id);
  await replicas.clock.settle();
  const second = replicas.start();
  second.runtime.register("agent", { durable: true }, async (_input, { receive }) => {
    for (;;) await receive("note");
  });
  await second.runtime.send({ to: run_id, name: "note", data: 1 });
  // The other process has taken the message, and expects no more by then.
  await replicas.clock.advance(500);
  attempts[0]?.resolve();
  await replicas.clock.advance(500);
  expect([tried, seen]).toEqual([2, []]);
  attempts[1]?.resolve();
  await cancelling;
  await replicas.clock.advance(1_000);
  expect(seen).toEqual(["finally"]);
  expect((await first.runtime.getRun(run_id)).status).toBe("cancelled");
});

it("a cancel that comes into the log behind the begin of a generation ends the run", async () => {
  const replicas = inMemory();
  const returning = deferred();
  const begun: number[] = [];
  // Nothing tells the owner of the cancel before its own next write, which takes the cancel into the log.
  const owner = replicas.start({}, (call, method) => (method === "watch" ? () => undefined : call()));
  owner.runtime.register("agent", { durable: true }, async (_input, { step, generation, continueAsNew }) => {
    begun.push(generation);
    await step("work", () => "done");
    await returning.promise;
    return continueAsNew();
  });
  const { run_id } = await owner.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  const other = replicas.start();
  expect((await other.runtime.cancel(run_id)).status).toBe("cancelling");
  returning.resolve();
  await replicas.clock.settle();
  expect([(await other.runtime.getRun(run_id)).status, begun]).toEqual(["cancelled", [1]]);
});
