import type { AgentContext, AgentRuntime } from "cadenza";
import type { RunPost, RunWrite } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/* What has arrived for a run with an owner goes into its log with a write of the owner. */

it("a run keeps its owner until its agent has the answer, also if a message is written in between", async () => {
  const replicas = inMemory();
  const answered = deferred();
  const writes: [types: string, owner: string | null][] = [];
  const first = replicas.start({}, async (call, method, parameters) => {
    const answer = call();
    if (method !== "append") return answer;
    const { entries, head } = parameters[2] as RunWrite;
    const types = entries.map(({ type }) => type).join();
    writes.push([types, head.owner]);
    if (types === "resumed") await answered.promise;
    return answer;
  });
  first.runtime.register("agent", { durable: true }, async (_input, { ask, receive }) => {
    await Promise.all([ask("Well?"), receive("later")]);
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
  await replicas.clock.settle();
  const resumed = first.runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" });
  await replicas.clock.settle();
  // The store has the answer, and this process does not know that.
  await replicas.start().runtime.send({ to: run_id, name: "other", data: 1 });
  await replicas.clock.advance(10_000);
  const owner = writes[0]?.[1];
  expect(owner).toEqual(expect.any(String));
  expect(writes).toEqual([["resumed", owner]]);
  answered.resolve();
  await resumed;
  await replicas.clock.settle();
  expect(writes.slice(0, 2)).toEqual([
    ["resumed", owner],
    ["received", owner],
  ]);
  expect(writes.at(-1)).toEqual(["", null]);
});

it("a process whose run is taken over, with what had arrived, while it reads what has arrived says nothing of it", async () => {
  const replicas = inMemory();
  const read = deferred();
  let isAway = false;
  const first = replicas.start({}, async (call, method, parameters) => {
    const [, , write] = parameters as readonly [unknown, unknown, RunWrite | undefined];
    if (method === "append" && write?.head.owner === null && !isAway) {
      await second.runtime.send({ to: run_id, name: "later", data: 1 });
      isAway = true;
    } else if (isAway) await read.promise;
    return call();
  });
  const second = replicas.start();
  for (const { runtime } of [first, second]) registerWaiting(runtime);
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  expect(isAway).toBe(true);
  await replicas.clock.advance(10_000);
  read.resolve();
  await replicas.clock.settle();
  expect(first.said.filter(({ message }) => message.includes("write a run"))).toEqual([]);
  expect(await second.runtime.resume({ run_id, await_resume: { ok: true } })).toMatchObject({ status: "completed" });
});

it("a process that gets what has arrived by another road, while it reads what has arrived, says nothing of it", async () => {
  const replicas = inMemory();
  const read = deferred();
  let isRefused = false;
  let finds = 0;
  const first = replicas.start({}, async (call, method, parameters) => {
    const [, , write] = parameters as readonly [unknown, unknown, RunWrite | undefined];
    if (method === "append" && write?.head.owner === null && !isRefused) {
      await second.runtime.send({ to: run_id, name: "later", data: 1 });
      isRefused = true;
    } else if (method === "find" && isRefused && finds++ === 0) {
      const answer = await call();
      await read.promise;
      return answer;
    }
    return call();
  });
  const second = replicas.start();
  for (const { runtime } of [first, second]) registerWaiting(runtime);
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  expect(finds).toBe(1);
  await replicas.clock.advance(3_000);
  expect(finds).toBeGreaterThan(1);
  read.resolve();
  await replicas.clock.settle();
  expect(first.said.filter(({ message }) => message.includes("write a run"))).toEqual([]);
  expect(await second.runtime.resume({ run_id, await_resume: { ok: true } })).toMatchObject({ status: "completed" });
});

it("a run that ends while a cancel lies behind more than a process reads at once has the cancel before its end", async () => {
  const replicas = inMemory();
  const posted = deferred();
  let ends = 0;
  const first = replicas.start({}, async (call, method, parameters) => {
    const [, , write] = parameters as readonly [unknown, unknown, RunWrite | undefined];
    if (method === "append" && write?.entries.at(-1)?.type === "ended" && ends++ === 0) {
      for (let n = 0; n < 600; n++) await second.runtime.send({ to: run_id, name: "other", data: n });
      void second.runtime.cancel(run_id);
      await posted.promise;
    }
    return call();
  });
  const second = replicas.start({}, async (call, method, parameters) => {
    const answer = await call();
    if (method === "post" && (parameters[1] as RunPost).status === "cancelling") posted.resolve();
    return answer;
  });
  for (const { runtime } of [first, second])
    runtime.register("agent", { durable: true }, async (_input, { sleep }) => {
      await sleep(1);
      return "done";
    });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.advance(20_000);
  expect(first.said).toEqual([]);
  expect(ends).toBe(2);
  expect(await second.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
});

describe("a process that owns a run", () => {
  /**
   * An owner, the types of the entries of its writes, and a process that sends. The first write with which a message is taken
   * is slow.
   */
  async function slowOwner(rest: (said: unknown, context: AgentContext) => unknown, messages: readonly string[]) {
    const replicas = inMemory();
    const writes: string[] = [];
    const [begun, slow] = [deferred(), deferred()];
    const owner = replicas.start({}, async (call, method, parameters) => {
      if (method !== "append") return call();
      const types = (parameters[2] as RunWrite).entries.map(({ type }) => type).join();
      writes.push(types);
      if (types.includes("taken")) await slow.promise;
      return call();
    });
    const other = replicas.start({ work: false });
    owner.runtime.register("agent", { durable: true }, async (_input, context) => {
      await context.step("begin", () => begun.promise);
      for (;;) await rest(await context.receive("said"), context);
    });
    const { run_id } = await owner.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await replicas.clock.settle();
    for (const data of messages) await other.runtime.send({ to: run_id, name: "said", data });
    begun.resolve();
    await replicas.clock.advance(10_000);
    return { replicas, writes, slow, getRun: () => other.runtime.getRun(run_id) };
  }

  it("gives the agent one message after the other while the store writes that it took the first", async () => {
    const taken: unknown[] = [];
    const { replicas, writes, slow } = await slowOwner((said) => taken.push(said), ["a", "b", "c", "d"]);
    expect(taken).toEqual(["a", "b", "c", "d"]);
    slow.resolve();
    await replicas.clock.settle();
    expect(writes.filter((types) => types.includes("taken"))).toEqual(["taken", "taken,taken,taken,intent"]);
  });

  it("begins a step with a message when the store has it that the message was taken, and shows nothing before", async () => {
    const begun: unknown[] = [];
    const { replicas, slow, getRun } = await slowOwner(
      async (said, { emit, step }) => {
        await emit(`Got ${said}.`);
        await step("work", () => begun.push(said));
      },
      ["a"],
    );
    expect(begun).toEqual([]);
    expect(await getRun()).toMatchObject({ status: "in-progress", output: [] });
    slow.resolve();
    await replicas.clock.settle();
    expect(begun).toEqual(["a"]);
    expect(await getRun()).toMatchObject({ output: [{ parts: [{ content: "Got a." }] }] });
  });

  it("gives the agent what came before it owned the run first, while it still reads that", async () => {
    const replicas = inMemory();
    const read = deferred();
    let isReading = false;
    const first = replicas.start({}, async (call, method) => {
      if (method === "read") {
        isReading = true;
        await read.promise;
      }
      return call();
    });
    const second = replicas.start({ work: false });
    const taken: unknown[] = [];
    first.runtime.register("agent", { durable: true }, async (_input, { receive }) => {
      for (;;) taken.push(await receive("said"));
    });
    const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await replicas.clock.settle();
    for (const data of ["a", "b"]) await second.runtime.send({ to: run_id, name: "said", data });
    while (!isReading) await replicas.clock.advance(100);
    // The run has an owner, so that this lies in its inbox.
    await second.runtime.send({ to: run_id, name: "said", data: "c" });
    await replicas.clock.advance(10_000);
    expect(taken).toEqual([]);
    read.resolve();
    await replicas.clock.advance(10_000);
    expect(taken).toEqual(["a", "b", "c"]);
  });
});

/** An agent that waits for an answer and a message. */
function registerWaiting(runtime: AgentRuntime): void {
  runtime.register("agent", { durable: true }, async (_input, { ask, receive }) => {
    await Promise.all([ask("Well?"), receive("later")]);
    return "done";
  });
}
