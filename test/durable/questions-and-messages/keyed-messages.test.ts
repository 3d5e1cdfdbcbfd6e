import type { Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { refusal, textsOf } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/*
 * A message with an idempotency key. It is sent at the process that owns the run, at another one with its code, or at
 * one without its code; while the run is at work, while it only waits, and when it has left memory.
 */

const FOREVER = 1_000_000;
const processes = ["a process without the code", "a process with the code", "the owner"] as const;
const states = ["busy", "idle", "evicted"] as const;
const ways = processes.flatMap((process) => states.map((state) => ({ process, state })));

async function receiving(
  replicas: ReturnType<typeof inMemory>,
  { process, state }: (typeof ways)[number],
  hook?: Hook,
) {
  const work = deferred();
  const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 };
  const evictAfterMs = state === "evicted" ? 200 : FOREVER;
  const start = (hasCode: boolean): Replica => {
    const replica = replicas.start({ durability: { ...durability, evictAfterMs } }, hook);
    if (!hasCode) return replica;
    replica.runtime.register("order", { durable: true }, async (_input, { receive, step }) => {
      const [first] = await Promise.all([receive("mail"), state === "busy" && step("work", () => work.promise)]);
      return `${first}, ${await receive("mail")}`;
    });
    return replica;
  };
  const owner = start(true);
  const { run_id } = await owner.runtime.createRun({ agent_name: "order", input: "", mode: "async" });
  await replicas.clock.advance(50);
  const others = [start(false), start(true)];
  await replicas.clock.advance(1_000);
  const { live } = await owner.runtime.stats();
  expect(Object.keys(live).length > 0).toBe(state !== "evicted");
  const at = [...others, owner][processes.indexOf(process)] ?? owner;
  const send = (data: string, idempotencyKey?: string) =>
    at.runtime.send({ to: run_id, name: "mail", data }, { idempotencyKey });
  return { owner, others, run_id, send, work };
}

async function mailIn(store: Store, run_id: string): Promise<unknown[]> {
  const key = { tenant: "", run_id };
  const inbox = (await store.find(key, "with inbox"))?.inbox ?? [];
  const log = (await store.read(key, 0, 1_000)) ?? [];
  return [...log, ...inbox.flatMap(({ entries }) => entries)].flatMap((entry) =>
    entry.type === "received" ? [entry.data] : [],
  );
}

describe.each([
  { on: "in memory", open: () => inMemory() },
  { on: "on a file", open: () => onFile() },
])("$on", ({ open }) => {
  it.each(ways)(
    "a message with a key is sent at $process to a $state run: once, and no other under its key",
    async (way) => {
      const replicas = open();
      const { owner, run_id, send, work } = await receiving(replicas, way);
      expect(await send("one", "k1")).toEqual({ run_id });
      expect(await send("one", "k1")).toEqual({ run_id });
      expect(await refusal(send("other", "k1"))).toMatchObject({ code: "idempotency_conflict", run_id });
      expect(await mailIn(owner.store, run_id)).toEqual(["one"]);
      await replicas.clock.advance(3_000);
      expect((await refusal(send("other", "k1"))).code).toBe("idempotency_conflict");
      await send("two", "k2");
      work.resolve();
      await replicas.clock.advance(3_000);
      expect(textsOf(await owner.runtime.getRun(run_id))).toEqual(["one, two"]);
      expect(await send("one", "k1")).toEqual({ run_id });
      expect((await refusal(send("other", "k1"))).code).toBe("idempotency_conflict");
    },
  );
});

it("a message with a key is refused when another process has sent another one under its key at the same time", async () => {
  const replicas = inMemory();
  // Each call to the store takes a while, so that both processes read before either has written.
  let isSlow = false;
  const slow: Hook = (call) =>
    isSlow ? new Promise<void>((resolve) => replicas.clock.setTimeout(resolve, 5)).then(call) : call();
  const { owner, others, run_id } = await receiving(replicas, { process: "the owner", state: "evicted" }, slow);
  isSlow = true;
  const sent = Promise.all(
    others.map(async ({ runtime }, index) => {
      const sending = runtime.send({ to: run_id, name: "mail", data: index }, { idempotencyKey: "k" });
      return sending.then(
        () => "sent",
        ({ code }) => code,
      );
    }),
  );
  await replicas.clock.advance(1_000);
  isSlow = false;
  expect([...(await sent)].sort()).toEqual(["idempotency_conflict", "sent"]);
  expect(await mailIn(owner.store, run_id)).toHaveLength(2);
  expect((await sent).indexOf("sent")).toBe((await mailIn(owner.store, run_id))[0]);
});

it("a message with a key needs its run's log where the run is not loaded, and one without a key does not", async () => {
  let reads = 0;
  const count: Hook = (call, method) => {
    if (method === "read") reads += 1;
    return call();
  };
  const { send } = await receiving(inMemory(), { process: "a process without the code", state: "evicted" }, count);
  reads = 0;
  await send("one");
  expect(reads).toBe(0);
  await send("two", "k");
  expect(reads).toBeGreaterThan(0);
});
