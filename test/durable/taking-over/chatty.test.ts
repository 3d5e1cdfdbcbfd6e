import { expect, it } from "vitest";
import { textsOf } from "../../harness/runtimes.ts";
import { World } from "../../harness/world/world.ts";

it("an agent that emits without a pause is taken over where it was, and can be stopped", async () => {
  const world = new World({
    register: ({ runtime }) => {
      runtime.register("agent", { durable: true }, async function* () {
        for (let i = 0; ; i++) yield `${i} `;
      });
    },
  });
  const first = world.start();
  const created = await world.until(first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" }), first);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  const { run_id } = created.value;
  while ((await world.log(run_id)).length < 300) await world.step();
  first.kill();
  const second = world.start();
  for (let steps = 0; (await world.log(run_id)).length < 1_000; steps++) {
    if (steps > 5_000) expect.fail("The run makes no progress.");
    await world.step();
  }
  const cancelled = await world.until(second.runtime.cancel(run_id), second);
  expect(cancelled).toMatchObject({ value: { status: "cancelling" } });
  while ((await world.stateOf(run_id)).status !== "cancelled") await world.step();
  const run = await world.until(second.runtime.getRun(run_id), second);
  if (run === undefined || "error" in run) throw new Error("The run is gone.");
  const shown = textsOf(run.value).join("").split("|");
  expect(shown).toEqual(shown.map((_text, index) => `${index} `));
});
