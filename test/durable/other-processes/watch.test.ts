import { join } from "node:path";
import type { AgentFunction, Watched } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { SqliteStoreOptions } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import type { RunPost } from "cadenza/store";
import { afterEach, beforeEach, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import type { DurableRuntimeOptions } from "../../harness/durable-runtime.ts";
import { deferred } from "../../harness/promises.ts";
import { drivers, openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";

/* All runs of a SQLite file are watched by a process that executes none of them. */

const feed = { keepMs: 60_000 };
const asks: AgentFunction = async (_input, { ask }) => JSON.stringify(await ask("Well?"));

let folder: ReturnType<typeof temporaryFolder>;
let clock: FakeClock;
let runtimes: AgentRuntime[];

beforeEach(() => {
  folder = temporaryFolder();
  clock = new FakeClock();
  runtimes = [];
});

afterEach(async () => {
  for (const runtime of runtimes) await runtime.close({ drainMs: 0 });
  folder.remove();
});

const openStore = (options: SqliteStoreOptions = {}): SqliteStore =>
  new SqliteStore(openDatabase(join(folder.path, "runs.db")), { clock, closeDatabase: true, feed, ...options });

function start(options: DurableRuntimeOptions = {}, store = openStore()): AgentRuntime {
  const runtime = new AgentRuntime({ clock, ...options, store });
  runtimes.push(runtime);
  return runtime;
}

function follow(runtime: AgentRuntime) {
  const told: string[] = [];
  const all: Watched[] = [];
  void (async () => {
    for await (const one of runtime.watch()) {
      all.push(one);
      const { event } = one;
      if (event.type === "run.awaiting") told.push(`${event.await_id}?${event.of === null ? "" : " of a sub-run"}`);
      else told.push(event.type === "question.settled" ? `${event.await_id}: ${event.how}` : event.type);
    }
  })();
  return { told, all };
}

it("a process that executes nothing hears nothing with `on`, also of its own runs, and watches all of them", async () => {
  const heard: string[] = [];
  const web = start({ work: false });
  web.register("asks", { durable: true }, asks);
  for (const type of ["run.created", "run.awaiting", "run.completed"] as const) web.on(type, () => heard.push(type));
  const worker = start();
  worker.register("asks", { durable: true }, asks);
  const heardThere: string[] = [];
  worker.on("run.awaiting", () => heardThere.push("run.awaiting"));
  const { told, all } = follow(web);

  const { run_id } = await web.createRun({ agent_name: "asks", input: "", mode: "async" });
  await clock.advance(2_000);
  expect(told).toEqual(["ask#1?"]);
  const resuming = web.resume({ run_id, await_resume: { ok: true } });
  await clock.advance(5_000);
  await resuming;
  await clock.advance(1_000);

  expect(told).toEqual(["ask#1?", "ask#1: answer", "run.completed"]);
  expect(new Set(all.map((one) => one.run_id))).toEqual(new Set([run_id]));
  expect(heardThere).toEqual(["run.awaiting"]);
  expect(heard).toEqual([]);
});

it("what a process posts to a run that it cannot load is told: a cancel settles the questions", async () => {
  const worker = start();
  worker.register("asks", { durable: true }, asks);
  const { run_id } = await worker.createRun({ agent_name: "asks", input: "" });
  await worker.close();
  const posts: (RunPost["feed"] | undefined)[] = [];
  const store = openStore();
  const post = store.post.bind(store);
  store.post = (key, given) => {
    posts.push(given.feed);
    return post(key, given);
  };
  const web = start({ work: false }, store);
  const { told } = follow(web);
  await web.cancel(run_id);
  await clock.settle();

  expect(posts).toEqual([[{ type: "question.settled", await_id: "ask#1", how: "withdrawn", of: null }]]);
  expect(told).toEqual(["ask#1?", "ask#1: withdrawn"]);
  const next = start();
  next.register("asks", { durable: true }, asks);
  await clock.advance(30_000);
  // The next process cannot know what the one that has posted the cancel knew.
  expect(told).toEqual(["ask#1?", "ask#1: withdrawn", "ask#1: withdrawn", "run.cancelled"]);
});

it("a question is told to be settled by a cancel that another process posts when the question is asked", async () => {
  const worker = start();
  const [work, posting] = [deferred(), deferred()];
  worker.register("asks", { durable: true }, async (_input, { step, ask }) => {
    await step("work", () => work.promise);
    return JSON.stringify(await ask("Well?"));
  });
  const { run_id } = await worker.createRun({ agent_name: "asks", input: "", mode: "async" });
  await clock.settle();
  const store = openStore();
  // The log that the process has read ends before the question.
  const post = store.post.bind(store);
  store.post = (key, given) => posting.promise.then(() => post(key, given)) as never;
  const web = start({ work: false }, store);
  const { told } = follow(web);
  const cancelling = web.cancel(run_id);
  await clock.settle();
  work.resolve();
  await clock.advance(1_000);
  posting.resolve();
  await clock.advance(5_000);
  await cancelling;

  expect(told).toEqual(["ask#1?", "ask#1: withdrawn", "run.cancelled"]);
});

it("a run whose code does not match its log is told of each time that code is tried in vain", async () => {
  const first = start();
  first.register("trip", { durable: true }, async (_input, { step, ask }) => {
    await step("find", () => "RE 5");
    await ask("Take it?");
  });
  const { run_id } = await first.createRun({ agent_name: "trip", input: "" });
  await first.close();

  const mismatching: AgentFunction = (_input, { step }) => step("walk", () => "away");
  const next = start();
  const { told } = follow(next);
  next.register("trip", { durable: true }, mismatching);
  const cancelled = next.resume({ run_id, await_resume: {} }).catch(() => {});
  await clock.advance(10_000);
  await cancelled;
  expect(told).toEqual(["ask#1?", "run.blocked"]);
  next.register("trip", { durable: true, replace: true }, mismatching);
  await clock.advance(10_000);
  expect(told).toEqual(["ask#1?", "run.blocked", "run.blocked"]);
});

it("a question of a sub-run is told of for the sub-run and for each run above it", async () => {
  const worker = start();
  worker.register("child", { durable: true }, asks);
  worker.register("parent", { durable: true }, (_input, { run }) => run("child", "").then(() => "Done."));
  const watching = start({ work: false });
  const { told, all } = follow(watching);
  const { run_id } = await worker.createRun({ agent_name: "parent", input: "" });
  await worker.resume({ run_id, await_resume: { ok: true } });
  await clock.advance(1_000);

  const child = all.filter((one) => one.run_id !== run_id).map(({ event }) => event.type);
  expect(child).toEqual(["run.awaiting", "question.settled", "run.completed"]);
  expect(all.filter((one) => one.run_id === run_id).map(({ event }) => event)).toEqual([
    { type: "run.awaiting", await_id: "run:child#1/ask#1", of: { run_id: all[0]?.run_id, await_id: "ask#1" } },
    { type: "question.settled", await_id: "run:child#1/ask#1", how: "answer", of: expect.anything() },
    { type: "run.completed" },
  ]);
  expect(told).toContain("run:child#1/ask#1? of a sub-run");
});

it("old events are deleted by each process with a runtime, although no run is", async () => {
  const runtime = start();
  runtime.register("echo", (input) => input);
  const { run_id } = await runtime.createRun({ agent_name: "echo", input: "" });
  const store = openStore();
  const count = () => store.readFeed?.({ from: "start", limit: 9 })?.items.length;
  expect(count()).toBe(1);
  await clock.advance(feed.keepMs + 700_000);
  expect(count()).toBe(0);
  expect((await runtime.getRun(run_id)).status).toBe("completed");
  store.close();
});

it("a file has its feed for all that open it later, until one ends it", async () => {
  const [one, other] = [openStore(), openStore({ feed: undefined })];
  expect(other.readFeed).toBeDefined();
  const position = one.readFeed?.({ from: "now", limit: 1 })?.position ?? "";
  const none = openStore({ feed: false });
  expect(none.readFeed).toBeUndefined();
  expect(openStore({ feed: undefined }).readFeed).toBeUndefined();
  expect(one.readFeed?.({ from: position, limit: 9 })).toBeUndefined();
  const again = openStore();
  expect(again.readFeed?.({ from: position, limit: 9 })).toBeUndefined();
  expect(again.readFeed?.({ from: "start", limit: 9 })).toMatchObject({ items: [], more: null });
});

it("a file that is restored from a backup gives no position again", async () => {
  const runtime = start();
  runtime.register("echo", (input) => input);
  const store = openStore();
  const count = 3;
  const backup = join(folder.path, "backup.db");
  await runtime.createRun({ agent_name: "echo", input: "" });
  openDatabase(join(folder.path, "runs.db")).exec(`VACUUM INTO '${backup}'`);
  for (let n = 0; n < count; n++) await runtime.createRun({ agent_name: "echo", input: "" });
  const { position = "" } = store.readFeed?.({ from: "start", limit: 9 }) ?? {};
  await clock.advance(1);

  const restored = new SqliteStore(openDatabase(backup), { clock, closeDatabase: true });
  const next = start({}, restored);
  next.register("echo", (input) => input);
  await next.createRun({ agent_name: "echo", input: "" });
  expect(restored.readFeed?.({ from: position, limit: 9 })?.items).toHaveLength(1);
  store.close();
});

it.each(drivers)(
  "a store that only reads has the feed, also for an operator without a runtime ($name)",
  async (driver) => {
    const runtime = start();
    runtime.register("echo", (input) => input);
    await runtime.scope({ tenant: "acme" }).createRun({ agent_name: "echo", input: "" });
    const store = new SqliteStore(driver.openToRead(join(folder.path, "runs.db")), { readOnly: true, feed: false });
    for await (const { tenant, event } of createAdmin({ store }).watch()) {
      expect([tenant, event.type]).toEqual(["acme", "run.completed"]);
      break;
    }
    store.close();
  },
);
