import type { Clock } from "cadenza";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { withMembers } from "../../harness/port-proxy.ts";
import { setUp } from "../../harness/runtimes.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

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

const HOUR_MS = 3_600_000;
const WAIT_MS = 20_000;

describe.each([-HOUR_MS, HOUR_MS])("waits of a process whose clock is off by %s ms", (offMs) => {
  const kinds = ["question", "sleep", "receive"] as const;

  function registerWaits({ runtime }: Replica): void {
    runtime.register("waits", { durable: true }, async ([message], { ask, sleep, receive, step }) => {
      await step("begin", () => "begun");
      const kind = message?.parts[0]?.content;
      if (kind === "question") await ask("Well?", { timeoutMs: WAIT_MS, default: {} });
      else if (kind === "sleep") await sleep(WAIT_MS);
      else await receive("answer", { timeoutMs: WAIT_MS, default: null });
    });
  }

  it.each(kinds)("a %s that began elsewhere ends when its time has come by the store's clock", async (kind) => {
    const replicas = inMemory();
    const { clock } = replicas;
    const first = replicas.start();
    registerWaits(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "waits", input: kind, mode: "async" });
    await clock.advance(1_000);
    const second = replicas.start({ clock: shifted(clock, offMs) });
    registerWaits(second);
    // The message loads the run.
    await second.runtime.send({ to: run_id, name: "note", data: 1 });
    await clock.advance(WAIT_MS - 3_000);
    await expectStatus(second, run_id, kind === "question" ? "awaiting" : "in-progress");
    first.kill();
    await clock.advance(4_000);
    await expectStatus(second, run_id, "completed");
    await expectOrder(second, run_id);
  });

  it.each(kinds)("a %s that began there ends when its time has come by the store's clock", async (kind) => {
    const replicas = inMemory();
    const { clock } = replicas;
    const process = replicas.start({ clock: shifted(clock, offMs) });
    registerWaits(process);
    const { run_id } = await process.runtime.createRun({ agent_name: "waits", input: kind, mode: "async" });
    await clock.advance(WAIT_MS - 100);
    await expectStatus(process, run_id, kind === "question" ? "awaiting" : "in-progress");
    await clock.advance(200);
    await expectStatus(process, run_id, "completed");
    await expectOrder(process, run_id);
  });

  it("a run that it failed to read is tried again after a second", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    const first = replicas.start();
    registerWaits(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "waits", input: "sleep", mode: "async" });
    await clock.advance(1_000);
    first.kill();
    let fails = 1;
    const second = replicas.start({ clock: shifted(clock, offMs) }, (call, method) => {
      if (method === "read" && fails-- > 0) throw new Error("The disk fails.");
      return call();
    });
    registerWaits(second);
    await second.runtime.send({ to: run_id, name: "note", data: 1 });
    await clock.advance(500);
    const due = (await second.store.find({ tenant: "", run_id }))?.head.due_at ?? 0;
    expect(due - clock.now()).toBeGreaterThan(0);
    expect(due - clock.now()).toBeLessThanOrEqual(1_000);
    await clock.advance(WAIT_MS + 2_000);
    await expectStatus(second, run_id, "completed");
  });

  it.each(kinds)("a %s goes on as before when the clock of its process jumps", async (kind) => {
    const replicas = inMemory();
    const { clock } = replicas;
    let aheadMs = 0;
    const jumping: Clock = {
      ...shifted(clock, 0),
      now: () => clock.now() + aheadMs,
      monotonic: () => clock.monotonic(),
    };
    const process = replicas.start({ clock: jumping });
    registerWaits(process);
    const { run_id } = await process.runtime.createRun({ agent_name: "waits", input: kind, mode: "async" });
    await clock.advance(1_000);
    aheadMs = offMs;
    await clock.advance(WAIT_MS - 1_100);
    await expectStatus(process, run_id, kind === "question" ? "awaiting" : "in-progress");
    await clock.advance(200);
    await expectStatus(process, run_id, "completed");
    await expectOrder(process, run_id);
  });

  it.each(kinds)("a %s ends in time when the clock of the store and of its machine jumps", async (kind) => {
    const replicas = onFile();
    const { clock } = replicas;
    const process = replicas.start();
    const setMs = Math.sign(offMs) * 60_000;
    registerWaits(process);
    const { run_id } = await process.runtime.createRun({ agent_name: "waits", input: kind, mode: "async" });
    await clock.advance(1_000);
    clock.set(setMs);
    await clock.advance(2_000);
    // After a jump backwards the time has yet to come.
    const waits = kind === "question" ? "awaiting" : "in-progress";
    await expectStatus(process, run_id, offMs > 0 ? "completed" : waits);
    await clock.advance(WAIT_MS - setMs);
    await expectStatus(process, run_id, "completed");
    await expectOrder(process, run_id);
  });
});

async function expectStatus({ runtime }: Replica, run_id: string, status: string): Promise<void> {
  expect((await runtime.getRun(run_id)).status).toBe(status);
}

/** The times in a log never go back. */
async function expectOrder({ store }: Replica, run_id: string): Promise<void> {
  const times = (await store.read({ tenant: "", run_id }, 0, 1_000))?.map(({ at }) => at) ?? [];
  expect(times).toEqual(times.toSorted((a, b) => a - b));
}

it("a run that another process with a clock ahead has created gets no earlier times after that", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const store = lastingStore(clock);
  const ahead = setUp({ clock: new FakeClock(), store: withMembers(store, { time: () => clock.now() + HOUR_MS }) });
  const work = ({ runtime }: Pick<Replica, "runtime">): void => {
    runtime.register("waits", { durable: true }, async (_input, { receive, step }) => {
      await step("one", () => 1);
      await receive("go");
      await step("two", () => 2);
    });
  };
  work(ahead);
  const { run_id } = await ahead.runtime.createRun({ agent_name: "waits", input: "", mode: "async" });
  await ahead.clock.advance(1_000);
  await ahead.runtime.close();
  const behind = setUp({ clock, store });
  work(behind);
  await behind.runtime.send({ to: run_id, name: "go", data: 1 });
  await clock.advance(3_000);
  await expectStatus({ ...behind, kill: () => {} }, run_id, "completed");
  const details: string[] = [];
  for await (const event of behind.runtime.events(run_id, { detail: true, until: "now" }))
    if ("at" in event) details.push(event.at);
  expect(details.length).toBeGreaterThan(4);
  expect(details).toEqual(details.toSorted());
});
