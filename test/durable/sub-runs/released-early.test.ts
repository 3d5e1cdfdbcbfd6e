import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/** Two agents: the child asks and works for a while, the parent waits for it. */
function registerChild({ runtime, clock }: Replica): void {
  runtime.register("child", { durable: true }, async (_input, { ask, step }) => {
    await ask("Well?");
    await step("work", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 500)));
  });
}

function registerParent({ runtime }: Replica): void {
  runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("child", "")).status);
  runtime.register("plain-parent", async (_input, { run }) => (await run("child", "")).status);
}

it("A run that was taken because its sub-run has ended is due again when it is released before it knows that", async () => {
  const replicas = inMemory();
  const reading = deferred();
  let held: string | undefined;
  const first = replicas.start({}, async (call, method, [key]) => {
    const isHeld = method === "find" && held !== undefined && (key as { run_id: string }).run_id === held;
    if (isHeld) await reading.promise;
    return call();
  });
  registerChild(first);
  registerParent(first);
  const { run_id } = await first.runtime.createRun({ agent_name: "parent", input: "" });
  const runs = await first.store.list({ tenant: "", limit: 10, offset: 0 });
  const child = runs.find(({ created }) => created?.agent_name === "child")?.key.run_id ?? "";
  const second = replicas.start();
  registerChild(second);
  await second.runtime.resume({ run_id: child, await_resume: { ok: true }, mode: "async" });
  held = child;
  const statusOf = async (id: string) => (await second.store.find({ tenant: "", run_id: id }))?.head.status;
  await replicas.clock.advance(1_000);
  expect([await statusOf(run_id), await statusOf(child)]).toEqual(["in-progress", "completed"]);
  const closing = first.runtime.close({ drainMs: 0 });
  await replicas.clock.settle();
  reading.resolve();
  await closing;
  registerParent(second);
  await replicas.clock.advance(5_000);
  expect(await statusOf(run_id)).toBe("completed");
});

it.each([{ isKilled: false }, { isKilled: true }])(
  "A sub-run that reaches the store after its parent was ended by another process ends too (%s)",
  async ({ isKilled }) => {
    const replicas = inMemory();
    const freezing = deferred();
    let isFrozen = false;
    const first = replicas.start({}, async (call, method, parameters) => {
      // The process freezes while it creates the sub-run, for longer than its lease.
      const [, write] = parameters as [unknown, { readonly entries: readonly { readonly agent_name?: string }[] }];
      if (method === "create" && write.entries[0]?.agent_name === "child") isFrozen = true;
      if (isFrozen) await freezing.promise;
      return call();
    });
    registerChild(first);
    registerParent(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "plain-parent", input: "", mode: "async" });
    await replicas.clock.advance(100);
    expect(isFrozen).toBe(true);
    const second = replicas.start();
    registerParent(second);
    await replicas.clock.advance(4_000);
    const statusOf = async (id: string) => (await second.store.find({ tenant: "", run_id: id }))?.head.status;
    expect(await statusOf(run_id)).toBe("failed");
    isFrozen = false;
    freezing.resolve();
    if (isKilled) {
      first.kill();
      registerChild(second);
    }
    await replicas.clock.advance(5_000);
    const runs = await second.store.list({ tenant: "", limit: 10, offset: 0 });
    expect(runs.map(({ created, head }) => [created?.agent_name, head.status])).toEqual([
      ["child", "cancelled"],
      ["plain-parent", "failed"],
    ]);
  },
);
