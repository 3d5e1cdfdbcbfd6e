import { MemoryStore, AgentRuntime as Runtime } from "cadenza";
import { createInspectorHandler } from "cadenza/inspector";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import { z } from "zod";
import type { Answers, AskedQuestion, InboxEvent } from "../../src/inspector/api.ts";
import { FakeClock } from "../harness/clock.ts";
import { hookedStore, persistent } from "../harness/store-proxy.ts";
import { Visitor } from "./visitor.ts";

function open() {
  const clock = new FakeClock();
  const calls: string[] = [];
  const store = hookedStore(
    (call, name) => {
      calls.push(name);
      return call();
    },
    persistent(new MemoryStore({ clock })),
  );
  const runtime = new Runtime({ store: durable(store), clock });
  const schema = z.object({ ok: z.boolean() });
  runtime.register("refund", { durable: true, version: "2" }, async (_input, { ask, step }) => {
    await step("look up", () => 40);
    return `${(await ask("Refund 40 €?", { schema })).ok}`;
  });
  runtime.register("late", { durable: true }, async (_input, { ask, sleep }) => {
    await sleep(5_000);
    return `${(await ask("Ship late?", { schema, timeoutMs: 60_000 })).ok}`;
  });
  const visitor = new Visitor(
    createInspectorHandler(runtime, { authorize: () => ({ allTenants: true, principal: { name: "Ada" } }) }),
  );
  const create = async (agent_name: string, tenant = "", input = "O-17") => {
    const run = await runtime.scope({ tenant }).createRun({ agent_name, input, mode: "async" });
    await clock.advance(1_000);
    return run.run_id;
  };
  return { runtime, clock, calls, visitor, create };
}

const asked = (run_id: string, tenant = "") => ({ tenant, run_id, await_id: "ask#1" });

it("the inbox shows questions of all tenants, and drops those that are answered", async () => {
  const { runtime, clock, create, visitor } = open();
  const feed = await visitor.follow<InboxEvent>("questions");
  const none = { type: "inbox", items: [], total: 0, agents: [], tenants: [], more: false, reading: null };
  expect(await feed.next(clock)).toEqual(none);
  const run_id = await create("refund", "acme");
  const one = { name: "acme", questions: 1 };
  expect(await feed.next(clock)).toMatchObject({
    items: [{ ...asked(run_id, "acme"), text: "Refund 40 €?", agent_name: "refund", version: "2", kind: "input" }],
    total: 1,
    tenants: [one],
  });
  const refused = await visitor.post("answer", { ...asked(run_id, "acme"), answer: { ok: "yes" } });
  expect([refused.status, await refused.json()]).toMatchObject([
    422,
    { data: { reason: "answer_rejected", issues: [{ path: ["ok"] }] } },
  ]);
  expect(await feed.isSilent(clock, 600)).toBe(true);
  await visitor.act("answer", { ...asked(run_id, "acme"), answer: { ok: true } });
  expect(await feed.next(clock)).toEqual(none);
  await feed.leave();
  await runtime.close();
});

it("sorts and filters, and counts the questions of all agents and tenants", async () => {
  const { runtime, clock, create, visitor } = open();
  const late = await create("late", "blue");
  const refund = await create("refund", "acme");
  await clock.advance(10_000);
  const again = await create("refund", "acme");
  const idsFor = async (query: string): Promise<readonly string[]> => {
    const feed = await visitor.follow<InboxEvent>(`questions?${query}`);
    const event = await feed.next(clock);
    await feed.leave();
    expect(event?.agents).toEqual([
      { name: "late", questions: 1 },
      { name: "refund", questions: 2 },
    ]);
    return event?.items.map(({ run_id }) => run_id) ?? [];
  };
  expect(await idsFor("")).toEqual([refund, late, again]);
  expect(await idsFor("sort=newest")).toEqual([again, late, refund]);
  expect(await idsFor("sort=deadline")).toEqual([late, refund, again]);
  expect(await idsFor("sort=agent")).toEqual([late, refund, again]);
  expect(await idsFor("sort=tenant")).toEqual([refund, again, late]);
  expect(await idsFor("agent=refund&limit=1")).toEqual([refund]);
  expect(await idsFor("tenant=blue")).toEqual([late]);
  expect(await idsFor("kind=approval")).toEqual([]);
  expect((await visitor.get("api/feed/questions?sort=mood")).status).toBe(422);
  await runtime.close({ drainMs: 0 });
});

it("tells what a run did before its question, and who has answered it meanwhile", async () => {
  const { runtime, clock, create, visitor } = open();
  const run_id = await create("refund", "acme");
  const read = async (): Promise<AskedQuestion> => {
    const query = new URLSearchParams(asked(run_id, "acme"));
    return (await (await visitor.get(`api/question?${query}`)).json()) as AskedQuestion;
  };
  expect(await read()).toMatchObject({
    run: { run_id, status: "awaiting" },
    question: { key: "ask#1", how: null, schema: { type: "object" } },
    input: [{ parts: [{ content: "O-17" }] }],
    before: [{ type: "step", name: "look up", result: 40 }],
  });
  await runtime
    .scope({ tenant: "acme", principal: { name: "Grace" } })
    .resume({ run_id, await_resume: { ok: true }, mode: "async" });
  await clock.settle();
  expect(await read()).toMatchObject({
    question: { how: "answer", answer: { ok: true }, by: { name: "Grace" } },
    before: [{ type: "step" }],
  });
  expect((await visitor.post("answer", { ...asked(run_id, "acme"), answer: { ok: false } })).status).toBe(409);
  expect((await visitor.get(`api/question?tenant=blue&run_id=${run_id}&await_id=ask%231`)).status).toBe(404);
  await runtime.close();
});

it("tells who has answered what, and nothing twice of what a fork has taken over", async () => {
  const { runtime, clock, create, visitor } = open();
  const answers = async (query = ""): Promise<Answers> =>
    (await (await visitor.get(`api/answers${query}`)).json()) as Answers;
  const answered = await create("refund", "acme");
  await visitor.act("answer", { ...asked(answered, "acme"), answer: { ok: true } });
  await clock.advance(1_000);
  const declined = await create("refund");
  await visitor.act("decline", { ...asked(declined), reason: "Not mine." });
  const expired = await create("late");
  await clock.advance(70_000);
  await visitor.act("fork", { tenant: "acme", run_id: answered });
  await clock.advance(1_000);
  const by = { name: "Ada" };
  const { answers: found, runs, more } = await answers();
  expect({ runs, more }).toEqual({ runs: 4, more: false });
  expect(found).toMatchObject([
    { run_id: expired, how: "expired", answer: null, by: null },
    { run_id: declined, how: "declined", answer: "Not mine.", by },
    { run_id: answered, how: "answer", answer: { ok: true }, by, text: "Refund 40 €?" },
  ]);
  expect((await answers("?tenant=acme")).answers.map(({ run_id }) => run_id)).toEqual([answered]);
  await runtime.close();
});

it("reads many waiting runs once, says how far it is, and then only compares them", async () => {
  const { runtime, clock, calls, visitor } = open();
  for (let n = 0; n < 1_100; n++)
    await runtime.scope({ tenant: `t${n % 2}` }).createRun({ agent_name: "refund", input: "", mode: "async" });
  await clock.advance(1_000);
  calls.length = 0;
  const feed = await visitor.follow<InboxEvent>("questions?limit=10");
  expect(await feed.next(clock)).toMatchObject({ reading: 1_000, total: 1_000 });
  const event = await feed.next(clock);
  expect(event).toMatchObject({ total: 1_100, reading: null, more: false });
  expect(event?.items).toHaveLength(10);
  const count = (name: string): number => calls.filter((call) => call === name).length;
  expect([count("tails"), count("read"), count("find")]).toEqual([11, 0, 0]);
  calls.length = 0;
  expect(await feed.isSilent(clock, 500)).toBe(true);
  expect([count("tails"), count("survey"), count("moved")]).toEqual([0, 1, 6]);
  await feed.leave();
  await runtime.close({ drainMs: 0 });
});
