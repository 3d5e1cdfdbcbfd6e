import type { AgentRuntime, Message, Scope } from "cadenza";
import type { FoundRun, RunKey, Store, StoredRun, StoreHint } from "cadenza/store";
import { expect, it } from "vitest";
import { newerFormatError } from "../../src/core/format.ts";
import { DamagedRuns } from "../../src/durable/recovery/damaged-runs.ts";
import { DueHints } from "../../src/durable/recovery/due-hints.ts";
import { Follower } from "../../src/durable/recovery/follower.ts";
import { UnloadedRuns } from "../../src/durable/recovery/heartbeat.ts";
import { Unreceived } from "../../src/durable/recovery/remote-posts.ts";
import { Wakeups } from "../../src/durable/recovery/wakeups.ts";
import type { Worker } from "../../src/durable/recovery/worker.ts";
import { historyOf, subRunsBegun } from "../../src/durable/replay/history.ts";
import { committedAbove, tellAbove } from "../../src/runtime/runs/committed-above.ts";
import { FakeClock } from "../harness/clock.ts";
import { T0 } from "../harness/logs.ts";
import { never, nextTurn } from "../harness/promises.ts";
import { questionOf, refusal, reply, textOf, textsOf } from "../harness/runtimes.ts";
import type { Hook } from "../harness/store-proxy.ts";
import { WakeQueue } from "../harness/wake-queue.ts";
import type { Replica, Replicas } from "../harness/world/replicas.ts";
import { inMemory } from "../harness/world/replicas.ts";

/* Tenants whose runs have the same id, in processes that load, wake, find and lose these runs. */

const ID = "00000000-0000-4000-8000-000000000001";
const CHILD = "00000000-0000-4000-8000-000000000002";
const TENANTS = ["red", "blue"];
const sameIds = { uuid: () => ID, token: () => "token" };
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };

function register(runtime: AgentRuntime): void {
  runtime.register("desk", { durable: true }, async (input, { ask }) => {
    const secret = input.map(textOf).join("");
    const answer = await ask(`What about ${secret}?`);
    return `${secret}: ${"parts" in answer ? textOf(answer as Message) : ""}`;
  });
}

/** Each tenant has a run that waits for an answer, and no process has loaded any of them. */
async function waiting(replicas: Replicas, tenants = TENANTS): Promise<void> {
  let tokens = 0;
  const first = replicas.start({ durability, ids: { ...sameIds, token: () => `first-${++tokens}` } });
  register(first.runtime);
  for (const tenant of tenants)
    await first.runtime.scope({ tenant }).createRun({ agent_name: "desk", input: `the secret of ${tenant}` });
  await replicas.clock.advance(1_000);
  first.kill();
}

async function answer(scope: Scope, text: string): Promise<string[]> {
  const { await_id } = questionOf(await scope.getRun(ID));
  return textsOf(await scope.resume({ run_id: ID, await_id, await_resume: reply(text) }));
}

/** Answers in a later turn. */
const late: Hook = async (call) => {
  await nextTurn();
  return call();
};

it("a run that is being loaded does not exist for another tenant", async () => {
  const replicas = inMemory();
  await waiting(replicas, ["red"]);
  const { runtime } = replicas.start({ durability, ids: sameIds }, late);
  register(runtime);
  const red = answer(runtime.scope({ tenant: "red" }), "of red");
  const await_resume = reply("of blue");
  const blue: Promise<unknown>[] = [];
  for (let turn = 0; turn < 20; turn++) {
    blue.push(refusal(runtime.scope({ tenant: "blue" }).resume({ run_id: ID, await_resume })));
    blue.push(refusal(runtime.scope({ tenant: "blue" }).cancel(ID)));
    await nextTurn();
  }
  await replicas.clock.settle();
  expect(await red).toEqual(["the secret of red: of red"]);
  for (const error of await Promise.all(blue)) expect(error).toMatchObject({ code: "run_not_found" });
});

it("runs with the same id are loaded side by side, each for its tenant", async () => {
  const replicas = inMemory();
  await waiting(replicas);
  const { runtime } = replicas.start({ durability, ids: sameIds }, late);
  register(runtime);
  const answers = TENANTS.map((tenant) => answer(runtime.scope({ tenant }), `of ${tenant}`));
  await replicas.clock.settle();
  expect(await Promise.all(answers)).toEqual([["the secret of red: of red"], ["the secret of blue: of blue"]]);
});

it("a sub-run that asks is loaded for the answer to its parent, each for its tenant", async () => {
  const replicas = inMemory();
  const start = (): Replica => {
    let ids = 0;
    const uuid = (): string => (ids++ % 2 === 0 ? ID : CHILD);
    const replica = replicas.start({ durability, ids: { ...sameIds, uuid } });
    register(replica.runtime);
    replica.runtime.register("office", { durable: true }, async (input, { run }) => {
      const { status, output } = await run("desk", input);
      return `${status}, ${output.map(textOf).join("")}`;
    });
    return replica;
  };
  const first = start();
  for (const tenant of TENANTS)
    await first.runtime.scope({ tenant }).createRun({ agent_name: "office", input: `the secret of ${tenant}` });
  await replicas.clock.advance(1_000);
  first.kill();
  const { runtime } = start();
  for (const tenant of TENANTS)
    expect(await answer(runtime.scope({ tenant }), `of ${tenant}`)).toEqual([
      `completed, the secret of ${tenant}: of ${tenant}`,
    ]);
});

it("runs with the same id are read by readers in another process, each for its tenant", async () => {
  const replicas = inMemory();
  await waiting(replicas);
  const { runtime } = replicas.start({ durability, ids: sameIds });
  register(runtime);
  const web = replicas.start({ durability, ids: sameIds, work: false });
  const texts = TENANTS.map(async (tenant) => {
    const seen: string[] = [];
    for await (const event of web.runtime.scope({ tenant }).events(ID, { until: "end" }))
      if (event.type === "message.completed") seen.push(event.message.parts[0]?.content ?? "");
    return seen.at(-1);
  });
  await replicas.clock.advance(1_000);
  for (const tenant of TENANTS) await answer(runtime.scope({ tenant }), `of ${tenant}`);
  await replicas.clock.advance(2_000);
  expect(await Promise.all(texts)).toEqual(["the secret of red: of red", "the secret of blue: of blue"]);
});

it("runs with the same id that a process owns and has not loaded are found with one heartbeat", async () => {
  const replicas = inMemory();
  const begun: string[] = [];
  const start = (hook?: Hook): Replica => {
    const replica = replicas.start({ durability: { ...durability, scanMs: 60_000 }, ids: sameIds }, hook);
    replica.runtime.register("work", { durable: true }, (input) => {
      begun.push(input.map(textOf).join(""));
      return "done";
    });
    return replica;
  };
  // The answers of `take` are lost: the runs belong to a process that does not know of them.
  let isLosing = false;
  const worker = start((call, method) => {
    const taken = call();
    return isLosing && method === "take" ? [] : taken;
  });
  await replicas.clock.advance(100);
  isLosing = true;
  const web = replicas.start({ durability, ids: sameIds, work: false });
  web.runtime.declare({ name: "work", durable: true });
  for (const tenant of TENANTS)
    await web.runtime.scope({ tenant }).createRun({ agent_name: "work", input: tenant, mode: "async" });
  await replicas.clock.advance(60_000);
  expect(begun.toSorted()).toEqual(["blue", "red"]);
  for (const tenant of TENANTS) expect((await worker.runtime.scope({ tenant }).getRun(ID)).status).toBe("completed");
});

it("a run that a process owns and has not loaded is found while it begins another one", async () => {
  const replicas = inMemory();
  const begun: string[] = [];
  const worker = replicas.start({ durability, ids: sameIds }, async (call, method, [key]) => {
    const { tenant } = (key ?? {}) as { readonly tenant?: string };
    // The log of the one is read for ever, and the answer that gives the other one is lost.
    if (method === "read" && tenant === "red") return never();
    const answer = await call();
    return method === "take" ? (answer as FoundRun[]).filter(({ key: { tenant: of } }) => of !== "blue") : answer;
  });
  worker.runtime.register("work", { durable: true }, (input) => {
    begun.push(input.map(textOf).join(""));
    return "done";
  });
  const web = replicas.start({ durability, ids: sameIds, work: false });
  web.runtime.declare({ name: "work", durable: true });
  for (const tenant of TENANTS)
    await web.runtime.scope({ tenant }).createRun({ agent_name: "work", input: tenant, mode: "async" });
  await replicas.clock.advance(5_000);
  expect(begun).toEqual(["blue"]);
});

it("runs with the same id that cannot be read are reported for each tenant, and their retries are counted apart", async () => {
  const replicas = inMemory();
  const web = replicas.start({ durability, ids: sameIds, work: false });
  web.runtime.declare({ name: "work", durable: true });
  for (const tenant of TENANTS)
    await web.runtime.scope({ tenant }).createRun({ agent_name: "work", input: tenant, mode: "async" });
  const unreadable = new Set(TENANTS);
  const worker = replicas.start({ durability, ids: sameIds }, (call, method, [key]) => {
    const { tenant } = (key ?? {}) as { readonly tenant?: string };
    if (method === "read" && tenant !== undefined && unreadable.has(tenant)) throw new Error("The log cannot be read.");
    return call();
  });
  worker.runtime.register("work", { durable: true }, (input) => `${input.map(textOf).join("")} is done.`);
  await replicas.clock.advance(900);
  const { damaged } = await worker.runtime.stats();
  expect(damaged?.map(({ tenant, attempts }) => ({ tenant, attempts }))).toEqual([
    { tenant: "red", attempts: 1 },
    { tenant: "blue", attempts: 1 },
  ]);
  unreadable.delete("red");
  await replicas.clock.advance(10_000);
  expect((await worker.runtime.stats()).damaged).toMatchObject([{ tenant: "blue" }]);
  const red = await worker.runtime.scope({ tenant: "red" }).getRun(ID);
  expect(textsOf(red)).toEqual(["red is done."]);
});

it("runs with the same id are brought by a waker, each for its tenant", async () => {
  const replicas = inMemory();
  const queue = new WakeQueue(replicas.clock);
  const started: [string, number][] = [];
  const start = (work: boolean): Replica => {
    const waker = queue.connect();
    const replica = replicas.start({
      durability: { ...durability, scanMs: 60_000, waker },
      ids: sameIds,
      ...(!work && { work }),
    });
    if (work)
      replica.runtime.register("work", { durable: true }, (input, { step }) =>
        step("one", () => {
          started.push([input.map(textOf).join(""), replicas.clock.now()]);
          return new Promise<void>((resolve) => replicas.clock.setTimeout(resolve, 500));
        }),
      );
    else replica.runtime.declare({ name: "work", durable: true });
    return replica;
  };
  start(true);
  const web = start(false);
  await replicas.clock.advance(100);
  const at = T0 + 2_000;
  for (const tenant of TENANTS)
    await web.runtime
      .scope({ tenant })
      .createRun({ agent_name: "work", input: tenant, mode: "async" }, { startAt: at });
  await replicas.clock.advance(3_000);
  expect(started).toEqual([
    ["red", at],
    ["blue", at],
  ]);
  await replicas.clock.advance(1_000);
  for (const tenant of TENANTS) expect((await web.runtime.scope({ tenant }).getRun(ID)).status).toBe("completed");
});

/* What a process keeps of each run, for runs of two tenants that have the same id. */

const RED: RunKey = { tenant: "red", run_id: "00000000-0000-4000-8000-000000000001" };
const BLUE: RunKey = { ...RED, tenant: "blue" };
const logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** A part of a worker, as far as one of its parts needs it. */
function partOf(parts: object): Worker {
  return parts as Worker;
}

function found(key: RunKey, head: Partial<StoredRun["head"]> = {}): StoredRun {
  const unowned = { owner: null, due_at: null, blocked: null, holds_slot: false, finished_at: null, takeovers: 0 };
  return {
    key,
    position: 1,
    head: { status: "created", epoch: 1, ...unowned, ...head },
    created: { type: "created", at: 0, agent_name: "agent", session_id: key.run_id, input: [] },
  } as unknown as StoredRun;
}

/** The runs that a process owns in the store, and has loaded. */
function owning(owned: readonly RunKey[], loaded: readonly RunKey[]) {
  const state = { owned, loaded, now: 0 };
  const worker = partOf({
    name: "worker",
    store: { owned: () => state.owned },
    get runs() {
      return state.loaded.map((key) => ({ log: { key } }));
    },
    clock: { now: () => state.now },
    settings: { leaseMs: 1_000 },
  });
  return { state, unloaded: new UnloadedRuns(worker) };
}

it("a run that is not loaded is found beside one that is", async () => {
  const { unloaded } = owning([RED, BLUE], [RED]);
  expect(await unloaded.find(() => false)).toEqual([BLUE]);
});

it("a run that is not loaded is found at once, although another one was found a moment ago", async () => {
  const { state, unloaded } = owning([RED], []);
  expect(await unloaded.find(() => false)).toEqual([RED]);
  state.now += 500;
  state.owned = [RED, BLUE];
  expect(await unloaded.find(() => false)).toEqual([BLUE]);
  state.now += 600;
  expect(await unloaded.find(() => false)).toEqual([RED]);
});

it("each of the followed runs is looked at, at a hint and at a poll", async () => {
  const clock = new FakeClock();
  const asked: RunKey[][] = [];
  let hint: (given: StoreHint) => void = () => {};
  const store = {
    watch: (callback: typeof hint) => {
      hint = callback;
      return () => {};
    },
    moved: (known: readonly { readonly key: RunKey }[]) => {
      asked.push(known.map(({ key }) => key));
      return known.map(({ key }) => ({ key, epoch: 1, position: 5 }));
    },
  };
  const told: string[] = [];
  const follower = new Follower(store as unknown as Store, clock, logger);
  const ends = [RED, BLUE].map((key) =>
    follower.follow({ known: { key, epoch: 1, position: 1 }, onMoved: () => told.push(key.tenant) }),
  );
  hint({ moved: [RED, BLUE] });
  await nextTurn();
  expect(asked).toEqual([[RED, BLUE]]);
  expect(told).toEqual(["red", "blue"]);
  for (const end of ends) end();
});

it.each([
  { when: "the first to ask for them", others: [] },
  { when: "the last to ask for them", others: Array.from({ length: 100 }, (_, n) => `other-${n}`) },
])("a due run is asked for when another one was taken, by the worker that is $when", async ({ others }) => {
  const clock = new FakeClock();
  const hints = new DueHints(partOf({ name: "worker", others, clock, onRoom: () => {} }));
  hints.hear({ due: true, moved: [RED, BLUE] });
  expect(hints.areDue).toBe(others.length === 0);
  hints.hear({ moved: [RED] });
  await clock.advance(1_000);
  expect(hints.areDue).toBe(true);
  hints.hear({ moved: [BLUE] });
  expect(hints.areDue).toBe(false);
});

it("the messages that wait for one run leave the room of another one", async () => {
  const received = { type: "received", at: 0, name: "mail", data: 1, idempotency_key: null, bytes: 1 };
  const positionOf = ({ tenant }: RunKey): number => (tenant === "red" ? 4 : 0);
  const store = {
    find: (key: RunKey) => ({ key, position: positionOf(key) }),
    read: (key: RunKey) => Array.from({ length: positionOf(key) }, () => received),
  };
  const unreceived = new Unreceived(store as unknown as Store);
  const limits = { maxLogEntries: 100, maxLogBytes: 1_000, maxWaitingMessages: 4, maxWaitingBytes: 1_000 };
  const send = (key: RunKey): Promise<void> => {
    const length = positionOf(key);
    return unreceived.post({ key, first: undefined, length, bytes: 1, limits }, () => undefined);
  };
  expect((await refusal(send(RED))).code).toBe("limit_reached");
  for (let sent = 0; sent < 4; sent++) await send(BLUE);
});

it("each run that a newer version has written is logged, and waits for the first pause", async () => {
  const clock = new FakeClock();
  const warned: object[] = [];
  const due: (number | null)[] = [];
  const damaged = new DamagedRuns(
    partOf({
      clock,
      logger: { ...logger, warn: (_message: string, fields: object) => warned.push(fields) },
      store: { append: () => undefined },
      onReleased: (_key: RunKey, head: { due_at: number }) => due.push(head.due_at - clock.now()),
      onSlotFree: () => {},
    }),
  );
  for (const key of [RED, BLUE]) {
    const mismatch = { position: 0, expected: "a step", asked: "this version cannot read it", newer: true } as const;
    damaged.put(found(key), newerFormatError(key.run_id, mismatch));
  }
  await nextTurn();
  expect(warned).toMatchObject([RED, BLUE].map(({ run_id }) => ({ run_id })));
  expect(due[1]).toBe(due[0]);
});

it("a waker is given the tenant of each run, and looks at each run", async () => {
  const clock = Object.assign(new FakeClock(), { machine: new FakeClock() });
  const woken: object[] = [];
  let look: (key: RunKey) => Promise<number | undefined> = async () => undefined;
  let dueAt: number | null = clock.now();
  const wakeups = new Wakeups(
    partOf({
      clock,
      logger,
      name: "worker",
      settings: { scanMs: 60_000 },
      store: { find: (key: RunKey) => found(key, { due_at: dueAt, owner: dueAt === null ? "other" : null }) },
      runs: { registry: { find: () => undefined } },
    }),
    {
      start: (given: typeof look) => {
        look = given;
      },
      wake: (key: RunKey, _at: number, about: object) => void woken.push({ key, about }),
      stop: () => {},
    } as never,
    async () => false,
    () => 1,
    () => {},
  );
  await wakeups.start();
  for (const key of [RED, BLUE]) wakeups.note(key);
  await nextTurn();
  expect(woken).toMatchObject([RED, BLUE].map((key) => ({ key, about: { tenant: key.tenant } })));
  // The agents are not registered here: each run is looked at again, the later the longer it is known.
  dueAt = null;
  const again = async (key: RunKey): Promise<number> => ((await look(key)) ?? 0) - clock.machine.now();
  const first = await again(RED);
  await clock.advance(10_000);
  expect(await again(RED)).toBeGreaterThan(first);
  expect(await again(BLUE)).toBe(first);
});

it("the runs above a sub-run, and those below a run, are of its tenant", async () => {
  const sought: RunKey[] = [];
  const changed: RunKey[] = [];
  const runs = { find: (key: RunKey) => void sought.push(key), shared: { logger, clock: new FakeClock() } };
  const change = async (key: RunKey) => {
    changed.push(key);
    return { created: found(key).created };
  };
  const parent = { run_id: "00000000-0000-4000-8000-000000000002", key: "run:agent#1", depth: 1 };
  const created = { ...found(BLUE).created, parent };
  const above = { tenant: "blue", run_id: parent.run_id };
  expect(committedAbove({ runs, residence: {}, log: { key: BLUE, state: { created } } } as never)).toBeUndefined();
  expect(sought.splice(0)).toEqual([above]);
  const asked = { type: "awaited", at: 0, await_id: "ask#1", parts: [] };
  await tellAbove(runs as never, change as never, BLUE, parent, [{ asked, settled: null } as never]);
  expect([sought, changed]).toEqual([[above], [above]]);

  const intent = { type: "intent", at: 0, key: "run:agent#1", attempt: 1, run_id: parent.run_id } as const;
  expect(subRunsBegun(BLUE, historyOf([intent]))).toEqual([above]);
});
