import { AgentRuntime, MemoryStore } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { createInspectorHandler } from "cadenza/inspector";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import type { FamilyEvent, ListEvent, RunEvent } from "../../src/inspector/api.ts";
import { cancelSays, forkSays } from "../../src/inspector-page/consequences.ts";
import { FakeClock } from "../harness/clock.ts";
import { Visitor } from "./visitor.ts";

function open() {
  const clock = new FakeClock();
  const runtime = new AgentRuntime({ store: durable(new MemoryStore({ clock })), clock });
  runtime.register("child", { durable: true }, () => "done");
  runtime.register("order", { durable: true }, async (_input, { step, run, ask }) => {
    await step("weigh", () => 2);
    await run("child", "");
    await step("pay", () => "paid");
    await ask("Ship it?");
    return "Shipped.";
  });
  runtime.register("busy", { durable: true }, async (_input, { step }) =>
    step("work", () => new Promise((resolve) => clock.setTimeout(() => resolve("done"), 60_000))),
  );
  const visitor = new Visitor(createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) }));
  const create = async (agent_name: string): Promise<string> => {
    const { run_id } = await runtime.createRun({ agent_name, input: "", mode: "async" });
    await clock.settle();
    return run_id;
  };
  return { runtime, clock, visitor, create };
}

it("fork and cancel say what they do before they do it", async () => {
  const { runtime, create } = open();
  const run_id = await create("order");
  const { run, items } = await createAdmin(runtime).timeline(run_id);
  expect(forkSays(items, "run:child#1")).toBe(
    "A new run takes over what came before run:child#1. It does again, with its effects: child, pay. It asks 1 question again. Its steps have the idempotency keys that they had. This run stays as it is.",
  );
  expect(forkSays(items, "ask#1")).toBe(
    "A new run takes over what came before ask#1. It does no recorded step again. It asks 1 question again. This run stays as it is.",
  );
  expect(forkSays(items, undefined)).toContain("takes over all that is recorded. It does no recorded step again.");
  expect(cancelSays(run, items)).toBe(
    "The run ends: its open questions are withdrawn. What is done stays done. A fork can go on from what is recorded.",
  );
  await runtime.close({ drainMs: 0 });
});

it("a run at work on a store that ends with its process is not lost", async () => {
  const { runtime, clock, visitor, create } = open();
  const run_id = await create("busy");
  const feed = await visitor.follow<RunEvent>(`run?run_id=${run_id}`);
  expect(await feed.next(clock)).toMatchObject({ run: { status: "in-progress" }, lost: false });
  await feed.leave();
  const list = await visitor.follow<ListEvent<object>>("runs");
  expect(await list.next(clock)).toMatchObject({ workers: [{ is_alive: true, runs: 1 }] });
  await list.leave();
  const { run, items } = await createAdmin(runtime).timeline(run_id);
  expect(cancelSays(run, items)).toContain("The run ends: work is told to stop.");
  const closed = runtime.close({ drainMs: 0 });
  await clock.advance(60_000);
  await closed;
});

it("finds a fork behind any number of runs of its agent", async () => {
  const { runtime, clock, visitor, create } = open();
  const run_id = await create("order");
  const fork = await runtime.fork(run_id, { mode: "async" });
  for (let n = 0; n < 510; n++) await runtime.createRun({ agent_name: "order", input: "", mode: "async" });
  await clock.settle();
  const feed = await visitor.follow<FamilyEvent>(`family?run_id=${run_id}`);
  expect(await feed.next(clock)).toMatchObject({ forks: [{ run_id: fork.run_id }], more_forks: false });
  await feed.leave();
  await runtime.close({ drainMs: 0 });
});
