import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { reply } from "../../harness/runtimes.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

it("A question that another process has just written to a run can be answered in the process that executes the run", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const [work, ownWork] = [deferred(), deferred()];
  const start = (): Replica => {
    const replica = replicas.start({ durability: { evictAfterMs: 10 } });
    replica.runtime.register("parent", { durable: true }, async (_input, { ask, run, step }) => {
      const own = ask("Shall I?").then(() => step("own work", () => ownWork.promise));
      await Promise.all([own, run("child", "Go.")]);
    });
    replica.runtime.register("child", { durable: true }, async (_input, { ask, sleep, step }) => {
      await sleep(100_000);
      await step("work", () => work.promise);
      await ask("Well?");
    });
    return replica;
  };
  const first = start();
  const { run_id } = await first.runtime.createRun({ agent_name: "parent", input: "" });
  await clock.advance(1_000);
  first.kill();
  // Executes the sub-run.
  start();
  await clock.advance(100_000);
  const third = start();
  const await_resume = reply("Yes.");
  await third.runtime.resume({ run_id, await_id: "ask#1", await_resume, mode: "async" });
  await clock.settle();
  work.resolve();
  await clock.settle();
  await third.runtime.resume({ run_id, await_id: "run:child#1/ask#1", await_resume, mode: "async" });
  ownWork.resolve();
  await clock.advance(60_000);
  expect(await third.runtime.getRun(run_id)).toMatchObject({ status: "completed" });
});
