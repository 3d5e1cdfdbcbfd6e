import type { AgentContext } from "cadenza";
import { expect, it } from "vitest";
import { textsOf } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Runs that sleep or wait for messages: without an owner, out of memory, and over a restart. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };
/** A tenth of the sleep. To scan takes real time, and a sleep of a minute is as good as a longer one. */
const TENTH_MS = 6_000;

const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

function registerSleeper({ runtime }: Replica): void {
  runtime.register("sleeper", { durable: true }, async function* (_input, { sleep }) {
    yield "before";
    await sleep(10 * TENTH_MS, { name: "long" });
    yield null;
    yield "after";
  });
}

function registerReceiver({ runtime }: Replica): void {
  runtime.register("receiver", { durable: true }, async (_input, { receive }: AgentContext) => {
    const list = [await receive("mail"), await receive("mail"), await receive("mail", { timeoutMs: 0, default: "-" })];
    return JSON.stringify(list);
  });
}

/** Counts the reads of logs and of single runs. */
function counting(): { readonly hook: Hook; readonly reads: () => number } {
  let reads = 0;
  const hook: Hook = (call, method) => {
    if (method === "read" || method === "find") reads += 1;
    return call();
  };
  return { hook, reads: () => reads };
}

it.each(opened)(
  "a sleeping run has no owner and leaves memory, and is not loaded before its time ($on)",
  async ({ open }) => {
    const replicas = open();
    const { clock } = replicas;
    const { hook, reads } = counting();
    const first = replicas.start({ durability }, hook);
    registerSleeper(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "sleeper", input: "", mode: "async" });
    await clock.advance(100);
    const headOf = async () => (await first.store.find({ tenant: "", run_id }))?.head;
    const wakesAt = clock.now() - 100 + 10 * TENTH_MS;
    expect(await headOf()).toMatchObject({ owner: null, status: "in-progress", due_at: wakesAt });
    expect((await first.runtime.stats()).live).not.toEqual({});
    await clock.advance(1_000);
    expect((await first.runtime.stats()).live).toEqual({});
    const before = reads();
    await clock.advance(9 * TENTH_MS);
    expect(reads()).toBe(before);
    expect(await headOf()).toMatchObject({ owner: null, status: "in-progress", due_at: wakesAt });
    await clock.advance(TENTH_MS);
    expect(textsOf(await first.runtime.getRun(run_id))).toEqual(["before", "after"]);
  },
);

it.each(opened)("a sleeping run wakes after a restart, at its time ($on)", async ({ open }) => {
  const replicas = open();
  const { clock } = replicas;
  const first = replicas.start({ durability });
  registerSleeper(first);
  const { run_id } = await first.runtime.createRun({ agent_name: "sleeper", input: "", mode: "async" });
  await clock.advance(TENTH_MS);
  first.kill();
  await clock.advance(4 * TENTH_MS);
  const second = replicas.start({ durability });
  registerSleeper(second);
  await clock.advance(5 * TENTH_MS - 1_000);
  expect((await second.runtime.getRun(run_id)).status).toBe("in-progress");
  await clock.advance(1_200);
  expect(textsOf(await second.runtime.getRun(run_id))).toEqual(["before", "after"]);
});

it.each(opened)(
  "a sleep whose time passes while no process is there ends when there is one ($on)",
  async ({ open }) => {
    const replicas = open();
    const { clock } = replicas;
    const first = replicas.start({ durability });
    registerSleeper(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "sleeper", input: "", mode: "async" });
    await clock.advance(1_000);
    first.kill();
    await clock.advance(20 * TENTH_MS);
    const second = replicas.start({ durability });
    registerSleeper(second);
    await clock.advance(500);
    expect(textsOf(await second.runtime.getRun(run_id))).toEqual(["before", "after"]);
  },
);

it.each(opened)(
  "a sleeping run that is released when its runtime is closed is left to others ($on)",
  async ({ open }) => {
    const replicas = open();
    const { clock } = replicas;
    const first = replicas.start({ durability: { ...durability, evictAfterMs: 20 * TENTH_MS } });
    registerSleeper(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "sleeper", input: "", mode: "async" });
    await clock.advance(1_000);
    const closing = first.runtime.close({ drainMs: 5_000 });
    await clock.settle();
    expect(await closing).toEqual({
      left: [{ run_id, agent_name: "sleeper", status: "in-progress", waits_for: "sleep:long#1" }],
    });
    const second = replicas.start({ durability });
    registerSleeper(second);
    await clock.advance(10 * TENTH_MS);
    expect(textsOf(await second.runtime.getRun(run_id))).toEqual(["before", "after"]);
  },
);

it.each(
  opened.flatMap((one) => [
    { ...one, from: "its own process" },
    { ...one, from: "a process with its code" },
    { ...one, from: "a process without its code" },
  ]),
)("a message from $from wakes an evicted run ($on)", async ({ open, from }) => {
  const replicas = open();
  const { clock } = replicas;
  const first = replicas.start({ durability });
  registerReceiver(first);
  const other = replicas.start({ durability });
  if (from === "a process with its code") registerReceiver(other);
  const { run_id } = await first.runtime.createRun({ agent_name: "receiver", input: "", mode: "async" });
  await clock.advance(1_000);
  const sender = from === "its own process" ? first : other;
  for (const data of ["one", "two"]) {
    expect((await first.runtime.stats()).live).toEqual({});
    expect((await first.store.find({ tenant: "", run_id }))?.head).toMatchObject({ owner: null, due_at: null });
    const sending = sender.runtime.send({ to: run_id, name: "mail", data });
    await clock.advance(1_000);
    expect(await sending).toEqual({ run_id });
  }
  expect(textsOf(await sender.runtime.getRun(run_id))).toEqual(['["one","two","-"]']);
});

it.each(opened)(
  "an acknowledged message survives the death of every process, and arrives once ($on)",
  async ({ open }) => {
    const replicas = open();
    const { clock } = replicas;
    const first = replicas.start({ durability });
    registerReceiver(first);
    const { run_id } = await first.runtime.createRun({ agent_name: "receiver", input: "", mode: "async" });
    await clock.advance(1_000);
    const without = replicas.start({ durability });
    first.kill();
    const one = { to: run_id, name: "mail", data: "one" };
    for (let time = 0; time < 2; time++) await without.runtime.send(one, { idempotencyKey: "k1" });
    await without.runtime.send({ ...one, data: "two" }, { idempotencyKey: "k2" });
    without.kill();
    const last = replicas.start({ durability });
    registerReceiver(last);
    await clock.advance(2_000);
    expect(textsOf(await last.runtime.getRun(run_id))).toEqual(['["one","two","-"]']);
    expect(await last.runtime.send(one, { idempotencyKey: "k1" })).toEqual({ run_id });
  },
);

it.each(opened)(
  "a message to a run that another process executes reaches it by the next heartbeat ($on)",
  async ({ open }) => {
    const replicas = open();
    const { clock } = replicas;
    const first = replicas.start({ durability });
    first.runtime.register("busy", { durable: true }, async (_input, { receive, step }) => {
      const work = step("work", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 5_000)));
      const data = await receive("mail", { timeoutMs: 2_000, default: "late" });
      await work;
      return `${String(data)}`;
    });
    const { run_id } = await first.runtime.createRun({ agent_name: "busy", input: "", mode: "async" });
    await clock.advance(1_000);
    const other = replicas.start({ durability });
    await other.runtime.send({ to: run_id, name: "mail", data: "in time" });
    await clock.advance(6_000);
    expect(textsOf(await other.runtime.getRun(run_id))).toEqual(["in time"]);
  },
);
