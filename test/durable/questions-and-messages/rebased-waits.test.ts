import type { RunWrite } from "cadenza/store";
import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { textsOf } from "../../harness/runtimes.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory } from "../../harness/world/replicas.ts";

function register({ runtime }: Replica): void {
  runtime.register("agent", { durable: true }, async function* (_input, { ask }) {
    yield "One. ";
    yield { parts: [{ content: "Two." }] };
    yield JSON.stringify(await ask("Well?"));
  });
}

it("A sleep whose beginning is dropped leaves no result, if another process has cancelled the run meanwhile", async () => {
  const replicas = inMemory();
  const writing = deferred();
  let isHeld = false;
  const first = replicas.start({}, async (call, method) => {
    if (method === "append" && isHeld) await writing.promise;
    return call();
  });
  first.runtime.register("agent", { durable: true }, async function* (_input, { sleep }) {
    yield "One. ";
    await sleep(100);
    yield "Two. ";
    isHeld = true;
    await sleep(100);
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.advance(100);
  await replicas.start().runtime.cancel(run_id);
  await replicas.clock.advance(100);
  writing.resolve();
  await replicas.clock.advance(1_000);
  expect((await first.runtime.getRun(run_id)).status).toBe("cancelled");
  const log = await first.store.read({ tenant: "", run_id }, 0, Number.MAX_SAFE_INTEGER);
  const begun = log?.filter(({ type }) => type === "intent" || type === "step");
  expect(begun?.map((entry) => `${entry.type} ${"key" in entry ? entry.key : ""}`)).toEqual([
    "intent sleep#1",
    "step sleep#1",
    "intent sleep#2",
  ]);
});

it("A process closes although what it had decided is dropped, since another process has cancelled the run", async () => {
  const replicas = inMemory();
  const writing = deferred();
  let isHeld = true;
  const first = replicas.start({}, async (call, method) => {
    if (method === "append" && isHeld) await writing.promise;
    return call();
  });
  register(first);
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  let isClosed = false;
  const closing = first.runtime.close({ drainMs: 0 }).then(() => {
    isClosed = true;
  });
  await replicas.clock.settle();
  const second = replicas.start();
  const cancelled = await second.runtime.cancel(run_id);
  expect(cancelled.status).toBe("cancelling");
  isHeld = false;
  writing.resolve();
  await replicas.clock.advance(1_000);
  expect(isClosed).toBe(true);
  await closing;
  register(second);
  await replicas.clock.advance(5_000);
  expect((await second.runtime.getRun(run_id)).status).toBe("cancelled");
});

it("A message that has arrived is acknowledged again in a process that has decided that the run ends, and has not read it", async () => {
  const replicas = inMemory();
  const register = ({ runtime }: Replica): void =>
    void runtime.register("plain", (_input, { receive }) => receive("mail"));
  const first = replicas.start();
  register(first);
  const { run_id } = await first.runtime.createRun({ agent_name: "plain", input: "", mode: "async" });
  await replicas.clock.settle();
  first.kill();
  const writing = deferred();
  // It ends the run, whose process is dead, as interrupted.
  const second = replicas.start({}, async (call, method) => {
    if (method === "append") await writing.promise;
    return call();
  });
  register(second);
  await replicas.clock.advance(3_000);
  const message = { to: run_id, name: "mail", data: 1 };
  const third = replicas.start();
  await third.runtime.send(message, { idempotencyKey: "once" });
  const again = second.runtime.send(message, { idempotencyKey: "once" });
  const other = second.runtime.send(message, { idempotencyKey: "other" });
  await replicas.clock.settle();
  writing.resolve();
  expect(await again).toEqual({ run_id });
  await expect(other).rejects.toMatchObject({ code: "run_finished" });
  expect((await third.runtime.getRun(run_id)).status).toBe("failed");
});

it("The time that an agent has seen before its first result stays when its start is written behind a later message", async () => {
  const replicas = inMemory();
  const writing = deferred();
  const register = ({ runtime }: Replica): void => {
    runtime.register("agent", { durable: true }, async (_input, { now, step, ask }) => {
      const seen = now();
      const kept = await step("keep", () => seen);
      await ask("Well?");
      return `${kept === seen}`;
    });
  };
  const first = replicas.start({}, async (call, method, [, , write]) => {
    const { entries } = (write ?? {}) as Partial<RunWrite>;
    if (method === "append" && entries?.[0]?.type === "started") await writing.promise;
    return call();
  });
  register(first);
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.advance(200);
  const second = replicas.start();
  await second.runtime.send({ to: run_id, name: "mail", data: 1 });
  writing.resolve();
  await replicas.clock.advance(200);
  first.kill();
  register(second);
  await replicas.clock.advance(2_000);
  const run = await second.runtime.resume({ run_id, await_resume: {} });
  expect([run.status, ...textsOf(run)]).toEqual(["completed", "true"]);
  const times = (await second.store.read({ tenant: "", run_id }, 0, 100))?.map(({ at }) => at);
  expect(times).toEqual(times?.toSorted((one, other) => one - other));
});
