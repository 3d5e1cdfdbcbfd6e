import { getEventListeners } from "node:events";
import type { AgentFunction } from "cadenza";
import type { Store } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import type { DurableRuntimeOptions } from "../../harness/durable-runtime.ts";
import { deferred, never } from "../../harness/promises.ts";
import type { Setup } from "../../harness/runtimes.ts";
import { drain, setUp } from "../../harness/runtimes.ts";
import { failingStore, lastingStore, lateStore } from "../../harness/store-proxy.ts";

const asks: AgentFunction = async function* (_input, { ask }) {
  yield "First. ";
  yield JSON.stringify(await ask("Well?", { timeoutMs: 60_000, default: { ok: false } }));
};

/** A runtime with one agent. Its clock counts the holds on the process. */
function withAgent(fn: AgentFunction, options: DurableRuntimeOptions = {}, durable = false): Setup {
  const set = setUp(options);
  set.runtime.register("agent", { durable }, fn);
  return set;
}

/** A durable agent on a store that outlives its runtime, and has the same clock. */
function withLasting(fn: AgentFunction, options: DurableRuntimeOptions): Setup {
  const clock = new FakeClock();
  return { ...withAgent(fn, { store: lastingStore(clock), ...options, clock }, true), clock };
}

const request = { agent_name: "agent", input: "Hello" } as const;

/** A process beside another one, which executes a run with the key `k`. `seen`: the store as this process sees it. */
async function besideAnother(seen = (store: Store): Store => store): Promise<Setup & { readonly run_id: string }> {
  const store = lastingStore();
  const first = withAgent(() => never(), { store }, true);
  const { run_id } = await first.runtime.createRun({ ...request, mode: "async" }, { idempotencyKey: "k" });
  await first.clock.settle();
  return { ...withAgent(() => never(), { store: seen(store) }, true), run_id };
}

/** How many holds there are in each turn until a call has settled. */
async function holdsUntil(clock: FakeClock, call: Promise<unknown>): Promise<readonly number[]> {
  const holds: number[] = [];
  let isOver = false;
  const over = (): void => {
    isOver = true;
  };
  call.then(over, over);
  while (!isOver) {
    holds.push(clock.holds);
    await clock.turn();
  }
  return holds;
}

describe("A caller that waits for a run to rest holds the process open", () => {
  it("in createRun, until the run rests", async () => {
    const answer = deferred();
    const { runtime, clock } = withAgent(() => answer.promise);
    const creating = runtime.createRun(request);
    await clock.settle();
    expect(clock.holds).toBeGreaterThan(0);
    answer.resolve();
    await creating;
    expect(clock.holds).toBe(0);
  });

  it("in resume, until the run rests again", async () => {
    const { runtime, clock } = withAgent(async (_input, { ask }) => {
      await ask("One?");
      await ask("Two?");
    });
    const { run_id } = await runtime.createRun(request);
    expect(clock.holds).toBe(0);
    const resuming = runtime.resume({ run_id, await_resume: { ok: true } });
    expect(clock.holds).toBeGreaterThan(0);
    expect((await resuming).status).toBe("awaiting");
    expect(clock.holds).toBe(0);
  });

  it("for a run that an earlier call with its idempotency key created, loaded or not", async () => {
    const answer = deferred();
    const { runtime, clock } = withAgent(() => answer.promise, { store: lateStore() });
    await runtime.createRun({ ...request, mode: "async" }, { idempotencyKey: "k" });
    const again = runtime.createRun(request, { idempotencyKey: "k" });
    await clock.settle();
    expect(clock.holds).toBe(1);
    answer.resolve();
    await again;
    expect(clock.holds).toBe(0);
  });

  it("and releases it when its signal aborts", async () => {
    const { runtime, clock } = withAgent(asks);
    const { run_id } = await runtime.createRun(request);
    const stop = new AbortController();
    const following = runtime.resume({ run_id, await_resume: { ok: true } }, { signal: stop.signal });
    stop.abort(new Error("enough"));
    await expect(following).rejects.toThrow("enough");
    await clock.settle();
    expect(clock.holds).toBe(0);
  });

  it("also for a run that begins later, as long as one of its callers waits", async () => {
    const { runtime, clock } = withAgent(() => "Hello", { store: lateStore() });
    const [one, two] = [new AbortController(), new AbortController()];
    const startAt = new Date(clock.now() + 3_600_000);
    const waiting = [one, two].map(({ signal }) =>
      expect(runtime.createRun(request, { startAt, idempotencyKey: "k", signal })).rejects.toThrow("enough"),
    );
    await clock.settle();
    one.abort(new Error("enough"));
    await waiting[0];
    await clock.settle();
    expect(clock.holds).toBeGreaterThan(0);
    two.abort(new Error("enough"));
    await waiting[1];
    await clock.settle();
    expect(clock.holds).toBe(0);
  });

  describe("also for a run that another process executes", () => {
    it("until its signal aborts", async () => {
      const { runtime, clock } = await besideAnother();
      const stop = new AbortController();
      const waiting = runtime.createRun(request, { idempotencyKey: "k", signal: stop.signal });
      const refused = expect(waiting).rejects.toThrow("enough");
      await clock.settle();
      expect(clock.holds).toBeGreaterThan(0);
      stop.abort(new Error("enough"));
      await refused;
      await clock.settle();
      expect(clock.holds).toBe(0);
    });

    it("and not if the signal aborts before the store has answered", async () => {
      const { runtime, clock } = await besideAnother(lateStore);
      const stop = new AbortController();
      const waiting = runtime.createRun(request, { idempotencyKey: "k", signal: stop.signal });
      const refused = expect(waiting).rejects.toThrow("enough");
      stop.abort(new Error("enough"));
      await refused;
      await clock.settle();
      expect(clock.holds).toBe(0);
    });

    it("and not if it cancels the run, and its signal has aborted before", async () => {
      const { runtime, clock, run_id } = await besideAnother();
      const signal = AbortSignal.abort(new Error("enough"));
      await expect(runtime.cancel(run_id, { wait: true, signal })).rejects.toThrow("enough");
      await clock.settle();
      expect(clock.holds).toBe(0);
    });

    it("and leaves nothing at its signal when the wait fails", async () => {
      const { runtime, clock } = await besideAnother();
      const { signal } = new AbortController();
      const refused = expect(runtime.createRun(request, { idempotencyKey: "k", signal })).rejects.toThrow("closed");
      await clock.settle();
      await runtime.close();
      await refused;
      expect(getEventListeners(signal, "abort")).toEqual([]);
    });
  });

  it("also while its record is read from the store", async () => {
    const { runtime, clock } = withAgent(
      async function* (_input, { ask }) {
        const answer = ask("Well?");
        for (const turn of [1, 2, 3]) {
          yield `Before an answer, ${turn}. `;
          await clock.turn();
        }
        yield JSON.stringify(await answer);
      },
      { store: lateStore() },
    );
    expect(await holdsUntil(clock, runtime.createRun(request))).not.toContain(0);
  });

  it("also while a run whose code does not match its log is cancelled", async () => {
    let name = "a";
    const cancelled = deferred();
    const { runtime, clock } = withAgent(
      async (_input, { step, sleep }) => {
        if (name === "b") await cancelled.promise;
        await step(`${name} 1`, () => 1);
        await sleep(1_000);
        await step(`${name} 2`, () => 1);
      },
      { store: lateStore(lateStore(lastingStore())), durability: { alwaysReplay: true } },
      true,
    );
    const creating = runtime.createRun(request);
    const holds = holdsUntil(clock, creating);
    await clock.settle();
    const [run] = await runtime.listRuns();
    name = "b";
    await clock.advance(1_000);
    await runtime.cancel(run?.run_id ?? "");
    await clock.settle();
    cancelled.resolve();
    for (let second = 0; second < 10; second++) await clock.advance(1_000);
    expect(await holds).not.toContain(0);
    expect((await creating).status).toBe("cancelled");
  });

  it("and not when its call is refused", async () => {
    const { runtime, clock } = withAgent(asks);
    const { run_id } = await runtime.createRun(request);
    await expect(runtime.createRun({ agent_name: "missing", input: "" })).rejects.toThrow();
    await expect(runtime.resume({ run_id, await_id: "other", await_resume: { ok: true } })).rejects.toThrow();
    expect(clock.holds).toBe(0);
  });
});

describe("A reader of events", () => {
  it("holds the process open while it waits for the next one, and only then", async () => {
    const { runtime, clock } = withAgent(asks);
    const { run_id } = await runtime.createRun(request);
    const events = runtime.events(run_id, { until: "end" });
    expect(clock.holds).toBe(0);
    let next = events.next();
    for (let event = await next; event.value?.type !== "run.awaiting"; event = await next) {
      expect(clock.holds).toBe(0);
      next = events.next();
    }
    next = events.next();
    await clock.settle();
    expect(clock.holds).toBe(1);
    await clock.advance(60_000);
    expect((await next).value?.type).toBe("run.in-progress");
    expect(clock.holds).toBe(0);
    await drain(events);
    expect(clock.holds).toBe(0);
  });

  it("releases it when it leaves", async () => {
    const { runtime, clock } = withAgent(asks);
    const { run_id } = await runtime.createRun(request);
    const events = runtime.events(run_id, { after: 6, until: "end" });
    const next = events.next();
    await clock.settle();
    expect(clock.holds).toBe(1);
    await events.return?.();
    expect((await next).done).toBe(true);
    expect(clock.holds).toBe(0);
  });

  it("holds it during a read of the store, and releases it when that fails", async () => {
    const { runtime, clock } = withAgent(asks, { store: lateStore() });
    const next = runtime.events("7b3b7f0e-6f5c-4b2b-9a49-2f1f0a2f7b11").next();
    expect(clock.holds).toBe(1);
    await expect(next).rejects.toThrow("There is no run");
    expect(clock.holds).toBe(0);
  });

  it("holds nothing as a listener", async () => {
    const { runtime, clock } = withAgent(asks);
    runtime.on("run.completed", () => {});
    await runtime.createRun(request);
    expect(clock.holds).toBe(0);
  });
});

describe("A running run holds the process open", () => {
  it("without a caller, until it has ended", async () => {
    const answer = deferred();
    const { runtime, clock } = withAgent(() => answer.promise);
    await runtime.createRun({ ...request, mode: "async" });
    await clock.settle();
    expect(clock.holds).toBe(1);
    answer.resolve();
    await clock.settle();
    expect(clock.holds).toBe(0);
  });

  it.each([false, true])("between two attempts of a step (durable: %s), also beside a question", async (durable) => {
    const { runtime, clock } = withAgent(
      async (_input, { ask, step }) => {
        const answer = ask("Well?");
        await step("call", ({ attempt }) => attempt === 2 || Promise.reject(new Error("busy")), {
          retry: { attempts: 2, backoffMs: 1_000 },
        });
        await answer;
      },
      {},
      durable,
    );
    await runtime.createRun(request);
    await clock.settle();
    expect(clock.holds).toBe(1);
    await clock.advance(1_000);
    expect(clock.holds).toBe(0);
  });

  it("not while it waits for an answer, and again after that", async () => {
    const answer = deferred();
    const { runtime, clock } = withAgent(async (_input, { ask }) => {
      await ask("Well?");
      await answer.promise;
    });
    const { run_id } = await runtime.createRun(request);
    expect(clock.holds).toBe(0);
    await runtime.resume({ run_id, await_resume: { ok: true }, mode: "async" });
    await clock.settle();
    expect(clock.holds).toBe(1);
    answer.resolve();
    await clock.settle();
    expect(clock.holds).toBe(0);
  });

  it("until its grace period is over, when it does not heed a cancel", async () => {
    const { runtime, clock } = withAgent(() => never(), { cancelGraceMs: 500 });
    const { run_id } = await runtime.createRun({ ...request, mode: "async" });
    await clock.settle();
    await runtime.cancel(run_id);
    await clock.settle();
    expect(clock.holds).toBe(1);
    await clock.advance(500);
    expect(clock.holds).toBe(0);
  });

  it("also when it was taken over, and not when it has been released", async () => {
    const store = lastingStore();
    const works: AgentFunction = (_input, { step }) =>
      step("call", () => Promise.reject(new Error("busy")), { retry: { attempts: 9, backoffMs: 600_000 } });
    const first = withAgent(works, { store }, true);
    await first.runtime.createRun({ ...request, mode: "async" });
    await first.clock.settle();
    expect(first.clock.holds).toBeGreaterThan(0);
    const closing = first.runtime.close({ drainMs: 20_000 });
    await first.clock.settle();
    await first.clock.advance(20_000);
    expect(await closing).toMatchObject({ left: [{ status: "in-progress" }] });
    expect(first.clock.holds).toBe(0);

    const second = withAgent(() => never(), { store }, true);
    await second.clock.advance(1_000);
    expect(await second.runtime.stats()).toMatchObject({ live: { "in-progress": 1 } });
    expect(second.clock.holds).toBe(1);
  });

  it("also while a failed write is repeated", async () => {
    const { store, failing } = failingStore();
    const { runtime, clock } = withAgent(asks, { store });
    const { run_id } = await runtime.createRun(request);
    failing.append = 1;
    await expect(runtime.resume({ run_id, await_resume: { ok: true } })).rejects.toThrow("failed to write");
    expect(clock.holds).toBe(1);
    await clock.advance(60_000);
    expect((await runtime.getRun(run_id)).status).toBe("completed");
    expect(clock.holds).toBe(0);
  });
});

describe("close", () => {
  it("holds the process open until it has settled, and not after that", async () => {
    const { runtime, clock } = withAgent(() => never());
    const creating = runtime.createRun(request);
    await clock.settle();
    const closing = runtime.close({ drainMs: 1_000 });
    await clock.settle();
    expect(clock.holds).toBe(1);
    await clock.advance(1_000);
    await closing;
    expect((await creating).status).toBe("failed");
    expect(clock.holds).toBe(0);
  });

  it.each(["at once", "later"])("ends the reader of a run that is released (the store answers %s)", async (when) => {
    const store = when === "later" ? lateStore(lastingStore()) : lastingStore();
    const { runtime, clock } = withAgent(asks, { store }, true);
    const { run_id } = await runtime.createRun(request);
    const reading = drain(runtime.events(run_id, { until: "end" }));
    const refused = expect(reading).rejects.toMatchObject({ code: "runtime_closed" });
    await clock.settle();
    expect(clock.holds).toBe(1);
    await runtime.close();
    await refused;
    expect(clock.holds).toBe(0);
  });

  it("ends the reader of an evicted run", async () => {
    const { runtime, clock } = withLasting(asks, { durability: { evictAfterMs: 50 } });
    const { run_id } = await runtime.createRun(request);
    await clock.advance(100);
    const reading = drain(runtime.events(run_id, { until: "end" }));
    const refused = expect(reading).rejects.toMatchObject({ code: "runtime_closed" });
    await clock.settle();
    expect(clock.holds).toBe(1);
    await runtime.close();
    await refused;
    expect(clock.holds).toBe(0);
  });
});

it("Nothing else holds it: neither maintenance nor deadlines of runs without a caller here", async () => {
  const { runtime, clock } = withLasting(asks, { retention: { maxAgeMs: 1_000 } });
  await runtime.createRun(request);
  await clock.advance(100);
  expect(clock.timers).toBeGreaterThan(1);
  expect(clock.holds).toBe(0);
});
