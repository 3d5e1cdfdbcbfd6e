import type { AgentFunction } from "cadenza";
import { expect, it } from "vitest";
import type { DurableRuntimeOptions } from "../../harness/durable-runtime.ts";
import { textOf } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* `stepLimits` on a store that persists: the store counts, over all processes. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 60_000 };
/** How long the time of a rate of 1,000 ms is counted. */
const SECOND = 1_050;
const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

/** What the steps of a test have begun, in all processes, and how they end. */
class Works {
  readonly begun: (readonly [name: string, at: number])[] = [];
  readonly #ends = new Map<string, () => void>();
  readonly #replicas: Replicas;
  readonly #from: number;

  constructor(replicas: Replicas) {
    this.#replicas = replicas;
    this.#from = replicas.clock.now();
  }

  get names(): readonly string[] {
    return this.begun.map(([name]) => name);
  }

  get times(): readonly number[] {
    return this.begun.map(([, at]) => at);
  }

  begin(name: string): string {
    this.begun.push([name, this.#replicas.clock.now() - this.#from]);
    return name;
  }

  /** A body that ends when it is told to. */
  work(name: string): Promise<string> {
    this.begin(name);
    return new Promise((resolve) => this.#ends.set(name, () => resolve(name)));
  }

  async end(name: string): Promise<void> {
    this.#ends.get(name)?.();
    await this.#replicas.clock.advance(250);
  }
}

type Body = (name: string) => unknown;

/** A process whose agent has one step under the limit `api`. Each process has an agent of its own, so that it executes its runs itself. */
function start(
  replicas: Replicas,
  name: string,
  stepLimits: DurableRuntimeOptions["stepLimits"],
  body: Body,
  hook?: Hook,
): Replica & { create(input: string): Promise<string> } {
  const replica = replicas.start({ durability, stepLimits }, hook);
  const agent: AgentFunction = ([message], { step }) => {
    const input = message === undefined ? "" : textOf(message);
    return step("call", async () => String(await body(input)), { limit: "api" });
  };
  replica.runtime.register(name, { durable: true }, agent);
  const create = async (input: string): Promise<string> =>
    (await replica.runtime.createRun({ agent_name: name, input, mode: "async" })).run_id;
  return { ...replica, create };
}

it.each(opened)("a rate holds for the steps of all processes ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works(replicas);
  const limits = { api: { rate: { count: 3, perMs: 1_000 } } };
  const processes = ["one", "two"].map((name) => start(replicas, name, limits, (input) => works.begin(input)));
  for (let n = 0; n < 4; n++) for (const process of processes) await process.create(`${n}`);
  await replicas.clock.advance(SECOND - 1);
  expect(works.times).toEqual([0, 0, 0]);
  await replicas.clock.advance(4_000);
  expect(works.times).toEqual([0, 0, 0, SECOND, SECOND, SECOND, 2 * SECOND, 2 * SECOND]);
});

it.each(opened)("a max holds for the bodies of all processes, which get permits in turn ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works(replicas);
  const limits = { api: { max: 2 } };
  const [one, two] = ["one", "two"].map((name) => start(replicas, name, limits, (input) => works.work(input)));
  for (let n = 1; n <= 4; n++) await one?.create(`one ${n}`);
  await replicas.clock.advance(250);
  for (let n = 1; n <= 2; n++) await two?.create(`two ${n}`);
  await replicas.clock.advance(250);
  expect(works.names).toEqual(["one 1", "one 2"]);
  for (const [index, name] of ["one 1", "one 2", "one 3", "two 1", "one 4", "two 2"].entries()) {
    await works.end(name);
    expect(works.begun).toHaveLength(Math.min(6, index + 3));
  }
  expect(works.names).toEqual(["one 1", "one 2", "one 3", "two 1", "one 4", "two 2"]);
});

it.each(opened)("the permits of a process that has died are free when its lease has ended ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works(replicas);
  const limits = { api: { max: 2 } };
  const dying = start(replicas, "one", limits, (input) => works.work(input));
  const other = start(replicas, "two", limits, (input) => works.work(input));
  for (const input of ["a", "b", "c"]) await dying.create(input);
  await replicas.clock.advance(100);
  await other.create("d");
  await replicas.clock.advance(100);
  dying.kill();
  await replicas.clock.advance(500);
  expect(works.names).toEqual(["a", "b"]);
  await replicas.clock.advance(1_000);
  expect(works.names).toEqual(["a", "b", "d"]);
});

it.each(opened)("a process that closes gives its permits back at once ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works(replicas);
  const limits = { api: { max: 1 } };
  const closing = start(replicas, "one", limits, (input) => works.work(input));
  const other = start(replicas, "two", limits, (input) => works.work(input));
  await closing.create("a");
  await closing.create("b");
  await replicas.clock.advance(100);
  await other.create("c");
  await replicas.clock.advance(100);
  const closed = closing.runtime.close({ drainMs: 0 });
  await replicas.clock.advance(300);
  await closed;
  expect(works.names).toEqual(["a", "c"]);
});

it.each(opened)("a run that waits for its limit is handed on when its process closes ($on)", async ({ open }) => {
  const replicas = open();
  const works = new Works(replicas);
  const limits = { api: { rate: { count: 1, perMs: 60_000 } } };
  const body: Body = (input) => works.begin(input);
  const closing = start(replicas, "agent", limits, body);
  await closing.create("a");
  const run_id = await closing.create("b");
  await replicas.clock.advance(1_000);
  const closed = closing.runtime.close({ drainMs: 10_000 });
  await replicas.clock.advance(5_100);
  expect((await closed).left.map((run) => run.run_id)).toEqual([run_id]);
  const other = start(replicas, "agent", limits, body);
  await replicas.clock.advance(200_000);
  expect((await other.runtime.getRun(run_id)).status).toBe("completed");
  // The grant that the first process has reserved is spent.
  expect(works.times).toEqual([0, 2 * 60_050]);
});

it("many steps that wait ask the store no more than one does, and nothing while they wait", async () => {
  const replicas = inMemory();
  const calls: string[] = [];
  const count: Hook = (call, method) => {
    if (method === "grantSteps" || method === "permitSteps") calls.push(method);
    return call();
  };
  const limits = { api: { max: 1, rate: { count: 1, perMs: 600_000 } } };
  const works = new Works(replicas);
  const { create } = start(replicas, "one", limits, (input) => works.begin(input), count);
  for (let n = 0; n < 200; n++) await create(`${n}`);
  await replicas.clock.advance(100);
  // The first has begun and ended; the second has its permit, and waits for its grant.
  expect(works.names).toEqual(["0"]);
  const before = calls.length;
  await replicas.clock.advance(60_000);
  expect(calls.slice(before).filter((method) => method === "grantSteps")).toEqual([]);
});

it("a store that fails delays the steps that wait, and loses no permit", async () => {
  const replicas = inMemory();
  const works = new Works(replicas);
  let failing = 0;
  let losing = 0;
  const hook: Hook = (call, method) => {
    if (method !== "grantSteps" && method !== "permitSteps") return call();
    if (failing-- > 0) throw new Error("the disk is full");
    const answer = call();
    if (losing-- > 0) throw new Error("the connection broke");
    return answer;
  };
  const limits = { api: { max: 2, rate: { count: 100, perMs: 1_000 } } };
  const one = start(replicas, "one", limits, (input) => works.work(input), hook);
  failing = 2;
  losing = 2;
  for (const input of ["a", "b", "c", "d", "e"]) await one.create(input);
  await replicas.clock.advance(2_000);
  expect(works.names).toEqual(["a", "b"]);
  for (const [index, name] of ["a", "b", "c", "d", "e"].entries()) {
    failing = 2;
    losing = 2;
    await works.end(name);
    await replicas.clock.advance(2_000);
    expect(works.begun).toHaveLength(Math.min(5, index + 3));
  }
  expect(one.said.filter(({ message }) => message.startsWith("The store failed to count a step"))).not.toEqual([]);
});

it("a process that has lost its lease counts what it has at work, and gets no more for it", async () => {
  const replicas = inMemory();
  const works = new Works(replicas);
  let isAway = false;
  const hook: Hook = (call) => {
    if (isAway) throw new Error("the connection is lost");
    return call();
  };
  const limits = { api: { max: 2 } };
  const away = start(replicas, "one", limits, (input) => works.work(input), hook);
  const other = start(replicas, "two", limits, (input) => works.work(input));
  await away.create("a");
  await away.create("b");
  await replicas.clock.advance(100);
  await other.create("c");
  await other.create("d");
  await other.create("e");
  isAway = true;
  await replicas.clock.advance(3_000);
  expect(works.names).toEqual(["a", "b", "c", "d"]);
  isAway = false;
  await replicas.clock.advance(3_000);
  await works.end("c");
  await replicas.clock.advance(1_000);
  expect(works.names).toEqual(["a", "b", "c", "d"]);
});
