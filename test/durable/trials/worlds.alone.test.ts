import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { nextTurn } from "../../harness/promises.ts";
import type { Crash } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* In a process of its own: it looks at what is left in memory. */

/** At so many calls of the store a process is killed, each time in a world of its own. */
const KILLS = 12;

it.each([false, true])("a world whose process was killed leaves nothing in memory (late: %s)", async (late) => {
  const worlds: WeakRef<World>[] = [];
  for (let call = 1; call <= KILLS; call++) worlds.push(await killed(late, { call, after: call % 2 === 0 }));
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  for (let time = 0; time < 3; time++) {
    await nextTurn();
    collect();
  }
  // The last one may still be on the stack.
  expect(worlds.filter((world) => world.deref() !== undefined).length).toBeLessThan(2);
});

/** Starts a process, which dies at a call of its store. */
async function killed(late: boolean, crash: Crash): Promise<WeakRef<World>> {
  const world = new World({
    late,
    register: ({ runtime }) => runtime.register("agent", { durable: true }, () => "Done."),
  });
  const process = world.start(crash);
  const created = process.runtime.createRun({ agent_name: "agent", input: "Go.", mode: "async" });
  await world.until(created, process);
  await world.pass(2_000);
  expect(process.state).toBe("dead");
  return new WeakRef(world);
}
