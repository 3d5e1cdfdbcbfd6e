import type { AgentContext } from "cadenza";
import type { RunKey } from "cadenza/store";
import { expect, it } from "vitest";
import { deferred, never } from "../../harness/promises.ts";
import { reply } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/*
 * A sub-run that ends wakes its parent. Here it ends directly before another process writes to the parent, which has no
 * owner: its answer, or what that process has read in the log of the sub-run before. Or the process that takes the
 * parent has not read the end.
 */

/** Less than the time after which a parent reads the log of a sub-run in another process again. */
const evictAfterMs = 10;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;

type Agent = (context: AgentContext) => Promise<unknown>;

function register({ runtime }: Replica, parent: Agent, child: Agent): void {
  runtime.register("parent", { durable: true }, async (_input, context) => {
    await parent(context);
    return "over";
  });
  runtime.register("child", { durable: true }, (_input, context) => child(context));
}

/** Calls back before and after the next write to the run. */
function aroundWrite(runId: () => string | undefined, before: () => Promise<void>, after = (): void => {}): Hook {
  let isOver = false;
  return async (call, method, [key]) => {
    if (isOver || method !== "append" || (key as RunKey).run_id !== runId()) return call();
    isOver = true;
    await before();
    const answer = await call();
    after();
    return answer;
  };
}

it("A parent goes on that its sub-run wakes directly before another process writes an answer to the parent", async () => {
  const { clock, start } = startable();
  const work = deferred();
  const agents = (replica: Replica): Replica => {
    register(
      replica,
      ({ ask, run }) => Promise.all([ask("Well?"), run("child", "Go.")]),
      async ({ sleep, step }) => {
        await sleep(1_000);
        await step("work", () => work.promise);
      },
    );
    return replica;
  };
  const first = agents(start({ durability: { ...durability, evictAfterMs } }));
  const { run_id, await_request } = await first.runtime.createRun({ agent_name: "parent", input: "" });
  await clock.advance(500);
  first.kill();
  // Executes the sub-run, and not its parent.
  agents(start({ durability: { ...durability, evictAfterMs } }));
  await clock.advance(600);

  const endOfChild = aroundWrite(
    () => run_id,
    async () => {
      work.resolve();
      await clock.settle();
    },
  );
  const third = agents(start({ durability: { ...durability, evictAfterMs } }, endOfChild));
  await third.runtime.resume({ run_id, await_id: await_request?.await_id, await_resume: reply("Yes."), mode: "async" });
  await clock.advance(5_000);
  expect(await third.runtime.getRun(run_id)).toMatchObject({ status: "completed" });
});

it("A parent goes on that its sub-run wakes directly before another process shows the sub-run's question, and dies", async () => {
  const { clock, start } = startable();
  const [work, end] = [deferred(), deferred()];
  const agents = (replica: Replica): Replica => {
    register(
      replica,
      ({ ask, run }) => Promise.all([ask("Shall I?"), run("child", "Go.")]),
      async ({ ask, sleep, step }) => {
        await sleep(1_000);
        await step("work", () => work.promise);
        await ask("Well?");
        await step("end", () => end.promise);
      },
    );
    return replica;
  };
  const first = agents(start({ durability: { ...durability, evictAfterMs } }));
  const { run_id, await_request } = await first.runtime.createRun({ agent_name: "parent", input: "" });
  await clock.advance(500);
  const [child = ""] = (await first.runtime.details(run_id)).children;
  first.kill();
  let isAlone = false;
  // Executes the sub-run, and dies before it has told the parent of the question.
  const second = agents(
    start({ durability: { ...durability, evictAfterMs } }, (call, method, [key]) => {
      if (isAlone && method === "take") return [];
      const isToParent = (key as Partial<RunKey> | undefined)?.run_id === run_id;
      return isToParent && (method === "append" || method === "post") ? never() : call();
    }),
  );
  await clock.advance(600);

  const endOfChild = aroundWrite(
    () => (isAlone ? run_id : undefined),
    async () => {
      void second.runtime.resume({ run_id: child, await_resume: reply("Yes."), mode: "async" });
      end.resolve();
      await clock.settle();
    },
    () => third.kill(),
  );
  const third: Replica = agents(
    start({ durability }, (call, method, parameters) =>
      isAlone && method === "take" ? [] : endOfChild(call, method, parameters),
    ),
  );
  await third.runtime.resume({ run_id, await_id: await_request?.await_id, await_resume: reply("Yes."), mode: "async" });
  await clock.advance(100);
  isAlone = true;
  work.resolve();
  await clock.advance(300);
  expect(await second.runtime.getRun(child)).toMatchObject({ status: "completed" });
  second.kill();
  const fourth = agents(start({ durability }));
  await clock.advance(5_000);
  expect(await fourth.runtime.getRun(run_id)).toMatchObject({ status: "completed" });
});

it("A parent goes on that is loaded where its sub-run is loaded, which has ended in another process", async () => {
  const { clock, start } = startable();
  // The parent is loaded before the sub-run leaves memory, and both leave it before the next heartbeat.
  const options = { durability: { leaseMs: 3_000, heartbeatMs: 1_000, scanMs: 100, evictAfterMs: 150 } };
  const agents = (replica: Replica): Replica => {
    register(
      replica,
      ({ run }) => run("child", "Go."),
      async ({ ask }) => {
        await ask("One?");
        await ask("Two?");
      },
    );
    return replica;
  };
  const first = agents(start(options));
  const { run_id } = await first.runtime.createRun({ agent_name: "parent", input: "" });
  await clock.advance(500);
  const [child = ""] = (await first.runtime.details(run_id)).children;
  first.kill();
  let takes = false;
  const second = agents(start(options, (call, method) => (takes || method !== "take" ? call() : [])));
  const third = agents(start(options, (call, method) => (method === "take" ? [] : call())));
  for (const [{ runtime }, await_id] of [[second, "ask#1"] as const, [third, "ask#2"] as const]) {
    await runtime.resume({ run_id: child, await_id, await_resume: reply("Yes."), mode: "async" });
    await clock.settle();
  }
  takes = true;
  await clock.advance(10_000);
  expect(await second.runtime.getRun(run_id)).toMatchObject({ status: "completed" });
});

function startable() {
  const replicas = inMemory();
  return { clock: replicas.clock, start: replicas.start.bind(replicas) };
}

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
