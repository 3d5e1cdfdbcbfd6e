import type { Message } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import type { DurableRuntimeOptions } from "../../harness/durable-runtime.ts";
import { drain, refusal, textOf, textsOf } from "../../harness/runtimes.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* The `concurrency` of an agent is counted by the store, over all processes. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };
const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

/** What the agents of a test have begun, and how they end. */
class Works {
  readonly begun: string[] = [];
  readonly #ends: (() => void)[] = [];

  work(name: string): Promise<string> {
    this.begun.push(name);
    return new Promise((resolve) => this.#ends.push(() => resolve(name)));
  }

  /** Ends the oldest one. */
  end(): void {
    this.#ends.shift()?.();
  }
}

function nameOf([message]: readonly Message[]): string {
  return message === undefined ? "" : textOf(message);
}

/** An agent that works, and asks after that if its input says so. */
function agentOf(
  works: Works,
  concurrency: { max: number; per?: "agent" | "tenant" | "session" | "process"; whenFull?: "reject" },
) {
  return defineAgent("limited", { durable: true, concurrency }, async (input, { ask, step }) => {
    const name = nameOf(input);
    await step("begin", () => name);
    await step("work", () => works.work(name));
    if (name.startsWith("ask")) await ask("Well?");
    if (name.startsWith("ask")) await step("more", () => works.work(`${name} again`));
    return name;
  });
}

function start(replicas: Replicas, agent: ReturnType<typeof agentOf>, options: DurableRuntimeOptions = {}): Replica {
  const replica = replicas.start({ durability, ...options });
  replica.runtime.register(agent);
  return replica;
}

function create({ runtime }: Replica, input: string) {
  return runtime.createRun({ agent_name: "limited", input, mode: "async" });
}

it.each(opened)("runs of all processes begin in the order in which they were accepted ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works();
  const agent = agentOf(works, { max: 2 });
  const web = start(replicas, agent, { work: false });
  const processes = [start(replicas, agent), web, start(replicas, agent)];
  for (const [index, process] of [...processes, ...processes].entries()) {
    await create(process, `run ${index}`);
    await replicas.clock.advance(20);
  }
  await replicas.clock.advance(1_000);
  expect(works.begun).toEqual(["run 0", "run 1"]);
  for (let ended = 1; ended <= 4; ended++) {
    works.end();
    await replicas.clock.advance(500);
    expect(works.begun).toHaveLength(2 + ended);
  }
  expect(works.begun).toEqual(["run 0", "run 1", "run 2", "run 3", "run 4", "run 5"]);
});

it.each(opened)("a caller of a run that waits for a slot gets its events and its result ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works();
  const agent = agentOf(works, { max: 1 });
  const process = start(replicas, agent);
  const events = drain(process.runtime.createRun({ agent_name: "limited", input: "first", mode: "stream" }));
  const waiting = process.runtime.createRun({ agent_name: "limited", input: "second" });
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["first"]);
  works.end();
  await replicas.clock.advance(50);
  expect((await events).at(-1)?.type).toBe("run.completed");
  expect(works.begun).toEqual(["first", "second"]);
  works.end();
  await replicas.clock.advance(50);
  expect(textsOf(await waiting)).toEqual(["second"]);
});

it.each(opened)(
  "an answer is taken although no slot is free, and the run goes on when one is ($on)",
  async ({ open }) => {
    const replicas = open();
    const works = new Works();
    const agent = agentOf(works, { max: 1 });
    const one = start(replicas, agent);
    const other = start(replicas, agent);
    const { run_id } = await create(one, "ask");
    await replicas.clock.advance(100);
    works.end();
    await replicas.clock.advance(500);
    expect((await one.runtime.getRun(run_id)).status).toBe("awaiting");
    await create(other, "other");
    await replicas.clock.advance(500);
    expect(works.begun).toEqual(["ask", "other"]);
    const resuming = one.runtime.resume({ run_id, await_resume: { ok: true } });
    await replicas.clock.advance(1_000);
    expect((await one.runtime.getRun(run_id)).status).toBe("in-progress");
    expect(works.begun).toEqual(["ask", "other"]);
    works.end();
    await replicas.clock.advance(1_000);
    expect(works.begun).toEqual(["ask", "other", "ask again"]);
    works.end();
    await replicas.clock.advance(1_000);
    expect((await resuming).status).toBe("completed");
  },
);

it.each(opened)("a run that is not durable waits for its slot where it is ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works();
  const agent = defineAgent("limited", { concurrency: { max: 1 } }, async (input, { ask }) => {
    const name = nameOf(input);
    if (name === "ask") await ask("Well?");
    return works.work(name);
  });
  const one = start(replicas, agent);
  const { run_id } = await create(one, "ask");
  await replicas.clock.advance(100);
  await create(one, "other");
  await replicas.clock.advance(100);
  expect(works.begun).toEqual(["other"]);
  const resuming = one.runtime.resume({ run_id, await_resume: {} });
  await replicas.clock.advance(3_000);
  expect(works.begun).toEqual(["other"]);
  works.end();
  await replicas.clock.advance(200);
  expect(works.begun).toEqual(["other", "ask"]);
  works.end();
  await replicas.clock.advance(200);
  expect((await resuming).status).toBe("completed");
});

it.each(opened)("a run that must not wait is refused in every process ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works();
  const agent = agentOf(works, { max: 1, whenFull: "reject" });
  const processes = [start(replicas, agent), start(replicas, agent), start(replicas, agent, { work: false })];
  await create(processes[0] as Replica, "first");
  for (const process of processes) {
    const refused = await refusal(create(process, "second"));
    expect(refused).toMatchObject({ code: "limit_reached", agent_name: "limited", limit: "concurrency" });
  }
  await replicas.clock.advance(100);
  works.end();
  await replicas.clock.advance(100);
  await create(processes[2] as Replica, "third");
  await replicas.clock.advance(200);
  expect(works.begun).toEqual(["first", "third"]);
});

it.each(opened)("each tenant has its own with `per: tenant`, over all processes ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works();
  const agent = agentOf(works, { max: 1, per: "tenant" });
  const processes = [start(replicas, agent), start(replicas, agent), start(replicas, agent, { work: false })];
  for (const [index, tenant] of ["red", "red", "red", "blue", "", ""].entries()) {
    const { runtime } = processes[index % 3] as Replica;
    const input = `${tenant} ${index}`;
    await runtime.scope({ tenant }).createRun({ agent_name: "limited", input, mode: "async" });
    await replicas.clock.advance(20);
  }
  await replicas.clock.advance(1_000);
  expect(works.begun).toEqual(["red 0", "blue 3", " 4"]);
  works.end();
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["red 0", "blue 3", " 4", "red 1"]);
  works.end();
  await replicas.clock.advance(500);
  expect(works.begun).toHaveLength(4);
  works.end();
  await replicas.clock.advance(500);
  expect(works.begun.at(-1)).toBe(" 5");
});

it("a tenant whose slots are taken refuses no run of another one", async () => {
  const replicas = inMemory();
  const works = new Works();
  const agent = agentOf(works, { max: 1, per: "tenant", whenFull: "reject" });
  const processes = [start(replicas, agent), start(replicas, agent)];
  const create = ({ runtime }: Replica, tenant: string) =>
    runtime.scope({ tenant }).createRun({ agent_name: "limited", input: tenant, mode: "async" });
  await create(processes[0] as Replica, "blue");
  for (const process of processes) {
    expect(await refusal(create(process, "blue"))).toMatchObject({ code: "limit_reached", limit: "concurrency" });
  }
  for (const tenant of ["red", "green"]) await create(processes[1] as Replica, tenant);
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["blue", "red", "green"]);
});

it("each process counts its own with `per: process`", async () => {
  const replicas = inMemory();
  const works = new Works();
  const agent = agentOf(works, { max: 1, per: "process" });
  const processes = [start(replicas, agent), start(replicas, agent)];
  for (const [index, process] of [...processes, ...processes].entries()) await create(process, `run ${index}`);
  await replicas.clock.advance(1_000);
  expect(works.begun).toEqual(["run 0", "run 1"]);
});

it("a run that waits for a slot is cancelled at once, in any process", async () => {
  const replicas = inMemory();
  const works = new Works();
  const agent = agentOf(works, { max: 1 });
  const one = start(replicas, agent);
  const web = start(replicas, agent, { work: false });
  await create(one, "first");
  const { run_id } = await create(one, "second");
  await replicas.clock.advance(100);
  const cancelling = web.runtime.cancel(run_id, { wait: true });
  await replicas.clock.advance(1_500);
  expect((await cancelling).status).toBe("cancelled");
  expect(works.begun).toEqual(["first"]);
});

it("the slot of a dead process is kept by its run, which another process takes over", async () => {
  const replicas = inMemory();
  const works = new Works();
  const agent = agentOf(works, { max: 1 });
  const one = start(replicas, agent);
  await create(one, "first");
  await replicas.clock.advance(100);
  one.kill();
  const other = start(replicas, agent);
  await create(other, "second");
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["first"]);
  await replicas.clock.advance(1_500);
  expect(works.begun).toEqual(["first", "first"]);
  works.end();
  works.end();
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["first", "first", "second"]);
});

it("a process that closes hands its run on with its slot", async () => {
  const replicas = inMemory();
  const works = new Works();
  const agent = agentOf(works, { max: 1 });
  const one = start(replicas, agent);
  await create(one, "first");
  await replicas.clock.advance(20);
  const other = start(replicas, agent);
  await create(other, "second");
  await replicas.clock.advance(300);
  const closing = one.runtime.close({ drainMs: 0 });
  await replicas.clock.advance(300);
  await closing;
  expect(works.begun).toEqual(["first", "first"]);
});

it.each(opened)(
  "an agent without a worker keeps the permit of a shared limit for the time of a lease, and goes on once it has one ($on)",
  async ({ open }) => {
    const replicas = open();
    const works = new Works();
    const limits = [{ name: "shared", max: 1 }];
    const agents = ["first", "second"].map((name) =>
      defineAgent(name, { durable: true, limits }, async (input, { step }) =>
        step("work", () => works.work(nameOf(input))),
      ),
    );
    const [one, other] = agents;
    const web = replicas.start({ durability, work: false });
    for (const agent of agents) web.runtime.register(agent);
    for (const [agent_name, input] of [
      ["first", "1"],
      ["first", "2"],
      ["second", "3"],
    ] as const)
      await web.runtime.createRun({ agent_name, input, mode: "async" });
    const worker = replicas.start({ durability });
    if (other !== undefined) worker.runtime.register(other);
    await replicas.clock.advance(durability.leaseMs - 200);
    expect(works.begun).toEqual([]);
    await replicas.clock.advance(2 * durability.leaseMs);
    expect(works.begun).toEqual(["3"]);
    if (one !== undefined) replicas.start({ durability }).runtime.register(one);
    for (let n = 0; n < 3; n++) {
      works.end();
      await replicas.clock.advance(500);
    }
    expect(works.begun.toSorted()).toEqual(["1", "2", "3"]);
  },
);

it("a fork waits for a slot as other runs do", async () => {
  const replicas = inMemory();
  const works = new Works();
  const agent = agentOf(works, { max: 1 });
  const one = start(replicas, agent);
  const { run_id } = await create(one, "first");
  await replicas.clock.advance(100);
  works.end();
  await replicas.clock.advance(100);
  await create(one, "second");
  await replicas.clock.advance(100);
  const fork = await one.runtime.fork(run_id, { before: "work#1", mode: "async" });
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["first", "second"]);
  works.end();
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["first", "second", "first"]);
  works.end();
  await replicas.clock.advance(500);
  expect((await one.runtime.getRun(fork.run_id)).status).toBe("completed");
});

it("a blocked run that is tried while no slot is free goes on when one is", async () => {
  const replicas = inMemory();
  const works = new Works();
  const concurrency = { max: 1 };
  const agent = agentOf(works, concurrency);
  const other = defineAgent("limited", { durable: true, concurrency }, async (input, { step }) => {
    await step("other", () => works.work(nameOf(input)));
  });
  const one = start(replicas, agent);
  const { run_id } = await create(one, "first");
  await replicas.clock.advance(100);
  one.kill();
  const two = replicas.start({ durability });
  two.runtime.register(other);
  await replicas.clock.advance(8_000);
  expect(await two.runtime.stats()).toMatchObject({ blocked: [{ run_id }] });
  two.kill();
  const second = defineAgent("limited", { durable: true, concurrency, version: "2" }, async (input, { step }) => {
    await step("work", () => works.work(nameOf(input)));
  });
  const three = replicas.start({ durability });
  three.runtime.register(second);
  await create(three, "second");
  await replicas.clock.advance(100);
  const four = start(replicas, agent);
  await replicas.clock.advance(1_000);
  expect(await four.runtime.stats()).toMatchObject({ blocked: [] });
  expect(works.begun).toEqual(["first", "second"]);
  works.end();
  works.end();
  await replicas.clock.advance(1_000);
  expect(works.begun).toEqual(["first", "second", "first"]);
});

it("a process stays open until a run that it has accepted begins", async () => {
  let held = 0;
  const replicas = inMemory();
  const clock = {
    now: () => replicas.clock.now(),
    setTimeout: (callback: () => void, delayMs: number) => replicas.clock.setTimeout(callback, delayMs),
    turn: () => replicas.clock.turn(),
    hold: () => {
      held += 1;
      return () => {
        held -= 1;
      };
    },
  };
  const works = new Works();
  const runtime = new AgentRuntime({ clock, store: durable(lastingStore(clock), durability) });
  runtime.register(agentOf(works, { max: 1 }));
  await replicas.clock.advance(500);
  expect(held).toBe(0);
  await runtime.createRun({ agent_name: "limited", input: "first", mode: "async" });
  expect(held).toBe(1);
  await replicas.clock.advance(100);
  expect(works.begun).toEqual(["first"]);
  expect(held).toBe(1);
  works.end();
  await replicas.clock.advance(100);
  expect(held).toBe(0);
});

it.each(opened)(
  "runs of a version that no process has any more give their slots to the next version ($on)",
  async ({ open }) => {
    const replicas = open();
    const works = new Works();
    const versionOf = (version: string) =>
      defineAgent("limited", { durable: true, concurrency: { max: 1 }, version }, (input, { step }) =>
        step("work", () => works.work(`${nameOf(input)} ${version}`)),
      );
    const former = replicas.start({ durability });
    former.runtime.register(versionOf("1"));
    for (const name of ["a", "b", "c"]) await create(former, name);
    await replicas.clock.advance(500);
    former.kill();
    const next = replicas.start({ durability });
    next.runtime.register(versionOf("2"));
    const { run_id } = await create(next, "d");
    await replicas.clock.advance(durability.leaseMs);
    expect(works.begun).toEqual(["a 1"]);
    await replicas.clock.advance(3 * durability.leaseMs);
    expect(works.begun).toEqual(["a 1", "d 2"]);

    const again = replicas.start({ durability });
    again.runtime.register(versionOf("1"));
    await replicas.clock.advance(durability.leaseMs);
    expect(works.begun).toEqual(["a 1", "d 2"]);
    works.end();
    for (let ended = 1; ended <= 4; ended++) {
      works.end();
      await replicas.clock.advance(500);
    }
    expect((await next.runtime.getRun(run_id)).status).toBe("completed");
    expect(works.begun).toEqual(["a 1", "d 2", "b 1", "c 1", "a 1"]);
  },
);

it.each(opened)("a plain run that was answered gets its slot before those that come later ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works();
  const agent = defineAgent("limited", { concurrency: { max: 1 } }, async (input, { ask }) => {
    const name = nameOf(input);
    await works.work(name);
    if (!name.startsWith("ask")) return name;
    await ask("Well?");
    await works.work(`${name} again`);
    return name;
  });
  const one = replicas.start({ durability });
  one.runtime.register(agent);
  const other = replicas.start({ durability });
  other.runtime.register(agent);
  const { run_id } = await create(one, "ask");
  await replicas.clock.advance(50);
  for (const name of ["a", "b"]) await create(other, name);
  await replicas.clock.advance(50);
  works.end();
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["ask", "a"]);
  await one.runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" });
  await replicas.clock.advance(500);
  for (const name of ["c", "d"]) await create(other, name);
  for (let ended = 1; ended <= 5; ended++) {
    works.end();
    await replicas.clock.advance(500);
  }
  works.end();
  await replicas.clock.advance(500);
  expect(works.begun).toEqual(["ask", "a", "b", "ask again", "c", "d"]);
  expect((await one.runtime.getRun(run_id)).status).toBe("completed");
});
