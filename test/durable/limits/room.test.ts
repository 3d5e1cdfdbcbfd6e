import type { AgentContext } from "cadenza";
import { describe, expect, it } from "vitest";
import { reply } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import { WakeQueue } from "../../harness/wake-queue.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* How many runs a worker executes at once, where runs come back from a wait. */

const MAX = 3;
const MANY = 15;
const WAIT_MS = 10_000;
const WORK_MS = 1_000;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 60_000 } as const;

const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

/** A web process and a worker on one store, with what the worker executes. */
function begin(open: () => Replicas, settings: { evictAfterMs?: number; hook?: Hook; limits?: object } = {}) {
  const replicas = open();
  const { clock } = replicas;
  const counts = { now: 0, most: 0 };
  const work = async (): Promise<void> => {
    counts.now += 1;
    counts.most = Math.max(counts.most, counts.now);
    await new Promise<void>((resolve) => void clock.setTimeout(resolve, WORK_MS));
    counts.now -= 1;
  };
  const { evictAfterMs = durability.evictAfterMs, hook, limits = {} } = settings;
  const web = replicas.start({ durability, work: false });
  const worker = replicas.start({ durability: { ...durability, evictAfterMs }, work: { max: MAX }, limits }, hook);
  /** Registers an agent in the worker, and declares it to the web process. */
  const register = (name: string, agent: (context: AgentContext) => Promise<unknown>): void => {
    worker.runtime.register(name, { durable: true }, async (_input, context) => void (await agent(context)));
    web.runtime.declare({ name, durable: true });
  };
  const create = async (agent_name: string, count = MANY): Promise<string[]> => {
    const ids: string[] = [];
    for (let n = 0; n < count; n++)
      ids.push((await web.runtime.createRun({ agent_name, input: "", mode: "async" })).run_id);
    return ids;
  };
  register("busy", ({ step }) => step("work", work));
  return { clock, web, worker, replicas, counts, work, register, create };
}

async function statuses({ runtime }: Replica, ids: readonly string[]): Promise<Record<string, number>> {
  const found: Record<string, number> = {};
  for (const id of ids) {
    const { status } = await runtime.getRun(id);
    found[status] = (found[status] ?? 0) + 1;
  }
  return found;
}

describe("no more than max runs are at work", () => {
  const waits = {
    "a sleep": ({ sleep }: AgentContext) => sleep(WAIT_MS),
    "a question that expires": ({ ask }: AgentContext) => ask("Well?", { timeoutMs: WAIT_MS, default: {} }),
    "a receive that expires": ({ receive }: AgentContext) => receive("news", { timeoutMs: WAIT_MS, default: null }),
    "a sub-run": ({ run }: AgentContext) => run("sleeper", ""),
    "a sub-run of another process": ({ run }: AgentContext) => run("elsewhere", ""),
  } as const satisfies Record<string, (context: AgentContext) => Promise<unknown>>;

  it.each(
    opened.flatMap((store) =>
      Object.entries(waits).flatMap(([what, wait]) =>
        [60_000, 200].map((evictAfterMs) => ({ ...store, what, wait, evictAfterMs })),
      ),
    ),
  )("when all come back at once from $what ($on, evicted after $evictAfterMs ms)", async (given) => {
    const { open, wait, evictAfterMs } = given;
    const { clock, replicas, web, worker, counts, work, register, create } = begin(open, { evictAfterMs });
    register("sleeper", ({ sleep }) => sleep(WAIT_MS));
    register("agent", async (context) => {
      await wait(context);
      await context.step("work", work);
    });
    const other = replicas.start({ durability });
    other.runtime.register("elsewhere", { durable: true }, (_input, { sleep }) => sleep(WAIT_MS));
    worker.runtime.declare({ name: "elsewhere", durable: true });
    const ids = await create("agent");
    await clock.advance(WAIT_MS - 1_000);
    expect(counts.most).toBe(0);
    await clock.advance(1_000 + (MANY / MAX + 2) * WORK_MS);
    expect(counts.most).toBe(MAX);
    expect(await statuses(web, ids)).toEqual({ completed: MANY });
  });

  it("when a waker brings more at once", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    const queue = new WakeQueue(clock);
    const counts = { now: 0, most: 0 };
    const web = replicas.start({ durability: { ...durability, waker: queue.connect() }, work: false });
    web.runtime.declare({ name: "agent", durable: true });
    const slow: Hook = async (call, method) => {
      if (method === "claim") await new Promise<void>((resolve) => void clock.setTimeout(resolve, 20));
      return call();
    };
    const worker = replicas.start(
      { durability: { ...durability, scanMs: undefined, waker: queue.connect() }, work: { max: MAX } },
      slow,
    );
    worker.runtime.register("agent", { durable: true }, (_input, { step }) =>
      step("work", async () => {
        counts.most = Math.max(counts.most, ++counts.now);
        await new Promise<void>((resolve) => void clock.setTimeout(resolve, WORK_MS));
        counts.now -= 1;
      }),
    );
    await clock.advance(100);
    const ids: string[] = [];
    for (let n = 0; n < MANY; n++)
      ids.push((await web.runtime.createRun({ agent_name: "agent", input: "", mode: "async" })).run_id);
    await clock.advance((2 * MANY * WORK_MS) / MAX + 2_000);
    expect([await statuses(web, ids), counts.most]).toEqual([{ completed: MANY }, MAX]);
  });
});

describe("runs that come back and are not held up", () => {
  const comes = {
    "an answer": {
      wait: ({ ask }: AgentContext) => ask("Well?"),
      come: ({ runtime }: Replica, run_id: string) =>
        runtime.resume({ run_id, await_resume: reply("yes"), mode: "async" }),
    },
    "a message": {
      wait: ({ receive }: AgentContext) => receive("news"),
      come: ({ runtime }: Replica, run_id: string) => runtime.send({ to: run_id, name: "news", data: {} }),
    },
  } as const;

  it.each(
    opened.flatMap((store) =>
      Object.entries(comes).flatMap(([what, how]) =>
        [60_000, 200].flatMap((evictAfterMs) =>
          [0, 30, 60, 90].map((atMs) => ({ ...store, what, ...how, evictAfterMs, slowMs: atMs === 0 ? 0 : 30, atMs })),
        ),
      ),
    ),
  )(
    "count: nothing is taken beside them ($what, $on, evicted after $evictAfterMs ms, at $atMs ms)",
    async ({ open, wait, come, evictAfterMs, slowMs, atMs }) => {
      const slow: Hook = async (call) => {
        if (slowMs > 0) await new Promise<void>((resolve) => void all.clock.setTimeout(resolve, slowMs));
        return call();
      };
      const all = begin(open, { evictAfterMs, hook: slow });
      const { clock, web, worker, counts, work, register, create } = all;
      const beside: number[] = [];
      register("waits", async (context) => {
        await wait(context);
        await context.step("work", work);
      });
      register("queued", ({ step }) =>
        step("work", () => {
          beside.push(counts.now + 1);
          return work();
        }),
      );
      const waiting = await create("waits", 2 * MAX);
      await clock.advance(3_000);
      const coming = waiting.map((id) => come(worker, id));
      await clock.advance(atMs);
      const queued = await create("queued");
      await clock.advance(60_000);
      await Promise.all(coming);
      expect(Math.max(...beside)).toBe(MAX);
      expect(await statuses(web, [...waiting, ...queued])).toEqual({ completed: 2 * MAX + MANY });
    },
  );
});

describe("runs with sleeps side by side", () => {
  it.each(opened.flatMap((store) => [60_000, 300].map((evictAfterMs) => ({ ...store, evictAfterMs }))))(
    "go on from each of them ($on, evicted after $evictAfterMs ms)",
    async ({ open, evictAfterMs }) => {
      const { clock, web, register, create } = begin(open, { evictAfterMs });
      register("agent", async ({ sleep }) => {
        for (let n = 0; n < 4; n++) await Promise.all([sleep(20), sleep(25)]);
      });
      const ids = await create("agent");
      await clock.advance(30_000);
      expect(await statuses(web, ids)).toEqual({ completed: MANY });
    },
  );
});

describe("a run that waits for a sub-run", () => {
  it.each(opened)("does not hold the room that the sub-run needs ($on)", async ({ open }) => {
    const { clock, web, counts, work, register, create } = begin(open);
    register("child", async ({ sleep, step }) => {
      await sleep(500);
      await step("work", work);
    });
    register("parent", async ({ run, step }) => {
      await Promise.all([run("child", ""), run("child", "")]);
      await step("work", work);
    });
    const ids = await create("parent");
    await clock.advance(60_000);
    expect(counts.most).toBe(MAX);
    expect(await statuses(web, ids)).toEqual({ completed: MANY });
  });
});
