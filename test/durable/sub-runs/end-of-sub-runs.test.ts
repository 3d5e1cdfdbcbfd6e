import type { AgentRuntime } from "cadenza";
import { describe, expect, it } from "vitest";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import { World } from "../../harness/world/world.ts";

/** How long the child works after its answer, in milliseconds: longer than each of these tests takes. */
const WORK_MS = 10_000_000;
/** Within this time another process has taken over what a killed one has left, and done it. */
const RECOVERY_MS = 6_000;

/** Two agents: the child asks and works; the parent waits for it, or ends before it. */
function register(runtime: AgentRuntime, work: (ms: number) => Promise<void>, leaves: boolean): void {
  runtime.register("child", { durable: true }, async (_input, { ask, step }) => {
    await ask("Well?");
    await step("work", () => work(WORK_MS));
  });
  runtime.register("parent", { durable: true }, async (_input, { run, step }) => {
    const child = run("child", "");
    if (leaves) await step("work", () => work(2_000));
    else await Promise.all([child, step("work", () => work(2_000))]);
  });
}

function registerIn({ runtime, clock }: Replica): void {
  register(runtime, (ms) => new Promise((resolve) => clock.setTimeout(resolve, ms)), false);
}

/** A parent at work in the first process, whose child is at work in the second. The first one's posts fail as often as `failPosts` says. */
async function withChildElsewhere() {
  const replicas = inMemory();
  let failures = 0;
  const first = replicas.start({}, (call, method) => {
    if (method === "post" && failures-- > 0) throw new Error("no answer");
    return call();
  });
  registerIn(first);
  const { run_id } = await first.runtime.createRun({ agent_name: "parent", input: "" });
  const runs = await first.store.list({ tenant: "", limit: 10, offset: 0 });
  const child = runs.find(({ created }) => created?.agent_name === "child")?.key.run_id ?? "";
  const second = replicas.start();
  registerIn(second);
  await second.runtime.resume({ run_id: child, await_resume: { ok: true }, mode: "async" });
  await replicas.clock.advance(3_000);
  const statusOf = async (id: string) => (await second.store.find({ tenant: "", run_id: id }))?.head.status;
  return {
    clock: replicas.clock,
    first,
    run_id,
    child,
    failPosts: (times: number) => {
      failures = times;
    },
    statuses: async () => [await statusOf(run_id), await statusOf(child)],
  };
}

describe("the end of a run whose sub-run another process executes", () => {
  it.each([1, 2, 5, 50])(
    "is written when the cancel of its sub-run is in the store, which fails %s times",
    async (times) => {
      const { clock, first, run_id, child, failPosts, statuses } = await withChildElsewhere();
      failPosts(times);
      await first.runtime.cancel(run_id);
      await clock.advance(10);
      expect(await statuses()).toEqual(["cancelling", "in-progress"]);
      await clock.advance(times * 5_000 + 5_000);
      expect(await statuses()).toEqual(["cancelled", "cancelled"]);
      const errors = first.said.filter(({ level }) => level === "error");
      expect(errors.length).toBe(times);
      expect(errors[0]).toMatchObject({
        message: expect.stringContaining("a sub-run could not be cancelled"),
        fields: { run_id, sub_run_id: child },
      });
    },
  );

  it("does not keep a process from closing while the store fails", async () => {
    const { clock, first, run_id, failPosts, statuses } = await withChildElsewhere();
    failPosts(Number.POSITIVE_INFINITY);
    await first.runtime.cancel(run_id);
    const closing = first.runtime.close({ drainMs: 1_000 });
    await clock.advance(1_000);
    await closing;
    await clock.advance(10_000);
    expect(await statuses()).toEqual(["cancelled", "cancelled"]);
  });

  describe.each([
    { late: false, after: true },
    { late: true, after: false },
    { late: true, after: true },
  ])("cancels its sub-run also if its process is killed at any call of the store: %s", ({ late, after }) => {
    it.each([{ leaves: false }, { leaves: true }])("%s", async ({ leaves }) => {
      const orphans: unknown[] = [];
      for (let call = 1; call <= 30; call++) {
        const world = new World({
          late,
          register: (process) => register(process.runtime, (ms) => process.wait(ms), leaves),
        });
        const first = world.start();
        const created = await world.until(first.runtime.createRun({ agent_name: "parent", input: "" }), first);
        if (created === undefined || "error" in created) throw new Error("the run could not be created");
        const { run_id } = created.value;
        const intent = (await world.log(run_id)).find((entry) => entry.type === "intent" && entry.run_id !== null);
        const child = intent?.type === "intent" ? (intent.run_id ?? "") : "";
        const second = world.start();
        const answer = { run_id: child, await_resume: { ok: true }, mode: "async" } as const;
        await world.until(second.runtime.resume(answer), second);
        await world.pass(leaves ? 1_900 : 3_000);
        first.crash = { call: first.storeCalls.length + call, after };
        if (!leaves) await world.until(first.runtime.cancel(run_id), first);
        await world.pass(3_000);
        if (first.state !== "dead") first.kill();
        world.start();
        await world.pass(RECOVERY_MS);
        const [parentIs, childIs] = [(await world.stateOf(run_id)).status, (await world.stateOf(child)).status];
        const isOver = parentIs === "cancelled" || parentIs === "completed";
        if (isOver && childIs !== "cancelled") orphans.push([call, parentIs, childIs]);
        if (leaves) expect(parentIs).toBe("completed");
      }
      expect(orphans).toEqual([]);
    });
  });
});
