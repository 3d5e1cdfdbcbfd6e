import type { RunWrite } from "cadenza/store";
import { expect, it } from "vitest";
import { setUp, textsOf } from "../../harness/runtimes.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import { inMemory } from "../../harness/world/replicas.ts";

it("a run that is evicted is not stopped: its signal does not abort, and its `finally` blocks wait for its end", async () => {
  const { runtime, clock } = setUp({ store: lastingStore(), durability: { evictAfterMs: 50 } });
  const happened: string[] = [];
  runtime.register("agent", { durable: true }, async function* (_input, { ask, signal }) {
    signal.addEventListener("abort", () => happened.push("aborted"));
    try {
      yield JSON.stringify(await ask("Well?"));
    } finally {
      happened.push("finally");
    }
  });
  const creating = runtime.createRun({ agent_name: "agent", input: "" });
  await clock.advance(1_000);
  const { run_id } = await creating;
  expect((await runtime.stats()).live).toEqual({});
  expect(happened).toEqual([]);
  const resuming = runtime.resume({ run_id, await_resume: { ok: true } });
  await clock.advance(1_000);
  expect(textsOf(await resuming)).toEqual(['{"ok":true}']);
  expect(happened.filter((what) => what === "finally")).toHaveLength(1);
});

it("an evicted run that is cancelled is replayed, and its signal aborts", async () => {
  const { runtime, clock } = setUp({ store: lastingStore(), durability: { evictAfterMs: 50 } });
  const happened: string[] = [];
  runtime.register("agent", { durable: true }, async (_input, { ask, signal }) => {
    signal.addEventListener("abort", () => happened.push("aborted"));
    await ask("Well?");
  });
  const creating = runtime.createRun({ agent_name: "agent", input: "" });
  await clock.advance(1_000);
  const { run_id } = await creating;
  const cancelling = runtime.cancel(run_id);
  await clock.advance(1_000);
  await cancelling;
  expect((await runtime.getRun(run_id)).status).toBe("cancelled");
  expect(happened).toEqual(["aborted"]);
});

it("a run that holds the slot of its session keeps it when evicted: the next run of the session waits for its end", async () => {
  const { runtime, clock } = setUp({ store: lastingStore(), durability: { evictAfterMs: 50 } });
  const concurrency = { max: 1, per: "session" } as const;
  const begun: string[] = [];
  runtime.register("agent", { durable: true, concurrency }, async (input, { ask }) => {
    begun.push(`${input[0]?.parts[0]?.content}`);
    await ask("Well?");
  });
  const session_id = "00000000-0000-4000-8000-00000000feed";
  const create = (input: string) => runtime.createRun({ agent_name: "agent", input, session_id, mode: "async" });
  const first = await create("first");
  await clock.advance(1_000);
  await create("second");
  await clock.advance(1_000);
  expect(begun).toEqual(["first"]);
  const resuming = runtime.resume({ run_id: first.run_id, await_resume: { ok: true } });
  await clock.advance(1_000);
  expect((await resuming).status).toBe("completed");
  expect(begun).toEqual(["first", "first", "second"]);
});

it("a run whose eviction the store refuses stays loaded, and goes on at the deadline of its question", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  let isDown = false;
  const options = { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 50 } };
  const { runtime } = replicas.start(options, (call, method, [, , write]) => {
    if (isDown && method === "append" && (write as RunWrite).entries.length === 0) throw new Error("the disk is full");
    return call();
  });
  runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
    const work = step("work", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 200)));
    const [answer] = await Promise.all([ask("Well?", { timeoutMs: 5_000, default: { late: true } }), work]);
    return JSON.stringify(answer);
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  isDown = true;
  await clock.advance(1_000);
  isDown = false;
  await clock.advance(10_000);
  expect((await runtime.getRun(run_id)).status).toBe("completed");
});
