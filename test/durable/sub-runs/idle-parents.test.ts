import type { AgentContext } from "cadenza";
import { expect, it } from "vitest";
import { textOf, textsOf } from "../../harness/runtimes.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Runs that wait only for sub-runs, which wait themselves: without an owner, out of memory, and over a restart. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };
/** Longer than a lease, and than a run that waits stays in memory. */
const SPAN = 6_000;

const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

type Wait = (context: AgentContext) => Promise<unknown>;

const asleep: Wait = ({ sleep }) => sleep(10 * SPAN);
const asking: Wait = ({ ask }) => ask("Number?", { timeoutMs: 10 * SPAN, default: { number: 1 } });
const receiving: Wait = ({ receive }) => receive("mail", { timeoutMs: 10 * SPAN, default: "none" });

/** What sub-runs wait for, with the status of a run that has such a sub-run. */
const waits = [
  { what: "sleeps", wait: asleep, status: "in-progress" },
  { what: "asks", wait: asking, status: "awaiting" },
  { what: "receives", wait: receiving, status: "in-progress" },
];

/** A run with a sub-run, which has a sub-run that waits. */
function register({ runtime }: Pick<Replica, "runtime">, wait: Wait, options: { timeoutMs?: number } = {}): void {
  runtime.register("top", { durable: true, ...options }, async function* (_input, { run }) {
    yield "before";
    yield textsOf(await run("middle", "Go.")).join();
  });
  runtime.register("middle", { durable: true }, async (_input, { run }) => textsOf(await run("bottom", "Go.")).join());
  runtime.register("bottom", { durable: true }, async (_input, context) => {
    await wait(context);
    return "over";
  });
}

async function create({ runtime }: Pick<Replica, "runtime">): Promise<string> {
  return (await runtime.createRun({ agent_name: "top", input: "", mode: "async" })).run_id;
}

/** A first process, which has created a run with a sub-run that waits. */
async function begin(open: () => Replicas, wait: Wait, options: { timeoutMs?: number } = {}) {
  const replicas = open();
  const first = replicas.start({ durability });
  register(first, wait, options);
  return { replicas, clock: replicas.clock, first, run_id: await create(first) };
}

async function headsOf({ runtime, store }: Pick<Replica, "runtime" | "store">) {
  const heads: Record<string, unknown> = {};
  for (const { run_id, agent_name } of await runtime.listRuns()) {
    const found = await store.find({ tenant: "", run_id });
    heads[agent_name] = found && { owner: found.head.owner, due_at: found.head.due_at };
  }
  return heads;
}

const free = { owner: null, due_at: null };

it.each(opened.flatMap((one) => waits.map((wait) => ({ ...one, ...wait }))))(
  "a run whose sub-run $what has no owner and leaves memory, and goes on at the end of the sub-run ($on)",
  async ({ open, wait, status }) => {
    const { clock, first, run_id } = await begin(open, wait);
    await clock.advance(100);
    const bottom = { owner: null, due_at: clock.now() - 100 + 10 * SPAN };
    expect(await headsOf(first)).toEqual({ top: free, middle: free, bottom });
    expect((await first.runtime.stats()).live).not.toEqual({});
    expect(clock.holds).toBe(0);
    await clock.advance(1_000);
    expect((await first.runtime.stats()).live).toEqual({});
    expect(await first.runtime.getRun(run_id)).toMatchObject({ status });
    await clock.advance(9 * SPAN);
    expect((await first.runtime.stats()).live).toEqual({});
    await clock.advance(SPAN);
    expect(textsOf(await first.runtime.getRun(run_id))).toEqual(["before|over"]);
  },
);

it.each(opened.flatMap((one) => waits.map((wait) => ({ ...one, ...wait }))))(
  "a run whose sub-run $what goes on in another process ($on)",
  async ({ open, wait }) => {
    const { replicas, clock, first, run_id } = await begin(open, wait);
    await clock.advance(100);
    first.kill();
    const second = replicas.start({ durability });
    register(second, wait);
    await clock.advance(9 * SPAN);
    expect((await second.runtime.stats()).live).toEqual({});
    await clock.advance(SPAN + 1_000);
    expect(textsOf(await second.runtime.getRun(run_id))).toEqual(["before|over"]);
  },
);

it.each(opened)("an answer to a sub-run in another process takes its parents along ($on)", async ({ open }) => {
  const { replicas, clock, run_id } = await begin(open, asking);
  await clock.advance(1_000);
  const second = replicas.start({ durability });
  register(second, asking);
  const answering = second.runtime.resume({ run_id, await_resume: { number: 5 } });
  await clock.advance(2_000);
  expect(textsOf(await answering)).toEqual(["before|over"]);
});

it.each(opened)(
  "the parent of a sleeping sub-run has its owner while another sub-run works ($on)",
  async ({ open }) => {
    const replicas = open();
    const { clock } = replicas;
    const { runtime, store } = replicas.start({ durability });
    runtime.register("top", { durable: true }, async (_input, { run }) => {
      await Promise.all([run("sleeper", ""), run("worker", "")]);
      return "over";
    });
    runtime.register("sleeper", { durable: true }, (_input, { sleep }) => sleep(10 * SPAN));
    runtime.register("worker", { durable: true }, async (_input, { step }) => {
      await step("work", () => new Promise<void>((resolve) => clock.setTimeout(resolve, SPAN)));
    });
    const run_id = await create({ runtime });
    const ownerOf = async () => (await store.find({ tenant: "", run_id }))?.head.owner;
    await clock.advance(SPAN - 1_000);
    expect(await ownerOf()).toEqual(expect.any(String));
    await clock.advance(2_000);
    expect(await ownerOf()).toBeNull();
    await clock.advance(9 * SPAN);
    expect(textsOf(await runtime.getRun(run_id))).toEqual(["over"]);
  },
);

it.each(opened)(
  "a run whose sub-run sleeps is not active, and is not due for its `timeoutMs` ($on)",
  async ({ open }) => {
    const { clock, first, run_id } = await begin(open, asleep, { timeoutMs: SPAN });
    await clock.advance(1_000);
    expect((await first.runtime.stats()).live).toEqual({});
    expect(await headsOf(first)).toMatchObject({ top: free, middle: free });
    await clock.advance(10 * SPAN);
    expect(textsOf(await first.runtime.getRun(run_id))).toEqual(["before|over"]);
  },
);

it.each(opened)("cancelling a run that left memory with its sub-runs cancels them all ($on)", async ({ open }) => {
  const { replicas, clock, run_id } = await begin(open, asleep);
  await clock.advance(1_000);
  const second = replicas.start({ durability });
  register(second, asleep);
  const cancelling = second.runtime.cancel(run_id);
  await clock.advance(2_000);
  await cancelling;
  for (const one of await second.runtime.listRuns()) expect(one.status).toBe("cancelled");
});

it.each(opened)("a run that waits for a sleeping sub-run gives its slot back ($on)", async ({ open }) => {
  const replicas = open();
  const { clock } = replicas;
  const { runtime } = replicas.start({ durability });
  const began: string[] = [];
  let atWork = 0;
  runtime.register("top", { durable: true, concurrency: { max: 1 } }, async (input, { run, step }) => {
    await step("begin", () => void began.push(input.map(textOf).join()));
    await run("sleeper", "");
    await step("work", async () => {
      atWork += 1;
      expect(atWork).toBe(1);
      await new Promise<void>((resolve) => clock.setTimeout(resolve, SPAN));
      atWork -= 1;
    });
    return "over";
  });
  runtime.register("sleeper", { durable: true }, (_input, { sleep }) => sleep(10 * SPAN));
  const ids: string[] = [];
  for (const input of ["one", "two"])
    ids.push((await runtime.createRun({ agent_name: "top", input, mode: "async" })).run_id);
  await clock.advance(100);
  expect(began).toEqual(["one", "two"]);
  await clock.advance(10 * SPAN);
  const statuses = async () => Promise.all(ids.map(async (id) => (await runtime.getRun(id)).status));
  await clock.advance(SPAN);
  expect((await statuses()).sort()).toEqual(["completed", "in-progress"]);
  await clock.advance(SPAN);
  expect(await statuses()).toEqual(["completed", "completed"]);
});
