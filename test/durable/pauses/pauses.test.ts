import type { AgentRuntime, AuditRecord } from "cadenza";
import { createAdmin } from "cadenza/admin";
import type { RunWrite } from "cadenza/store";
import { describe, expect, it } from "vitest";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/** By then each process knows of a pause or a resume: `scanMs` and a second. */
const KNOWN_MS = 1_100;

function registerAll(runtime: AgentRuntime, began: string[] = []): void {
  for (const version of ["1", "2"])
    runtime.register("agent", { durable: true, version }, async (input, { ask, step }) => {
      const name = input[0]?.parts[0]?.content ?? "";
      await step("begin", () => void began.push(name));
      return name.startsWith("asks") ? JSON.stringify(await ask("Well?")) : name;
    });
  runtime.register("other", { durable: true }, (input) => input[0]?.parts[0]?.content);
  runtime.register("plain", async (_input, { ask }) => JSON.stringify(await ask("Well?")));
}

const create = async (runtime: Pick<AgentRuntime, "createRun">, agent_name: string, input: string): Promise<string> =>
  (await runtime.createRun({ agent_name, input, mode: "async" })).run_id;

const answer = (run_id: string) =>
  ({
    run_id,
    await_resume: { type: "message", message: { role: "user", parts: [{ content: "yes" }] } },
    mode: "async",
  }) as const;

describe.each([
  ["in memory", () => inMemory()],
  ["on a file", () => onFile()],
] as const)("pauses, of processes %s", (_where, open) => {
  const begin = () => {
    const processes = open();
    const began: string[] = [];
    const start = (): Replica => {
      const process = processes.start();
      registerAll(process.runtime, began);
      return process;
    };
    const { clock } = processes;
    const statusOf = async ({ runtime }: Replica, run_id: string, tenant = "") =>
      (await runtime.scope({ tenant }).getRun(run_id)).status;
    return { start, clock, began, statusOf };
  };

  it("a run of a paused agent is begun nowhere until it is resumed, also after a restart, and then all go on in order", async () => {
    const { start, clock, began, statusOf } = begin();
    const [first, second] = [start(), start()];
    expect(await createAdmin(first.runtime).pause({ agent_name: "agent" })).toEqual({ changed: true });
    await clock.advance(KNOWN_MS);
    const runs = [
      await create(first.runtime, "agent", "a"),
      await create(second.runtime, "agent", "b"),
      await create(first.runtime, "agent", "c"),
    ];
    const other = await create(second.runtime, "other", "free");
    await clock.advance(KNOWN_MS);
    for (const run of runs) expect(await statusOf(second, run)).toBe("created");
    expect(await statusOf(second, other)).toBe("completed");
    first.kill();
    second.kill();
    const third = start();
    runs.push(await create(third.runtime, "agent", "d"));
    await clock.advance(3_000);
    expect(began).toEqual([]);
    expect(await createAdmin(third.runtime).backlog()).toMatchObject([
      { agent_name: "agent", version: "2", due: 4, paused: true },
    ]);
    expect(await createAdmin(third.runtime).resume({ agent_name: "agent" })).toEqual({ changed: true });
    await clock.advance(KNOWN_MS);
    expect(began).toEqual(["a", "b", "c", "d"]);
    for (const run of runs) expect(await statusOf(third, run)).toBe("completed");
  });

  it("a run of a paused version waits, and runs of other versions and of no version go on", async () => {
    const { start, clock, statusOf } = begin();
    const first = start();
    const admin = createAdmin(first.runtime);
    await admin.pause({ agent_name: "agent", version: "1" });
    await admin.pause({ agent_name: "agent", version: null });
    const run = await create(first.runtime, "agent", "x");
    await clock.advance(100);
    await admin.pause({ agent_name: "agent", version: "2" });
    const paused = await create(first.runtime, "agent", "y");
    await clock.advance(KNOWN_MS);
    expect(await statusOf(first, run)).toBe("completed");
    expect(await statusOf(first, paused)).toBe("created");
    expect(await admin.pauses()).toMatchObject([{ version: "1" }, { version: null }, { version: "2" }]);
  });

  it("a run of a paused tenant is set aside once, and goes on when the tenant is resumed", async () => {
    const { start, clock, began, statusOf } = begin();
    const [first, second] = [start(), start()];
    await createAdmin(first.runtime).pause({ tenant: "acme" });
    await clock.advance(KNOWN_MS);
    const acme = second.runtime.scope({ tenant: "acme" });
    const runs: string[] = [];
    for (const name of ["a", "b", "c"]) runs.push(await create(acme, "agent", name));
    const free = await create(second.runtime, "agent", "free");
    await clock.advance(KNOWN_MS);
    expect(began).toEqual(["free"]);
    expect(await statusOf(second, free)).toBe("completed");
    const heads = await Promise.all(runs.map((run_id) => second.store.find({ tenant: "acme", run_id })));
    await clock.advance(5_000);
    expect(await Promise.all(runs.map((run_id) => second.store.find({ tenant: "acme", run_id })))).toEqual(heads);
    first.kill();
    await createAdmin(second.runtime).resume({ tenant: "acme" });
    await clock.advance(KNOWN_MS);
    expect(began).toEqual(["free", "a", "b", "c"]);
    for (const run of runs) expect(await statusOf(second, run, "acme")).toBe("completed");
  });

  it("an agent of a tenant is paused alone", async () => {
    const { start, clock, statusOf } = begin();
    const first = start();
    await createAdmin(first.runtime).pause({ agent_name: "agent", tenant: "acme" });
    const acme = first.runtime.scope({ tenant: "acme" });
    const runs = [await create(acme, "agent", "a"), await create(acme, "other", "b")];
    const free = await create(first.runtime, "agent", "c");
    await clock.advance(KNOWN_MS);
    const statuses = await Promise.all(runs.map((run) => statusOf(first, run, "acme")));
    expect([...statuses, await statusOf(first, free)]).toEqual(["created", "completed", "completed"]);
  });

  it.each(["agent", "tenant"] as const)(
    "a run of a paused %s that is answered has its answer, and goes on when it is resumed",
    async (what) => {
      const { start, clock, statusOf } = begin();
      const first = start();
      const scope = first.runtime.scope({ tenant: "acme" });
      const run = await create(scope, "agent", "asks");
      const plain = await create(scope, "plain", "");
      await clock.advance(500);
      expect(await statusOf(first, run, "acme")).toBe("awaiting");
      const admin = createAdmin(first.runtime);
      const queries = what === "tenant" ? [{ tenant: "acme" }] : [{ agent_name: "agent" }, { agent_name: "plain" }];
      for (const query of queries) await admin.pause(query);
      await scope.resume(answer(run));
      await scope.resume(answer(plain));
      await clock.advance(5_000);
      expect(await statusOf(first, run, "acme")).toBe("in-progress");
      expect(await statusOf(first, plain, "acme")).toBe("in-progress");
      for (const query of queries) await admin.resume(query);
      await clock.advance(KNOWN_MS);
      expect(await statusOf(first, run, "acme")).toBe("completed");
      expect(await statusOf(first, plain, "acme")).toBe("completed");
    },
  );

  it.each(["created", "awaiting", "answered"] as const)("a paused run that is %s can be cancelled", async (which) => {
    const { start, clock, statusOf } = begin();
    const first = start();
    const admin = createAdmin(first.runtime);
    const pause = async (): Promise<void> => {
      await admin.pause({ agent_name: "agent" });
      await clock.advance(KNOWN_MS);
    };
    if (which === "created") await pause();
    const run = await create(first.runtime, "agent", "asks");
    await clock.advance(KNOWN_MS);
    if (which !== "created") await pause();
    if (which === "answered") await first.runtime.resume(answer(run));
    await clock.advance(KNOWN_MS);
    await first.runtime.cancel(run);
    await clock.advance(KNOWN_MS);
    expect(await statusOf(first, run)).toBe("cancelled");
  });

  it("a run at work goes on to its next rest, and a question expires when the run is resumed", async () => {
    const { start, clock, statusOf } = begin();
    const first = start();
    first.runtime.register("slow", { durable: true }, async (_input, { ask, step }) => {
      await step("work", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 3_000)));
      return JSON.stringify(await ask("Well?", { timeoutMs: 1_000, default: { n: 1 } }));
    });
    const run = await create(first.runtime, "slow", "");
    await clock.advance(500);
    const admin = createAdmin(first.runtime);
    await admin.pause({ agent_name: "slow" });
    await clock.advance(3_000);
    expect(await statusOf(first, run)).toBe("awaiting");
    await clock.advance(10_000);
    expect(await statusOf(first, run)).toBe("awaiting");
    await admin.resume({ agent_name: "slow" });
    await clock.advance(KNOWN_MS);
    const { status, output } = await first.runtime.getRun(run);
    expect([status, output[0]?.parts[0]?.content]).toEqual(["completed", '{"n":1}']);
  });

  it("a sleep ends, and a message is received, when the run is resumed", async () => {
    const { start, clock, statusOf } = begin();
    const first = start();
    first.runtime.register("waits", { durable: true }, async (_input, { sleep, receive }) => {
      await sleep(1_000);
      return JSON.stringify(await receive("news"));
    });
    const sleeping = await create(first.runtime, "waits", "");
    await clock.advance(500);
    const admin = createAdmin(first.runtime);
    await admin.pause({ agent_name: "waits" });
    await first.runtime.send({ to: sleeping, name: "news", data: 1 });
    await clock.advance(5_000);
    expect(await statusOf(first, sleeping)).toBe("in-progress");
    await admin.resume({ agent_name: "waits" });
    await clock.advance(KNOWN_MS);
    expect(await statusOf(first, sleeping)).toBe("completed");
  });

  /** A run whose sub-run is paused. */
  const beginAbovePaused = async () => {
    const { start, clock, statusOf } = begin();
    const first = start();
    first.runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("other", "done")).status);
    const admin = createAdmin(first.runtime);
    await admin.pause({ agent_name: "other" });
    const parent = await create(first.runtime, "parent", "");
    await clock.advance(KNOWN_MS);
    return { first, admin, parent, clock, statusOf };
  };

  it("a paused sub-run waits, and so does its parent", async () => {
    const { first, admin, parent, clock, statusOf } = await beginAbovePaused();
    expect(await statusOf(first, parent)).toBe("in-progress");
    await admin.resume({ agent_name: "other" });
    await clock.advance(KNOWN_MS);
    expect(await statusOf(first, parent)).toBe("completed");
  });

  it.each(["the process of both", "another process"] as const)(
    "a paused run does not go on when its sub-run is answered in %s, and ends",
    async (where) => {
      const { start, clock, statusOf } = begin();
      const [first, second] = [start(), start()];
      let wentOn = 0;
      for (const { runtime } of [first, second])
        runtime.register("parent", { durable: true }, async (_input, { run, step }) => {
          await run("agent", "asks");
          await step("go on", () => {
            wentOn += 1;
          });
        });
      const admin = createAdmin(first.runtime);
      const parent = await create(first.runtime, "parent", "");
      await clock.advance(100);
      expect(await statusOf(first, parent)).toBe("awaiting");
      await admin.pause({ agent_name: "parent" });
      await clock.advance(KNOWN_MS);
      await (where === "another process" ? second : first).runtime.resume(answer(parent));
      await clock.advance(20_000);
      expect([wentOn, await statusOf(first, parent)]).toEqual([0, "in-progress"]);
      expect((await admin.runs({ agent_name: "agent" })).items).toMatchObject([{ status: "completed" }]);
      await admin.resume({ agent_name: "parent" });
      await clock.advance(KNOWN_MS);
      expect([wentOn, await statusOf(first, parent)]).toEqual([1, "completed"]);
    },
  );

  it("a run that is paused after its sub-run does not go on when that is resumed, and ends", async () => {
    const { first, admin, parent, clock, statusOf } = await beginAbovePaused();
    await admin.pause({ agent_name: "parent" });
    await admin.resume({ agent_name: "other" });
    await clock.advance(20_000);
    expect((await admin.runs({ agent_name: "other" })).items).toMatchObject([{ status: "completed" }]);
    expect(await statusOf(first, parent)).toBe("in-progress");
    await admin.resume({ agent_name: "parent" });
    await clock.advance(KNOWN_MS);
    expect(await statusOf(first, parent)).toBe("completed");
  });

  it("a paused version leaves the slot that it shares to the others", async () => {
    const { start, clock, statusOf } = begin();
    const first = start();
    for (const version of ["1", "2"])
      first.runtime.register(
        "narrow",
        { durable: true, version, concurrency: { max: 1 } },
        async (_input, { ask, step }) => {
          await ask("Well?");
          await step("work", () => 1);
        },
      );
    first.runtime.register(
      "narrow",
      { durable: true, version: "1", concurrency: { max: 1 }, replace: true },
      () => "one",
    );
    const admin = createAdmin(first.runtime);
    await admin.pause({ agent_name: "narrow", version: "1" });
    const held = await Promise.all([1, 2, 3].map(() => create(first.runtime, "narrow", "")));
    first.runtime.register(
      "narrow",
      { durable: true, version: "2", concurrency: { max: 1 }, replace: true },
      () => "two",
    );
    const free = await create(first.runtime, "narrow", "");
    await clock.advance(5_000);
    expect(await Promise.all(held.map((run) => statusOf(first, run)))).toEqual(["created", "created", "created"]);
    expect(await statusOf(first, free)).toBe("completed");
    await admin.resume({ agent_name: "narrow", version: "1" });
    await clock.advance(KNOWN_MS);
    expect(await Promise.all(held.map((run) => statusOf(first, run)))).toEqual(["completed", "completed", "completed"]);
  });

  it("a paused agent leaves a limit that it shares to the others, and stands in line again when it is resumed", async () => {
    const processes = open();
    const { clock } = processes;
    const order: string[] = [];
    const ends: (() => void)[] = [];
    const { runtime } = processes.start({ durability: { leaseMs: 100_000, heartbeatMs: 300, scanMs: 100 } });
    for (const name of ["paused", "free"])
      runtime.register(name, { durable: true, limits: [{ name: "shared", max: 1 }] }, (input, { step }) =>
        step("work", async () => {
          order.push(`${name} ${input[0]?.parts[0]?.content}`);
          await new Promise<void>((resolve) => ends.push(resolve));
        }),
      );
    const next = async (): Promise<void> => {
      ends.shift()?.();
      await clock.advance(500);
    };
    await create(runtime, "free", "1");
    await clock.advance(KNOWN_MS);
    for (const [agent, input] of [
      ["paused", "2"],
      ["paused", "3"],
      ["free", "4"],
    ] as const)
      await create(runtime, agent, input);
    await createAdmin(runtime).pause({ agent_name: "paused" });
    await clock.advance(KNOWN_MS);
    await next();
    expect(order).toEqual(["free 1", "free 4"]);
    await createAdmin(runtime).resume({ agent_name: "paused" });
    await clock.advance(KNOWN_MS);
    for (let n = 0; n < 3; n++) await next();
    expect(order.toSorted()).toEqual(["free 1", "free 4", "paused 2", "paused 3"]);
  });

  it("the runs of a paused tenant leave the slot that they share with other tenants", async () => {
    const { start, clock, statusOf } = begin();
    const first = start();
    first.runtime.register("narrow", { durable: true, concurrency: { max: 1 } }, () => "done");
    const admin = createAdmin(first.runtime);
    await admin.pause({ tenant: "acme" });
    const acme = first.runtime.scope({ tenant: "acme" });
    const held: string[] = [];
    for (let n = 0; n < 30; n++) held.push(await create(acme, "narrow", ""));
    const free = await create(first.runtime, "narrow", "");
    await clock.advance(KNOWN_MS);
    expect(await statusOf(first, free)).toBe("completed");
    expect(await Promise.all(held.map((run) => statusOf(first, run, "acme")))).toEqual(held.map(() => "created"));
    await admin.resume({ tenant: "acme" });
    await clock.advance(KNOWN_MS);
    expect(await Promise.all(held.map((run) => statusOf(first, run, "acme")))).toEqual(held.map(() => "completed"));
  });
});

it("a process that takes a run of a tenant that was just resumed gives it back, and it comes back", async () => {
  const processes = inMemory();
  const first = processes.start();
  registerAll(first.runtime);
  const second = processes.start();
  registerAll(second.runtime);
  await createAdmin(first.runtime).pause({ tenant: "acme" });
  await processes.clock.advance(KNOWN_MS);
  const run = await create(second.runtime.scope({ tenant: "acme" }), "agent", "a");
  // The other process does not know yet.
  await first.store.resume({ tenant: "acme" });
  await processes.clock.advance(KNOWN_MS);
  expect((await first.runtime.scope({ tenant: "acme" }).getRun(run)).status).toBe("completed");
});

it("a run comes back that a process has set aside late, and died", async () => {
  const processes = inMemory();
  const first = processes.start();
  registerAll(first.runtime);
  const { clock, store } = first;
  await createAdmin(first.runtime).pause({ tenant: "acme" });
  const run = await create(first.runtime.scope({ tenant: "acme" }), "agent", "a");
  await clock.advance(KNOWN_MS);
  const key = { tenant: "acme", run_id: run };
  const { head, position } = (await store.find(key)) ?? expect.fail("The run is not stored.");
  // Later than any date.
  expect(head.due_at).toBeGreaterThan(8_640_000_000_000_000);
  const { owner, epoch } = head;
  // The process that dies has taken the run before the others give it back.
  await store.append(key, { epoch, position, owner }, { entries: [], head: { ...head, due_at: null }, takes: "all" });
  await createAdmin(first.runtime).resume({ tenant: "acme" });
  await clock.advance(60_000);
  await store.append(key, { epoch, position, owner }, { entries: [], head, takes: "all" });
  await clock.advance(12_000);
  expect((await first.runtime.scope({ tenant: "acme" }).getRun(run)).status).toBe("completed");
});

describe.each([
  ["a tenant", { tenant: "acme" }],
  ["an agent", { agent_name: "narrow" }],
] as const)("of a paused run of %s that a process gives back", (_what, paused) => {
  it("a cancel that comes meanwhile is not missed", async () => {
    const processes = inMemory();
    const { clock } = processes;
    const tenant = "acme";
    const began: string[] = [];
    let cancelled: Promise<unknown> | undefined;
    const second = processes.start({ work: false });
    const first = processes.start({}, async (call, method, parameters) => {
      const write = parameters[2] as RunWrite | undefined;
      if (method === "append" && write?.head.owner === null && cancelled === undefined) {
        cancelled = second.runtime.scope({ tenant }).cancel(run);
        await cancelled;
      }
      const answer = await call();
      // The process learns of the pause when it has taken the run.
      if (method === "take" && Array.isArray(answer) && answer.length > 0)
        await createAdmin(first.runtime).pause(paused);
      return answer;
    });
    for (const { runtime } of [first, second])
      runtime.register("narrow", { durable: true, concurrency: { max: 1 } }, () => {
        began.push("narrow");
        return "";
      });
    const run = await create(second.runtime.scope({ tenant }), "narrow", "");
    // Less than a lease, after which any process would end it.
    await clock.advance(900);
    expect(cancelled).toBeDefined();
    expect((await second.runtime.scope({ tenant }).getRun(run)).status).toBe("cancelled");
    expect(began).toEqual([]);
  });
});

it("onAudit gets each pause and each resume", async () => {
  const records: AuditRecord[] = [];
  const { runtime } = inMemory().start({ onAudit: (record) => void records.push(record) });
  const admin = createAdmin(runtime, { principal: { user: "ann" } });
  await admin.pause({ agent_name: "agent", version: null });
  expect(await admin.pause({ agent_name: "agent", version: null, by: "ben" })).toEqual({ changed: false });
  await admin.resume({ agent_name: "agent", version: null });
  expect(await admin.resume({ tenant: "acme" })).toEqual({ changed: false });
  expect(records).toMatchObject([
    { action: "pause", outcome: "done", agent_name: "agent", version: null, tenant: null, by: { user: "ann" } },
    { action: "pause", repeated: true, by: "ben" },
    { action: "resume", outcome: "done", by: { user: "ann" } },
    { action: "resume", repeated: true, tenant: "acme" },
  ]);
  expect(records[0]).not.toHaveProperty("repeated");
});

it.each([
  [{}, "query: expected an `agent_name`, a `tenant`, or both"],
  [{ version: "1", tenant: "a" }, "query.version: expected an `agent_name` beside it"],
  [{ agent_name: "" }, "query.agent_name"],
  [{ tenant: 1 as never }, "query.tenant"],
  [{ tenant: "x".repeat(129) }, "query.tenant: expected a string of 1 to 128 characters"],
  [{ tenant: "cadenza:operators" }, "query.tenant: expected a tenant of the application"],
  [{ agent_name: "a", version: "x".repeat(129) }, "query.version"],
  [{ agent: "a" } as never, "agent"],
])("the query %j is refused", async (query, message) => {
  const { runtime } = inMemory().start();
  for (const call of ["pause", "resume"] as const)
    await expect(createAdmin(runtime)[call](query)).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining(message),
    });
});

it("a pause by a principal that is a long text is refused", async () => {
  const admin = createAdmin(inMemory().start().runtime);
  const refused = admin.pause({ agent_name: "a", by: "x".repeat(10_000) });
  await expect(refused).rejects.toMatchObject({ code: "invalid_argument" });
  expect(await admin.pauses()).toEqual([]);
});

it("at the limit of 1,000 pauses one that exists is made again, and another one is refused", async () => {
  const { runtime, store } = inMemory().start();
  for (let n = 0; n < 1_000; n++) await store.pause({ agent_name: `a${n}` }, null);
  const admin = createAdmin(runtime);
  expect(await admin.pause({ agent_name: "a7" })).toEqual({ changed: false });
  await expect(admin.pause({ agent_name: "b" })).rejects.toMatchObject({ code: "limit_reached" });
});

it("the figures of a process say what is paused in the store", async () => {
  const processes = inMemory();
  const [first, second] = [processes.start(), processes.start()];
  await createAdmin(first.runtime, { principal: "ann" }).pause({ agent_name: "agent", version: null });
  await createAdmin(first.runtime).pause({ tenant: "acme" });
  const since = new Date(processes.clock.now()).toISOString();
  expect((await second.runtime.stats()).pauses).toEqual([
    { agent_name: "agent", version: null, by: "ann", since },
    { tenant: "acme", by: null, since },
  ]);
});

it("what was made of a store alone pauses nothing", async () => {
  const { store } = inMemory().start();
  const admin = createAdmin({ store });
  await expect(admin.pause({ agent_name: "a" })).rejects.toMatchObject({ code: "invalid_argument" });
  expect(await admin.pauses()).toEqual([]);
});
