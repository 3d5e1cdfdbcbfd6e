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
