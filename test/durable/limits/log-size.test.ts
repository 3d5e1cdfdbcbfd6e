import { AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { hookedStore, persistent } from "../../harness/store-proxy.ts";

const MAX = 10_000;

/** A store, and how many entries of logs were read from it. */
function counting() {
  const kept = persistent(new MemoryStore());
  const count = { entries: 0 };
  const store = (): Store =>
    hookedStore((call, method, parameters) => {
      // As a store whose entries are large: a few at a time.
      if (method !== "read") return call();
      const [key, from, limit] = parameters as Parameters<Store["read"]>;
      const entries = kept.read(key, from, Math.min(limit, 3));
      if (Array.isArray(entries)) count.entries += entries.length;
      return entries;
    }, kept);
  return { kept, store, count };
}

const open = (store: Store, maxLogBytes?: number) =>
  new AgentRuntime({ store: durable(store), limits: { maxLogBytes } });

it("a run whose log exceeds limits.maxLogBytes fails, and others go on", async () => {
  const runtime = open(counting().store(), MAX);
  runtime.register("agent", { durable: true }, async (input, { step }) => {
    for (let n = 0; n < 20; n++) await step("work", () => "x".repeat(Number(input[0]?.parts[0]?.content)));
    return "done";
  });
  const small = await runtime.createRun({ agent_name: "agent", input: "10" });
  expect(small.status).toBe("completed");
  const failed = await runtime.createRun({ agent_name: "agent", input: "1000" });
  expect(failed).toMatchObject({ status: "failed", error: { data: { reason: "limit_reached" } } });
  expect(failed.error?.message).toContain("limits.maxLogBytes (10000)");
  await runtime.close();
});

it("a log that is too large is not read as a whole by any call", async () => {
  const { store, count } = counting();
  const first = open(store());
  first.register("agent", { durable: true }, async (_input, { step, ask }) => {
    for (let n = 0; n < 200; n++) await step("work", () => "x".repeat(1_000));
    await ask("Well?");
  });
  const { run_id } = await first.createRun({ agent_name: "agent", input: "" });
  await first.close();

  const second = open(store(), MAX);
  second.register("other", () => "hello");
  const calls: readonly (() => Promise<unknown>)[] = [
    () => second.getRun(run_id),
    () => second.cancel(run_id),
    () => second.resume({ run_id, await_resume: { ok: true } }),
    () => second.details(run_id),
  ];
  for (const call of calls) {
    count.entries = 0;
    const error = await call().catch((thrown: unknown) => thrown);
    expect(CadenzaError.is(error) && [error.code, error.limit]).toEqual(["limit_reached", "maxLogBytes"]);
    expect(count.entries).toBeLessThan(50);
  }
  await second.close();
});

it("a run whose log is too large fails when a process takes it, with its sub-runs cancelled and its parent told", async () => {
  const { store, kept, count } = counting();
  const agents = (runtime: AgentRuntime) => {
    runtime.register("child", { durable: true }, async (_input, { step, run, sleep }) => {
      for (let n = 0; n < 200; n++) await step("work", () => "x".repeat(1_000));
      await Promise.all([run("grandchild", ""), sleep(60_000)]);
    });
    runtime.register("grandchild", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
    runtime.register("parent", { durable: true }, async (_input, { run }) => {
      const { status, error } = await run("child", "");
      return `${status}: ${error?.message}`;
    });
    return runtime;
  };
  const first = agents(open(store()));
  const { run_id } = await first.createRun({ agent_name: "parent", input: "", mode: "async" });
  const statuses = async () => Object.fromEntries((await first.listRuns()).map((run) => [run.agent_name, run.status]));
  await expect.poll(statuses).toMatchObject({ grandchild: "awaiting" });
  await first.close();
  const [child] = await kept.list({ tenant: "", agent_name: "child", limit: 1, offset: 0 });
  if (child === undefined) throw new Error("no sub-run");
  // Another process has died with the run.
  const head = { ...child.head, owner: "dead", epoch: child.head.epoch + 1, due_at: null };
  await kept.append(child.key, { epoch: child.head.epoch, position: child.position }, { entries: [], head });

  count.entries = 0;
  const second = agents(open(store(), MAX));
  await expect.poll(async () => (await second.getRun(run_id)).status).toBe("completed");
  const ended = await second.getRun(run_id);
  expect(JSON.stringify(ended.output)).toContain("failed: The log of run");
  expect(await second.getRun(child.key.run_id)).toMatchObject({ status: "failed", output: [] });
  await expect
    .poll(async () => (await kept.list({ tenant: "", agent_name: "grandchild", limit: 1, offset: 0 }))[0]?.head.status)
    .toBe("cancelled");
  await second.close();
});

it.each([
  ["a run that is not durable", "failed"],
  ["a cancelled run", "failed"],
] as const)(
  "%s of a dead process, whose log is too large, ends where no process has its code",
  async (what, status) => {
    const { store, kept } = counting();
    const first = open(store());
    first.register("agent", { durable: what === "a cancelled run" }, async function* (_input, { ask }) {
      for (let n = 0; n < 20; n++) yield "x".repeat(1_000);
      await ask("Well?");
    });
    const { run_id } = await first.createRun({ agent_name: "agent", input: "" });
    const key = { tenant: "", run_id };
    const found = await kept.find(key);
    if (found === undefined) throw new Error("no run");
    const { epoch } = found.head;
    const given = what === "a cancelled run" ? ("cancelling" as const) : found.head.status;
    const head = { ...found.head, status: given, owner: "dead", epoch: epoch + 1, due_at: null };
    await kept.append(key, { epoch, position: found.position }, { entries: [], head });

    const second = open(store(), MAX);
    second.register("other", () => "hello");
    await expect.poll(async () => (await kept.find(key))?.head.status).toBe(status);
    await first.close();
    await second.close();
  },
);

it("a run that ends its process again and again fails without its log being read", async () => {
  const { store, kept, count } = counting();
  const first = open(store());
  const agent = (runtime: AgentRuntime) =>
    runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
      for (let n = 0; n < 20; n++) await step("work", () => n);
      await ask("Well?");
    });
  const { run_id } = await agent(first).createRun({ agent_name: "agent", input: "" });
  await first.close();
  const stored = await kept.find({ tenant: "", run_id });
  if (stored === undefined) throw new Error("no run");
  const head = { ...stored.head, owner: "dead", epoch: stored.head.epoch + 1, takeovers: 9 };
  await kept.append(stored.key, { epoch: stored.head.epoch, position: stored.position }, { entries: [], head });
  count.entries = 0;
  const second = agent(open(store()));
  await expect.poll(async () => (await kept.find(stored.key))?.head.status).toBe("failed");
  expect(count.entries).toBe(0);
  const run = await second.getRun(run_id);
  expect(run).toMatchObject({ status: "failed", await_request: null, error: { data: { reason: "crash_loop" } } });
  await second.close();
});

it("a run that ends its process again and again is cancelled if a cancel arrives before its end", async () => {
  const { store, kept } = counting();
  const agent = (runtime: AgentRuntime) =>
    runtime.register("agent", { durable: true }, async (_input, { ask }) => ask("Well?"));
  const first = agent(open(store()));
  const { run_id } = await first.createRun({ agent_name: "agent", input: "" });
  await first.close();
  const stored = await kept.find({ tenant: "", run_id });
  if (stored === undefined) throw new Error("no run");
  const head = { ...stored.head, owner: "dead", epoch: stored.head.epoch + 1, takeovers: 9 };
  await kept.append(stored.key, { epoch: stored.head.epoch, position: stored.position }, { entries: [], head });
  const web = new AgentRuntime({ store: durable(store()), work: false });
  let ends = 0;
  const ending = hookedStore(async (call, method) => {
    if (method !== "append") return call();
    ends += 1;
    if (ends === 1) await web.cancel(run_id);
    return call();
  }, store());
  const second = agent(open(ending));
  await expect.poll(async () => (await kept.find(stored.key))?.head.status).toBe("cancelled");
  expect(ends).toBe(2);
  const log = await kept.read(stored.key, 0, 99);
  expect(log?.slice(-2)).toMatchObject([{ type: "cancel-requested" }, { type: "ended" }]);
  for (const runtime of [second, web]) await runtime.close();
});

it("a run that fails because of its log says in which generation, whether it was read or not", async () => {
  const { store, kept } = counting();
  const agent = (runtime: AgentRuntime) =>
    runtime.register("agent", { durable: true }, async (_input, { step, ask, generation, continueAsNew }) => {
      if (generation < 3) return continueAsNew();
      for (let n = 0; n < 20; n++) await step("work", () => "x".repeat(1_000));
      await ask("Well?");
      return undefined;
    });
  const limited = agent(open(store(), MAX));
  const failed = await limited.createRun({ agent_name: "agent", input: "" });
  expect(await limited.details(failed.run_id)).toMatchObject({ generation: 3, status: "failed" });
  await limited.close();

  const first = agent(open(store()));
  const { run_id } = await first.createRun({ agent_name: "agent", input: "" });
  await first.close();
  const key = { tenant: "", run_id };
  const found = await kept.find(key);
  if (found === undefined) throw new Error("no run");
  const { epoch } = found.head;
  const head = { ...found.head, owner: "dead", epoch: epoch + 1, due_at: null };
  await kept.append(key, { epoch, position: found.position }, { entries: [], head });
  const second = agent(open(store(), MAX));
  await expect.poll(async () => (await kept.find(key))?.head.status).toBe("failed");
  expect(await second.details(run_id)).toMatchObject({ generation: 3, status: "failed" });
  await second.close();
});
