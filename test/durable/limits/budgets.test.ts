import type { AgentOptions } from "cadenza";
import { describe, expect, it } from "vitest";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Budgets of durable runs, over several processes, and over their deaths. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 };
const CHILDREN = 50;
/** How many tokens a call of a model uses, and how long it takes. */
const CALL = 10;
const CALL_MS = 50;
/** How often the process of a run looks at its sub-runs in another process. */
const LOOK_MS = 200;

const opened = [
  { on: "in memory", open: () => inMemory(60) },
  { on: "on a file", open: () => onFile(60) },
];

interface Meter {
  used: number;
}

/** A run that starts many, each of which waits for an answer and then calls a model, again and again. */
function register({ runtime, clock }: Replica, meter: Meter, budget?: AgentOptions["budget"]): void {
  runtime.register("root", { durable: true, budget }, async (_input, { run }) => {
    await Promise.all(Array.from({ length: CHILDREN }, () => run("child", "")));
  });
  runtime.register("child", { durable: true }, async (_input, { ask, step, usage, signal }) => {
    await ask("Go?");
    for (;;) {
      signal.throwIfAborted();
      await step("call", async (call) => {
        await new Promise<void>((resolve, reject) => {
          clock.setTimeout(resolve, CALL_MS);
          call.signal.addEventListener("abort", () => reject(call.signal.reason), { once: true });
        });
        usage.add({ input_tokens: CALL, output_tokens: 0 });
        meter.used += CALL;
      });
    }
  });
}

async function begin({ runtime, clock }: Replica, totalTokens: number) {
  const options = { budget: { totalTokens } };
  const { run_id } = await runtime.createRun({ agent_name: "root", input: "", mode: "async" }, options);
  while ((await runtime.listRuns({ parent: run_id })).length < CHILDREN) await clock.advance(10);
  const children = (await runtime.listRuns({ parent: run_id })).map((child) => child.run_id);
  return { run_id, children };
}

/** Answers sub-runs. They go on in this process. */
async function answer({ runtime }: Replica, children: readonly string[]): Promise<void> {
  for (const run_id of children) await runtime.resume({ run_id, await_resume: { go: true }, mode: "async" });
}

/** The status of the root with its reason, and how many runs below it have ended in which way. */
async function endOf({ runtime }: Replica, run_id: string) {
  const { status, error } = await runtime.getRun(run_id);
  const ends: Record<string, number> = {};
  for (const child of await runtime.listRuns({ parent: run_id })) ends[child.status] = (ends[child.status] ?? 0) + 1;
  return { status, reason: (error as { data?: { reason?: string } } | null)?.data?.reason, ends };
}

const exceeded = { status: "failed", reason: "budget_exceeded", ends: { cancelled: CHILDREN } };

describe.each(opened)("a tree of fifty sub-runs, $on", ({ open }) => {
  it("ends within one call of its limit in one process, also if its root has left memory", async () => {
    const replicas = open();
    const one = replicas.start({ durability: { ...durability, evictAfterMs: 200 } });
    const meter = { used: 0 };
    register(one, meter);
    const { run_id, children } = await begin(one, 3_456);
    await replicas.clock.advance(2_000);
    expect((await one.runtime.stats()).live).toEqual({});
    await answer(one, children);
    await replicas.clock.advance(10_000);
    expect(await endOf(one, run_id)).toEqual(exceeded);
    expect(meter.used).toBe(3_460);
    expect((await one.runtime.details(run_id)).usage?.total_tokens).toBe(3_460);
    await one.runtime.close({ drainMs: 0 });
  });

  it("ends over two processes within what the sub-runs in the other one had running", async () => {
    const replicas = open();
    const [one, two] = [replicas.start({ durability }), replicas.start({ durability })];
    const [here, there] = [{ used: 0 }, { used: 0 }];
    register(one, here);
    const { run_id, children } = await begin(one, 3_000);
    register(two, there);
    await answer(one, children.slice(0, 25));
    await answer(two, children.slice(25));
    await replicas.clock.advance(30_000);
    expect(await endOf(one, run_id)).toEqual(exceeded);
    expect(here.used).toBeGreaterThan(1_000);
    expect(there.used).toBeGreaterThan(1_000);
    expect(here.used + there.used).toBeGreaterThan(3_000);
    // The calls that each of the other sub-runs ends between two looks, and one that is running.
    expect(here.used + there.used).toBeLessThanOrEqual(3_000 + (CHILDREN / 2) * CALL * (LOOK_MS / CALL_MS + 1));
    expect((await one.runtime.stats()).live).toEqual({});
    for (const { runtime } of [one, two]) await runtime.close({ drainMs: 0 });
  });
});

describe.each(opened)("after the death of its process, $on", ({ open }) => {
  it("a run goes on with what it has used, and with the budget that it was given", async () => {
    const replicas = open();
    const [one, meter] = [replicas.start({ durability }), { used: 0 }];
    register(one, meter);
    const budgeted = { budget: { totalTokens: 90 } };
    const { run_id } = await one.runtime.createRun({ agent_name: "child", input: "" }, budgeted);
    await answer(one, [run_id]);
    await replicas.clock.advance(4 * CALL_MS + 10);
    expect(meter.used).toBe(40);
    one.kill();
    const two = replicas.start({ durability });
    register(two, meter, { totalTokens: 1_000_000 });
    await replicas.clock.advance(10_000);
    const { status, error } = await two.runtime.getRun(run_id);
    expect([status, error]).toMatchObject(["failed", { data: { reason: "budget_exceeded" } }]);
    const { usage, budget: given } = await two.runtime.details(run_id);
    expect([usage?.total_tokens, given]).toEqual([100, { total_tokens: 90, remaining_tokens: 0 }]);
    // The first process was at work on a call when it died.
    expect(meter.used).toBeLessThanOrEqual(110);
    await two.runtime.close({ drainMs: 0 });
  });
});

it("a fork of a run that has exceeded its budget tries the last step again, with all of the budget", async () => {
  const one = inMemory().start({ durability });
  const steps: number[] = [];
  one.runtime.register("works", { durable: true }, async (_input, { step, usage }) => {
    for (let n = 1; n <= 4; n++)
      await step("call", () => {
        steps.push(n);
        usage.add({ totalTokens: 10 });
      });
  });
  const options = { budget: { totalTokens: 35 } };
  const run = await one.runtime.createRun({ agent_name: "works", input: "" }, options);
  expect([run.status, steps]).toEqual(["failed", [1, 2, 3, 4]]);
  const fork = await one.runtime.fork(run.run_id);
  expect([fork.status, steps]).toEqual(["completed", [1, 2, 3, 4, 4]]);
  const { usage, budget } = await one.runtime.details(fork.run_id);
  expect([usage?.total_tokens, budget]).toEqual([10, { total_tokens: 35, remaining_tokens: 25 }]);
  await one.runtime.close();
});
