import type { StepScope } from "cadenza";
import { expect, it } from "vitest";
import { World } from "../../harness/world/world.ts";

it("after a crash the attempts of a step go on, with the same idempotency key and a time limit of their own", async () => {
  const seen: Pick<StepScope, "key" | "attempt" | "idempotencyKey">[] = [];
  const results: unknown[] = [];
  const world = new World({
    register: (process) =>
      void process.runtime.register("agent", { durable: true }, async (_input, { step }) => {
        const body = async ({ key, attempt, idempotencyKey }: StepScope) => {
          seen.push({ key, attempt, idempotencyKey });
          if (attempt === 1) throw new Error("busy");
          await process.wait(attempt < 4 ? 1_000 : 10);
          return attempt;
        };
        const result = await step("pay", body, { timeoutMs: 500, retry: { attempts: 2, backoffMs: 100 } });
        results.push(result);
      }),
  });
  const first = world.start();
  const created = await world.until(first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" }), first);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  const { run_id } = created.value;
  while (seen.length < 2) await world.step();
  first.kill();
  world.start();
  await world.pass(60_000);

  // The second process has both attempts again. The third attempt exceeds its time, and the fourth does not.
  expect(seen.map(({ key, attempt }) => `${key} ${attempt}`)).toEqual(["pay#1 1", "pay#1 2", "pay#1 3", "pay#1 4"]);
  expect(new Set(seen.map(({ idempotencyKey }) => idempotencyKey)).size).toBe(1);
  expect(results.at(-1)).toBe(4);
  const log = await world.log(run_id);
  const intents = log.filter((entry) => entry.type === "intent");
  expect(intents.map((entry) => entry.type === "intent" && entry.attempt)).toEqual([1, 2, 3, 4]);
  // The pause after the third attempt is that of the third, and not that of the first.
  const [, , third = 0, fourth = 0] = intents.map(({ at }) => at);
  expect(fourth - third - 500).toBeGreaterThanOrEqual(200);
  expect(fourth - third - 500).toBeLessThanOrEqual(400);
  expect(world.violations).toEqual([]);
});

it("the pause after an attempt outlives its process", async () => {
  const seen: string[] = [];
  const world = new World({
    register: (process) =>
      void process.runtime.register("agent", { durable: true }, async (_input, { step }) => {
        const body = ({ attempt }: StepScope): string => {
          seen.push(`attempt ${attempt}`);
          if (attempt === 1) throw new Error("busy");
          return "paid";
        };
        return step("pay", body, { retry: { attempts: 2, pauseMs: () => 600_000, maxBackoffMs: 600_000 } });
      }),
  });
  const first = world.start();
  const created = await world.until(first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" }), first);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  const { run_id } = created.value;
  const failed = async () => (await world.log(run_id)).find((entry) => entry.type === "attempt-failed");
  while ((await failed()) === undefined) await world.step();
  first.kill();
  world.start();

  await world.pass(500_000);
  expect(seen).toEqual(["attempt 1"]);
  await world.pass(200_000);
  expect(seen).toEqual(["attempt 1", "attempt 2"]);
  const until = (await failed())?.until ?? 0;
  const second = (await world.log(run_id)).findLast((entry) => entry.type === "intent");
  expect(second?.at).toBeGreaterThanOrEqual(until);
  expect(second?.at).toBeLessThan(until + 2_000);
  expect(world.violations).toEqual([]);
});

it.each([false, true])(
  "a step that ended while its run was being cancelled has one result (late: %s)",
  async (late) => {
    const world = new World({
      late,
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, async function* (_input, { step }) {
          try {
            await step("pay", () => process.wait(50), { once: true });
          } finally {
            await process.wait(300);
            yield "stopped";
          }
        }),
    });
    const first = world.start();
    const created = await world.until(
      first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" }),
      first,
    );
    if (created === undefined || "error" in created) throw new Error("The run was not created.");
    const { run_id } = created.value;
    await world.pass(10);
    await world.until(first.runtime.cancel(run_id), first);
    await world.pass(100);
    expect((await world.log(run_id)).map(({ type }) => type)).toEqual([
      "created",
      "started",
      "intent",
      "cancel-requested",
      "step",
    ]);
    first.kill();
    world.start();
    await world.pass(10_000);
    const log = await world.log(run_id);
    expect(log.filter(({ type }) => type === "step" || type === "intent")).toHaveLength(2);
    expect(log.at(-1)).toMatchObject({ type: "ended", outcome: "cancelled" });
  },
);
