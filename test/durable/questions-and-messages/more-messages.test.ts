import type { Clock } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { RunKey, RunWrite, Store, StoreHint } from "cadenza/store";
import { expect, it } from "vitest";
import { withMembers } from "../../harness/port-proxy.ts";
import { deferred } from "../../harness/promises.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory, Replicas } from "../../harness/world/replicas.ts";

/*
 * A run that takes messages of other processes keeps its owner for a moment while it waits for the next one, which then
 * costs no claim and no replay.
 */

/** How long the owner is kept. */
const MORE_MS = 250;
const durability = { leaseMs: 10_000, heartbeatMs: 3_000, scanMs: 1_000, evictAfterMs: 60_000 };

/** A worker whose agent receives messages, and a process that sends them. `hints`: the store tells the worker at once. */
async function listening(hints: boolean) {
  const watching = new Set<(hint: StoreHint) => void>();
  const tell = (hint: StoreHint): void => {
    for (const callback of [...watching]) callback(hint);
  };
  let shared: Store | undefined;
  const replicas = new Replicas((clock: Clock) => {
    shared ??= lastingStore(clock);
    if (!hints) return shared;
    return withMembers<Store>(shared, {
      watch: (callback) => {
        watching.add(callback);
        return () => watching.delete(callback);
      },
    });
  });
  const { clock } = replicas;
  /** The entries of each write of the worker, and whether it leaves the run with an owner. `refused`: the store refuses it. */
  const writes: string[] = [];
  const calls = { find: 0, moved: 0, take: 0 };
  const worker = replicas.start({ durability }, (call, method, parameters) => {
    const answer = call();
    if (method in calls) calls[method as keyof typeof calls] += 1;
    if (method !== "append") return answer;
    const { entries, head } = parameters[2] as RunWrite;
    const isRefused = (answer as { readonly conflict?: string } | undefined)?.conflict !== undefined;
    const types = entries.map(({ type }) => type).join("+") || "nothing";
    writes.push(`${types}: ${isRefused ? "refused" : head.owner === null ? "free" : "owned"}`);
    return answer;
  });
  const web = replicas.start({ durability, work: false }, (call, method, [key]) => {
    const answer = call();
    if (method === "post") queueMicrotask(() => tell({ moved: [key as RunKey], due: true }));
    return answer;
  });
  let replays = 0;
  const taken: unknown[] = [];
  worker.runtime.register("listener", { durable: true }, async (_input, { receive, ask, sleep }) => {
    replays += 1;
    let count = 0;
    for (;;) {
      const said = await receive("said");
      count += 1;
      if (count > taken.length) taken.push(said);
      if (said === "ask") await ask("Well?");
      if (said === "sleep") await sleep(1_000);
    }
  });
  const { run_id } = await worker.runtime.createRun({ agent_name: "listener", input: "", mode: "async" });
  await clock.advance(durability.scanMs);
  const forget = (): void => {
    writes.length = 0;
    Object.assign(calls, { find: 0, moved: 0, take: 0 });
  };
  forget();
  return {
    ...{ clock, worker, web, writes, calls, taken, run_id, forget },
    send: (data: string) => web.runtime.send({ to: run_id, name: "said", data }),
    replays: () => replays,
    headOf: async () => (await shared?.find({ tenant: "", run_id }))?.head,
  };
}

/** A process that is told of a message claims the run for it. */
const first = ["nothing: owned", "taken: owned", "intent: owned"];
const next = ["received: owned", "taken: owned", "intent: owned"];

it("a message within the time after another one goes to the owner, without a claim or a replay", async () => {
  const { clock, writes, calls, taken, send, replays, headOf, forget } = await listening(true);
  await send("1");
  await clock.advance(MORE_MS - 50);
  expect(writes).toEqual(first);
  const before = await headOf();
  for (const data of ["2", "3", "4"]) {
    forget();
    await send(data);
    await clock.advance(MORE_MS - 50);
    expect(writes).toEqual(next);
    expect(calls).toEqual({ moved: 1, find: 1, take: 0 });
  }
  expect(await headOf()).toEqual(before);
  expect([taken, replays()]).toEqual([["1", "2", "3", "4"], 1]);
});

it("the owner is given up with one write when no message has come for the time", async () => {
  const { clock, writes, send, forget } = await listening(true);
  await send("1");
  await clock.advance(MORE_MS - 1);
  expect(writes).toEqual(first);
  await clock.advance(1);
  expect(writes).toEqual([...first, "nothing: free"]);
  forget();
  await clock.advance(durability.evictAfterMs);
  expect(writes).toEqual([]);
});

it("without hints, what has come within the time is taken at its end", async () => {
  const { clock, writes, taken, send, replays } = await listening(false);
  await send("1");
  await clock.advance(2 * durability.scanMs);
  expect(writes.at(-1)).toEqual("nothing: free");
  await send("2");
  for (let left = durability.scanMs; taken.length < 2 && left > 0; left -= 10) await clock.advance(10);
  writes.length = 0;
  await send("3");
  await send("4");
  await clock.advance(MORE_MS);
  expect(writes).toEqual([
    "nothing: refused",
    "received+received: owned",
    "taken: owned",
    "taken: owned",
    "intent: owned",
  ]);
  expect([taken, replays()]).toEqual([["1", "2", "3", "4"], 1]);
});

it("messages that arrive together go into the log with one write", async () => {
  const { clock, writes, calls, taken, send, forget } = await listening(true);
  await send("1");
  await clock.advance(10);
  forget();
  await Promise.all(["2", "3", "4", "5"].map(send));
  await clock.advance(10);
  expect(writes).toEqual([
    "received+received+received+received: owned",
    ...["taken: owned", "taken: owned", "taken: owned", "taken: owned"],
    "intent: owned",
  ]);
  expect(calls.find).toBeLessThanOrEqual(2);
  expect(taken).toEqual(["1", "2", "3", "4", "5"]);
});

it("a run that then asks or sleeps, and one whose messages come from its own process, has no owner at once", async () => {
  const { clock, worker, writes, send, run_id, forget } = await listening(true);
  await send("sleep");
  await clock.advance(10);
  expect(writes).toEqual([...first, "nothing: free"]);
  await clock.advance(2_000);
  await send("ask");
  await clock.advance(10);
  expect(writes.slice(-2)).toEqual(["awaited: owned", "nothing: free"]);
  await worker.runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" });
  await clock.advance(2_000);
  forget();
  await worker.runtime.send({ to: run_id, name: "said", data: "from here" });
  await clock.advance(10);
  expect(writes).toEqual(["received: owned", "taken: owned", "intent: owned", "nothing: free"]);
});

it("a process that is closed gives the owner up at once, and wakes no other", async () => {
  const { clock, worker, writes, send, headOf } = await listening(true);
  await send("1");
  await clock.advance(10);
  const closing = worker.runtime.close({ drainMs: 10_000 });
  await clock.advance(1);
  expect(writes).toEqual([...first, "nothing: free"]);
  expect(await headOf()).toMatchObject({ owner: null, due_at: null });
  await clock.advance(10_000);
  await closing;
});

it.each(["answers at last", "dies"])(
  "an agent gets messages while the write that takes earlier ones is under way, and a step begins after that write (its process %s)",
  async (fate) => {
    const replicas = inMemory();
    const written = deferred();
    const taken: string[] = [];
    const first = replicas.start({ durability }, async (call, method, parameters) => {
      const { entries = [] } = (method === "append" ? parameters[2] : {}) as Partial<RunWrite>;
      if (entries.some(({ type }) => type === "taken")) await written.promise;
      return call();
    });
    const register = (process: string, { runtime }: Replica): void => {
      runtime.register("listener", { durable: true }, async (_input, { receive, step }) => {
        for (let count = 0; count < 3; count++) taken.push(`${process} ${JSON.stringify(await receive("said"))}`);
        await step("after", () => void taken.push(`${process} step`));
      });
    };
    register("first", first);
    const { run_id } = await first.runtime.createRun({ agent_name: "listener", input: "", mode: "async" });
    await replicas.clock.settle();
    for (const data of [1, 2, 3]) await first.runtime.send({ to: run_id, name: "said", data });
    await replicas.clock.settle();
    expect(taken).toEqual(["first 1", "first 2", "first 3"]);

    if (fate === "dies") {
      first.kill();
      register("second", replicas.start({ durability }));
      await replicas.clock.advance(2 * durability.leaseMs);
      expect(taken.slice(3)).toEqual(["second 1", "second 2", "second 3", "second step"]);
    } else {
      written.resolve();
      await replicas.clock.settle();
      expect(taken.slice(3)).toEqual(["first step"]);
    }
    expect((await replicas.start({ work: false }).runtime.getRun(run_id)).status).toBe("completed");
  },
);

it("a sub-run is cancelled behind the write that takes the message for which its parent ends", async () => {
  const replicas = inMemory();
  const order: string[] = [];
  let boss = "";
  const { runtime } = replicas.start({ durability }, async (call, method, parameters) => {
    const { entries = [] } = (method === "append" ? parameters[2] : {}) as Partial<RunWrite>;
    if (method !== "append" && method !== "post") return call();
    // What is decided meanwhile goes with the next write.
    for (let turn = 0; turn < 20; turn++) await replicas.clock.turn();
    const answer = await call();
    const { run_id } = parameters[0] as RunKey;
    order.push(...entries.map(({ type }) => `${run_id === boss ? "boss" : "worker"} ${type}`));
    return answer;
  });
  runtime.register("worker", { durable: true }, async (_input, { sleep }) => sleep("1h"));
  runtime.register("boss", { durable: true }, async (_input, { run, receive }) => {
    void run("worker", "");
    await Promise.race([receive("go"), receive("stop")]);
  });
  const { run_id } = await runtime.createRun({ agent_name: "boss", input: "", mode: "async" });
  boss = run_id;
  await replicas.clock.advance(5_000);
  order.length = 0;
  const sending = runtime.send({ to: run_id, name: "stop", data: 1 });
  for (let turn = 0; turn < 10; turn++) await replicas.clock.turn();
  await Promise.all([sending, runtime.send({ to: run_id, name: "other", data: 1 }), replicas.clock.advance(5_000)]);
  expect(order).toContain("worker cancel-requested");
  expect(order.slice(0, order.indexOf("worker cancel-requested"))).toContain("boss taken");
});

it("a cancel that comes while a run ends is written before its end, and behind what the run did", async () => {
  const replicas = inMemory();
  const written = deferred();
  let isHeld = false;
  const first = replicas.start({ durability }, async (call, method, parameters) => {
    const { entries = [] } = (method === "append" ? parameters[2] : {}) as Partial<RunWrite>;
    if (entries.some(({ type }) => type === "taken") && !isHeld) {
      isHeld = true;
      await written.promise;
    }
    return call();
  });
  first.runtime.register("listener", { durable: true }, async (_input, { emit, receive }) => {
    for (let count = 0; count < 2; count++) await emit(`got ${JSON.stringify(await receive("said"))}`);
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "listener", input: "", mode: "async" });
  await replicas.clock.settle();
  for (const data of [1, 2]) await first.runtime.send({ to: run_id, name: "said", data });
  await replicas.clock.settle();
  const other = replicas.start({ durability, work: false });
  const cancelled = other.runtime.cancel(run_id);
  await replicas.clock.settle();
  written.resolve();
  await cancelled;
  await replicas.clock.advance(1_000);
  const types = (await createAdmin(other.runtime).log(run_id)).items.map(({ type }) => type);
  expect(types.filter((type) => type === "taken")).toHaveLength(types.filter((type) => type === "emitted").length);
  expect(types.slice(-2)).toEqual(["cancel-requested", "ended"]);
});
