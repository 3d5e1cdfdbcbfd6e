import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

function register({ runtime }: Replica, seen: string[]): void {
  runtime.register("agent", { durable: true }, async (_input, { ask, signal }) => {
    signal.addEventListener("abort", () => seen.push("aborted"));
    try {
      return JSON.stringify(await ask("Well?"));
    } catch (error) {
      seen.push(`threw ${(error as { code?: string }).code}`);
      throw error;
    } finally {
      seen.push("finally");
    }
  });
}

it("A cancel that another process overtakes with an answer stops no agent", async () => {
  const replicas = inMemory();
  const inFirst: string[] = [];
  const inSecond: string[] = [];
  const first = replicas.start();
  register(first, inFirst);
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "" });
  const writing = deferred();
  const second = replicas.start({}, async (call, method) => {
    if (method === "append") await writing.promise;
    return call();
  });
  register(second, inSecond);
  const cancelling = expect(second.runtime.cancel(run_id)).rejects.toMatchObject({ code: "run_finished" });
  await replicas.clock.settle();
  expect((await first.runtime.resume({ run_id, await_resume: { ok: true } })).status).toBe("completed");
  writing.resolve();
  await replicas.clock.advance(1_000);
  await cancelling;
  expect(inFirst).toEqual(["finally", "aborted"]);
  expect(inSecond.filter((what) => what !== "aborted")).toEqual([]);
});

it("A cancel that is decided again, since another process has written, stops no agent before it is committed", async () => {
  const replicas = inMemory();
  const seen: string[] = [];
  const attempts = [deferred(), deferred()];
  let tried = 0;
  let isHeld = false;
  const first = replicas.start({}, async (call, method) => {
    if (method === "append" && isHeld) await attempts[tried++]?.promise;
    return call();
  });
  first.runtime.register("agent", { durable: true }, async (_input, { receive }) => {
    try {
      for (;;) await receive("note");
    } finally {
      seen.push("finally");
    }
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  isHeld = true;
  const cancelling = first.runtime.cancel(run_id);
  await replicas.clock.settle();
  const second = replicas.start();
  second.runtime.register("agent", { durable: true }, async (_input, { receive }) => {
    for (;;) await receive("note");
  });
  await second.runtime.send({ to: run_id, name: "note", data: 1 });
  await replicas.clock.settle();
  attempts[0]?.resolve();
  await replicas.clock.advance(500);
  expect([tried, seen]).toEqual([2, []]);
  attempts[1]?.resolve();
  await cancelling;
  await replicas.clock.advance(1_000);
  expect(seen).toEqual(["finally"]);
  expect((await first.runtime.getRun(run_id)).status).toBe("cancelled");
});
