import { AgentError, MemoryStore, AgentRuntime as Runtime } from "cadenza";
import type { AdminFailure, AdminRun, TimelineItem } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import { createInspectorHandler } from "cadenza/inspector";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { z } from "zod";
import type {
  FamilyEvent,
  FiguresEvent,
  HistoryEvent,
  ListEvent,
  RunEvent,
  SessionEvent,
  SeveralEvent,
} from "../../src/inspector/api.ts";
import { FakeClock } from "../harness/clock.ts";
import { hookedStore, persistent } from "../harness/store-proxy.ts";
import { Visitor } from "./visitor.ts";

function open() {
  const clock = new FakeClock();
  const runtime = new Runtime({ store: durable(persistent(new MemoryStore({ clock }))), clock });
  runtime.register("refund", { durable: true, version: "1" }, async (_input, { ask, step, emit }) => {
    const { ok } = await ask("Refund 40 €?", { schema: z.object({ ok: z.boolean() }) });
    emit("Looking…");
    if (!ok) await step("refuse", () => Promise.reject(new AgentError("refused", "The bank refused.")));
    return "Refunded.";
  });
  runtime.register("talks", async (_input, { receive, emit }) => {
    for (let word = await receive("word"); word !== "end"; word = await receive("word")) emit(`${word} `);
  });
  const handler = createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) });
  const create = (agent_name: string, tenant = "") =>
    runtime.scope({ tenant }).createRun({ agent_name, input: "", mode: "async" });
  return { runtime, clock, create, visitor: new Visitor(handler) };
}

it("a list shows runs that are added, change, end and are deleted", async () => {
  const { runtime, clock, create, visitor } = open();
  const first = await create("refund");
  await clock.settle();
  const feed = await visitor.follow<ListEvent<AdminRun>>("runs?status=created,in-progress,awaiting,failed");
  expect(await feed.next(clock)).toMatchObject({
    type: "page",
    items: [{ run_id: first.run_id, status: "awaiting" }],
    more: false,
  });
  expect(await feed.isSilent(clock, 600)).toBe(true);
  const second = await create("refund", "acme");
  expect(await feed.next(clock)).toMatchObject({ type: "change", added: [{ run_id: second.run_id }], gone: [] });
  await runtime.resume({ run_id: first.run_id, await_resume: { ok: false } });
  expect(await feed.next(clock)).toMatchObject({ changed: [{ run_id: first.run_id, status: "failed" }], added: [] });
  await runtime.scope({ tenant: "acme" }).resume({ run_id: second.run_id, await_resume: { ok: true } });
  expect(await feed.next(clock)).toMatchObject({ changed: [], gone: [`acme/${second.run_id}`] });
  await runtime.delete(first.run_id);
  expect(await feed.next(clock)).toMatchObject({ gone: [`/${first.run_id}`] });
  await feed.leave();
  await runtime.close();
});

it("a list shows an old run that begins to match, at its place", async () => {
  const { runtime, clock, create, visitor } = open();
  const old = await create("refund");
  const young = await create("refund");
  await clock.settle();
  await runtime.resume({ run_id: young.run_id, await_resume: { ok: false } });
  const feed = await visitor.follow<ListEvent<AdminRun>>("runs?status=failed");
  expect(await feed.next(clock)).toMatchObject({ items: [{ run_id: young.run_id }] });
  await runtime.resume({ run_id: old.run_id, await_resume: { ok: false } });
  const page = await feed.until(clock, ({ type }) => type === "page");
  expect(page).toMatchObject({ items: [{ run_id: young.run_id }, { run_id: old.run_id }] });
  await feed.leave();
  await runtime.close();
});

it("the figures show what waits for which slot, with a runtime and without one", async () => {
  const clock = new FakeClock();
  const store = durable(persistent(new MemoryStore({ clock })));
  const runtime = new Runtime({ store, clock });
  runtime.register("busy", { durable: true, concurrency: { max: 1 } }, (_input, { step }) =>
    step("work", ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", reject))),
  );
  const made: string[] = [];
  for (const tenant of ["", "acme", "blue"]) {
    const run = await runtime.scope({ tenant }).createRun({ agent_name: "busy", input: "", mode: "async" });
    made.push(run.run_id);
    await clock.advance(100);
  }
  const next = { tenant: "acme", run_id: made[1], version: null };
  for (const target of [runtime, { store }]) {
    const visitor = new Visitor(createInspectorHandler(target, { authorize: () => ({ allTenants: true }) }));
    const feed = await visitor.follow<FiguresEvent>("figures");
    const { lines } = await feed.until(clock, (event) => event.lines[0]?.waiting === 2);
    expect(lines).toMatchObject([{ agent_name: "busy", per: "agent", max: 1, held: 1, waiting: 2, next }]);
    await feed.leave();
  }
  await runtime.close({ drainMs: 0 });
});

it("pages that show the same list share what is looked up", async () => {
  const clock = new FakeClock();
  let looks = 0;
  const store = hookedStore(
    (call, method) => {
      if (method === "moved") looks += 1;
      return call();
    },
    durable(persistent(new MemoryStore({ clock }))),
  );
  const runtime = new Runtime({ store, clock });
  runtime.register("refund", { durable: true }, () => {
    throw new Error("The till is empty.");
  });
  const failed = await runtime.createRun({ agent_name: "refund", input: "", mode: "async" });
  await clock.settle();
  const visitor = new Visitor(createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) }));
  const alone = await visitor.follow<ListEvent<AdminFailure>>("failures");
  expect(await alone.next(clock)).toMatchObject({ type: "page", items: [{ run_id: failed.run_id }] });
  looks = 0;
  expect(await alone.isSilent(clock, 5_000)).toBe(true);
  const ofOne = looks;
  const others = await Promise.all([1, 2, 3, 4].map(() => visitor.follow<ListEvent<AdminFailure>>("failures")));
  for (const other of others) expect(await other.next(clock, 0)).toMatchObject({ type: "page" });
  looks = 0;
  expect(await alone.isSilent(clock, 5_000)).toBe(true);
  expect(looks).toBeLessThanOrEqual(ofOne + 2);
  const added = await runtime.createRun({ agent_name: "refund", input: "", mode: "async" });
  for (const page of [alone, ...others])
    expect(await page.next(clock)).toMatchObject({ type: "change", added: [{ run_id: added.run_id }] });
  await Promise.all([alone, ...others].map((one) => one.leave()));
  await runtime.close({ drainMs: 0 });
});

it("figures over time follow the runs, and pages that show the same share what is read", async () => {
  const clock = new FakeClock();
  const reads: string[] = [];
  const store = hookedStore(
    (call, method) => {
      reads.push(method);
      return call();
    },
    durable(persistent(new MemoryStore({ clock }))),
  );
  const runtime = new Runtime({ store, clock });
  runtime.register("refund", { durable: true }, (_input, { ask }) => ask("Refund 40 €?"));
  const visitor = new Visitor(createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) }));
  const create = (tenant: string) =>
    runtime.scope({ tenant }).createRun({ agent_name: "refund", input: "", mode: "async" });
  const [run] = [await create("acme"), await create("blue")];
  await clock.settle();
  const feed = await visitor.follow<HistoryEvent>("history?over=hour&by=tenant");
  const first = await feed.next(clock);
  expect(first?.figures.all.total).toMatchObject({ started: 2, waiting: 2, completed: 0 });
  expect(first?.figures.groups.map(({ of }) => of?.tenant)).toEqual(["acme", "blue"]);
  expect(await feed.isSilent(clock, 3_000)).toBe(true);
  await runtime.scope({ tenant: "acme" }).resume({ run_id: run.run_id, await_resume: { ok: true } });
  expect((await feed.next(clock))?.figures.all.total).toMatchObject({ waiting: 1, completed: 1 });

  reads.length = 0;
  const others = await Promise.all([1, 2, 3].map(() => visitor.follow<HistoryEvent>("history?over=hour&by=tenant")));
  for (const other of others) expect((await other.next(clock, 0))?.figures.runs).toBe(2);
  expect(reads).toEqual([]);
  await Promise.all([feed, ...others].map((one) => one.leave()));
  await runtime.close({ drainMs: 0 });
});

it("figures over time of a user of one tenant are those of the tenant", async () => {
  const { runtime, clock, create } = open();
  for (const tenant of ["acme", "acme", "blue"]) await create("refund", tenant);
  await clock.settle();
  const visitor = new Visitor(createInspectorHandler(runtime, { authorize: () => ({ tenant: "acme" }) }));
  const feed = await visitor.follow<HistoryEvent>("history?by=tenant");
  const { figures } = (await feed.next(clock)) ?? {};
  expect(figures).toMatchObject({ runs: 2, groups: [{ of: { tenant: "acme" }, total: { started: 2 } }] });
  await feed.leave();
  const refused = await visitor.get("api/feed/history?tenant=blue");
  expect([refused.status, await refused.json()]).toMatchObject([403, { data: { reason: "forbidden" } }]);
  await runtime.close({ drainMs: 0 });
});

it("failures are shown with their cause; a fork of one completes", async () => {
  const { runtime, clock, create, visitor } = open();
  const { run_id } = await create("refund");
  const feed = await visitor.follow<ListEvent<AdminRun>>("failures");
  expect(await feed.next(clock)).toMatchObject({ items: [] });
  await clock.settle();
  await visitor.act("answer", { run_id, await_id: "ask#1", answer: { ok: false } });
  expect(await feed.next(clock)).toMatchObject({ added: [{ run_id, cause: { message: "The bank refused." } }] });
  const fork = await visitor.act<AdminRun>("fork", { run_id, before: "ask#1" });
  await clock.settle();
  await visitor.act("answer", { run_id: fork.run_id, await_id: "ask#1", answer: { ok: true } });
  await clock.settle();
  expect((await runtime.getRun(fork.run_id)).status).toBe("completed");
  await feed.leave();
  await runtime.close();
});

it("a run's page gets new items only, and its end", async () => {
  const { runtime, clock, create, visitor } = open();
  runtime.register("parent", { durable: true }, async (_input, { run }) => {
    await run("refund", "");
    return "Done.";
  });
  const { run_id } = await create("parent");
  await clock.settle();
  const feed = await visitor.follow<RunEvent>(`run?run_id=${run_id}`);
  const first = await feed.next(clock);
  expect(first).toMatchObject({ type: "run", lost: false, whole: true });
  const items = first?.type === "run" ? first.items.map(({ type }) => type) : [];
  expect(items).toEqual(["created", "started", "sub_run", "question"]);
  await visitor.act("answer", { run_id, await_id: "run:refund#1/ask#1", answer: { ok: true } });
  const later = await feed.next(clock);
  if (later?.type !== "run") throw new Error("The run is gone.");
  expect(later.run.status).toBe("completed");
  expect(later.items.map(({ type }) => type)).not.toContain("created");
  expect(later.items.at(-1)).toMatchObject({ type: "ended", outcome: "completed" });
  await visitor.act("delete", { run_id });
  expect(await feed.until(clock, ({ type }) => type === "gone")).toEqual({ type: "gone" });
  expect(await feed.next(clock)).toBeUndefined();
  await runtime.close();
});

it("a long timeline comes in pieces", async () => {
  const { runtime, clock, create, visitor } = open();
  const { run_id } = await create("talks");
  await clock.settle();
  for (let word = 0; word < 700; word++) await runtime.send({ to: run_id, name: "word", data: "la" });
  await clock.settle();
  const feed = await visitor.follow<RunEvent>(`run?run_id=${run_id}`);
  const items = new Map<number, TimelineItem>();
  let events = 0;
  for (let whole = false; !whole; events++) {
    const event = await feed.next(clock);
    if (event?.type !== "run") throw new Error("The run is gone.");
    for (const item of event.items) items.set(item.position, item);
    whole = event.whole;
  }
  expect(events).toBeGreaterThan(2);
  const told: TimelineItem[] = [];
  for (let since: string | undefined | null; since !== null; ) {
    const page = await createAdmin(runtime).timeline(run_id, { cursor: since, limit: 500 });
    told.push(...page.items);
    since = page.next;
  }
  expect([...items.values()]).toEqual(JSON.parse(JSON.stringify(told)));
  await feed.leave();
  await runtime.close({ drainMs: 0 });
});

it("a family is the whole tree of a run, with its origin, its forks and the questions of all", async () => {
  const { runtime, clock, create, visitor } = open();
  runtime.register("top", { durable: true }, (_input, { run }) => run("refund", ""));
  const top = await create("top");
  await clock.settle();
  const [below] = (await createAdmin(runtime).runs({ agent_name: "refund" })).items;
  const feed = await visitor.follow<FamilyEvent>(`family?run_id=${below?.run_id}`);
  expect(await feed.next(clock)).toMatchObject({
    tree: { run_id: top.run_id, children: [{ run_id: below?.run_id, status: "awaiting" }] },
    ...{ origin: null, forks: [], questions: [{ run_id: below?.run_id, parts: [{ content: "Refund 40 €?" }, {}] }] },
  });
  expect(await feed.isSilent(clock, 3_000)).toBe(true);
  const fork = await runtime.fork(top.run_id, { mode: "async" });
  const ofTop = await visitor.follow<FamilyEvent>(`family?run_id=${top.run_id}`);
  expect(await ofTop.next(clock)).toMatchObject({ forks: [{ run_id: fork.run_id }], origin: null });
  const ofFork = await visitor.follow<FamilyEvent>(`family?run_id=${fork.run_id}`);
  expect(await ofFork.next(clock)).toMatchObject({ origin: { run_id: top.run_id }, tree: { run_id: fork.run_id } });
  await runtime.resume({ run_id: below?.run_id ?? "", await_resume: { ok: true } });
  expect(await feed.until(clock, ({ tree }) => tree.status === "completed")).toMatchObject({ questions: [] });
  for (const one of [feed, ofTop, ofFork]) await one.leave();
  await runtime.close();
});

it("several runs are followed by one feed, each from its beginning, and then what changes in any", async () => {
  const { runtime, clock, create, visitor } = open();
  const [first, second, other] = [await create("talks"), await create("talks"), await create("talks", "acme")];
  await clock.settle();
  const feed = await visitor.follow<SeveralEvent>(`several?run_ids=${first.run_id},${second.run_id},${other.run_id}`);
  expect(await feed.next(clock)).toMatchObject({ run: { run_id: first.run_id }, items: { length: 3 } });
  expect(await feed.next(clock)).toMatchObject({ run: { run_id: second.run_id }, items: { length: 3 } });
  expect(await feed.isSilent(clock, 3_000)).toBe(true);
  await runtime.send({ to: second.run_id, name: "word", data: "la" });
  const changed = await feed.until(clock, ({ items }) => items.some(({ type }) => type === "output"));
  expect(changed).toMatchObject({ run: { run_id: second.run_id, tenant: "" } });
  expect(changed.items.some(({ type }) => type === "created")).toBe(false);
  await feed.leave();
  const many = Array.from({ length: 51 }, () => first.run_id).join();
  expect((await visitor.get(`api/feed/several?run_ids=${many}`)).status).toBe(422);
  expect((await visitor.get("api/feed/several?run_ids=11111111-1111-4111-8111-111111111111")).status).toBe(404);
  expect((await visitor.get("api/feed/several")).status).toBe(422);
  await runtime.close({ drainMs: 0 });
});

it("a chat shows the runs of its session, the oldest first", async () => {
  const { runtime, clock, visitor } = open();
  const { run_id, session_id } = await visitor.act<AdminRun & { readonly session_id: string }>("create", {
    agent_name: "talks",
    input: "Sing.",
    session_id: "11111111-1111-4111-8111-111111111111",
  });
  const feed = await visitor.follow<SessionEvent>(`session?session_id=${session_id}`);
  expect(await feed.next(clock)).toMatchObject({ runs: [{ run: { run_id } }] });
  await clock.settle();
  await visitor.act("send", { run_id, name: "word", data: "la" });
  const second = await visitor.act<AdminRun>("create", { agent_name: "talks", input: "", session_id });
  const last = await feed.until(clock, ({ runs }) => runs.at(-1)?.run.run_id === second.run_id);
  expect(last.runs.map(({ run }) => run.run_id)).toEqual([run_id, second.run_id]);
  expect(last.runs[0]?.items.find(({ type }) => type === "output")).toMatchObject({ text: "la " });
  await feed.leave();
  await runtime.close({ drainMs: 0 });
});
