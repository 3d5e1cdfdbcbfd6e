import { AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { persistent } from "../../harness/store-proxy.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/*
 * An evicted run that shows the question of a sub-run. The sub-run goes on by itself at the deadline of the question.
 */

/** More calls than a process makes of its store in one of these tests. */
const MAX_CALLS = 40;

function register({ runtime }: Process): void {
  runtime.register("child", { durable: true }, async (_input, { ask }) =>
    JSON.stringify(await ask("Well?", { timeoutMs: 2_000, default: { late: true } })),
  );
  runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("child", "")).output);
}

it.each([
  { late: false, does: "goes on" },
  { late: true, does: "goes on" },
  { late: false, does: "is cancelled" },
  { late: true, does: "is cancelled" },
])(
  "at any call at which the process dies in which a sub-run $does, its parent learns it (late: $late)",
  async ({ late, does }) => {
    for (let call = 1; call <= MAX_CALLS; call++) {
      const world = new World({ late, register });
      const first = world.start();
      const created = await world.until(first.runtime.createRun({ agent_name: "parent", input: "" }), first);
      if (created === undefined || "error" in created) throw new Error("The run was not created.");
      const { run_id } = created.value;
      first.kill();

      const second = world.start({ call, after: true });
      if (does === "is cancelled") await cancelChildOf(world, second, run_id);
      await world.pass(5_000);
      second.kill();
      world.start();
      await world.pass(10_000);
      expect({ call, status: (await world.stateOf(run_id)).status }).toEqual({ call, status: "completed" });
      expect(world.violations).toEqual([]);
    }
  },
);

async function cancelChildOf(world: World, process: Process, run_id: string): Promise<void> {
  const intent = (await world.log(run_id)).find((entry) => entry.type === "intent");
  if (intent?.type !== "intent" || intent.run_id === null) throw new Error("There is no sub-run.");
  const cancelling = process.runtime.cancel(intent.run_id);
  cancelling.catch(() => {});
  await world.until(cancelling, process);
}

it.each([
  { late: false, has: "no code" },
  { late: true, has: "no code" },
  { late: false, has: "code that does not match" },
  { late: true, has: "code that does not match" },
  { late: false, has: "code that waits for something else" },
  { late: true, has: "code that waits for something else" },
])(
  "a parent whose process has $has learns the end of its sub-run in a process with matching code (late: $late)",
  async ({ late, has }) => {
    for (let call = 1; call <= MAX_CALLS; call++) {
      const world = new World({
        late,
        register: (process) => {
          if (process.name !== "process-2") register(process);
          else {
            const { runtime } = process;
            runtime.register("child", { durable: true }, async (_input, { ask }) =>
              JSON.stringify(await ask("Well?", { timeoutMs: 2_000, default: { late: true } })),
            );
            if (has === "code that does not match") runtime.register("parent", { durable: true }, () => "nothing");
            if (has === "code that waits for something else")
              runtime.register("parent", { durable: true }, () => new Promise(() => {}));
          }
        },
      });
      const first = world.start();
      const created = await world.until(first.runtime.createRun({ agent_name: "parent", input: "" }), first);
      if (created === undefined || "error" in created) throw new Error("The run was not created.");
      const { run_id } = created.value;
      first.kill();

      world.start({ call, after: true });
      await world.pass(20_000);
      world.processes[1]?.kill();
      world.start();
      await world.pass(10_000);
      expect({ call, status: (await world.stateOf(run_id)).status }).toEqual({ call, status: "completed" });
      expect(world.violations).toEqual([]);
    }
  },
);

it("a parent that was marked as due is evicted again when it has read its sub-run", async () => {
  const world = new World({
    runtime: { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 50 } },
    register: ({ runtime, name }) => {
      runtime.register("child", { durable: true }, async (_input, { ask }) => [
        JSON.stringify(await ask("Well?", { timeoutMs: 2_000, default: { late: true } })),
        JSON.stringify(await ask("And now?")),
      ]);
      if (name !== "process-2")
        runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("child", "")).output);
    },
  });
  const first = world.start();
  const created = await world.until(first.runtime.createRun({ agent_name: "parent", input: "" }), first);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  const { run_id } = created.value;
  await world.settle();
  first.kill();
  world.start();
  await world.pass(5_000);
  world.processes[1]?.kill();
  expect((await world.find(run_id))?.head.due_at).not.toBeNull();
  const third = world.start();
  await world.pass(5_000);
  expect((await world.find(run_id))?.head).toMatchObject({ status: "awaiting", owner: null, due_at: null });
  expect((await world.until(third.runtime.stats(), third)) ?? {}).toMatchObject({ value: { live: {} } });
  const parent = await world.until(third.runtime.getRun(run_id), third);
  expect(parent).toMatchObject({ value: { await_request: { message: { parts: [{ content: "And now?" }] } } } });
});

it("a sub-run that is refused since it is too deep is refused again after a restart with another limit", async () => {
  const store = persistent(new MemoryStore());
  const open = (maxDepth: number): AgentRuntime => {
    const runtime = new AgentRuntime({ store: durable(store), limits: { maxDepth } });
    return runtime.register("deep", { durable: true }, async (input, { ask, run }) => {
      const depth = Number(input[0]?.parts[0]?.content);
      try {
        return (await run("deep", String(depth + 1))).output[0]?.parts[0]?.content;
      } catch (error) {
        const said = CadenzaError.is(error) ? `${depth} ${error.code} ${error.limit}` : String(error);
        await ask(said);
        return said;
      }
    });
  };
  const first = open(2);
  const { run_id, await_request } = await first.createRun({ agent_name: "deep", input: "0" });
  expect(await_request?.message.parts[0]?.content).toBe("2 limit_reached maxDepth");
  await first.close();
  const second = open(10);
  const run = await second.resume({ run_id, await_resume: { go: "on" } });
  expect(run.output[0]?.parts[0]?.content).toBe("2 limit_reached maxDepth");
  expect((await second.stats()).blocked).toEqual([]);
  await second.close();
});

it("a run keeps its depth after a restart", async () => {
  const store = persistent(new MemoryStore());
  const open = (): AgentRuntime => {
    const runtime = new AgentRuntime({ store: durable(store), limits: { maxDepth: 3 } });
    return runtime.register("deep", { durable: true }, async (input, { ask, run }) => {
      const depth = Number(input[0]?.parts[0]?.content);
      if (depth === 2) await ask("Go on?");
      try {
        return (await run("deep", String(depth + 1))).output[0]?.parts[0]?.content;
      } catch (error) {
        return CadenzaError.is(error) ? `${depth} ${error.code} ${error.limit}` : String(error);
      }
    });
  };
  const first = open();
  const { run_id, status } = await first.createRun({ agent_name: "deep", input: "0" });
  expect(status).toBe("awaiting");
  await first.close();
  const second = open();
  const run = await second.resume({ run_id, await_resume: { go: "on" } });
  expect(run.output[0]?.parts[0]?.content).toBe("3 limit_reached maxDepth");
  await second.close();
});
