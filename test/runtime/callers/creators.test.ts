import type { Message, RuntimeOptions, Scope } from "cadenza";
import { MemoryStore } from "cadenza";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { refusal, setUp, textOf } from "../../harness/runtimes.ts";
import { lastingStore, persistent } from "../../harness/store-proxy.ts";

/* Scopes with `owns`: for a user exist only the runs and sessions that this user has created. */

const UNKNOWN = "00000000-0000-4000-8000-00000000000f";
const SESSION = "00000000-0000-4000-8000-00000000000e";
const answer = { await_resume: { ok: true } };

function open(options: RuntimeOptions = {}) {
  const setup = setUp(options);
  const { runtime } = setup;
  runtime.register("echo", { durable: true }, (input) => input.map(textOf).join());
  runtime.register("desk", { durable: true }, async function* (_input, { run, ask, session, receive }) {
    const before = await session.history();
    yield `after ${before.map(textOf).join()}. `;
    await run("echo", "below");
    await ask("Well?");
    await receive("news");
  });
  const of = (id: string): Scope => runtime.scope({ tenant: "blue", principal: { id, name: "a name" }, owns: true });
  return {
    ...setup,
    ada: of("ada"),
    bob: of("bob"),
    all: runtime.scope({ tenant: "blue", principal: "operator" }),
    of,
  };
}

const opened: readonly (readonly [name: string, () => RuntimeOptions])[] = [
  ["in memory", () => ({})],
  ["durable", () => ({ store: durable(new MemoryStore()) })],
  ["on a store that lasts", () => ({ store: durable(persistent(lastingStore())) })],
];

async function eventsOf(scope: Scope, run_id: string): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const event of scope.events(run_id, { until: "now" })) found.push(event);
  return found;
}

/** What may be asked of a run. */
const ofRuns: readonly (readonly [name: string, call: (scope: Scope, run_id: string) => Promise<unknown>])[] = [
  ["getRun", (scope, run_id) => scope.getRun(run_id)],
  ["details", (scope, run_id) => scope.details(run_id)],
  ["transcript", (scope, run_id) => scope.transcript(run_id)],
  ["events", (scope, run_id) => eventsOf(scope, run_id)],
  ["resume", (scope, run_id) => scope.resume({ run_id, ...answer })],
  ["resume of one question", (scope, run_id) => scope.resume({ run_id, await_id: "ask#1", ...answer })],
  ["resume, streamed", async (scope, run_id) => scope.resume({ run_id, ...answer, mode: "stream" }).next()],
  ["a decline", (scope, run_id) => scope.resume({ run_id, decline: {} })],
  ["cancel", (scope, run_id) => scope.cancel(run_id)],
  ["cancel, and wait", (scope, run_id) => scope.cancel(run_id, { wait: true })],
  ["fork", (scope, run_id) => scope.fork(run_id)],
  ["send", (scope, run_id) => scope.send({ to: run_id, name: "news", data: 1 })],
  ["delete", (scope, run_id) => scope.delete(run_id)],
];

/** The error of a call, without the id that it was called with. */
async function errorOf(call: Promise<unknown>, id: string): Promise<string> {
  const { message, code, data } = (await refusal(call)) as unknown as Record<string, unknown>;
  return JSON.stringify({ message, code, data }).replaceAll(id, "ID");
}

describe.each(opened)("%s", (_name, options) => {
  it.each(ofRuns)("%s: a run of another user is as missing as one that does not exist", async (_call, call) => {
    const { ada, bob, all, runtime } = open(options());
    const { run_id } = await ada.createRun({ agent_name: "desk", input: "a", session_id: SESSION });
    const before = await eventsOf(all, run_id);
    const [sub = ""] = (await all.details(run_id)).children;

    const missing = await errorOf(call(bob, UNKNOWN), UNKNOWN);
    expect(missing).toContain("run_not_found");
    for (const id of [run_id, sub]) expect(await errorOf(call(bob, id), id)).toBe(missing);
    expect(await eventsOf(all, run_id)).toEqual(before);
    await runtime.close();
  });

  it("lists, finds and reads what the user has created, with sub-runs and forks", async () => {
    const { ada, bob, all, of, runtime } = open(options());
    const request = { agent_name: "desk", input: "a", session_id: SESSION } as const;
    const { run_id } = await ada.createRun(request, { idempotencyKey: "key", labels: { order: "1" } });
    const echo = await ada.createRun({ agent_name: "echo", input: "b" });
    const fork = await all.fork(echo.run_id);
    const sub = (await ada.details(run_id)).children;
    const ids = async (scope: Scope, query = {}) => (await scope.listRuns(query)).map((run) => run.run_id);

    expect((await ids(ada)).toSorted()).toEqual([run_id, echo.run_id, fork.run_id, ...sub].toSorted());
    expect(await ids(all)).toHaveLength(4);
    for (const query of [
      {},
      { session_id: SESSION },
      { labels: { order: "1" } },
      { parent: run_id },
      { after: fork.run_id },
    ])
      expect(await ids(bob, query)).toEqual([]);
    expect(await bob.findRun({ idempotencyKey: "key" })).toBeUndefined();
    expect(await ada.findRun({ idempotencyKey: "key" })).toMatchObject({ run_id });
    expect((await refusal(bob.send({ to: { labels: { order: "1" } }, name: "news", data: 1 }))).code).toBe(
      "run_not_found",
    );
    await ada.resume({ run_id, ...answer, mode: "async" });
    await ada.send({ to: { labels: { order: "1" } }, name: "news", data: 1 });
    expect((await refusal(of("ada ").getRun(run_id))).code).toBe("run_not_found");
    await runtime.close();
  });

  it("keeps sessions apart: the user who has made one is alone in it", async () => {
    const { ada, bob, all, runtime } = open(options());
    await ada.createRun({ agent_name: "echo", input: "secret", session_id: SESSION });
    const first = await ada.createRun({ agent_name: "echo", input: "first" });
    const waiting = await ada.createRun({ agent_name: "desk", input: "waiting" });
    let announced = 0;
    runtime.on("run.created", () => (announced += 1));
    for (const id of [SESSION, first.run_id, waiting.run_id]) {
      const request = { agent_name: "echo", input: "b", session_id: id } as const;
      const missing = await errorOf(bob.getSession(UNKNOWN), UNKNOWN);
      expect(await errorOf(bob.getSession(id), id)).toBe(missing);
      expect(await errorOf(bob.deleteSession(id), id)).toBe(missing);
      expect(await errorOf(bob.createRun(request), id)).toBe(missing);
      const emptied = { session: { history: [], state: null } };
      expect(await errorOf(bob.createRun(request, emptied), id)).toBe(missing);
    }
    expect([await bob.listRuns(), announced]).toEqual([[], 0]);
    // An operator may join it, and it stays the user's.
    for (const id of [SESSION, first.run_id]) {
      await all.createRun({ agent_name: "echo", input: "from us", session_id: id });
      expect((await ada.getSession(id)).history.map((message: Message) => textOf(message))).toContain("from us");
      await ada.createRun({ agent_name: "echo", input: "thanks", session_id: id });
      expect((await refusal(bob.getSession(id))).code).toBe("session_not_found");
    }
    await runtime.close();
  });

  it("of two users who make one session at a time, one is refused", async () => {
    const { ada, bob, runtime } = open(options());
    const request = { agent_name: "echo", input: "a", session_id: SESSION } as const;
    const made = await Promise.allSettled([ada.createRun(request), bob.createRun(request)]);
    const refused = made.filter((one) => one.status === "rejected");
    expect(refused.map(({ reason }) => reason.code)).toEqual(["session_not_found"]);
    const lists = [await ada.listRuns(), await bob.listRuns()].map((runs) => runs.length);
    expect(lists.toSorted()).toEqual([0, 1]);
    await runtime.close();
  });

  it("a key of another user makes a conflict that names no run", async () => {
    const { ada, bob, runtime } = open(options());
    const request = { agent_name: "echo", input: "a" } as const;
    const { run_id } = await ada.createRun(request, { idempotencyKey: "key" });
    for (const asked of [request, { ...request, input: "b" }]) {
      const error = await refusal(bob.createRun(asked, { idempotencyKey: "key" }));
      expect(error.code).toBe("idempotency_conflict");
      expect(JSON.stringify([error.message, error])).not.toContain(run_id);
    }
    await runtime.close();
  });
});

it("a question says who has created its run", async () => {
  const { ada, all, runtime } = open();
  const { run_id } = await ada.createRun({ agent_name: "desk", input: "a" });
  const asked: unknown[] = [];
  await all.resume({ run_id, ...answer, mode: "async" }, { admit: ({ creator }) => void asked.push(creator) });
  const other = await runtime.createRun({ agent_name: "desk", input: "a" });
  await runtime.resume(
    { ...answer, run_id: other.run_id, mode: "async" },
    { admit: (one) => void asked.push(one.creator) },
  );
  expect(asked).toEqual(["ada", null]);
});

it("a fork under a key of another user makes a conflict that names no run", async () => {
  const { ada, bob, runtime } = open({ store: durable(new MemoryStore()) });
  const { run_id } = await ada.createRun({ agent_name: "echo", input: "a" }, { idempotencyKey: "key" });
  const own = await bob.createRun({ agent_name: "echo", input: "b" });
  const error = await refusal(bob.fork(own.run_id, { idempotencyKey: "key" }));
  expect(error.code).toBe("idempotency_conflict");
  expect(JSON.stringify([error.message, error])).not.toContain(run_id);
  await runtime.close();
});

it("a scope of a user refuses watch, with its first event", async () => {
  const { ada } = open();
  const error = await refusal(ada.watch().next());
  expect(error).toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining("cannot watch") as unknown,
  });
});

it("an agent cannot change whose run it is, nor what the run was created with", async () => {
  const { ada, bob, runtime } = open();
  runtime.register("forger", { durable: true }, (_input, { principal, metadata, labels }) => {
    const tries = [
      () => Object.assign(principal as object, { id: "bob" }),
      () => Object.assign((metadata as unknown as { list: unknown[] }).list, { 0: "changed" }),
      () => Object.assign(labels, { order: "changed" }),
    ];
    return tries
      .map((attempt) => {
        try {
          return typeof attempt();
        } catch (error) {
          return (error as Error).name;
        }
      })
      .join();
  });
  const given = { metadata: { list: ["as given"] }, labels: { order: "O-1" } };
  const forged = await ada.createRun({ agent_name: "forger", input: "" }, given);
  expect(forged.output.map(textOf)).toEqual(["TypeError,TypeError,TypeError"]);
  const { metadata, labels } = await ada.details(forged.run_id);
  expect({ metadata, labels }).toEqual(given);
  expect(() => Object.assign(labels, { order: "changed" })).toThrow(TypeError);
  // The caller's own objects are its own.
  given.metadata.list.push("later");
  expect((await ada.details(forged.run_id)).metadata).toEqual({ list: ["as given"] });
  const next = await ada.createRun({ agent_name: "echo", input: "" });
  expect((await refusal(bob.getRun(next.run_id))).code).toBe("run_not_found");
  expect((await ada.listRuns()).map(({ run_id }) => run_id)).toContain(next.run_id);
  await runtime.close();
});

it.each([null, "", {}, { id: "" }, { id: null }, { id: 1.5 }, { name: "ada" }, ["ada"], 17, true, "x".repeat(256)])(
  "the principal %j names no user",
  (principal) => {
    const { runtime } = open();
    expect(() => runtime.scope({ principal, owns: true })).toThrow("options.principal");
    expect(() => runtime.scope({ principal, owns: "ada" as never })).toThrow("options.owns");
  },
);

it.each<[principal: never, as: string]>([
  ["ada" as never, "ada"],
  [{ id: "ada", role: "clerk" } as never, "ada"],
  [{ id: 17 } as never, "17"],
])("the principal %j is the user %s", async (principal, id) => {
  const { runtime } = open();
  await runtime.scope({ principal, owns: true }).createRun({ agent_name: "echo", input: "a" });
  expect(await runtime.scope({ principal: { id }, owns: true }).listRuns()).toHaveLength(1);
});
