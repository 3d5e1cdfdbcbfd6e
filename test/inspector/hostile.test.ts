import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import { defineAgent, MemoryStore, AgentRuntime as Runtime } from "cadenza";
import type { AdminRun } from "cadenza/admin";
import { createInspectorHandler, createInspectorNodeListener } from "cadenza/inspector";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { z } from "zod";
import type { ListEvent, RunEvent, StuckEvent } from "../../src/inspector/api.ts";
import { FakeClock } from "../harness/clock.ts";
import { amount, LONG_MS, seededRandom } from "../harness/fuzz.ts";
import { hookedStore, persistent } from "../harness/store-proxy.ts";
import { actionNames, Visitor } from "./visitor.ts";

const everything = { authorize: () => ({ allTenants: true }) };

const values: readonly unknown[] = [
  ...[null, true, -1, 1e308, "", "\u0000", "\ud800", "💥", "x".repeat(3_000), "__proto__", [], {}, [[]]],
  ...[
    "ask#1",
    { ok: true },
    { message: 1 },
    { type: "message", message: {} },
    { type: "message", message: { parts: [1] } },
  ],
];
const queries: readonly string[] = [
  ...[
    "",
    "%00",
    "%ff",
    "💥",
    "..%2f",
    "*",
    "9".repeat(30),
    "true",
    "awaiting",
    "awaiting,failed",
    "failed,",
    "a:b",
    "abcd",
  ],
  ...["2026-01-01T00:00:00Z", "1", "500", "MQ==", "null"],
];
const names = [
  "tenant",
  "run_id",
  "session_id",
  "agent",
  "version",
  "status",
  "label",
  "id",
  "roots",
  "after",
  "before",
];

it(
  "any request to the inspector gets an answer",
  async () => {
    const random = seededRandom();
    const runtime = new Runtime({ retention: { maxRuns: 100 } });
    const input = z.object({ of: z.string() }).or(z.string());
    runtime.register(defineAgent("asks", { input }).run(async (_input, { ask }) => ask("Who?")));
    runtime.register("echo", (input) => input);
    const visitor = new Visitor(createInspectorHandler(runtime, { ...everything, limits: { maxBodyBytes: 20_000 } }));
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "me" });
    const feeds = ["runs", "questions", "failures", "stuck", "figures", "run", "session"].map((name) => `feed/${name}`);
    const statuses = new Map<number, number>();
    for (let count = 0; count < amount(50_000, 1_500); count++) {
      const isPost = random.chance(0.5);
      const value = (): unknown => (random.chance(0.3) ? run_id : random.pick(values));
      const fields = [
        "tenant",
        "run_id",
        "await_id",
        "answer",
        "agent_name",
        "input",
        "name",
        "data",
        "before",
        "reason",
      ];
      const body = Object.fromEntries(fields.flatMap((key) => (random.chance(0.4) ? [[key, value()]] : [])));
      if (random.chance(0.5)) Object.assign(body, { run_id, tenant: "" });
      const text = random.chance(0.05) ? random.pick(["", "{", "[1", "null", "1"]) : JSON.stringify(body);
      const pairs = [...names, "cursor", "limit"].flatMap((name) =>
        random.chance(0.2) ? [`${name}=${random.chance(0.2) ? run_id : random.pick(queries)}`] : [],
      );
      const path = `api/${random.pick([...feeds, "start", "log", "cassette", "nothing"])}?${pairs.join("&")}`;
      const response = isPost ? await visitor.post(random.pick(actionNames), text) : await visitor.get(path);
      const isStream = response.headers.get("content-type") === "text/event-stream";
      const answer = isStream ? await response.body?.cancel() : await response.text();
      expect(response.status, `${path} ${text}: ${String(answer)}`).toBeLessThan(500);
      statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
    }
    for (const status of [200, 400, 404, 422]) expect([status, statuses.get(status) ?? 0]).not.toEqual([status, 0]);
    await runtime.close({ drainMs: 0 });
  },
  LONG_MS,
);

it.each<[string, string, Record<string, string>, number]>([
  ["a form's media type", "{}", { "content-type": "text/plain" }, 415],
  ["an empty media type", "{}", { "content-type": "" }, 415],
  ["a body that is too large", JSON.stringify({ input: "x".repeat(2_000) }), {}, 413],
  ["a body that is nested too deeply", `${"[".repeat(100)}${"]".repeat(100)}`, {}, 422],
  ["a list", "[]", {}, 422],
  ["an unknown field", '{"mode":"sync"}', {}, 422],
  ["a key that changes prototypes", '{"__proto__":{}}', {}, 422],
])("the inspector refuses a request to create a run with %s", async (_what, body, headers, status) => {
  const runtime = new Runtime().register("echo", (input) => input);
  const visitor = new Visitor(createInspectorHandler(runtime, { ...everything, limits: { maxBodyBytes: 1_000 } }));
  expect((await visitor.post("create", body, headers)).status).toBe(status);
  expect(await runtime.listRuns()).toEqual([]);
  await runtime.close();
});

it("too many views are refused, and one that is closed makes room", async () => {
  const clock = new FakeClock();
  const runtime = new Runtime({ clock }).register("echo", (input) => input);
  const { run_id } = await runtime.createRun({ agent_name: "echo", input: "" });
  const limits = { maxReaders: 2, maxReadersPerRun: 1 };
  const visitor = new Visitor(createInspectorHandler(runtime, { ...everything, limits }));
  const first = await visitor.follow(`run?run_id=${run_id}`);
  expect((await visitor.get(`api/feed/run?run_id=${run_id}`)).status).toBe(503);
  const second = await visitor.follow("runs");
  expect((await visitor.get("api/feed/stuck")).status).toBe(503);
  expect((await visitor.get("api/feed/run?run_id=11111111-1111-4111-8111-111111111111")).status).toBe(503);
  await second.leave();
  await (await visitor.follow("stuck")).leave();
  await first.leave();
  // A view that could not be opened takes no place.
  for (let count = 0; count < 5; count++) expect((await visitor.get("api/feed/run?run_id=x")).status).toBe(422);
  for (let count = 0; count < 5; count++)
    expect((await visitor.get("api/feed/run?run_id=11111111-1111-4111-8111-111111111111")).status).toBe(404);
  await (await visitor.follow("runs")).leave();
  const { timers } = clock;
  await (await visitor.follow("runs")).leave();
  expect(clock.timers).toBe(timers);
  await runtime.close();
});

it("views end when the runtime is closed, and new ones are refused", async () => {
  const clock = new FakeClock();
  const runtime = new Runtime({ clock }).register("echo", (input) => input);
  const { run_id } = await runtime.createRun({ agent_name: "echo", input: "" });
  const visitor = new Visitor(createInspectorHandler(runtime, everything));
  const paths = ["runs", "questions", "stuck", "figures", `run?run_id=${run_id}`, `session?session_id=${run_id}`];
  const feeds = await Promise.all(paths.map((path) => visitor.follow(path)));
  for (const feed of feeds) expect(await feed.next(clock)).toBeDefined();
  await runtime.close();
  for (const feed of feeds) expect(await feed.next(clock, 1_000)).toBeUndefined();
  expect((await visitor.get("api/feed/runs")).status).toBe(503);
});

it("nothing is read while the reader takes nothing, and a silent view says that it is there", async () => {
  const clock = new FakeClock();
  let reads = 0;
  const store = hookedStore((call) => {
    reads += 1;
    return call();
  });
  const runtime = new Runtime({ clock, store });
  const handler = createInspectorHandler(runtime, { ...everything, heartbeatMs: 2_000, stallMs: 60_000 });
  const response = await handler(new Request("http://localhost/api/feed/runs"));
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  const next = async (): Promise<string> => decoder.decode((await reader?.read())?.value);
  expect(await next()).toContain('"page"');
  const pending = next();
  await clock.advance(2_000);
  expect(await pending).toBe(":\n");
  await clock.advance(5_000);
  const before = reads;
  await clock.advance(40_000);
  expect(reads).toBe(before);
  // It goes on where it was.
  const later = next();
  await clock.advance(2_000);
  expect(await later).toBe(":\n");
  expect(reads).toBeGreaterThan(before);
  await reader?.cancel();
  await clock.advance(10_000);
  const left = reads;
  await clock.advance(10_000);
  expect(reads).toBe(left);
  await runtime.close();
});

it("a reader over a socket that takes nothing is disconnected", async () => {
  const clock = new FakeClock();
  const runtime = new Runtime({ clock, retention: { maxRuns: 10_000 } }).register("echo", (input) => input);
  const big = "x".repeat(4_000);
  for (let count = 0; count < 1_000; count++)
    await runtime.createRun({ agent_name: "echo", input: "" }, { metadata: big });
  const server = createServer(createInspectorNodeListener(runtime, { ...everything, stallMs: 12_345 }));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const closed = new Promise<void>((resolve) => server.on("connection", (one) => one.on("close", () => resolve())));
  socket.pause();
  socket.write("GET /api/feed/runs?limit=2000 HTTP/1.1\r\nhost: localhost\r\n\r\n");
  let isClosed = false;
  void closed.then(() => {
    isClosed = true;
  });
  while (!isClosed) await clock.advance(1_000);
  socket.destroy();
  server.close();
  await runtime.close();
});

it("a run whose process has died is shown as lost, and then as running elsewhere", async () => {
  const clock = new FakeClock();
  const data = persistent(new MemoryStore({ clock }));
  let isDead = false;
  const dying = hookedStore((call) => (isDead ? new Promise(() => {}) : call()), data);
  const agent = (runtime: Runtime): Runtime =>
    runtime.register("slow", { durable: true }, (_input, { signal, step }) =>
      step("wait", () => new Promise((_resolve, reject) => signal.addEventListener("abort", reject, { once: true }))),
    );
  const first = agent(new Runtime({ store: durable(dying, { leaseMs: 10_000 }), clock }));
  const { run_id } = await first.createRun({ agent_name: "slow", input: "", mode: "async" });
  await clock.settle();
  const watcher = new Runtime({ store: durable(data), clock, work: false });
  const visitor = new Visitor(createInspectorHandler(watcher, everything));
  const feed = await visitor.follow<RunEvent>(`run?run_id=${run_id}`);
  const stuck = await visitor.follow<StuckEvent>("stuck");
  const list = await visitor.follow<ListEvent<AdminRun>>("runs");
  const shown = await feed.next(clock);
  expect(shown).toMatchObject({ lost: false, run: { status: "in-progress" } });
  expect(await stuck.next(clock)).toMatchObject({ lost: [] });
  expect(await list.next(clock)).toMatchObject({ workers: [{ is_alive: true, runs: 1 }] });
  isDead = true;
  const diedAt = clock.now();
  expect(await feed.until(clock, (event) => event.type === "run" && event.lost)).toMatchObject({ items: [] });
  expect(clock.now() - diedAt).toBeLessThanOrEqual(10_000 + 1_000);
  expect(await stuck.until(clock, ({ lost }) => lost.length > 0)).toMatchObject({ lost: [{ run_id }] });
  await list.until(clock, ({ workers }) => workers?.[0]?.is_alive === false);
  const second = agent(new Runtime({ store: durable(data), clock }));
  const later = await feed.until(clock, (event) => event.type === "run" && !event.lost);
  expect(later).toMatchObject({ run: { takeovers: 1 } });
  expect(later.type === "run" && shown?.type === "run" && later.run.worker !== shown.run.worker).toBe(true);
  await stuck.until(clock, ({ lost }) => lost.length === 0);
  for (const one of [feed, stuck, list]) await one.leave();
  await second.close({ drainMs: 0 });
  await watcher.close({ drainMs: 0 });
});

it("a store without a runtime is shown, and nothing can be done to it", async () => {
  const store = new MemoryStore();
  const runtime = new Runtime({ store }).register("asks", async (_input, { ask }) => ask("Who?"));
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
  const visitor = new Visitor(createInspectorHandler({ store }, everything));
  expect(await (await visitor.get("api/start")).json()).toEqual({
    tenant: null,
    may_write: false,
    may_answer: false,
    agents: [],
    has_schedules: false,
    has_playground: false,
  });
  for (const path of ["runs", "questions", `run?run_id=${run_id}`]) {
    const response = await visitor.get(`api/feed/${path}`);
    const reader = response.body?.getReader();
    expect(new TextDecoder().decode((await reader?.read())?.value)).toContain(run_id);
    await reader?.cancel();
  }
  expect(await (await visitor.get(`api/cassette?run_id=${run_id}`)).json()).toMatchObject({ cassette: 1, run_id });
  expect((await visitor.post("cancel", { run_id })).status).toBe(403);
  await runtime.close();
});
