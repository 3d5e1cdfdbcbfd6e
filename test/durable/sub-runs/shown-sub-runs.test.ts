import { expect, it } from "vitest";
import { isCopy } from "../../../src/core/emission-source.ts";
import { runRecord } from "../../harness/internals.ts";
import { textOf } from "../../harness/runtimes.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* A sub-run that is shown, whose process dies, or that another process executes. */

/** The sub-run streams a part every second, and another agent shows it. */
function register(process: Process, agents: readonly string[] = ["parent", "child"]): void {
  const { runtime } = process;
  if (agents.includes("child"))
    runtime.register("child", { durable: true }, async function* (_input, { step }) {
      yield "begun ";
      await step("shy", async ({ attempt, emit }) => {
        // Only the attempt that is interrupted emits anything.
        if (attempt > 1) return;
        await emit("torn");
        await process.wait(60_000);
      });
      for (let part = 1; part <= 5; part++) {
        await step("part", () => process.wait(1_000));
        yield `${part} `;
      }
    });
  if (agents.includes("parent"))
    runtime.register("parent", { durable: true }, async function* (_input, { run }) {
      const { status } = await run("child", "", { show: true });
      yield status;
    });
}

async function begin(world: World): Promise<{ readonly parent: string; readonly child: string }> {
  const first = world.start();
  const creating = first.runtime.createRun({ agent_name: "parent", input: "", mode: "async" });
  const created = await world.until(creating, first);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  await world.pass(500);
  const { run_id } = created.value;
  const intent = (await world.log(run_id)).find((entry) => entry.type === "intent");
  if (intent?.type !== "intent" || intent.run_id === null) throw new Error("There is no sub-run.");
  return { parent: run_id, child: intent.run_id };
}

async function spoken(world: World, run_id: string): Promise<string[]> {
  return runRecord(await world.stateOf(run_id)).output.map(textOf);
}

it.each([false, true])(
  "the copy of a shown sub-run leaves out what an interrupted attempt emitted that emits nothing later (late: %s)",
  async (late) => {
    const world = new World({ late, register });
    const { parent, child } = await begin(world);
    expect(await spoken(world, parent)).toEqual(["begun ", "torn"]);
    world.processes[0]?.kill();
    world.start();
    await world.pass(60_000);
    expect(await spoken(world, child)).toEqual(["begun ", "1 |2 |3 |4 |5 "]);
    expect(await spoken(world, parent)).toEqual(["begun ", "1 |2 |3 |4 |5 ", "completed"]);
    expect(world.violations).toEqual([]);
  },
);

it.each([false, true])("a sub-run is shown while another process executes it (late: %s)", async (late) => {
  const world = new World({
    late,
    register: (process) => {
      if (process.name === "process-1") register(process);
      else register(process, process.name === "process-2" ? ["parent"] : ["child"]);
    },
  });
  const { parent, child } = await begin(world);
  world.processes[0]?.kill();
  world.start();
  world.start();
  let ahead = 0;
  while ((await world.stateOf(parent)).ended === null) {
    await world.pass(100);
    const [above, below] = [await spoken(world, parent), await spoken(world, child)];
    const isAtWork = (await world.stateOf(child)).ended === null;
    if (isAtWork && above.join("").includes("3 ")) ahead += 1;
    expect(below.join("").startsWith(above.join("").replace(/torn|completed$/g, "")) || !isAtWork).toBe(true);
  }
  expect(ahead).toBeGreaterThan(0);
  expect(await spoken(world, parent)).toEqual([...(await spoken(world, child)), "completed"]);
  const sources = (await world.log(parent)).flatMap((entry) => (entry.type === "emitted" ? [entry.source] : []));
  const copied = sources.flatMap((source) => (isCopy(source) ? [source.event] : []));
  expect(copied).toEqual([...new Set(copied)].sort((a, b) => a - b));
  expect(world.violations).toEqual([]);
});
