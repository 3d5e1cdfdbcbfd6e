import { MemoryStore, AgentRuntime as Runtime } from "cadenza";
import type { AdminAct } from "cadenza/admin";
import type { InspectorGrant } from "cadenza/inspector";
import { createInspectorHandler } from "cadenza/inspector";
import { schedules } from "cadenza/schedules";
import { durable } from "cadenza/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { SchedulesEvent } from "../../src/inspector/api.ts";
import { stuckFeed } from "../../src/inspector/states.ts";
import { FakeClock } from "../harness/clock.ts";
import { persistent } from "../harness/store-proxy.ts";
import { actionNames, Visitor } from "./visitor.ts";

const UNKNOWN = "11111111-1111-4111-8111-111111111111";
const SECRET = "the secret of acme";

/** A runtime with runs of two tenants, whose every text of `acme` has the secret. */
async function world() {
  const clock = new FakeClock();
  const runtime = new Runtime({ store: durable(persistent(new MemoryStore({ clock }))), clock });
  runtime.register("asks", { durable: true }, async (input, { ask, step, labels }) => {
    const [text = ""] = input.flatMap(({ parts }) => parts.map(({ content }) => content ?? ""));
    await ask(`${text}?`);
    return step("fail", () => Promise.reject(new Error(`${text} ${labels["of"]}`)));
  });
  const create = (tenant: string, input: string) =>
    runtime
      .scope({ tenant })
      .createRun({ agent_name: "asks", input, mode: "async" }, { labels: { of: input }, metadata: input });
  const waiting = await create("acme", SECRET);
  const failed = await create("acme", SECRET);
  const own = await create("blue", "own");
  await clock.settle();
  const ownFailed = await create("blue", "own");
  await clock.settle();
  await runtime.scope({ tenant: "acme" }).resume({ run_id: failed.run_id, await_resume: { ok: true } });
  await runtime.scope({ tenant: "blue" }).resume({ run_id: ownFailed.run_id, await_resume: { ok: true } });
  await clock.settle();
  const handlerFor = (grant: InspectorGrant) =>
    new Visitor(createInspectorHandler(runtime, { authorize: () => grant }));
  return { clock, runtime, waiting, failed, own, ownFailed, handlerFor };
}

describe("a user of one tenant", () => {
  let made: Awaited<ReturnType<typeof world>>;
  let blue: Visitor;
  beforeAll(async () => {
    made = await world();
    blue = made.handlerFor({ tenant: "blue" });
  });
  afterAll(() => made.runtime.close({ drainMs: 0 }));

  const lists = ["runs", "questions", "failures"];
  const ofRun = ["api/feed/run", "api/feed/family", "api/log", "api/cassette", "api/question"];

  /** The first bytes of an answer. */
  async function bytes(response: Response): Promise<string> {
    if (!(response.headers.get("content-type") ?? "").includes("event-stream")) return response.text();
    const reader = response.body?.getReader();
    const { value } = (await reader?.read()) ?? {};
    await reader?.cancel();
    return new TextDecoder().decode(value);
  }

  it("sees no byte of another, whatever the view asks for", async () => {
    const { waiting, failed, own, ownFailed } = made;
    const ids = [waiting.run_id, failed.run_id];
    const wishes = ["", "tenant=acme", "tenant=", "tenant=*", "status=awaiting,failed", "limit=2000", "label=of:own"];
    wishes.push(`label=of:${encodeURIComponent(SECRET)}`, `id=${waiting.run_id}`, "roots=true", "agent=asks");
    wishes.push(
      `tenant=acme&run_id=${waiting.run_id}`,
      `run_id=${failed.run_id}`,
      `tenant=blue&run_id=${waiting.run_id}`,
    );
    wishes.push(`tenant=blue&tenant=acme`, `session_id=${waiting.run_id}`, `tenant=acme&session_id=${waiting.run_id}`);
    wishes.push(`run_ids=${ids}`, `tenant=blue&run_ids=${ids},${own.run_id}`, `tenant=acme&run_ids=${ids}`);
    const paths = [...lists.map((name) => `api/feed/${name}`), ...ofRun, "api/feed/stuck", "api/feed/figures"];
    let shown = 0;
    for (const path of [...paths, "api/feed/several", "api/feed/session", "api/answers", "api/start"]) {
      for (const wish of wishes) {
        const text = await bytes(await blue.get(`${path}?${wish}`));
        for (const hidden of [SECRET, ...ids.filter((id) => !wish.includes(id)), '"acme"'])
          expect([path, wish, text.includes(hidden) && !wish.includes("tenant=acme")]).toEqual([path, wish, false]);
        expect([path, wish, text.includes(SECRET)]).toEqual([path, wish, false]);
        // What is asked of another tenant is not answered with the user's own.
        if (new URLSearchParams(wish).get("tenant") === "acme" && lists.some((name) => path.endsWith(name)))
          for (const { run_id } of [own, ownFailed])
            expect([path, wish, text.includes(run_id)]).toEqual([path, wish, false]);
        if (text.includes(own.run_id)) shown += 1;
      }
    }
    expect(shown).toBeGreaterThan(5);
  });

  it("gets the same for the run of another as for none", async () => {
    const { waiting } = made;
    for (const path of ofRun) {
      for (const tenant of ["", "tenant=acme&", "tenant=blue&"]) {
        const foreign = await blue.get(`${path}?${tenant}run_id=${waiting.run_id}`);
        const missing = await blue.get(`${path}?${tenant}run_id=${UNKNOWN}`);
        expect([path, foreign.status, missing.status]).toEqual([path, 404, 404]);
        const text = (await foreign.text()).replaceAll(waiting.run_id, UNKNOWN);
        expect(text).toBe(await missing.text());
      }
    }
    for (const tenant of ["", "tenant=acme&", "tenant=blue&"]) {
      const foreign = await blue.get(`api/feed/several?${tenant}run_ids=${waiting.run_id}`);
      expect([tenant, foreign.status]).toEqual([tenant, 404]);
    }
  });

  it("cannot act on the run of another", async () => {
    const { waiting, runtime } = made;
    const bodies: Readonly<Record<string, object>> = {
      answer: { await_id: "ask#1", answer: "x" },
      decline: { await_id: "ask#1" },
      ...{ cancel: {}, fork: {}, delete: {} },
      send: { name: "x", data: 1 },
    };
    for (const [name, body] of Object.entries(bodies)) {
      for (const tenant of [{}, { tenant: "acme" }, { tenant: "blue" }]) {
        const foreign = await blue.post(name, { ...tenant, run_id: waiting.run_id, ...body });
        const missing = await blue.post(name, { ...tenant, run_id: UNKNOWN, ...body });
        expect([name, tenant, foreign.status, missing.status]).toEqual([name, tenant, 404, 404]);
        expect((await foreign.text()).replaceAll(waiting.run_id, UNKNOWN)).toBe(await missing.text());
      }
    }
    const created = await blue.post("create", { tenant: "acme", agent_name: "asks", input: "" });
    expect(created.status).toBe(403);
    const acme = runtime.scope({ tenant: "acme" });
    expect((await acme.getRun(waiting.run_id)).status).toBe("awaiting");
    expect(await acme.listRuns()).toHaveLength(2);
  });

  it("pauses no agent, which the others have too", async () => {
    for (const name of ["pause", "resume"])
      expect((await blue.post(name, { agent_name: "asks", version: null })).status).toBe(403);
    expect((await made.runtime.scope({ tenant: "acme" }).createRun({ agent_name: "asks", input: "" })).status).toBe(
      "awaiting",
    );
  });

  it("sees no figures, processes or unregistered code, which are counted over all", async () => {
    expect((await blue.get("api/feed/figures")).status).toBe(403);
    expect(await (await blue.follow("runs")).next(made.clock)).toMatchObject({ workers: [] });
    expect(await (await blue.follow("stuck")).next(made.clock)).toMatchObject({ unregistered: null });
    expect(await (await blue.get("api/start")).json()).toMatchObject({ tenant: "blue" });
  });
});

it("a user who may only look changes nothing", async () => {
  const { clock, runtime, waiting, handlerFor } = await world();
  const visitor = handlerFor({ allTenants: true, readOnly: true });
  for (const name of actionNames) {
    const refused = await visitor.post(name, { tenant: "acme", run_id: waiting.run_id });
    expect([name, refused.status]).toEqual([name, 403]);
  }
  const log = `api/log?tenant=acme&run_id=${waiting.run_id}`;
  expect(await (await visitor.get(log)).text()).toContain(SECRET);
  await clock.settle();
  await runtime.close({ drainMs: 0 });
});

it("a user of all tenants pauses a version of an agent, and resumes it", async () => {
  const { clock, runtime, handlerFor } = await world();
  const ada = handlerFor({ allTenants: true, principal: { name: "Ada" } });
  const version = { agent_name: "asks", version: null };
  expect(await ada.act("pause", version)).toEqual({ changed: true });
  expect(await ada.act("pause", version)).toEqual({ changed: false });
  const figures = await (await ada.follow("figures")).next(clock);
  expect(figures).toMatchObject({ pauses: [{ ...version, by: { name: "Ada" } }] });
  expect(await ada.act("pause", { ...version, now: true })).toEqual({ changed: true });
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "", mode: "async" });
  await clock.settle();
  expect((await runtime.getRun(run_id)).status).toBe("created");
  expect(await ada.act("resume", version)).toEqual({ changed: true });
  await clock.settle();
  expect((await runtime.getRun(run_id)).status).toBe("awaiting");
  expect((await ada.post("pause", { version: null })).status).toBe(422);
  await runtime.close({ drainMs: 0 });
});

it("agents see the principal of the user, and so does the log", async () => {
  const { clock, runtime, handlerFor } = await world();
  runtime.register("whoami", (_input, { principal }) => JSON.stringify(principal));
  const ada = handlerFor({ allTenants: true, principal: { name: "Ada" } });
  const { run_id } = await ada.act<{ readonly run_id: string }>("create", {
    tenant: "acme",
    agent_name: "whoami",
    input: "",
  });
  await clock.settle();
  const { output } = await runtime.scope({ tenant: "acme" }).getRun(run_id);
  expect(output[0]?.parts[0]?.content).toBe('{"name":"Ada"}');
  await runtime.close({ drainMs: 0 });
});

it("a user of one tenant sees its schedules alone, and acts on these alone", async () => {
  const clock = new FakeClock();
  const runtime = new Runtime({ clock, store: durable(persistent(new MemoryStore({ clock }))) });
  runtime.register("asks", { durable: true }, (_input, { ask }) => ask("?"));
  const plans = schedules(runtime);
  for (const tenant of ["acme", "blue"])
    await plans.put({ id: "daily", tenant, agent_name: "asks", input: "", everyMs: 86_400_000 });
  await plans.put({ id: "secret", tenant: "acme", agent_name: "asks", input: "", everyMs: 86_400_000 });
  const asked: unknown[] = [];
  const handler = createInspectorHandler(runtime, {
    schedules: plans,
    authorize: ({ action, agent_name }) => {
      asked.push([action, agent_name]);
      return { tenant: "blue" };
    },
  });
  const blue = new Visitor(handler);
  expect(await (await blue.get("api/start")).json()).toMatchObject({ has_schedules: true });
  const feed = await blue.follow<SchedulesEvent>("schedules");
  const first = await feed.next(clock);
  expect(first?.schedules.map(({ tenant, id, next }) => [tenant, id, next.length])).toEqual([["blue", "daily", 5]]);
  for (const name of ["pause-schedule", "resume-schedule", "trigger-schedule"]) {
    const key = name === "trigger-schedule" ? { key: "k" } : {};
    const foreign = await blue.post(name, { tenant: "acme", id: "secret", ...key });
    const missing = await blue.post(name, { tenant: "acme", id: "none", ...key });
    expect([name, foreign.status, missing.status]).toEqual([name, 404, 404]);
    expect((await foreign.text()).replaceAll("secret", "none")).toBe(await missing.text());
    expect((await blue.post(name, { id: "secret", ...key })).status).toBe(404);
  }
  await blue.act("pause-schedule", { id: "daily" });
  expect(await feed.next(clock)).toMatchObject({ schedules: [{ is_paused: true, next: { length: 5 } }] });
  expect((await plans.get("daily", { tenant: "acme" })).is_paused).toBe(false);
  await blue.act("resume-schedule", { id: "daily" });
  for (const key of ["once", "once", "twice"]) await blue.act("trigger-schedule", { id: "daily", key });
  await clock.advance(5_000);
  expect(asked).toContainEqual(["create", "asks"]);
  expect(await runtime.scope({ tenant: "blue" }).listRuns()).toHaveLength(1);
  await feed.leave();
  const without = new Visitor(createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) }));
  expect((await without.get("api/feed/schedules")).status).toBe(404);
  expect((await without.post("pause-schedule", { tenant: "blue", id: "daily" })).status).toBe(404);
  await runtime.close({ drainMs: 0 });
});

it("the host is asked about each of several runs, and one that it refuses refuses all", async () => {
  const { runtime, waiting, failed } = await world();
  const asked: unknown[] = [];
  const handler = createInspectorHandler(runtime, {
    authorize: ({ action, run_id, tenant }) => {
      if (action === "read") asked.push([tenant, run_id]);
      return run_id !== failed.run_id && { allTenants: true };
    },
  });
  const visitor = new Visitor(handler);
  const both = `api/feed/several?tenant=acme&run_ids=${waiting.run_id},${failed.run_id}`;
  expect((await visitor.get(both)).status).toBe(403);
  expect(asked).toEqual([
    ["acme", waiting.run_id],
    ["acme", failed.run_id],
  ]);
  const one = await visitor.get(`api/feed/several?tenant=acme&run_ids=${waiting.run_id}`);
  expect(one.status).toBe(200);
  await one.body?.cancel();
  await runtime.close({ drainMs: 0 });
});

it("views of a run do not count for the run of another tenant with the same id", async () => {
  const clock = new FakeClock();
  const ids = { uuid: () => UNKNOWN, token: () => "token" };
  const runtime = new Runtime({ store: durable(persistent(new MemoryStore({ clock }))), clock, ids });
  runtime.register("asks", { durable: true }, (_input, { ask }) => ask("Well?"));
  for (const tenant of ["acme", "blue"])
    await runtime.scope({ tenant }).createRun({ agent_name: "asks", input: "", mode: "async" });
  const handler = createInspectorHandler(runtime, {
    authorize: ({ headers }) => ({ tenant: String(headers["x-tenant"]) }),
    limits: { maxReadersPerRun: 1 },
  });
  const [acme, blue] = ["acme", "blue"].map(
    (tenant) => new Visitor(handler, "http://localhost", { "x-tenant": tenant }),
  ) as [Visitor, Visitor];
  const first = await acme.follow(`run?run_id=${UNKNOWN}`);
  const second = await blue.follow(`run?run_id=${UNKNOWN}`);
  expect((await blue.get(`api/feed/run?run_id=${UNKNOWN}&tenant=blue`)).status).toBe(503);
  await first.leave();
  // A list names a run of another tenant, which is none of its business.
  const list = await blue.follow(`runs?run_id=${UNKNOWN}&tenant=acme`);
  await (await acme.follow(`run?run_id=${UNKNOWN}`)).leave();
  for (const one of [second, list]) await one.leave();
  await runtime.close({ drainMs: 0 });
});

it("each of the runs with the same id is listed, shown and acted on", async () => {
  const clock = new FakeClock();
  const ids = { uuid: () => UNKNOWN, token: () => "token" };
  const runtime = new Runtime({ store: durable(persistent(new MemoryStore({ clock }))), clock, ids });
  runtime.register("asks", { durable: true }, (_input, { ask }) => ask("Well?"));
  const scopes = ["acme", "blue"].map((tenant) => runtime.scope({ tenant }));
  for (const scope of scopes)
    await scope.createRun({ agent_name: "asks", input: "", session_id: UNKNOWN, mode: "async" });
  await clock.settle();
  const visitor = new Visitor(createInspectorHandler(runtime, { authorize: () => ({ allTenants: true }) }));
  const list = await visitor.follow<object>("runs");
  const tenantsIn = (event: unknown): string[] => [
    ...new Set(JSON.stringify(event).match(/(?<="tenant":")(?:acme|blue)(?=")/g)),
  ];
  expect(tenantsIn(await list.next(clock)).toSorted()).toEqual(["acme", "blue"]);
  const session = await visitor.follow(`session?tenant=blue&session_id=${UNKNOWN}`);
  expect(tenantsIn(await session.next(clock))).toEqual(["blue"]);
  await visitor.act("cancel", { tenant: "blue", run_id: UNKNOWN });
  const changed = await list.next(clock);
  expect(tenantsIn(changed)).toEqual(["blue"]);
  const statuses = await Promise.all(scopes.map(async (scope) => (await scope.getRun(UNKNOWN)).status));
  expect(statuses).toEqual(["awaiting", "cancelled"]);
  await visitor.act("delete", { tenant: "blue", run_id: UNKNOWN });
  expect(JSON.stringify(await list.next(clock))).toContain(`blue/${UNKNOWN}`);
  for (const feed of [list, session]) await feed.leave();
  await runtime.close({ drainMs: 0 });
});

it("a user of one tenant sees which of its runs need an operator", async () => {
  const runs = ["acme", "blue"].map((tenant) => ({ tenant, run_id: UNKNOWN, worker: "dead" }));
  const admin = {
    blocked: async () => ({ items: runs, next: null }),
    unregistered: async () => [{ agent_name: "gone" }],
    workers: async () => [{ worker: "dead", is_alive: false, runs: 2 }],
    runs: async ({ among }: { among: readonly { tenant: string }[] }) => ({
      items: runs.filter((run) => among.some(({ tenant }) => tenant === run.tenant)),
    }),
  };
  const inspected = { admin, store: { owned: async () => runs }, clock: new FakeClock() } as never;
  const seen = async (tenant: string | undefined) => {
    for await (const event of stuckFeed(inspected, tenant)(async () => false)) return event;
    return undefined;
  };
  const [acme, blue] = runs;
  expect(await seen("blue")).toMatchObject({ blocked: [blue], lost: [blue], unregistered: null });
  expect(await seen(undefined)).toMatchObject({ blocked: [acme, blue], lost: [acme, blue], unregistered: [{}] });
});

describe("acts on many runs", () => {
  it("cancel and retry what the filters select, and tell how far they are", async () => {
    const { clock, runtime, waiting, failed, handlerFor } = await world();
    const ada = handlerFor({ allTenants: true, principal: { name: "Ada" } });
    const begun = await ada.act<AdminAct>("cancel-many", {
      filters: "tenant=acme&agent=asks&status=awaiting&roots=true",
    });
    expect(begun).toMatchObject({ act: "cancel", by: { name: "Ada" }, query: { tenant: "acme", agent_name: "asks" } });
    await clock.advance(1_000);
    const path = `api/many?run_id=${begun.run_id}`;
    expect(await (await ada.get(path)).json()).toMatchObject({ status: "completed", done: 1, left: 0, refused: 0 });
    expect((await runtime.scope({ tenant: "acme" }).getRun(waiting.run_id)).status).toBe("cancelled");

    const retried = await ada.act<AdminAct>("retry-many", { filters: `id=${failed.run_id}` });
    await clock.advance(1_000);
    const end = await (await ada.get(`api/many?run_id=${retried.run_id}`)).json();
    expect(end).toMatchObject({ act: "retry", status: "completed", matched: 1, done: 1 });
    // Those who see all tenants see the run of the act, and may delete it.
    await ada.act("delete", { tenant: begun.tenant, run_id: begun.run_id });
    expect((await ada.get(path)).status).toBe(404);
    await runtime.close({ drainMs: 0 });
  });

  it("of a user of one tenant are on runs of that tenant, and so are those that the user sees", async () => {
    const { clock, runtime, waiting, own, handlerFor } = await world();
    const blue = handlerFor({ tenant: "blue" });
    const begun = await blue.act<AdminAct>("cancel-many", { filters: "agent=asks" });
    expect(begun.query).toEqual({ tenant: "blue", agent_name: "asks" });
    const foreign = await blue.post("cancel-many", { filters: "tenant=acme" });
    expect(foreign.status).toBe(422);
    expect((await blue.post("move-many", { filters: "agent=asks", version: "2" })).status).toBe(403);
    expect((await blue.post("cancel-many", { filters: "" })).status).toBe(422);
    await clock.advance(1_000);
    expect((await runtime.scope({ tenant: "blue" }).getRun(own.run_id)).status).toBe("cancelled");
    expect((await runtime.scope({ tenant: "acme" }).getRun(waiting.run_id)).status).toBe("awaiting");
    expect((await blue.get(`api/many?run_id=${begun.run_id}`)).status).toBe(200);

    const ada = handlerFor({ allTenants: true });
    const ofAll = await ada.act<AdminAct>("retry-many", { filters: "status=failed" });
    const answers = [ofAll.run_id, UNKNOWN].map(async (run_id) => {
      const seen = await blue.get(`api/many?run_id=${run_id}`);
      const stopped = await blue.post("stop-many", { run_id });
      return [seen.status, stopped.status, (await seen.text()).replaceAll(run_id, "")];
    });
    const [one, other] = await Promise.all(answers);
    expect(one).toEqual(other);
    expect(one?.slice(0, 2)).toEqual([404, 404]);
    expect((await blue.get("api/many?run_id=x")).status).toBe(422);
    await runtime.close({ drainMs: 0 });
  });

  it("are refused without a filter, and stop when the user says so", async () => {
    const { clock, runtime, handlerFor } = await world();
    const ada = handlerFor({ allTenants: true });
    for (const filters of [
      "",
      "roots=false",
      "status=completed",
      "id=x",
      undefined,
      "agent_name=asks",
      "agent=asks&x=1",
    ])
      expect([filters, (await ada.post("cancel-many", { filters })).status]).toEqual([filters, 422]);
    const begun = await ada.act<AdminAct>("cancel-many", { filters: "agent=asks" });
    await ada.act("stop-many", { run_id: begun.run_id });
    await clock.advance(1_000);
    expect(await (await ada.get(`api/many?run_id=${begun.run_id}`)).json()).toMatchObject({ status: "cancelled" });
    await runtime.close({ drainMs: 0 });
  });

  it("ask the host with what the filters name", async () => {
    const { runtime, waiting } = await world();
    const asked: object[] = [];
    const handler = createInspectorHandler(runtime, {
      authorize: ({ action, tenant, agent_name, run_id }) => {
        asked.push({ action, tenant, agent_name, run_id });
        return agent_name === undefined ? { allTenants: true } : { allTenants: true, readOnly: true };
      },
    });
    const refused = await new Visitor(handler).post("cancel-many", { filters: "tenant=acme&agent=asks" });
    expect(refused.status).toBe(403);
    expect(asked.at(-1)).toEqual({ action: "cancel", tenant: "acme", agent_name: "asks", run_id: undefined });
    expect((await runtime.scope({ tenant: "acme" }).getRun(waiting.run_id)).status).toBe("awaiting");
    await runtime.close({ drainMs: 0 });
  });
});
