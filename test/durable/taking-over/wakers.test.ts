import { defineAgent } from "cadenza";
import type { DurabilityOptions, Waker } from "cadenza/store";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { refusal, textsOf } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Fate, QueueWaker } from "../../harness/wake-queue.ts";
import { WakeQueue } from "../../harness/wake-queue.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Wake-ups: a queue brings the runs of a process that accepts to processes that work. */

const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];
/** The scan of a process with a waker. */
const SCAN_MS = 30_000;

interface Member extends Replica {
  readonly waker: QueueWaker;
  die(): void;
}

/** Processes with a queue of wake-ups, and what the steps of their agents have done. */
class Fleet {
  readonly replicas: Replicas;
  readonly queue: WakeQueue;
  /** The steps that have finished in a living process. */
  readonly finished = new Set<string>();
  /** Those that have begun although they had finished. */
  readonly twice: string[] = [];
  readonly web: Member;

  constructor(replicas: Replicas, fate?: (count: number) => Fate) {
    this.replicas = replicas;
    this.queue = new WakeQueue(replicas.clock, fate);
    this.web = this.#start(false);
    this.web.runtime.declare({ name: "work", durable: true }, { name: "talk", durable: true });
  }

  get now(): number {
    return this.replicas.clock.now();
  }

  worker(durability: DurabilityOptions = {}, hook?: Hook): Member {
    const worker = this.#start(true, durability, hook);
    const { clock } = this.replicas;
    const step = async (name: string): Promise<void> => {
      if (this.finished.has(name)) this.twice.push(name);
      await new Promise<void>((resolve) => clock.setTimeout(resolve, 400));
      if (!dead.has(worker)) this.finished.add(name);
    };
    worker.runtime.register(
      defineAgent("work", { durable: true }, async (input, context) => {
        const name = input[0]?.parts[0]?.content;
        for (let n = 0; n < 3; n++) await context.step(`${n}`, () => step(`${name}/${n}`));
        await context.sleep(1_000);
        await context.step("last", () => step(`${name}/last`));
        return `${name} is done.`;
      }),
      defineAgent("talk", { durable: true }, async (_input, { ask, receive }) => {
        const answer = await ask("Well?");
        return `${JSON.stringify(answer)} ${JSON.stringify(await receive("news"))}`;
      }),
    );
    return worker;
  }

  /** A worker without the code of any of the runs. */
  stranger(): Member {
    const worker = this.#start(true);
    worker.runtime.register("other", { durable: true }, () => "done");
    return worker;
  }

  #start(work: boolean, durability: DurabilityOptions = {}, hook?: Hook): Member {
    const waker = this.queue.connect();
    const options = { durability: { leaseMs: 1_000, heartbeatMs: 300, evictAfterMs: 200, waker, ...durability } };
    const replica = this.replicas.start(work ? options : { ...options, work }, hook);
    const member: Member = Object.assign(replica, {
      waker,
      die() {
        dead.add(member);
        replica.kill();
        waker.kill();
      },
    });
    return member;
  }

  async create(count: number): Promise<void> {
    for (let n = 0; n < count; n++)
      await this.web.runtime.createRun({ agent_name: "work", input: `${n}`, mode: "async" });
  }

  async statuses(): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { status } of await this.web.runtime.listRuns({ limit: 100 }))
      counts[status] = (counts[status] ?? 0) + 1;
    return counts;
  }
}

const dead = new WeakSet<object>();

it.each(opened)("the runs of a worker that is killed go on at the others, before any scan ($on)", async ({ open }) => {
  const fleet = new Fleet(open());
  const workers = [fleet.worker(), fleet.worker(), fleet.worker()];
  const { clock } = fleet.replicas;
  await clock.advance(100);
  await fleet.create(12);
  await clock.advance(600);
  expect(workers.map(({ waker }) => waker.given)).toEqual([4, 4, 4]);
  workers[0]?.die();
  await clock.advance(12_000);
  expect(await fleet.statuses()).toEqual({ completed: 12 });
  expect(fleet.twice).toEqual([]);
  expect(fleet.queue.size).toBe(0);
  expect(fleet.web.waker.calls).not.toContain("start");
});

it.each<[string, (count: number) => Fate, number]>([
  ["all doubled", () => "twice", 12_000],
  ["all late", () => "late", 20_000],
  ["each third lost", (count) => (count % 3 === 0 ? "lost" : "once"), 2 * SCAN_MS],
  ["all lost", () => "lost", 3 * SCAN_MS],
  ["mixed", (count) => (["lost", "twice", "late", "once", "twice"] as const)[count % 5] ?? "once", 2 * SCAN_MS],
])("nothing is lost and no step runs twice with wake-ups %s", async (_name, fate, withinMs) => {
  const fleet = new Fleet(inMemory(), fate);
  const workers = [fleet.worker(), fleet.worker(), fleet.worker()];
  const { clock } = fleet.replicas;
  await clock.advance(100);
  await fleet.create(12);
  await clock.advance(600);
  workers[0]?.die();
  await clock.advance(withinMs);
  expect(await fleet.statuses()).toEqual({ completed: 12 });
  expect(fleet.twice).toEqual([]);
  expect(fleet.queue.size).toBe(0);
});

it("a run that begins later, an answer and a message are brought to a worker at their time", async () => {
  const fleet = new Fleet(inMemory());
  const { runtime } = fleet.web;
  const { clock } = fleet.replicas;
  const workers = [fleet.worker(), fleet.worker()];
  const startAt = new Date(fleet.now + 7_000);
  const later = await runtime.createRun({ agent_name: "talk", input: "", mode: "async" }, { startAt });
  await clock.advance(6_900);
  expect((await runtime.getRun(later.run_id)).status).toBe("created");
  await clock.advance(200);
  expect((await runtime.getRun(later.run_id)).status).toBe("awaiting");
  // The run is in no process any more.
  await clock.advance(1_000);
  expect(fleet.queue.size).toBe(0);
  const answering = runtime.resume({ run_id: later.run_id, await_resume: { fine: true }, mode: "async" });
  await clock.advance(1_000);
  expect((await answering).status).toBe("in-progress");
  await clock.advance(1_000);
  workers[1]?.die();
  await runtime.send({ to: later.run_id, name: "news", data: "Rain." });
  await clock.advance(3_000);
  const ended = await runtime.getRun(later.run_id);
  expect([ended.status, textsOf(ended)[0]]).toEqual(["completed", expect.stringContaining("Rain.")]);
});

it("a waker wakes a run whose sub-run ends in another process", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  const parents = fleet.worker();
  parents.runtime.declare({ name: "child", durable: true });
  parents.runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("child", "")).status);
  const children = fleet.worker();
  children.runtime.register("child", { durable: true }, (_input, { sleep }) => sleep(5_000));
  const { run_id } = await parents.runtime.createRun({ agent_name: "parent", input: "", mode: "async" });
  await clock.advance(9_000);
  const run = await fleet.web.runtime.getRun(run_id);
  expect([run.status, textsOf(run)]).toEqual(["completed", ["completed"]]);
});

it("a worker that is closed hands its runs over by wake-ups", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  const first = fleet.worker();
  await clock.advance(100);
  await fleet.create(4);
  await clock.advance(600);
  const second = fleet.worker();
  await clock.advance(100);
  expect(second.waker.given).toBe(0);
  const closing = first.runtime.close({ drainMs: 0 });
  await clock.advance(1_000);
  await closing;
  expect(first.waker.calls.at(-1)).toBe("stop");
  await clock.advance(4_000);
  expect([await fleet.statuses(), fleet.twice, fleet.queue.size]).toEqual([{ completed: 4 }, [], 0]);
});

it("the runs that a worker has created itself are found when one of its others is", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  const first = fleet.worker();
  await clock.advance(100);
  await fleet.create(1);
  void first.runtime.createRun({ agent_name: "work", input: "own" }).catch(() => undefined);
  await clock.advance(600);
  fleet.worker();
  await clock.advance(100);
  first.die();
  await clock.advance(10_000);
  expect([await fleet.statuses(), fleet.twice]).toEqual([{ completed: 2 }, []]);
});

it("a worker that freezes gives the wake-ups of its former runs back", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  let thaw = Promise.resolve();
  const frozen = fleet.worker({}, (call) => thaw.then(call));
  await clock.advance(100);
  await fleet.create(1);
  await clock.advance(600);
  let onThaw: () => void = () => undefined;
  thaw = new Promise((resolve) => {
    onThaw = resolve;
  });
  await clock.advance(1_500);
  // Its first scan takes the run.
  fleet.worker();
  await clock.advance(200);
  onThaw();
  await clock.advance(8_000);
  // Its timers go on, so that it notices that the store does not answer.
  expect(frozen.said.filter(({ message }) => message !== "The store failed to renew the lease.")).toEqual([]);
  expect([await fleet.statuses(), fleet.queue.size]).toEqual([{ completed: 1 }, 0]);
});

it("a worker without the agent looks at the run less and less often, and leaves it to another one", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  const waker = fleet.queue.connect();
  const other = fleet.replicas.start({ durability: { leaseMs: 1_000, heartbeatMs: 300, waker } });
  other.runtime.register("another", () => undefined);
  await clock.advance(100);
  await fleet.create(1);
  await clock.advance(2_000);
  expect(waker.given).toBeGreaterThan(2);
  await clock.advance(10 * SCAN_MS);
  expect(waker.given).toBeLessThan(20);
  fleet.worker();
  // The first scan of a process is its own.
  await clock.advance(5_000);
  expect(await fleet.statuses()).toEqual({ completed: 1 });
  await clock.advance(SCAN_MS);
  expect(fleet.queue.size).toBe(0);
});

it("a worker gets no more than it may execute", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  let most = 0;
  let now = 0;
  const waker = fleet.queue.connect();
  const worker = fleet.replicas.start({
    durability: { leaseMs: 1_000, heartbeatMs: 300, waker },
    work: { max: 2 },
  });
  worker.runtime.register("work", { durable: true }, async (_input, { step }) => {
    await step("work", async () => {
      most = Math.max(most, ++now);
      await new Promise<void>((resolve) => clock.setTimeout(resolve, 500));
      now -= 1;
    });
  });
  await clock.advance(100);
  await fleet.create(6);
  await clock.advance(8_000);
  expect([await fleet.statuses(), most]).toEqual([{ completed: 6 }, 2]);
});

it("a waker that fails is told of, and a scan finds the runs", async () => {
  const fails = (): never => {
    throw new Error("The queue is down.");
  };
  const waker: Waker = { wake: fails, start: fails, stop: fails };
  const replicas = inMemory();
  const { clock } = replicas;
  const durability = { leaseMs: 1_000, heartbeatMs: 300, evictAfterMs: 200, waker };
  const web = replicas.start({ durability, work: false });
  web.runtime.declare({ name: "nap", durable: true });
  const worker = replicas.start({ durability });
  worker.runtime.register("nap", { durable: true }, async (_input, { sleep }) => {
    await sleep(1_000);
    return "Done.";
  });
  await clock.advance(100);
  const { run_id } = await web.runtime.createRun({ agent_name: "nap", input: "", mode: "async" });
  expect(web.said.map(({ level }) => level)).toEqual(["warn"]);
  await clock.advance(2 * SCAN_MS + 1_000);
  expect((await web.runtime.getRun(run_id)).status).toBe("completed");
  expect(worker.said.map(({ message }) => message)).toContain("The waker could not be started. It is tried again.");
  await worker.runtime.close();
  expect(worker.said.at(-1)?.message).toBe("The waker could not be stopped.");
});

it("a waker that starts late is started", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  const waker = fleet.queue.connect();
  let failures = 2;
  const start: Waker["start"] = (look, capacity) => {
    if (failures-- > 0) throw new Error("The queue is down.");
    return waker.start(look, capacity);
  };
  const flaky: Waker = { wake: (...all) => waker.wake(...all), start, stop: () => waker.stop() };
  fleet.worker({ waker: flaky });
  await clock.advance(10_000);
  await fleet.create(1);
  await clock.advance(4_000);
  expect([waker.given > 0, await fleet.statuses()]).toEqual([true, { completed: 1 }]);
});

it("a wake-up is not lost when the store fails as its run is looked at", async () => {
  const fleet = new Fleet(inMemory());
  const { clock } = fleet.replicas;
  let isDown = false;
  const durability = { leaseMs: 1_000, heartbeatMs: 300, waker: fleet.queue.connect() };
  const worker = fleet.replicas.start({ durability }, (call, method) => {
    if (isDown && (method === "find" || method === "claim")) throw new Error("The store is down.");
    return call();
  });
  worker.runtime.register("work", { durable: true }, () => "Done.");
  await clock.advance(100);
  isDown = true;
  await fleet.create(2);
  await clock.advance(1_000);
  isDown = false;
  await clock.advance(6_000);
  expect([await fleet.statuses(), fleet.queue.size]).toEqual([{ completed: 2 }, 0]);
});

it("the option scanMs holds where there is a waker", async () => {
  const fleet = new Fleet(inMemory(), () => "lost");
  fleet.worker({ scanMs: 500 });
  await fleet.replicas.clock.advance(100);
  await fleet.create(1);
  await fleet.replicas.clock.advance(6_000);
  expect(await fleet.statuses()).toEqual({ completed: 1 });
});

it("an option waker that is no waker is refused", async () => {
  const { store } = inMemory().start();
  const given = [{}, { wake: () => undefined, start: () => undefined }, "nats", null];
  const codes = given.map(
    async (waker) => (await refusal(Promise.resolve().then(() => durable(store, { waker } as never)))).code,
  );
  expect(await Promise.all(codes)).toEqual(given.map(() => "invalid_argument"));
});

it.each(opened)(
  "a run of a dead worker whose agent no living worker has is brought more and more rarely ($on)",
  async ({ open }) => {
    const fleet = new Fleet(open());
    const { clock } = fleet.replicas;
    const only = fleet.worker();
    await clock.advance(100);
    await fleet.create(1);
    await clock.advance(500);
    expect(fleet.finished.size).toBe(1);
    only.die();
    const other = fleet.stranger();
    await clock.advance(10 * 60_000);
    expect(other.waker.given).toBeGreaterThan(0);
    // It doubles from half a second on, until it is that of a scan.
    expect(other.waker.given).toBeLessThan(40);
  },
);
