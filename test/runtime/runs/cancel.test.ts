import type { AgentContext, AgentFunction, Run } from "cadenza";
import { AgentRuntime, awaitMessage, CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred, never, nextTurn } from "../../harness/promises.ts";
import { drain, eventsOf, refusal, reply, runAgent, setUp, textsOf, typesOf } from "../../harness/runtimes.ts";
import { OUTSIDE, RUN_ONCE, TIMERS, unlessReplayed } from "../../harness/unless-replayed.ts";

/** Creates a run, and lets it go on until it waits. */
async function begin(
  { runtime, clock }: ReturnType<typeof setUp>,
  agent: (input: unknown, context: AgentContext) => unknown,
): Promise<Run> {
  runtime.register("agent", { replace: true }, agent as AgentFunction);
  const run = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
  await clock.settle();
  return run;
}

describe("cancel", () => {
  it("gives the run in cancelling, and then ends it", async () => {
    const set = setUp();
    const { run_id } = await begin(set, async function* (_input, { signal }) {
      yield "half";
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    expect(await set.runtime.cancel(run_id)).toMatchObject({ status: "cancelling", finished_at: null });
    await set.clock.settle();
    const run = await set.runtime.getRun(run_id);

    expect(run).toMatchObject({ status: "cancelled", error: null, await_request: null });
    expect(run.output).toMatchObject([{ parts: [{ content: "half" }], completed_at: null }]);
    expect(typesOf(await eventsOf(set.runtime, run_id))).toEqual([
      "run.created",
      "run.in-progress",
      "message.created",
      "message.part",
      "run.cancelled",
    ]);
  });

  it("of a created run ends it before its agent begins", async () => {
    const { runtime, clock } = setUp();
    let began = false;
    runtime.register("agent", async () => {
      began = true;
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    expect(await runtime.cancel(run_id)).toMatchObject({ status: "cancelling" });
    await clock.settle();
    expect(began).toBe(false);
    expect(typesOf(await eventsOf(runtime, run_id))).toEqual(["run.created", "run.cancelled"]);
  });

  it("aborts the signal with an error that names the reason", async () => {
    const set = setUp();
    let signal: AbortSignal | undefined;
    const { run_id } = await begin(set, async (_input, context) => {
      signal = context.signal;
      await never();
    });
    expect(signal?.aborted).toBe(false);
    await set.runtime.cancel(run_id);
    expect(signal?.aborted).toBe(true);
    expect(signal?.reason).toMatchObject({ code: "run_cancelled", run_id });
  });

  it("runs the finally blocks of a generator, and keeps what they emit", async () => {
    const set = setUp();
    const { run_id } = await begin(set, async function* () {
      try {
        yield "working";
        await nextTurn();
        for (;;) {
          yield "on and on";
          await nextTurn();
          await set.clock.turn();
          if (false as boolean) return;
          await never();
        }
      } finally {
        yield "tidied up";
      }
    });
    await set.runtime.cancel(run_id);
    await set.clock.advance(500);
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
  });

  it("runs the finally blocks of a generator that waits at a yield", async () => {
    const set = setUp();
    const gate = deferred();
    const shown: string[] = [];
    const { run_id } = await begin(set, async function* () {
      try {
        yield "working";
        await gate.promise;
        yield "the last";
        shown.push("went on");
      } finally {
        yield "tidied up";
        yield ["by", "list"];
        yield { also: "generic" };
        shown.push("tidied up");
      }
    });
    await set.runtime.cancel(run_id);
    gate.resolve();
    await set.clock.settle();
    const run = await set.runtime.getRun(run_id);

    expect(run.status).toBe("cancelled");
    expect(textsOf(run)).toEqual(["working|the last|tidied up|by|list"]);
    expect(shown).toEqual(["tidied up"]);
    expect(typesOf(await eventsOf(set.runtime, run_id)).slice(-2)).toEqual(["generic", "run.cancelled"]);
  });

  it("runs the finally blocks of a run that waits for an answer", async () => {
    for (const ask of [
      async function* () {
        yield awaitMessage("?");
      },
      async function* (_input: unknown, context: AgentContext) {
        await context.ask("?");
        yield "never";
      },
    ]) {
      const { runtime, clock } = setUp();
      let cleaned = 0;
      const run = await runAgent(runtime, async function* (input, context) {
        try {
          yield* ask(input, context);
        } finally {
          cleaned += 1;
          yield "bye";
        }
      });
      expect(run.status).toBe("awaiting");
      await runtime.cancel(run.run_id);
      await clock.settle();
      const cancelled = await runtime.getRun(run.run_id);
      expect(cleaned).toBe(1);
      expect(cancelled).toMatchObject({ status: "cancelled", await_request: null });
      expect(textsOf(cancelled)).toEqual(["bye"]);
    }
  });

  it("runs the finally blocks of the iterable that is drained, then those of the agent", async () => {
    const set = setUp();
    const order: string[] = [];
    async function* inner(): AsyncGenerator<unknown> {
      try {
        yield awaitMessage("?");
      } finally {
        order.push("inner");
        yield "inner";
      }
    }
    const { run_id } = await begin(set, async function* () {
      try {
        yield [inner()];
      } finally {
        order.push("outer");
        yield "outer";
      }
    });
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    expect(order).toEqual(["inner", "outer"]);
    expect(textsOf(await set.runtime.getRun(run_id))).toEqual(["inner|outer"]);
  });

  unlessReplayed(RUN_ONCE)(
    "runs the finally blocks of the agent also when the iterable that is drained ends by itself then",
    async () => {
      for (const last of ["returns", "throws"]) {
        const set = setUp();
        const order: string[] = [];
        const inner = async function* (signal: AbortSignal): AsyncGenerator<unknown> {
          yield "inner";
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          order.push(last);
          if (last === "throws") throw signal.reason;
        };
        const { run_id } = await begin(set, async function* (_input, { signal }) {
          try {
            yield [inner(signal)];
          } finally {
            order.push("outer");
            yield "outer";
          }
        });
        await set.runtime.cancel(run_id);
        await set.clock.settle();
        expect(order).toEqual([last, "outer"]);
        expect(textsOf(await set.runtime.getRun(run_id))).toEqual(["inner|outer"]);
      }
    },
  );

  it("stops the agent: its side effects end", async () => {
    const set = setUp();
    let count = 0;
    const { run_id } = await begin(set, async function* () {
      for (; count < 1_000; count++) {
        await set.clock.turn();
        yield `${count}`;
      }
    });
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    const then = count;
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
    await set.clock.settle();
    expect(count).toBe(then);
    expect(count).toBeLessThan(1_000);
  });

  it("stops a plain generator at its next yield", async () => {
    const set = setUp();
    const order: string[] = [];
    const { run_id } = await begin(set, function* () {
      try {
        for (;;) yield set.clock.turn().then(() => "tick");
      } finally {
        order.push("finally");
      }
    });
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    expect(order).toEqual(["finally"]);
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
  });

  it("ends as cancelled, whatever the agent returns or throws then", async () => {
    for (const last of [
      () => "returned",
      () => {
        throw new Error("thrown");
      },
      () => 5,
    ]) {
      const set = setUp();
      const { run_id } = await begin(set, async (_input, { signal }) => {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        return last();
      });
      await set.runtime.cancel(run_id);
      await set.clock.settle();
      expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled", error: null });
    }
  });

  it("can be repeated, while the run is being cancelled and when it is cancelled", async () => {
    const set = setUp();
    const { run_id } = await begin(set, () => never());
    const first = await set.runtime.cancel(run_id);
    expect(await set.runtime.cancel(run_id)).toEqual(first);
    await set.clock.advance(500);
    expect(await set.runtime.cancel(run_id)).toMatchObject({ status: "cancelled" });
    expect(await set.runtime.cancel(run_id)).toEqual(await set.runtime.getRun(run_id));
    expect(typesOf(await eventsOf(set.runtime, run_id)).filter((type) => type === "run.cancelled")).toHaveLength(1);
  });

  it.each(["completed", "failed"] as const)("of a run that has %s is refused", async (status) => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, () => (status === "completed" ? "ok" : 5));
    const before = await eventsOf(runtime, run.run_id);
    expect(await refusal(runtime.cancel(run.run_id))).toMatchObject({ code: "run_finished", run_id: run.run_id });
    expect(await eventsOf(runtime, run.run_id)).toEqual(before);
  });

  it("of a run that does not exist is refused", async () => {
    const { runtime } = setUp();
    expect((await refusal(runtime.cancel("00000000-0000-4000-8000-000000000000"))).code).toBe("run_not_found");
  });

  it("during a stream ends it with run.cancelled", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", async function* () {
      yield "a";
      await never();
    });
    const stream = runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" });
    const first = await stream.next();
    if (first.done === true || first.value.type !== "run.created") throw new Error("no first event");
    const rest = drain(stream);
    await runtime.cancel(first.value.run.run_id);
    await clock.advance(500);
    expect(typesOf(await rest)).toEqual(["run.in-progress", "message.created", "message.part", "run.cancelled"]);
  });

  it("settles the calls that wait for the run", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", () => never());
    const waiting = runtime.createRun({ agent_name: "agent", input: "x" });
    await clock.settle();
    const [live] = await runtime.listRuns();
    await runtime.cancel(live?.run_id ?? "");
    await clock.advance(500);
    expect(await waiting).toMatchObject({ status: "cancelled" });
  });

  it("rejects the operations that the agent waits for: questions, steps that heed the signal, sub-runs", async () => {
    const set = setUp();
    const seen: unknown[] = [];
    const keep = (error: unknown): void => {
      seen.push(error);
    };
    set.runtime.register("child", () => never());
    const { run_id } = await begin(set, async (_input, { ask, step, run }) => {
      const fetched = step("fetch", async ({ signal }) => {
        await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      });
      await Promise.all([ask("?").catch(keep), fetched.catch(keep), run("child", "x").catch(keep)]);
    });
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    expect(seen).toHaveLength(3);
    for (const error of seen) expect(error).toMatchObject({ code: "run_cancelled", run_id });
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
  });

  it("ends the wait between two attempts of a step", async () => {
    const set = setUp();
    set.runtime.register("quick", () => undefined);
    await set.runtime.createRun({ agent_name: "quick", input: "" });
    const idle = set.clock.timers;
    let attempts = 0;
    const { run_id } = await begin(set, (_input, { step }) =>
      step(
        "flaky",
        () => {
          attempts += 1;
          throw new Error("again");
        },
        { retry: { attempts: 10, backoffMs: 60_000 } },
      ),
    );
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    expect(attempts).toBe(1);
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
    expect(set.clock.timers).toBe(idle);
  });

  unlessReplayed(RUN_ONCE)("by the agent itself works in every form of agent", async () => {
    const cancels = (context: AgentContext, runtime: ReturnType<typeof setUp>["runtime"]) =>
      runtime.cancel(context.run_id);
    const cleaned: string[] = [];
    const { runtime, clock } = setUp();
    const agents: Record<string, (input: unknown, context: AgentContext) => unknown> = {
      plain: (_input, context) => {
        void cancels(context, runtime);
        cleaned.push("plain");
      },
      async: async (_input, context) => {
        try {
          await cancels(context, runtime);
          await nextTurn();
        } finally {
          cleaned.push("async");
        }
      },
      *generator(_input, context) {
        try {
          yield "a";
          void cancels(context, runtime);
          yield "b";
          cleaned.push("went on");
        } finally {
          yield "c";
          cleaned.push("generator");
        }
      },
      async *asyncGenerator(_input, context) {
        try {
          yield "a";
          await cancels(context, runtime);
          yield "b";
          cleaned.push("went on");
        } finally {
          yield "c";
          cleaned.push("asyncGenerator");
        }
      },
    };
    for (const [name, agent] of Object.entries(agents)) {
      const run = await runAgent(runtime, agent);
      await clock.settle();
      expect([name, run.status]).toEqual([name, "cancelled"]);
      if (name.toLowerCase().includes("generator")) expect([name, textsOf(run)]).toEqual([name, ["a|b|c"]]);
    }
    expect(cleaned).toEqual(["plain", "async", "generator", "asyncGenerator"]);
  });
});

describe("the grace period", () => {
  unlessReplayed(RUN_ONCE)("ends: an agent that does not stop changes its session no more", async () => {
    const set = setUp({ cancelGraceMs: 20 });
    const gate = deferred();
    let late: unknown;
    const left = await begin(set, async (_input, { session }) => {
      await gate.promise;
      late = await session.setState("of the one that was left").catch((error: unknown) => error);
    });
    await set.runtime.cancel(left.run_id);
    await set.clock.advance(20);
    set.runtime.register("other", (_input, { session }) => session.setState("of the other"));
    await set.runtime.createRun({ agent_name: "other", input: "", session_id: left.session_id });
    gate.resolve();
    await set.clock.settle();
    expect(late).toMatchObject({ code: "run_cancelled" });
    expect((await set.runtime.getSession(left.session_id)).state).toBe("of the other");
  });

  unlessReplayed(RUN_ONCE)(
    "ends: an agent that does not stop is abandoned, and what it still emits is dropped and counted",
    async () => {
      const set = setUp({ cancelGraceMs: 200 });
      const gate = deferred();
      const { run_id } = await begin(set, async (_input, { emit }) => {
        await gate.promise;
        await emit("a");
        await emit("b");
        return "c";
      });
      await set.runtime.cancel(run_id);
      await set.clock.advance(199);
      expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelling" });
      await set.clock.advance(1);
      const run = await set.runtime.getRun(run_id);
      const events = await eventsOf(set.runtime, run_id);
      expect(run.status).toBe("cancelled");
      expect(await set.runtime.stats()).toMatchObject({ hung: 1, dropped: 0 });

      gate.resolve();
      await set.clock.settle();
      expect(await set.runtime.getRun(run_id)).toEqual(run);
      expect(await eventsOf(set.runtime, run_id)).toEqual(events);
      expect(await set.runtime.stats()).toMatchObject({ hung: 1, dropped: 3 });
      expect(set.said).toContainEqual(
        expect.objectContaining({ level: "warn", message: expect.stringContaining("left behind") }),
      );
    },
  );

  unlessReplayed(TIMERS)("may be zero or infinite", async () => {
    const none = setUp({ cancelGraceMs: 0 });
    const run = await begin(none, () => never());
    await none.runtime.cancel(run.run_id);
    await none.clock.advance(0);
    expect(await none.runtime.getRun(run.run_id)).toMatchObject({ status: "cancelled" });

    const endless = setUp({ cancelGraceMs: Number.POSITIVE_INFINITY });
    const gate = deferred();
    const patient = await begin(endless, () => gate.promise);
    await endless.runtime.cancel(patient.run_id);
    await endless.clock.advance(1e12);
    expect(await endless.runtime.getRun(patient.run_id)).toMatchObject({ status: "cancelling" });
    gate.resolve();
    await endless.clock.settle();
    expect(await endless.runtime.getRun(patient.run_id)).toMatchObject({ status: "cancelled" });
  });

  unlessReplayed(TIMERS)("leaves no timer when the agent stops in time", async () => {
    const set = setUp({
      retention: { maxAgeMs: Number.POSITIVE_INFINITY, maxIdleSessionMs: Number.POSITIVE_INFINITY },
    });
    const { run_id } = await begin(set, async function* () {
      yield awaitMessage("?");
    });
    await set.runtime.cancel(run_id);
    await set.clock.settle();
    expect(set.clock.timers).toBe(0);
  });
});

describe("the timeout of a run", () => {
  it("fails it, aborts its signal and runs its finally blocks", async () => {
    const set = setUp({ timeoutMs: 1_000 });
    let reason: unknown;
    const { run_id } = await begin(set, async function* (_input, { signal }) {
      try {
        yield "working";
        await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      } catch (error) {
        reason = error;
        throw error;
      } finally {
        yield "tidied up";
      }
    });
    await set.clock.advance(999);
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "in-progress" });
    await set.clock.advance(1);
    const run = await set.runtime.getRun(run_id);
    expect(run).toMatchObject({ status: "failed", error: { code: "server_error", data: { reason: "run_timeout" } } });
    expect(textsOf(run)).toEqual(["working|tidied up"]);
    expect(reason).toMatchObject({ code: "run_timeout" });
  });

  it("ends it after the grace period, whatever the agent does", async () => {
    const set = setUp({ timeoutMs: 1_000, cancelGraceMs: 100 });
    const { run_id } = await begin(set, () => never());
    await set.clock.advance(1_099);
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "in-progress" });
    await set.clock.advance(1);
    expect(await set.runtime.getRun(run_id)).toMatchObject({
      status: "failed",
      error: { data: { reason: "run_timeout" } },
    });
  });

  it("may be the agent's own, or the run's", async () => {
    const { runtime, clock } = setUp({ timeoutMs: 9_000, cancelGraceMs: 0 });
    runtime.register("agent", { timeoutMs: 500 }, () => never());
    const create = (timeoutMs?: number): Promise<Run> =>
      runtime.createRun({ agent_name: "agent", input: "x", mode: "async" }, { timeoutMs });
    const [own, longer, none] = await Promise.all([create(), create(700), create(Number.POSITIVE_INFINITY)]);
    const failed = async (run: Run | undefined) => (await runtime.getRun(run?.run_id ?? "")).status;

    await clock.advance(500);
    expect([await failed(own), await failed(longer)]).toEqual(["failed", "in-progress"]);
    await clock.advance(200);
    expect(await failed(longer)).toBe("failed");
    await clock.advance(100_000);
    expect(await failed(none)).toBe("in-progress");
  });

  unlessReplayed(OUTSIDE)("counts active time only: waiting for answers does not count", async () => {
    const set = setUp({ timeoutMs: 100, cancelGraceMs: 0 });
    const { run_id } = await begin(set, async (_input, { ask }) => {
      await new Promise<void>((resolve) => set.clock.setTimeout(resolve, 40));
      await ask("?");
      await new Promise<void>((resolve) => set.clock.setTimeout(resolve, 40));
      await ask("?");
      await never();
    });
    const status = async () => (await set.runtime.getRun(run_id)).status;
    await set.clock.advance(40);
    for (let round = 0; round < 2; round++) {
      await set.clock.advance(10_000);
      expect(await status()).toBe("awaiting");
      await set.runtime.resume({ run_id, await_resume: reply("ok"), mode: "async" });
      await set.clock.advance(round === 0 ? 40 : 19);
    }
    expect(await status()).toBe("in-progress");
    await set.clock.advance(1);
    expect(await status()).toBe("failed");
  });

  unlessReplayed(TIMERS)("leaves no timer when the run ends", async () => {
    const set = setUp({
      timeoutMs: 60_000,
      retention: { maxAgeMs: Number.POSITIVE_INFINITY, maxIdleSessionMs: Number.POSITIVE_INFINITY },
    });
    await runAgent(set.runtime, () => "ok");
    expect(set.clock.timers).toBe(0);
  });

  it("that fires while the run is being cancelled changes nothing", async () => {
    const set = setUp({ timeoutMs: 100, cancelGraceMs: 1_000 });
    const { run_id } = await begin(set, () => never());
    await set.clock.advance(90);
    await set.runtime.cancel(run_id);
    await set.clock.advance(1_000);
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled", error: null });
  });

  it("followed by a cancel ends the run as cancelled", async () => {
    const set = setUp({ timeoutMs: 100, cancelGraceMs: 1_000 });
    const { run_id } = await begin(set, () => never());
    await set.clock.advance(100);
    expect(await set.runtime.cancel(run_id)).toMatchObject({ status: "cancelling" });
    await set.clock.advance(1_000);
    expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
  });
});

describe("an error that ends a run", () => {
  it("runs the finally blocks of the agent that yielded it", async () => {
    for (const bad of [5, new CadenzaError("invalid_yield", "by hand"), { content: "a", content_url: "b" }, [5]]) {
      const { runtime } = setUp();
      let cleaned = false;
      const run = await runAgent(runtime, async function* () {
        try {
          yield "a";
          yield bad;
        } finally {
          yield "tidied up";
          cleaned = true;
        }
      });
      expect(cleaned).toBe(true);
      expect(run).toMatchObject({ status: "failed", error: { data: { reason: "invalid_yield" } } });
      expect(textsOf(run)).toEqual(["a|tidied up"]);
    }
  });

  it("of an iterable that is drained runs the finally blocks of the agent that yielded it", async () => {
    const { runtime } = setUp();
    const order: string[] = [];
    async function* inner(): AsyncGenerator<unknown> {
      try {
        yield "inner";
        throw new Error("the list broke");
      } finally {
        order.push("inner");
      }
    }
    const run = await runAgent(runtime, async function* () {
      try {
        yield inner();
      } finally {
        order.push("outer");
      }
    });
    expect(run.status).toBe("failed");
    expect(order).toEqual(["inner", "outer"]);
  });

  it("of a promise that a plain generator yielded runs its finally blocks", async () => {
    const { runtime } = setUp();
    let cleaned = false;
    const run = await runAgent(runtime, function* () {
      try {
        yield Promise.reject(new Error("it broke"));
      } finally {
        cleaned = true;
      }
    });
    expect(run).toMatchObject({ status: "failed", error: { message: "The agent failed." } });
    expect(cleaned).toBe(true);
  });

  it("cannot be delayed for ever by finally blocks", async () => {
    const set = setUp({ cancelGraceMs: 300 });
    const { run_id } = await begin(set, async function* () {
      try {
        yield 5;
      } finally {
        await never();
      }
    });
    await set.clock.advance(300);
    expect(await set.runtime.getRun(run_id)).toMatchObject({
      status: "failed",
      error: { data: { reason: "invalid_yield" } },
    });
  });
});

it("when a cancel ends a stream, the generator around it still runs its finally", async () => {
  const log: string[] = [];
  const runtime = new AgentRuntime();
  runtime.register("outer", async function* (_input, { signal }) {
    async function* stream() {
      yield "one";
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    }
    try {
      yield stream();
    } finally {
      log.push("finally");
    }
  });

  const events = runtime.createRun({ agent_name: "outer", input: "Hello", mode: "stream" });
  for await (const event of events) {
    if (event.type === "message.part") void runtime.cancel((await runtime.listRuns())[0]?.run_id ?? "");
  }

  expect(log).toEqual(["finally"]);
});
