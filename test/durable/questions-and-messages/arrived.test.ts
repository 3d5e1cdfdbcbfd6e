import type { RunWrite } from "cadenza/store";
import { expect, it } from "vitest";
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
  for (const { runtime } of [first, second])
    runtime.register("agent", { durable: true }, async (_input, { ask, receive }) => {
      await Promise.all([ask("Well?"), receive("later")]);
      return "done";
    });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  expect(isAway).toBe(true);
  await replicas.clock.advance(10_000);
  read.resolve();
  await replicas.clock.settle();
  expect(first.said.filter(({ message }) => message.includes("write a run"))).toEqual([]);
  expect(await second.runtime.resume({ run_id, await_resume: { ok: true } })).toMatchObject({ status: "completed" });
});
