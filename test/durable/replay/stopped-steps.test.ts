import { expect, it } from "vitest";
import { World } from "../../harness/world/world.ts";

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
