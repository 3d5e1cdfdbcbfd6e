import type { AgentContext, Interceptor, Message, Scope, StreamedEvent } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { record } from "cadenza/testing";
import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { questionOf, refusal, reply, setUp, textOf, textsOf } from "../../harness/runtimes.ts";
import { hookedStore, lastingStore, persistent } from "../../harness/store-proxy.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/*
 * Two tenants whose runs, sub-runs, sessions, idempotency keys and labels have the same names. Each call in the name of one
 * of them is about its own.
 */

const TENANTS = ["red", "blue"] as const;
type Tenant = (typeof TENANTS)[number];
const [RUN, CHILD, NEXT, SESSION, LATER] = [1, 2, 3, 4, 5].map(
  (number) => `00000000-0000-4000-8000-00000000000${number}`,
) as [string, string, string, string, string];
const KEY = "the order";
const LABELS = { order: "O-17" } as const;

/** Ids of new runs, as the test asks for them. */
function idsInTurn() {
  const next: string[] = [];
  return { next, ids: { uuid: () => next.shift() ?? LATER, token: () => "token" } };
}

const nameIn = (input: readonly Message[]): string => input.map(textOf).join("");

/** Each tenant has a run that has a sub-run and asks, in a session, with a key and labels. Each text has the tenant's name. */
async function world(options: Parameters<typeof setUp>[0] = {}, isDurable = true) {
  const { next, ids } = idsInTurn();
  const set = setUp({ ids, ...options });
  const { runtime } = set;
  const kind = isDurable ? ({ durable: true } as const) : {};
  runtime.register("child", kind, (input) => `child of ${nameIn(input)}`);
  runtime.register("desk", kind, async function* (input, { run, ask, session, step }) {
    const of = nameIn(input);
    const before = (await session.history()).map(textOf).join();
    yield `${of} after ${before}. `;
    yield await step("work", () => `${of} works. `);
    const { output } = await run("child", of);
    yield output.map(textOf).join();
    const answer = await ask(`${of}?`);
    yield `answered: ${textOf(answer as Message)}`;
  });
  const scopes = { red: runtime.scope({ tenant: "red" }), blue: runtime.scope({ tenant: "blue" }) };
  const create = (tenant: Tenant) => {
    next.splice(0, Number.POSITIVE_INFINITY, RUN, CHILD);
    return scopes[tenant].createRun(
      { agent_name: "desk", input: `@${tenant}`, session_id: SESSION },
      { idempotencyKey: KEY, labels: LABELS, metadata: { of: `@${tenant}` } },
    );
  };
  return { ...set, next, scopes, create };
}

/** The names of the tenants in a value. */
function namesIn(value: unknown): string[] {
  return [...new Set((JSON.stringify(value) ?? "").match(/@(?:red|blue)/g))].sort();
}

const reads: readonly (readonly [name: string, read: (scope: Scope) => Promise<unknown>])[] = [
  ["getRun", (scope) => scope.getRun(RUN)],
  ["transcript", (scope) => scope.transcript(RUN)],
  ["events", (scope) => all(scope.events(RUN, { until: "now", detail: true }))],
  ["findRun", (scope) => scope.findRun({ idempotencyKey: KEY })],
  ["listRuns", (scope) => scope.listRuns({ output: true })],
  ["listRuns by labels", (scope) => scope.listRuns({ labels: LABELS, output: true })],
  ["listRuns by parent", (scope) => scope.listRuns({ parent: RUN, output: true })],
  ["listRuns by session", (scope) => scope.listRuns({ session_id: SESSION, output: true })],
  ["getSession", (scope) => scope.getSession(SESSION)],
  ["getSession of a sub-run", (scope) => scope.getSession(CHILD)],
];

async function all(events: AsyncIterable<unknown>): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const event of events) found.push(event);
  return found;
}

it.each([true, false])("each read is of the tenant's own (durable: %s)", async (isDurable) => {
  const { scopes, create } = await world({}, isDurable);
  for (const tenant of TENANTS) await create(tenant);
  for (const tenant of TENANTS) {
    await scopes[tenant].resume({ run_id: RUN, await_resume: reply(`@${tenant}`) });
    for (const [name, read] of reads) {
      const value = await read(scopes[tenant]);
      expect([name, namesIn(value)]).toEqual([name, [`@${tenant}`]]);
      const most = name === "listRuns" ? 2 : 1;
      if (name.startsWith("listRuns")) expect([name, (value as unknown[]).length]).toEqual([name, most]);
    }
    const details = await scopes[tenant].details(RUN);
    expect(details).toMatchObject({ metadata: { of: `@${tenant}` }, children: [CHILD] });
  }
});

it("a cassette is of the tenant's own", async () => {
  for (const isDurable of [true, false]) {
    const { store, scopes, create } = await world({}, isDurable);
    for (const tenant of TENANTS) {
      await scopes[tenant].createRun({ agent_name: "child", input: `before @${tenant}`, session_id: SESSION });
      await create(tenant);
      await scopes[tenant].resume({ run_id: RUN, await_resume: reply(`@${tenant}`) });
    }
    for (const tenant of TENANTS) {
      const cassette = await record(store, RUN, { tenant });
      expect(namesIn(cassette)).toEqual([`@${tenant}`]);
      expect(JSON.stringify(cassette.history)).toContain(`before @${tenant}`);
      expect(JSON.stringify(cassette.results)).toContain(`child of @${tenant}`);
    }
  }
});

it("listeners and interceptors are told whose run it is", async () => {
  const told: [string, string, string[]][] = [];
  const note = (what: string, tenant: string, value: unknown): void => void told.push([what, tenant, namesIn(value)]);
  const interceptor: Interceptor = {
    create: (info) => {
      note("create", info.tenant, info.input);
      return {};
    },
    run: (info, next) => {
      note("run", info.tenant, info.input);
      return next();
    },
    step: async (info, next) => {
      const result = await next();
      note("step", info.tenant, result);
      return result;
    },
    ask: (info, next) => {
      note("ask", info.tenant, info.parts);
      return next();
    },
  };
  const { runtime, create } = await world({ interceptors: [interceptor] });
  for (const type of ["run.awaiting", "message.part"] satisfies StreamedEvent["type"][])
    runtime.on(type, (event, { tenant }) => note(type, tenant, event));
  for (const tenant of TENANTS) await create(tenant);
  expect(new Set(told.map(([what]) => what)).size).toBe(6);
  for (const [what, tenant, names] of told) expect([what, names]).toEqual([what, [`@${tenant}`]]);
});

it("a cancel, an answer and a message reach the tenant's own run", async () => {
  const { scopes, create } = await world();
  for (const tenant of TENANTS) await create(tenant);
  await scopes.red.cancel(RUN, { wait: true });
  expect((await scopes.blue.getRun(RUN)).status).toBe("awaiting");
  await scopes.blue.send({ to: RUN, name: "news", data: "@blue" });
  await scopes.blue.send({ to: { labels: LABELS }, name: "news", data: "@blue" });
  expect((await refusal(scopes.red.send({ to: { labels: LABELS }, name: "news", data: 1 }))).code).toBe(
    "run_not_found",
  );
  const answered = await scopes.blue.resume({ run_id: RUN, await_resume: reply("@blue") });
  expect(namesIn(answered)).toEqual(["@blue"]);
  expect((await scopes.red.getRun(RUN)).status).toBe("cancelled");
});

it("the question of a sub-run, answered in the run above it, is that of the tenant", async () => {
  const { runtime, next, scopes } = await world();
  runtime.register("office", async (input, { run }) => (await run("asker", input)).output);
  runtime.register("asker", async (input, { ask }) => `${nameIn(input)}: ${textOf((await ask("?")) as Message)}`);
  for (const tenant of TENANTS) {
    next.splice(0, Number.POSITIVE_INFINITY, RUN, CHILD);
    await scopes[tenant].createRun({ agent_name: "office", input: `@${tenant}` });
  }
  for (const tenant of TENANTS) {
    const run = await scopes[tenant].resume({ run_id: RUN, await_resume: reply(`yes @${tenant}`) });
    expect(textsOf(run)).toEqual([`@${tenant}: yes @${tenant}`]);
  }
});

it("a fork begins with the tenant's own results, joins its session, and has a key of its own", async () => {
  const { next, scopes, create } = await world({ store: lastingStore() });
  for (const tenant of TENANTS) {
    await create(tenant);
    await scopes[tenant].resume({ run_id: RUN, await_resume: reply(`@${tenant}`) });
  }
  for (const tenant of TENANTS) {
    next.splice(0, Number.POSITIVE_INFINITY, NEXT);
    const fork = await scopes[tenant].fork(RUN, { before: "ask#1", idempotencyKey: "the fork" });
    expect(fork).toMatchObject({ run_id: NEXT, status: "awaiting", session_id: SESSION });
    expect(namesIn(fork)).toEqual([`@${tenant}`]);
    await scopes[tenant].resume({ run_id: NEXT, await_resume: reply(`again @${tenant}`) });
    const { history } = await scopes[tenant].getSession(SESSION);
    expect(namesIn(history)).toEqual([`@${tenant}`]);
    expect(JSON.stringify(history)).toContain(`again @${tenant}`);
    // The key is used.
    expect(await scopes[tenant].fork(RUN, { before: "ask#1", idempotencyKey: "the fork" })).toMatchObject({
      run_id: NEXT,
    });
  }
});

it("a fork finds the key of its own tenant, and joins the session of its own origin", async () => {
  const { runtime, next, scopes, create } = await world({ store: lastingStore() });
  runtime.register("short", { durable: true }, (input) => `short ${nameIn(input)}`);
  // The tenant without a name has used the key, and has a run of the same id.
  next.splice(0, Number.POSITIVE_INFINITY, NEXT);
  await runtime.createRun({ agent_name: "short", input: "" }, { idempotencyKey: "the fork" });
  next.splice(0, Number.POSITIVE_INFINITY, RUN);
  await scopes.red.createRun({ agent_name: "short", input: "@red" });
  next.splice(0, Number.POSITIVE_INFINITY, CHILD);
  const fork = await scopes.red.fork(RUN, { idempotencyKey: "the fork" });
  expect(fork).toMatchObject({ run_id: CHILD, status: "completed", session_id: RUN });
  // The session of the origin is made, with its messages, when the fork joins it.
  const { history } = await scopes.red.getSession(RUN);
  expect(history.map(textOf)).toEqual(["@red", "short @red", "@red", "short @red"]);
  await create("blue");
});

it("the messages of a live run are kept for a run of its tenant that is about to join its session", async () => {
  const creating = deferred();
  const inner = lastingStore();
  const store = hookedStore(async (call, method, [key]) => {
    if (method === "create" && (key as { run_id: string }).run_id === NEXT) await creating.promise;
    return call();
  }, persistent(inner));
  const { runtime, clock, next, scopes } = await world({ store });
  runtime.register("short", { durable: true }, (input) => `short ${nameIn(input)}`);
  next.splice(0, Number.POSITIVE_INFINITY, RUN, CHILD, NEXT);
  await scopes.red.createRun({ agent_name: "desk", input: "live @red" });
  const joining = scopes.red.createRun({ agent_name: "short", input: "joins @red", session_id: RUN });
  await clock.settle();
  await scopes.red.resume({ run_id: RUN, await_resume: reply("yes @red") });
  creating.resolve();
  await joining;
  const { history } = await scopes.red.getSession(RUN);
  expect(JSON.stringify(history)).toContain("live @red");
  expect(JSON.stringify(history)).toContain("joins @red");
});

it("a run that joins the session of another run, by its id, joins that of the tenant", async () => {
  const { runtime, next, scopes } = await world();
  runtime.register("short", (input) => `short ${nameIn(input)}`);
  for (const tenant of TENANTS) {
    next.splice(0, Number.POSITIVE_INFINITY, RUN);
    await scopes[tenant].createRun({ agent_name: "short", input: `first @${tenant}` });
  }
  for (const tenant of TENANTS) {
    next.splice(0, Number.POSITIVE_INFINITY, NEXT, CHILD);
    const run = await scopes[tenant].createRun({ agent_name: "desk", input: `second @${tenant}`, session_id: RUN });
    expect(JSON.stringify(run.output)).toContain(`second @${tenant} after first @${tenant},short first @${tenant}`);
  }
});

it("the session of a live run that another run joins is kept, for the tenant that has joined it", async () => {
  const { runtime, next, scopes } = await world();
  runtime.register("short", (input) => `short ${nameIn(input)}`);
  next.splice(0, Number.POSITIVE_INFINITY, RUN, CHILD, NEXT);
  await scopes.red.createRun({ agent_name: "desk", input: "live @red" });
  await scopes.red.createRun({ agent_name: "short", input: "joins @red", session_id: RUN });
  await scopes.red.resume({ run_id: RUN, await_resume: reply("yes @red") });
  const { history } = await scopes.red.getSession(RUN);
  expect(JSON.stringify(history)).toContain("joins @red");
  expect(JSON.stringify(history)).toContain("live @red");
  expect((await refusal(scopes.blue.getSession(RUN))).code).toBe("session_not_found");
});

it("what is deleted is the tenant's own, with the runs below it", async () => {
  const { scopes, create } = await world();
  for (const tenant of TENANTS) await create(tenant);
  // The parent, which is of the tenant, has not ended.
  expect((await refusal(scopes.red.delete(CHILD))).code).toBe("run_not_ended");
  for (const tenant of TENANTS) await scopes[tenant].resume({ run_id: RUN, await_resume: reply(`@${tenant}`) });
  await scopes.red.delete(RUN);
  for (const run_id of [RUN, CHILD]) {
    expect((await refusal(scopes.red.getRun(run_id))).code).toBe("run_not_found");
    expect(namesIn(await scopes.blue.getRun(run_id))).toEqual(["@blue"]);
  }
  await scopes.red.deleteSession(SESSION);
  expect(namesIn(await scopes.blue.getSession(SESSION))).toEqual(["@blue"]);
  await scopes.blue.deleteSession(SESSION);
  for (const run_id of [RUN, CHILD]) expect((await refusal(scopes.blue.getRun(run_id))).code).toBe("run_not_found");
});

it("a session key names another session for each tenant", async () => {
  const { scopes, next } = await world();
  next.splice(0, Number.POSITIVE_INFINITY);
  expect(scopes.red.sessionId("chat")).not.toBe(scopes.blue.sessionId("chat"));
  const run = await scopes.red.createRun({ agent_name: "child", input: "@red" }, { sessionKey: "chat" });
  expect(run.session_id).toBe(scopes.red.sessionId("chat"));
});

it.each([
  { store: "of its own", work: true },
  { store: "that outlives it", work: true },
  { store: "that outlives it", work: false },
])("runs of sessions with the same id do not wait for each other (a store $store, $work)", async ({ store, work }) => {
  const replicas = inMemory();
  const started: string[] = [];
  const end = deferred();
  const options = { durable: true, concurrency: { max: 1, per: "session", whenFull: "queue" } } as const;
  const agent = async (input: readonly Message[], { step }: AgentContext): Promise<string> => {
    await step("work", () => {
      started.push(nameIn(input));
      return end.promise;
    });
    return "done";
  };
  const worker = store === "of its own" ? setUp() : replicas.start();
  worker.runtime.register("agent", options, agent);
  const web = work ? worker : replicas.start({ work: false });
  if (!work) web.runtime.declare({ name: "agent", ...options });
  for (const tenant of TENANTS)
    await web.runtime
      .scope({ tenant })
      .createRun({ agent_name: "agent", input: tenant, session_id: SESSION, mode: "async" });
  await worker.clock.advance(1_000);
  expect(started.toSorted()).toEqual(["blue", "red"]);
  end.resolve();
  await worker.clock.advance(1_000);
});

it("a tenant is refused no run since another one has the slot of a session with the same id", async () => {
  const { runtime } = setUp();
  const end = deferred();
  runtime.register("agent", { concurrency: { max: 1, per: "session", whenFull: "reject" } }, () => end.promise);
  for (const tenant of TENANTS)
    await runtime.scope({ tenant }).createRun({ agent_name: "agent", input: "", session_id: SESSION, mode: "async" });
  expect(
    (
      await refusal(
        runtime
          .scope({ tenant: "red" })
          .createRun({ agent_name: "agent", input: "", session_id: SESSION, mode: "async" }),
      )
    ).code,
  ).toBe("limit_reached");
  end.resolve();
});

it("a list of a tenant waits for no write of another one", async () => {
  const stuck = deferred();
  const store = hookedStore(async (call, method, [key]) => {
    if (method === "append" && (key as { tenant: string }).tenant === "blue") await stuck.promise;
    return call();
  }, persistent(lastingStore()));
  const { runtime, clock } = setUp({ store });
  runtime.register("agent", () => "done");
  await runtime.scope({ tenant: "blue" }).createRun({ agent_name: "agent", input: "@blue", mode: "async" });
  // Its end is being written.
  await clock.settle();
  expect(await runtime.scope({ tenant: "red" }).listRuns()).toEqual([]);
  stuck.resolve();
  expect(await runtime.scope({ tenant: "blue" }).listRuns()).toHaveLength(1);
});

it("an admin finds the questions and the children of each tenant", async () => {
  const { runtime, scopes, create } = await world();
  for (const tenant of TENANTS) await create(tenant);
  const admin = createAdmin(runtime);
  for (const tenant of TENANTS) {
    const { items } = await admin.questions({ tenant });
    expect(namesIn(items)).toEqual([`@${tenant}`]);
    const { await_id } = questionOf(await scopes[tenant].getRun(RUN));
    expect(items).toMatchObject([{ tenant, run_id: RUN, await_id }]);
  }
});
