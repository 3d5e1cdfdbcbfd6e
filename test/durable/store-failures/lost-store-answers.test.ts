import { join } from "node:path";
import type { Clock, Run, StreamedEvent } from "cadenza";
import { MemoryStore } from "cadenza";
import type { RunHead, RunKey, RunPosition, Store } from "cadenza/store";
import { describe, expect, it, onTestFinished } from "vitest";
import { meaningOf } from "../../../src/durable/recovery/write-conflicts.ts";
import { lostError } from "../../../src/runtime/log/refusals.ts";
import type { Attempt } from "../../../src/runtime/log/run-write.ts";
import { Outage } from "../../../src/runtime/log/store-failures.ts";
import { FakeClock } from "../../harness/clock.ts";
import { created } from "../../harness/logs.ts";
import { deferred } from "../../harness/promises.ts";
import { drain } from "../../harness/runtimes.ts";
import { openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";
import type { Hook, Method } from "../../harness/store-proxy.ts";
import { isRead } from "../../harness/store-proxy.ts";
import { inMemory, openFile, Replicas } from "../../harness/world/replicas.ts";

/* A store whose answers are lost, as when a connection breaks; and a store that has lost its last commits. */

const LONG_MS = 20_000;
/** The interval of heartbeats of the processes here, which have a lease of 1,000 ms. */
const HEARTBEAT_MS = 300;
/** More writes than a run here makes, heartbeats included. */
const MAX_WRITES = 40;

/** When a write without an answer takes effect: never, before its caller learns of the failure, or later. */
type Fate = "not written" | "written" | "written later";

/** A hook that gives the n-th write, of all or of one method, this fate. */
function breaking(nth: number, fate: Fate, clock: Clock, name?: string): Hook {
  let writes = 0;
  return (call, method) => {
    if (isRead(method) || (name !== undefined && method !== name)) return call();
    writes += 1;
    if (writes !== nth) return call();
    if (fate === "written") call();
    if (fate === "written later") clock.setTimeout(() => void call(), 5_000);
    throw new Error("the connection broke");
  };
}

/** A process on such a store, with an agent that uses all kinds of operations, and the record of its effects. */
function begin(nth: number, fate: Fate, name?: string) {
  const bodies: string[] = [];
  const got: string[] = [];
  const replicas = inMemory();
  const set = replicas.start({}, breaking(nth, fate, replicas.clock, name));
  set.runtime.register("child", { durable: true }, async (_input, { step, run_id }) => {
    await step("inner", () => void bodies.push(`${run_id} inner`));
    return "child";
  });
  set.runtime.register("agent", { durable: true }, async function* (_input, { step, ask, run, session, run_id }) {
    const work = async (key: string): Promise<void> => {
      if (got.includes(`${run_id} ${key}`)) throw new Error(`${key} has its result already`);
      bodies.push(`${run_id} ${key}`);
    };
    await step("one", () => work("one"));
    got.push(`${run_id} one`);
    yield "first ";
    const answer = await ask("Well?", { timeoutMs: 1_000, default: { late: true } });
    await Promise.all([step("two", () => work("two")), step("three", () => work("three"))]);
    got.push(`${run_id} two`, `${run_id} three`);
    await session.setState(JSON.stringify(answer));
    yield `${(await run("child", "")).output[0]?.parts[0]?.content} last`;
  });
  return { ...set, bodies, got };
}

/** The runs that are in the store, with their status. */
async function stored(store: Store): Promise<Record<string, string>> {
  const runs = await store.list({ tenant: "", limit: 100, offset: 0 });
  return Object.fromEntries(runs.map(({ created, head }) => [created?.agent_name, head.status]));
}

describe("a create whose answer is lost", () => {
  it.each([
    { mode: "sync", fate: "written" },
    { mode: "async", fate: "written" },
    { mode: "stream", fate: "written" },
    { mode: "sync", fate: "written later" },
    { mode: "async", fate: "written later" },
  ] as const)("leaves no run without an owner ($fate, $mode)", async ({ mode, fate }) => {
    const { runtime, store, clock } = begin(1, fate, "create");
    const creating =
      mode === "stream"
        ? drain(runtime.createRun({ agent_name: "agent", input: "", mode }))
        : runtime.createRun({ agent_name: "agent", input: "", mode });
    // The caller may get an error: it cannot know whether the run was created.
    creating.catch(() => {});
    await clock.advance(LONG_MS);
    // The process lives, and its heartbeat goes on.
    expect(await stored(store)).toEqual({ agent: "completed", child: "completed" });
  });

  it.each(["sync", "async"] as const)("is found by the caller that repeats it with its key (%s)", async (mode) => {
    const { runtime, store, clock } = begin(1, "written", "create");
    const request = { agent_name: "agent", input: "", mode } as const;
    const first = runtime.createRun(request, { idempotencyKey: "one" });
    first.catch(() => {});
    await clock.settle();
    const again = runtime.createRun({ ...request, mode: "sync" }, { idempotencyKey: "one" });
    let run: Run | undefined;
    again.then(
      (value) => {
        run = value;
      },
      () => {},
    );
    await clock.advance(LONG_MS);
    expect(run).toMatchObject({ agent_name: "agent" });
    expect(["awaiting", "completed"]).toContain(run?.status);
    expect(await stored(store)).toEqual({ agent: "completed", child: "completed" });
  });
});

describe("a run that was created with a key begins, although the store fails twice: at the create and at the look", () => {
  it.each(["sync", "async", "stream", "fork"] as const)("(%s)", async (how) => {
    const replicas = inMemory();
    let failing: Method | undefined;
    const { runtime, store, clock } = replicas.start({}, async (call, method) => {
      const answer = call();
      if (method !== failing) return answer;
      failing = method === "create" ? "find" : undefined;
      throw new Error("the connection broke");
    });
    runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => "done"));
    const request = { agent_name: "agent", input: "" };
    const idempotencyKey = "one";
    const origin = how === "fork" ? await runtime.createRun(request) : undefined;
    failing = "create";
    const making =
      origin !== undefined
        ? runtime.fork(origin.run_id, { idempotencyKey })
        : how === "stream"
          ? drain(runtime.createRun({ ...request, mode: how }, { idempotencyKey }))
          : runtime.createRun({ ...request, mode: how === "sync" ? how : "async" }, { idempotencyKey });
    const errors: unknown[] = [];
    making.catch((error: { readonly code?: string }) => errors.push(error.code));
    await clock.advance(LONG_MS);
    const made = await store.findByIdempotencyKey("", idempotencyKey);
    expect(made?.head.status).toBe("completed");
    // The caller may get an error of the store, and no other.
    expect(errors.filter((code) => code !== "store_failed")).toEqual([]);
  });
});

it("a run that another process has created under the same id is not executed here too", async () => {
  const replicas = inMemory();
  const bodies: string[] = [];
  const start = (name: string, hook?: Hook) => {
    const ids = { uuid: () => "00000000-0000-4000-8000-000000000001", token: () => name };
    const set = replicas.start({ ids }, hook);
    set.runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => void bodies.push(name)));
    return set.runtime;
  };
  const request = { agent_name: "agent", input: "", mode: "async" } as const;
  const other = start("other");
  const first = start("first", async (call, method) => {
    if (method !== "create") return call();
    await other.createRun(request);
    throw new Error("the connection broke");
  });
  const creating = first.createRun(request);
  creating.catch(() => {});
  await replicas.clock.advance(LONG_MS);
  await expect(creating).rejects.toMatchObject({ code: "store_failed" });
  expect(bodies).toEqual(["other"]);
});

it("an answer to a question that the store fails to read is not refused as one that comes too late", async () => {
  const replicas = inMemory();
  let isFailing = false;
  const start = (hook?: Hook) => {
    const { runtime } = replicas.start({}, hook);
    runtime.register("agent", { durable: true }, async (_input, { ask }) => {
      await ask("One?");
      await ask("Two?");
    });
    return runtime;
  };
  const behind = start((call, method) => {
    if (isFailing && method === "find") throw new Error("the connection broke");
    return call();
  });
  const other = start();
  const { run_id } = await behind.createRun({ agent_name: "agent", input: "" });
  await other.resume({ run_id, await_resume: {} });
  const answer = { run_id, await_id: "ask#2", await_resume: {} };
  isFailing = true;
  await expect(behind.resume(answer)).rejects.toMatchObject({ code: "store_failed" });
  isFailing = false;
  expect((await behind.resume(answer)).status).toBe("completed");
});

it("an answer that comes after a later one takes no events from a reader in another process", async () => {
  const replicas = inMemory();
  const [late, finish] = [deferred(), deferred()];
  const first = replicas.start();
  first.runtime.register("agent", { durable: true }, async function* (_input, { step }) {
    yield "one ";
    await step("work", () => finish.promise);
    yield "two";
    await step("more work", () => new Promise(() => {}));
  });
  let looks = 0;
  const { runtime, clock } = replicas.start({}, async (call, method) => {
    const answer = call();
    if (method === "find") looks += 1;
    // The first look is that of the reader that begins, the second one follows the first event that it has to wait for.
    if (method === "find" && looks === 2) await late.promise;
    return answer;
  });
  const { run_id } = await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const seen: StreamedEvent[] = [];
  const reading = (async () => {
    for await (const event of runtime.events(run_id, { until: "end" })) seen.push(event);
  })();
  reading.catch(() => {});
  await clock.advance(1_000);
  finish.resolve();
  await clock.advance(1_000);
  late.resolve();
  await clock.advance(1_000);
  expect(seen.filter(({ type }) => type === "error")).toEqual([]);
  expect(seen.filter(({ type }) => type === "message.part")).toHaveLength(2);
});

it("an answer that is older than the last write does not count as lost history", async () => {
  const replicas = inMemory();
  const [late, finish] = [deferred(), deferred()];
  let isLate = false;
  const { runtime, clock, said } = replicas.start({}, async (call, method, [asked]) => {
    const answer = call();
    if (method === "moved") return (asked as readonly RunPosition[]).map((one) => ({ ...one, position: 99 }));
    if (method === "find" && isLate) await late.promise;
    return answer;
  });
  runtime.register("agent", { durable: true }, async (_input, { step }) => {
    await step("one", () => finish.promise);
    await step("two", () => new Promise(() => {}));
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.advance(250);
  isLate = true;
  await clock.advance(500);
  finish.resolve();
  await clock.settle();
  late.resolve();
  await clock.settle();
  expect(said.filter(({ message }) => message.includes("lost entries"))).toEqual([]);
  expect((await runtime.details(run_id)).status).toBe("in-progress");
});

describe("whichever write loses its answer, the run has the same output", () => {
  it.each(["not written", "written"] as const)("(%s)", async (fate) => {
    for (let nth = 1; nth <= MAX_WRITES; nth++) {
      const { runtime, store, clock, bodies } = begin(nth, fate);
      let run: Run | undefined;
      const request = { agent_name: "agent", input: "" } as const;
      for (let attempt = 0; attempt < 3 && run === undefined; attempt++) {
        runtime.createRun(request, { idempotencyKey: "one" }).then(
          (value) => {
            run = value;
          },
          () => {},
        );
        await clock.advance(LONG_MS);
      }
      expect({ nth, stored: await stored(store) }).toEqual({ nth, stored: { agent: "completed", child: "completed" } });
      const twice = bodies.filter((body, index) => bodies.indexOf(body) !== index);
      expect({ nth, twice }).toEqual({ nth, twice: [] });
      const { output } = await runtime.getRun(run?.run_id ?? "");
      const texts = output.map(({ parts }) => parts.map(({ content }) => content).join(""));
      expect({ nth, text: texts.join("") }).toEqual({ nth, text: "first child last" });
    }
  });
});

describe("whichever write loses its answer before another process posts to the run, the log holds its entries once", () => {
  it.each(["not written", "written"] as const)("(%s)", async (fate) => {
    const logs: string[] = [];
    for (let nth = 0; nth <= MAX_WRITES / 4; nth++) {
      const replicas = inMemory();
      const other = replicas.start();
      const breaks = breaking(nth, fate, replicas.clock, "append");
      const { runtime, store, clock } = replicas.start({}, (call, method, parameters) => {
        try {
          return breaks(call, method, parameters);
        } catch (error) {
          const { run_id } = parameters[0] as RunKey;
          // The last write may have ended the run, which takes no messages then.
          other.runtime.send({ to: run_id, name: "news", data: nth }).catch(() => {});
          throw error;
        }
      });
      runtime.register("agent", { durable: true }, async function* (_input, { step, sleep }) {
        yield "first ";
        await Promise.all([step("one", () => 1), step("two", () => 2)]);
        yield "second ";
        await sleep(1_000);
        yield "last";
      });
      const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
      await clock.advance(LONG_MS);
      const log = await store.read({ tenant: "", run_id }, 0, MAX_WRITES);
      const types = log?.map(({ type }) => type).filter((type) => type !== "received");
      logs.push(`${types?.sort()}`);
    }
    expect(logs[0]).toMatch(/^created.*ended/);
    expect(logs).toEqual(logs.map(() => logs[0]));
  });
});

/** A process on a file, and an older copy of the file that replaces it. */
function failover() {
  const folder = temporaryFolder();
  const [path, copy] = [join(folder.path, "runs.db"), join(folder.path, "copy.db")];
  const opened = [openFile(path)];
  onTestFinished(async () => {
    for (const store of opened) await store.close();
    folder.remove();
  });
  const replicas = new Replicas(
    () =>
      new Proxy<Store>(opened[0] as Store, {
        get(_target, name) {
          const current = opened.at(-1) as Store;
          const member: unknown = Reflect.get(current, name, current);
          return typeof member === "function" ? member.bind(current) : member;
        },
      }),
    100,
  );
  return {
    replica: replicas.start(),
    start: () => replicas.start(),
    /** Makes the copy. */
    backUp() {
      const db = openDatabase(path);
      db.exec(`VACUUM INTO '${copy}'`);
      db.close();
    },
    /** Replaces the file by the copy. */
    fail() {
      opened.push(openFile(copy));
    },
    /** The file has nothing of a run, as if its creation had been one of the commits that were lost. */
    lose(run_id: string) {
      const db = openDatabase(path);
      db.exec(`DELETE FROM cadenza_entries WHERE run = (SELECT id FROM cadenza_runs WHERE run_id = '${run_id}')`);
      db.exec(`DELETE FROM cadenza_runs WHERE run_id = '${run_id}'`);
      db.close();
    },
  };
}

/** A process has died with two runs in progress. */
async function leaveTwo() {
  const replicas = inMemory();
  const first = replicas.start();
  first.runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => deferred().promise));
  const create = () => first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const ids = [(await create()).run_id, (await create()).run_id] as const;
  await replicas.clock.advance(100);
  first.kill();
  return { replicas, ids };
}

/** Loses the first answer of `take` that gives runs: this process owns them all the same. */
function losingTaken(hook: Hook = (call) => call()): Hook {
  let isLost = false;
  return (call, method, parameters) => {
    const answer = hook(call, method, parameters);
    if (method !== "take" || isLost || (answer as readonly unknown[]).length === 0) return answer;
    isLost = true;
    throw new Error("the connection broke");
  };
}

describe("runs that were given to a process whose store", () => {
  it("lost the answer are found also beside one that cannot be read", async () => {
    const { replicas, ids } = await leaveTwo();
    const [bad, good] = ids;
    const unreadable: Hook = (call, method, [key]) => {
      if (method === "read" && (key as RunKey).run_id === bad) throw new Error("unreadable");
      return call();
    };
    const { runtime, clock } = replicas.start({}, losingTaken(unreadable));
    runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => "done"));
    await clock.advance(LONG_MS);
    expect((await runtime.getRun(good)).status).toBe("completed");
  });

  it("lost the answer go on with the next heartbeat", async () => {
    const { replicas, ids } = await leaveTwo();
    let lostAt: number | undefined;
    const losing = losingTaken();
    const { runtime, clock } = replicas.start({}, (call, method, parameters) => {
      try {
        return losing(call, method, parameters);
      } catch (error) {
        lostAt = clock.now();
        throw error;
      }
    });
    const begun: number[] = [];
    runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => begun.push(clock.now())));
    await clock.advance(LONG_MS);
    expect(begun).toHaveLength(ids.length);
    for (const at of begun) expect(at - (lostAt ?? 0)).toBeLessThanOrEqual(HEARTBEAT_MS);
  });

  it("lost the answer end if they are cancelled and no process has their code", async () => {
    const { replicas, ids } = await leaveTwo();
    const { runtime, clock, store } = replicas.start({}, losingTaken());
    runtime.register("other", { durable: true }, () => "done");
    for (const run_id of ids) await runtime.cancel(run_id);
    await clock.advance(LONG_MS);
    for (const run_id of ids) expect((await store.find({ tenant: "", run_id }))?.head.status).toBe("cancelled");
  });

  it("then failed for a moment, so that they can neither be read nor released, are found again", async () => {
    const { replicas, ids } = await leaveTwo();
    const { clock } = replicas;
    let isDown = false;
    const { runtime } = replicas.start({}, (call, method) => {
      if (isDown && (method === "read" || method === "append")) throw new Error("the connection broke");
      const answer = call();
      if (method === "take" && (answer as readonly unknown[]).length > 0) {
        isDown = true;
        clock.setTimeout(() => {
          isDown = false;
        }, 500);
      }
      return answer;
    });
    runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => "done"));
    await clock.advance(LONG_MS);
    for (const run_id of ids) expect((await runtime.getRun(run_id)).status).toBe("completed");
  });
});

describe("a store that has lost its last commits", () => {
  const STEPS = 6;

  /** A run that waits in its fourth step, after the copy was made in its second one. */
  async function lose() {
    const { replica: set, backUp, fail } = failover();
    const [second, fourth] = [deferred(), deferred()];
    const reached = { second: deferred(), fourth: deferred() };
    const bodies: number[] = [];
    set.runtime.register("agent", { durable: true }, async function* (_input, { step }) {
      for (let n = 1; n <= STEPS; n++) {
        const result = await step("work", async () => {
          bodies.push(n);
          if (n === 2) {
            reached.second.resolve();
            await second.promise;
          } else if (n === 4) {
            reached.fourth.resolve();
            await fourth.promise;
          }
          return n;
        });
        yield `${result} `;
      }
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    const seen: StreamedEvent[] = [];
    const reading = (async () => {
      for await (const event of set.runtime.events(run_id, { until: "end" })) seen.push(event);
    })();
    reading.catch(() => {});
    await reached.second.promise;
    backUp();
    second.resolve();
    await reached.fourth.promise;
    await set.clock.settle();
    fail();
    fourth.resolve();
    await set.clock.advance(LONG_MS);
    return { ...set, run_id, seen, reading, bodies };
  }

  it("replays the run from the entries that are left: it ends, and its log has no gap", async () => {
    const { runtime, run_id, said } = await lose();
    const run = await runtime.getRun(run_id);
    expect(run.status).toBe("completed");
    expect(run.output.map(({ parts }) => parts.map(({ content }) => content).join(""))).toEqual(["1 2 3 4 5 6 "]);
    const events = await drain(runtime.events(run_id));
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
    // The logger is told.
    expect(said.filter(({ level, fields }) => level === "warn" && fields["run_id"] === run_id)).not.toEqual([]);
  });

  it("a sub-run at work whose creation was lost, although its parent has noted it, is made again", async () => {
    const { replica: set, lose } = failover();
    const second = deferred();
    const bodies: number[] = [];
    set.runtime.register("child", { durable: true }, async (_input, { step }) => {
      await step("one", () => void bodies.push(1));
      await step("two", () => second.promise);
    });
    set.runtime.register("agent", { durable: true }, async (_input, { run }) => {
      const { status } = await run("child", "");
      return `The child has ${status}.`;
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    const child = async (): Promise<string> => {
      const [found] = await set.store.list({ tenant: "", parents: [run_id], limit: 1, offset: 0 });
      return found?.key.run_id ?? "";
    };
    while (bodies.length === 0) await set.clock.advance(10);
    await set.clock.advance(10);
    const entries = await set.store.read({ tenant: "", run_id }, 0, MAX_WRITES);
    expect(entries?.some((entry) => entry.type === "intent" && entry.stored)).toBe(true);
    const lost = await child();
    lose(lost);
    second.resolve();
    await set.clock.advance(LONG_MS);
    const { output } = await set.runtime.getRun(run_id);
    expect(output[0]?.parts[0]?.content).toBe("The child has completed.");
    expect([await child(), bodies]).toEqual([lost, [1, 1]]);
  });

  it.each([
    ["as it writes", true],
    ["as it looks", false],
  ])(
    "a process that finds that out %s reads the runs that wait anew: another one may have written as much in their place",
    async (_when, writes) => {
      const { replica, start, backUp, fail } = failover();
      const other = start();
      const finish = deferred();
      for (const { runtime } of [replica, other])
        runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
          const first = await ask("One?");
          await step("work", () => 1);
          const second = await ask("Two?");
          return JSON.stringify([first, second]);
        });
      replica.runtime.register("busy", { durable: true }, async (_input, { step }) => {
        await step("work", () => finish.promise);
      });
      const { clock, runtime } = replica;
      const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
      await runtime.createRun({ agent_name: "busy", input: "", mode: "async" });
      await clock.settle();
      backUp();
      const answer = (by: typeof replica, value: string) =>
        by.runtime.resume({ run_id, await_resume: { value }, mode: "async" }).then(() => clock.advance(100));
      await answer(replica, "lost");
      await runtime.createRun({ agent_name: "busy", input: "", mode: "async" });
      await clock.settle();
      fail();
      await answer(other, "kept");
      if (writes) finish.resolve();
      await clock.advance(1_500);
      await answer(replica, "two");
      const { status, output } = await other.runtime.getRun(run_id);
      expect([status, output[0]?.parts[0]?.content]).toEqual(["completed", '[{"value":"kept"},{"value":"two"}]']);
    },
  );

  it("a run whose end is lost is executed again by its process, which has forgotten it", async () => {
    const { replica: set, backUp, fail } = failover();
    const finish = deferred();
    set.runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => finish.promise));
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await set.clock.settle();
    backUp();
    finish.resolve();
    await set.clock.settle();
    expect((await set.runtime.getRun(run_id)).status).toBe("completed");
    fail();
    expect((await set.runtime.getRun(run_id)).status).toBe("in-progress");
    await set.clock.advance(3_000);
    expect((await set.runtime.getRun(run_id)).status).toBe("completed");
  });

  it("a run that another process has claimed under the same epoch is left to it", async () => {
    const { replica, start, backUp, fail } = failover();
    const other = start();
    const bodies: string[] = [];
    const begin = ({ runtime }: typeof replica, name: string) => {
      const gates = [deferred(), deferred()] as const;
      runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
        await ask("Well?");
        for (const [index, gate] of gates.entries())
          await step("work", () => {
            bodies.push(`${index} ${name}`);
            return gate.promise;
          });
      });
      return gates;
    };
    const [early, late] = [begin(replica, "first"), begin(other, "second")];
    const { clock, store } = replica;
    const { run_id } = await replica.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.settle();
    backUp();
    const answer = { run_id, await_resume: { ok: true }, mode: "async" } as const;
    await replica.runtime.resume(answer);
    await clock.settle();
    const lost = await store.find({ tenant: "", run_id });
    fail();
    // The answer is lost, and is given once more. Both processes have claimed the run, and have written as many entries.
    await other.runtime.resume(answer);
    await clock.settle();
    const kept = await store.find({ tenant: "", run_id });
    expect([kept?.head.epoch, kept?.position]).toEqual([lost?.head.epoch, lost?.position]);
    for (const gate of [early[0], late[0], early[1], late[1]]) {
      gate.resolve();
      await clock.settle();
    }
    await clock.advance(LONG_MS);
    expect((await other.runtime.getRun(run_id)).status).toBe("completed");
    expect(bodies).toEqual(["0 first", "0 second", "1 second"]);
  });

  it("a reader that has seen more events than are left is told so", async () => {
    const { seen, reading } = await lose();
    await reading;
    const last = seen.at(-1);
    expect(last?.type).toBe("error");
    // The events before the error have no gap.
    const ids = seen.slice(0, -1).map(({ id }) => id);
    expect(ids).toEqual(ids.map((_, index) => index + 1));
  });
});

const key: RunKey = { tenant: "", run_id: "00000000-0000-4000-8000-000000000001" };
const waiting: RunHead = {
  status: "awaiting",
  epoch: 0,
  owner: null,
  due_at: null,
  blocked: null,
  holds_slot: false,
  finished_at: null,
  takeovers: 0,
};

function claimBy(owner: string): Attempt {
  const head: RunHead = { ...waiting, owner, epoch: 1 };
  const expected = { epoch: 0, position: 1 };
  return {
    key,
    write: { entries: [], head },
    session: undefined,
    said: undefined,
    expected,
    idempotencyKey: null,
    sealed: undefined,
  };
}

describe("A claim whose answer was lost", () => {
  /** What a second try means, after the store has taken the claim of the process with this name. */
  async function secondTry(takenFrom: string): Promise<unknown> {
    const store = new MemoryStore();
    await store.create(key, { entries: [created()], head: waiting }, null);
    await store.append(key, { epoch: 0, position: 1 }, claimBy(takenFrom).write);
    const lost = claimBy("one");
    const again = claimBy("one");
    const conflict = await store.append(key, { epoch: 0, position: 1 }, again.write);
    if (conflict?.conflict === undefined) throw new Error("the store has taken a claim twice");
    return meaningOf(store, conflict, again, [lost]);
  }

  it("is recognised when the store has written it", async () => {
    expect(await secondTry("one")).toMatchObject({ is: "recognised" });
  });

  it("is lost when the store has not, and another process has claimed the run under the same epoch", async () => {
    expect(await secondTry("two")).toMatchObject({ is: "lost" });
  });
});

it("A pause between two attempts is over when there is no next attempt", async () => {
  let holds = 0;
  const hold = () => {
    holds += 1;
    return () => {
      holds -= 1;
    };
  };
  const outage = new Outage(Object.assign(new FakeClock(), { hold }), lostError(key.run_id));
  let isOver = false;
  const pause = outage.pause().then(() => {
    isOver = true;
  });
  await Promise.resolve();
  expect({ isOver, holds }).toEqual({ isOver: false, holds: 1 });
  outage.end();
  await pause;
  expect({ isOver, holds }).toEqual({ isOver: true, holds: 0 });
});
