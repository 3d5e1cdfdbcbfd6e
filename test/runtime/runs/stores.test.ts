import type { Run } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import type { RunWrite, Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { foldLog } from "../../../src/runtime/log/fold-log.ts";
import type { LogRun } from "../../../src/runtime/log/run-log.ts";
import { RunLog } from "../../../src/runtime/log/run-log.ts";
import type { ExecutionSettings } from "../../../src/runtime/log/shared-by-runs.ts";
import { SharedByRuns } from "../../../src/runtime/log/shared-by-runs.ts";
import { StoreClock } from "../../../src/runtime/log/store-clock.ts";
import { FakeClock } from "../../harness/clock.ts";
import { silentLogger } from "../../harness/internals.ts";
import { deferred, never, nextTurn } from "../../harness/promises.ts";
import { drain, eventsOf, refusal, reply, runAgent, setUp, textsOf, typesOf } from "../../harness/runtimes.ts";
import { failingStore, hookedStore, lateStore, persistent } from "../../harness/store-proxy.ts";
import { COUNTS_CALLS, FLOATING, OUTSIDE, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

const SESSION = "00000000-0000-4000-8000-0000000000a1";

describe("a store that answers late", () => {
  it("gives the same events and records", async () => {
    const make = async (store: Store) => {
      const { runtime } = setUp({ store, ids: numberedIds() });
      runtime.register("agent", async function* (_input, { ask, session, usage, step }) {
        yield "a";
        await session.setState({ n: 1 });
        usage.add({ totalTokens: 5 });
        yield await step("s", () => "b");
        await ask("?");
        yield { c: 1 };
      });
      const run = await runtime.createRun({ agent_name: "agent", input: "x", session_id: SESSION });
      const resumed = await runtime.resume({ run_id: run.run_id, await_resume: reply("y") });
      const session = await runtime.getSession(SESSION);
      return { run, resumed, session, events: await eventsOf(runtime, run.run_id), stats: await runtime.stats() };
    };
    expect(await make(lateStore())).toEqual(await make(new MemoryStore()));
  });

  it("is read for a list only after earlier decisions are committed", async () => {
    const { runtime } = setUp({ store: lateStore() });
    runtime.register("agent", async function* () {
      yield "shown";
      await never();
    });
    // From the first run on the pauses of a persistent store are known.
    await runtime.register("first", () => undefined).createRun({ agent_name: "first", input: "" });
    const creating = runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    const [run] = await runtime.listRuns();
    expect(run?.run_id).toBe((await creating).run_id);
    await nextTurn();
    const [later] = await runtime.listRuns({ output: true });
    expect(later).toEqual(await runtime.getRun(run?.run_id ?? ""));
  });

  unlessReplayed(COUNTS_CALLS)("is given entries in batches, in order, and none twice", async () => {
    const batches: number[] = [];
    const store = lateStore(
      hookedStore((call, method, parameters) => {
        if (method === "append") batches.push((parameters[2] as { entries: readonly unknown[] }).entries.length);
        return call();
      }),
    );
    const { runtime } = setUp({ store });
    const run = await runAgent(runtime, async function* () {
      for (let i = 0; i < 5_000; i++) yield `${i}`;
    });
    expect(run.output[0]?.parts.map(({ content }) => content)).toEqual(Array.from({ length: 5_000 }, (_, i) => `${i}`));
    expect(batches.length).toBeLessThan(50);
  });

  unlessReplayed(COUNTS_CALLS)("makes an agent wait when too many entries are not committed", async () => {
    const gate = deferred();
    let most = 0;
    let shown = 0;
    const store = hookedStore((call, method, parameters) => {
      if (method !== "append") return call();
      most = Math.max(most, (parameters[2] as { entries: readonly unknown[] }).entries.length);
      return gate.promise.then(call);
    });
    const { runtime, clock } = setUp({ store, limits: { maxBacklog: 10 } });
    const running = runAgent(runtime, async function* () {
      for (; shown < 100; shown++) yield `${shown}`;
    });
    await clock.settle();
    expect(shown).toBeLessThan(30);
    gate.resolve();
    expect((await running).output[0]?.parts).toHaveLength(100);
    expect(most).toBeLessThanOrEqual(11);
  });

  it("cancels, resumes and times out as any other", async () => {
    const { runtime, clock } = setUp({ store: lateStore(), cancelGraceMs: 100 });
    runtime.register("asks", { timeoutMs: 1_000 }, async (_input, { ask }) => {
      await ask("?");
      await never();
    });
    const create = (): Promise<Run> => runtime.createRun({ agent_name: "asks", input: "x" });
    const [one, two] = await Promise.all([create(), create()]);
    await runtime.cancel(one.run_id);
    await runtime.resume({ run_id: two.run_id, await_resume: {}, mode: "async" });
    await clock.advance(2_000);
    expect(await runtime.getRun(one.run_id)).toMatchObject({ status: "cancelled" });
    expect(await runtime.getRun(two.run_id)).toMatchObject({ status: "failed" });
  });

  it.each([
    { what: "a cancel", code: "run_finished" },
    { what: "an answer", code: "not_awaiting" },
  ])("has committed the end of a run before $what is refused for it", async ({ what, code }) => {
    const gate = deferred();
    const store = hookedStore((call, method, parameters) => {
      const isEnd = method === "append" && (parameters[2] as RunWrite).entries.at(-1)?.type === "ended";
      return isEnd ? gate.promise.then(call) : call();
    });
    const { runtime, clock } = setUp({ store });
    runtime.register("agent", () => "done");
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    const asked = what === "a cancel" ? runtime.cancel(run_id) : runtime.resume({ run_id, await_resume: {} });
    let refused = false;
    const told = refusal(asked).then((error) => {
      refused = true;
      return error.code;
    });
    await clock.settle();
    expect(refused).toBe(false);
    gate.resolve();
    expect(await told).toBe(code);
  });

  it("takes an answer and a cancel at the same time in one order", async () => {
    const { runtime, clock } = setUp({ store: lateStore() });
    const run = await runAgent(runtime, (_input, { ask }) => ask("?").then(() => "answered"));
    const [answered, cancelled] = await Promise.allSettled([
      runtime.resume({ run_id: run.run_id, await_resume: {} }),
      runtime.cancel(run.run_id),
    ]);
    await clock.settle();
    const events = typesOf(await eventsOf(runtime, run.run_id));
    expect(cancelled.status).toBe("fulfilled");
    expect(events.at(-1)).toBe("run.cancelled");
    if (answered.status === "fulfilled") expect(answered.value.status).toBe("cancelled");
    else expect(answered.reason).toMatchObject({ code: expect.stringMatching(/run_cancelling|not_awaiting/) });
  });
});

describe.each([
  ["at once", false],
  ["late", true],
])("a store that fails and answers %s", (_title, late) => {
  it("in create rejects the call, and nothing is left of the run", async () => {
    for (const mode of ["sync", "async", "stream"] as const) {
      const { store, failing } = failingStore({ late });
      const { runtime, clock } = setUp({ store });
      const after: string[] = [];
      runtime.register("agent", async (_input, { signal }) => {
        // The runtime first reads whether the store has the run.
        for (let turn = 0; turn < 10; turn++) await clock.turn();
        after.push(`${signal.aborted}`);
      });
      failing.create = 1;
      const creating = runtime.createRun({ agent_name: "agent", input: "x", mode });
      const error = await refusal(creating);
      expect(error).toMatchObject({ code: "store_failed" });
      expect(error.cause).toMatchObject({ message: "the disk is full (create)" });
      await clock.settle();
      expect(await runtime.listRuns()).toEqual([]);
      expect((await runtime.stats()).live).toEqual({});
      expect((await refusal(runtime.getRun(error.run_id ?? ""))).code).toBe("run_not_found");
      // An agent that was called already is stopped; after an async refusal none is called.
      expect(after).toEqual(mode === "async" ? [] : ["true"]);
      expect(await runtime.createRun({ agent_name: "agent", input: "x" })).toMatchObject({ status: "completed" });
    }
  });

  it("in append is called again until it succeeds, and no event is lost or repeated", async () => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock, said } = setUp({ store });
    const running = runAgent(runtime, async function* () {
      for (let i = 0; i < 3; i++) {
        yield `${i}`;
        await clock.turn();
        await clock.turn();
        await clock.turn();
      }
    });
    failing.append = 3;
    await clock.advance(10_000);
    const run = await running;
    expect(run.status).toBe("completed");
    expect(textsOf(run)).toEqual(["0|1|2"]);
    const events = await eventsOf(runtime, run.run_id);
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
    expect(typesOf(events).filter((type) => type === "message.part")).toHaveLength(3);
    expect(said.filter(({ message }) => message.includes("failed to write")).length).toBeGreaterThan(0);
  });

  it("in append rejects the calls that wait for an acknowledgement, and the command takes effect", async () => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock } = setUp({ store });
    const run = await runAgent(runtime, (_input, { ask }) => ask("?").then(() => "went on"));
    failing.append = 1;
    const request = { run_id: run.run_id, await_resume: {}, await_id: "ask#1" };
    expect(await refusal(runtime.resume(request))).toMatchObject({ code: "store_failed", run_id: run.run_id });
    await clock.advance(1_000);
    expect(textsOf(await runtime.getRun(run.run_id))).toEqual(["went on"]);
    expect(await runtime.resume(request)).toMatchObject({ status: "completed" });
  });

  it("in the append of a cancel still cancels", async () => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock } = setUp({ store });
    runtime.register("agent", () => never());
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    failing.append = 2;
    expect((await refusal(runtime.cancel(run_id))).code).toBe("store_failed");
    await clock.advance(10_000);
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
  });

  unlessReplayed(FLOATING)(
    "in the last append keeps the session's messages and state, and counts the run once",
    async () => {
      const { store, failing } = failingStore({ late });
      const { runtime, clock } = setUp({ store });
      runtime.register("agent", async (input, { session }) => {
        for (let turn = 0; turn < 5; turn++) await clock.turn();
        failing.append = 2;
        void session.setState("kept");
        return input;
      });
      const running = runtime.createRun({ agent_name: "agent", input: "x", session_id: SESSION });
      await clock.advance(10_000);
      expect(await running).toMatchObject({ status: "completed" });
      expect(await runtime.getSession(SESSION)).toMatchObject({ state: "kept", history: { length: 2 } });
      expect((await runtime.stats()).agents["agent"]).toMatchObject({ completed: 1 });
    },
  );

  it("that wrote and lost its answer does not get the write twice", async () => {
    for (const what of ["first", "last"]) {
      const { store, losing } = failingStore({ late });
      const { runtime, clock } = setUp({ store });
      runtime.register("agent", async function* () {
        yield "a";
        for (let turn = 0; turn < 5; turn++) await clock.turn();
        losing.append = 1;
        if (what === "last") return;
        yield "b";
        for (let turn = 0; turn < 5; turn++) await clock.turn();
        yield "c";
      });
      const running = runtime.createRun({ agent_name: "agent", input: "x", session_id: SESSION });
      await clock.advance(10_000);
      const run = await running;
      expect([what, run.status]).toEqual([what, "completed"]);
      expect(textsOf(run)).toEqual([what === "last" ? "a" : "a|b|c"]);
      expect((await runtime.getSession(SESSION)).history).toHaveLength(2);
      expect((await runtime.stats()).agents["agent"]).toMatchObject({ completed: 1 });
    }
  });

  it("in reads rejects the read, and the run goes on", async () => {
    const { store, failing } = failingStore({ late });
    const { runtime } = setUp({ store });
    const run = await runAgent(runtime, () => "ok");
    failing.read = 1;
    await expect(drain(runtime.events(run.run_id))).rejects.toMatchObject(failedBy("the disk is full (read)"));
    expect(await drain(runtime.events(run.run_id))).toHaveLength(6);
    failing.find = 1;
    await expect(runtime.getRun(run.run_id)).rejects.toMatchObject(failedBy("the disk is full (find)"));
    failing.counters = 1;
    await expect(runtime.stats()).rejects.toMatchObject(failedBy("the disk is full (counters)"));
    failing.session = 1;
    await expect(runtime.getSession(SESSION)).rejects.toMatchObject(failedBy("the disk is full (session)"));
    failing.list = 1;
    await expect(runtime.listRuns()).rejects.toMatchObject(failedBy("the disk is full (list)"));
    failing.findByIdempotencyKey = 1;
    const create = () => runtime.createRun({ agent_name: "agent", input: "x" }, { idempotencyKey: "k" });
    await expect(create()).rejects.toMatchObject(failedBy("the disk is full (findByIdempotencyKey)"));
    expect(await create()).toMatchObject({ status: "completed" });
  });

  unlessReplayed(TOO_LONG)("in prune and close is reported to the logger", async () => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock, said } = setUp({ store, retention: { maxRuns: 1 } });
    failing.prune = 1;
    for (let i = 0; i < 2; i++) await runAgent(runtime, () => "ok");
    await clock.advance(10_000_000);
    failing.close = 1;
    expect(await runtime.close()).toEqual({ left: [] });
    const errors = said.filter(({ level }) => level === "error").map(({ message }) => message);
    expect(errors).toEqual([
      "The store failed to delete ended runs and unused sessions. It is tried again later.",
      "The store failed to close.",
    ]);
  });

  it("is not called any more after it was closed", async () => {
    const { store, failing } = failingStore({ late });
    let closed = false;
    const after: string[] = [];
    const watched = hookedStore((call, method) => {
      if (closed) after.push(method);
      if (method === "close") closed = true;
      return call();
    }, store);
    const { runtime, clock } = setUp({ store: watched });
    runtime.register("agent", () => never());
    await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    failing.append = 1_000;
    const closing = runtime.close({ drainMs: 0 });
    await clock.advance(1_000);
    await closing;
    await clock.advance(1_000_000);
    expect(after).toEqual([]);
    expect(clock.timers).toBe(0);
  });
});

describe("a run that another process writes to", () => {
  const key = (run: Run) => ({ tenant: "", run_id: run.run_id });

  /** A run that emits a part at each `emit` of the test, and its store. */
  async function shared(late: boolean) {
    const memory = new MemoryStore();
    const set = setUp({ store: persistent(late ? lateStore(memory) : memory) });
    let gate = deferred<string | undefined>();
    set.runtime.register("agent", async function* () {
      for (let text = await gate.promise; text !== undefined; text = await gate.promise) {
        gate = deferred();
        yield text;
      }
    });
    const run = await set.runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await set.clock.settle();
    const emit = async (text: string | undefined): Promise<void> => {
      gate.resolve(text);
      await set.clock.settle();
    };
    const head = () => {
      const stored = memory.find(key(run));
      if (stored === undefined) throw new Error("the run is gone");
      return stored;
    };
    return { ...set, memory, run, emit, head };
  }

  describe.each([
    ["at once", false],
    ["late", true],
  ])("in a store that answers %s", (_title, late) => {
    unlessReplayed(OUTSIDE)("in the same epoch is read again, and pending commands are decided again", async () => {
      const { runtime, clock, memory, run, emit, head } = await shared(late);
      await emit("a");
      const { head: before, position } = head();
      const at = clock.now();
      const generic = { type: "emitted", kind: "generic", at, generic: { from: "another process" } } as const;
      memory.append(key(run), { epoch: before.epoch, position }, { entries: [generic], head: before });
      await emit("b");
      await emit(undefined);
      const done = await runtime.getRun(run.run_id);
      expect(done.status).toBe("completed");
      expect(textsOf(done)).toEqual(["a|b"]);
      expect(typesOf(await eventsOf(runtime, run.run_id)).slice(2)).toEqual([
        "message.created",
        "message.part",
        "generic",
        "message.part",
        "message.completed",
        "run.completed",
      ]);
    });

    it("in the same epoch may cancel it: the agent is stopped", async () => {
      const { runtime, clock, memory, run, emit, head } = await shared(late);
      const { head: before, position } = head();
      const entry = { type: "cancel-requested", at: clock.now() } as const;
      const cancelling = { ...before, status: "cancelling" } as const;
      memory.append(key(run), { epoch: before.epoch, position }, { entries: [entry], head: cancelling });
      await emit("late");
      await clock.advance(1_000);
      expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "cancelled" });
    });

    unlessReplayed(OUTSIDE)(
      "in a higher epoch is lost: its agent is abandoned, and nothing more is written",
      async () => {
        const { runtime, clock, memory, run, emit, head } = await shared(late);
        const waiting = drain(runtime.events(run.run_id, { until: "end" }));
        await emit("a");
        const { head: before, position } = head();
        const at = clock.now();
        const ended = { type: "ended", at, outcome: "completed", closes: true } as const;
        memory.append(
          key(run),
          { epoch: before.epoch, position },
          {
            entries: [ended],
            head: { ...before, status: "completed", epoch: before.epoch + 1, owner: null, finished_at: at },
          },
        );
        await emit("b");
        await clock.settle();
        expect((await runtime.stats()).live).toEqual({});
        expect(textsOf(await runtime.getRun(run.run_id))).toEqual(["a"]);
        expect(memory.read(key(run), 0, 100)).toHaveLength(position + 1);
        expect(typesOf(await waiting).at(-1)).toBe("run.completed");
      },
    );

    it("and that is removed is lost too", async () => {
      const { runtime, clock, memory, run, emit, head } = await shared(late);
      const { head: before, position } = head();
      const at = clock.now();
      const ended = { type: "ended", at, outcome: "failed" } as const;
      const final = { ...before, status: "failed", owner: null, finished_at: at } as const;
      memory.append(key(run), { epoch: before.epoch, position }, { entries: [ended], head: final });
      memory.prune({ maxRuns: 0, endedBefore: 0, sessionsBefore: 0 });
      await emit("b");
      await clock.settle();
      expect((await runtime.stats()).live).toEqual({});
      expect((await refusal(runtime.getRun(run.run_id))).code).toBe("run_not_found");
    });
  });
});

/** Ids that are the same each time. */
function numberedIds() {
  let next = 0;
  return {
    uuid: () => `00000000-0000-4000-8000-${String(next++).padStart(12, "0")}`,
    token: () => "owner",
  };
}

/** An error of the store, whose message clients may see, with what its database said as the cause. */
function failedBy(said: string) {
  const message = "The store failed. The cause of this error says why.";
  return { code: "store_failed", message, cause: new Error(said) };
}

/*
 * A write whose answer was lost, and a look at the store before the next attempt: the look finds more than is known here.
 * Through a runtime the two meet within one turn of the event loop, while a run comes to rest, so that the log is asked here.
 */
it("what a log has written itself, and finds in the store before it is told, is not decided again", async () => {
  const clock = new FakeClock();
  const { store, losing } = failingStore();
  const runtime = new AgentRuntime({ store, clock }).register("agent", (_input, { ask }) => ask("Well?"));
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  const key = { tenant: "", run_id };
  const found = await store.find(key);
  const state = await foldLog(store, key, Number.POSITIVE_INFINITY);
  if (found === undefined || state === undefined) throw new Error("The run is not in the store.");

  const shared = new SharedByRuns(store, new StoreClock(clock, store), silentLogger, {} as ExecutionSettings);
  const run: LogRun = {
    shared,
    residence: undefined,
    fail: () => {},
    sessionAtEnd: () => undefined,
    isEndHeld: false,
    blocked: undefined,
    onCommit: () => {},
    onLost: () => {},
    onReloaded: () => {},
    settleActivity: () => {},
    queued: undefined,
    queuedMs: () => 0,
  };
  const log = new RunLog(key, run);
  log.adopt(state, found.head, 0);
  const result = { type: "step", at: clock.now(), key: "work#1", result: "done", error: null, usage: null } as const;
  log.decide({ type: "record", entry: result });
  losing.append = 1;
  log.flush();
  expect([losing.append, log.isRetrying]).toEqual([0, true]);
  log.onStored({ is: "behind" });
  await clock.advance(1_000);
  const entries = (await store.read(key, 0, 99)) ?? [];
  expect(entries.filter(({ type }) => type === "step")).toEqual([result]);
  expect(log.committed).toBe(entries.length);
});
