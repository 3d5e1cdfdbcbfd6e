import type { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { RunPost, RunWrite } from "cadenza/store";
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

it("a message that was accepted before a cancel is kept where a second cancel arrives as the run ends", async () => {
  const replicas = inMemory();
  const isCancelled = deferred();
  const isPosted = deferred();
  const mayEnd = deferred();
  let refused = 0;
  const first = replicas.start({}, async (call, method, parameters) => {
    const types = method === "append" ? (parameters[2] as RunWrite).entries.map(({ type }) => type) : [];
    if (types.includes("cancel-requested") && !types.includes("ended")) {
      const cancelling = second.runtime.cancel(run_id);
      await second.runtime.send({ to: run_id, name: "other", data: 1 });
      const answer = await call();
      isCancelled.resolve();
      await isPosted.promise;
      mayEnd.resolve();
      void cancelling;
      return answer;
    }
    const answer = await call();
    if (types.includes("ended") && answer !== undefined) refused += 1;
    return answer;
  });
  // It has read the run before, and posts its cancel after the other one.
  const second = replicas.start({ work: false }, async (call, method, parameters) => {
    if (method !== "post" || (parameters[1] as RunPost).status !== "cancelling") return call();
    await isCancelled.promise;
    const answer = await call();
    isPosted.resolve();
    return answer;
  });
  first.runtime.register("agent", { durable: true }, async (_input, { step }) => {
    try {
      await step("work", () => new Promise(() => {}));
    } finally {
      await mayEnd.promise;
    }
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.settle();
  const cancelled = first.runtime.cancel(run_id);
  await replicas.clock.advance(20_000);
  await cancelled;
  const log = (await createAdmin(first.runtime).log(run_id)).items.map(({ type }) => type);
  expect([refused, log.slice(3)]).toEqual([1, ["cancel-requested", "received", "ended"]]);
});

it("a run that ends as a cancel arrives is cancelled, also if the store fails to be read just then", async () => {
  const replicas = inMemory();
  let reads: "succeed" | "fail" | "have failed" = "succeed";
  const first = replicas.start({}, async (call, method, parameters) => {
    if (method === "read" && reads === "fail") {
      reads = "have failed";
      throw new Error("The store is away.");
    }
    const [, , write] = parameters as readonly [unknown, unknown, RunWrite | undefined];
    if (method !== "append" || write?.entries.at(-1)?.type !== "ended" || reads !== "succeed") return call();
    await second.runtime.cancel(run_id);
    reads = "fail";
    return call();
  });
  const second = replicas.start({ work: false });
  first.runtime.register("agent", { durable: true }, async (_input, { step }) => step("work", () => "done"));
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.advance(5_000);
  expect(reads).toBe("have failed");
  const log = (await createAdmin(second.runtime).log(run_id)).items;
  expect(log.slice(-2)).toMatchObject([{ type: "cancel-requested" }, { type: "ended", outcome: "cancelled" }]);
});

it("a run whose entries need several writes keeps its owner until the last one, also if a message arrives", async () => {
  const replicas = inMemory();
  const isDecided = deferred();
  const writes: [types: string, isOwned: boolean, isRefused: boolean][] = [];
  const first = replicas.start({}, async (call, method, parameters) => {
    if (method !== "append") return call();
    if (writes.length === 0) {
      await isDecided.promise;
      await second.runtime.send({ to: run_id, name: "other", data: 1 });
    }
    const answer = (await call()) as { readonly conflict?: string } | undefined;
    const { entries, head } = parameters[2] as RunWrite;
    writes.push([entries.map(({ type }) => type).join(), head.owner !== null, answer?.conflict !== undefined]);
    return answer;
  });
  const second = replicas.start({ work: false });
  first.runtime.register("agent", { durable: true }, async (_input, { emit, ask }) => {
    await emit("x");
    for (let turn = 0; turn < 5; turn++) await replicas.clock.turn();
    for (let n = 0; n < 3; n++) await emit("x".repeat(600_000));
    const asked = ask("Well?");
    isDecided.resolve();
    await asked;
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.advance(5_000);
  expect(writes.slice(0, 2)).toEqual([
    ["started,emitted", true, false],
    ["emitted,emitted", true, false],
  ]);
  expect(writes.filter(([, , isRefused]) => isRefused)).toEqual([]);
  expect(writes.at(-1)?.[1]).toBe(false);
  expect(await second.runtime.details(run_id)).toMatchObject({ status: "awaiting" });
});

it("what is taken from an inbox is taken by the last of several writes", async () => {
  const replicas = inMemory();
  const hasEnded = deferred();
  let appends = 0;
  const taken: unknown[] = [];
  const first = replicas.start({}, async (call, method, parameters) => {
    if (method !== "append") return call();
    appends += 1;
    if (appends === 1) {
      await hasEnded.promise;
      await second.runtime.cancel(run_id);
      throw new Error("The store is away.");
    }
    const answer = (await call()) as { readonly conflict?: string } | undefined;
    const { entries, takes } = parameters[2] as RunWrite;
    taken.push([answer?.conflict ?? entries.at(-1)?.type, takes]);
    return answer;
  });
  const second = replicas.start({ work: false });
  first.runtime.register("agent", { durable: true }, async (_input, { emit }) => {
    await emit("x".repeat(700_000));
    for (let turn = 0; turn < 5; turn++) await replicas.clock.turn();
    await emit("x".repeat(700_000));
    queueMicrotask(() => void replicas.clock.turn().then(() => hasEnded.resolve()));
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await replicas.clock.advance(5_000);
  expect(taken).toEqual([
    ["arrived", undefined],
    ["emitted", undefined],
    ["ended", [1]],
  ]);
  expect(await second.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
});

/** An agent that waits for an answer and a message. */
function registerWaiting(runtime: AgentRuntime): void {
  runtime.register("agent", { durable: true }, async (_input, { ask, receive }) => {
    await Promise.all([ask("Well?"), receive("later")]);
    return "done";
  });
}
