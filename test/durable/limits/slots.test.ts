import { expect, it } from "vitest";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

const SESSION = "00000000-0000-4000-8000-00000000feed";

it.each(["agent", "session"] as const)("a run that is taken over keeps its slot of its %s", async (per) => {
  const began: string[] = [];
  const world = new World({
    register: (process) =>
      void process.runtime.register(
        "agent",
        { durable: true, concurrency: { max: 1, per } },
        async (input, context) => {
          const [name] = input.flatMap(({ parts }) => parts.map(({ content }) => content));
          await context.step("begin", () => void began.push(`${name} in ${process.name}`));
          await context.step("work", () => process.wait(3_000));
        },
      ),
  });
  const first = world.start();
  await create(world, first, "first");
  await world.pass(100);
  first.kill();
  const second = world.start();
  await world.pass(1_500);
  const later = [await create(world, second, "second"), await create(world, second, "third")];
  await world.pass(1_000);
  expect(began).toEqual(["first in process-1"]);
  await world.pass(2_000);
  expect(began).toEqual(["first in process-1", "second in process-2"]);
  await world.pass(20_000);
  expect(began).toHaveLength(3);
  for (const run_id of later) expect((await world.stateOf(run_id)).status).toBe("completed");
});

async function create(world: World, process: Process, input: string): Promise<string> {
  const request = { agent_name: "agent", input, mode: "async", session_id: SESSION } as const;
  const created = await world.until(process.runtime.createRun(request), process);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  return created.value.run_id;
}
