import { expect, it } from "vitest";
import { create } from "../../harness/world/calls.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/*
 * A durable run waits for a sub-run that is not durable and so cannot change its process. The run stays in that process
 * too, and the question of the sub-run can be answered.
 */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;

function register(process: Process): void {
  const { runtime } = process;
  runtime.register("child", async (_input, { ask }) => JSON.stringify(await ask("Well?")));
  runtime.register("between", { durable: true }, async (_input, { run }) => (await run("child", "")).status);
  runtime.register("agent", { durable: true }, async (_input, { run }) => (await run("child", "")).status);
  runtime.register("deep", { durable: true }, async (_input, { run }) => (await run("between", "")).status);
  runtime.register("beside", { durable: true }, async (_input, { run, ask, step }) => {
    const [child] = await Promise.all([run("child", ""), ask("And?"), step("work", () => process.wait(500))]);
    return child.status;
  });
}

/** The outcome of a call within a second. */
async function answer(world: World, process: Process, run_id: string, await_id: string): Promise<string> {
  let outcome = "no answer";
  process.runtime.resume({ run_id, await_id, await_resume: { ok: true }, mode: "async" }).then(
    () => {
      outcome = "accepted";
    },
    (error: { readonly code: string }) => {
      outcome = error.code;
    },
  );
  await world.pass(1_000);
  return outcome;
}

it.each([
  { agent: "agent", late: false, first: "another process" },
  { agent: "agent", late: true, first: "another process" },
  { agent: "agent", late: false, first: "its own process" },
  { agent: "deep", late: false, first: "another process" },
  { agent: "deep", late: true, first: "another process" },
  { agent: "beside", late: false, first: "another process" },
  { agent: "beside", late: true, first: "another process" },
])(
  "the question of a plain sub-run of a durable run can be answered ($agent, first asked: $first, late: $late)",
  async (situation) => {
    const { agent, late, first } = situation;
    const world = new World({ late, runtime: { durability }, register });
    const own = world.start();
    const other = world.start();
    const run_id = await create(world, own, agent);
    await world.pass(2_000);
    const order = first === "another process" ? [other, own] : [own, other];
    const outcomes: string[] = [];
    // A client behind a load balancer answers the question that is shown, and tries again at another process.
    for (let attempt = 0; attempt < 12; attempt++) {
      const state = await world.stateOf(run_id);
      if (state.ended !== null) break;
      const process = order[attempt % 2] ?? own;
      if (state.question === null) await world.pass(1_000);
      else outcomes.push(await answer(world, process, run_id, state.question.asked.await_id));
    }
    await world.pass(5_000);
    expect(outcomes).not.toContain("no answer");
    expect((await world.stateOf(run_id)).status).toBe("completed");
    // The sub-run has ended as well, and was run once.
    const runs = await world.store.list({ tenant: "", limit: 100, offset: 0 });
    expect(runs.map(({ head }) => head.status)).toEqual(runs.map(() => "completed"));
    expect(world.violations).toEqual([]);
  },
);
