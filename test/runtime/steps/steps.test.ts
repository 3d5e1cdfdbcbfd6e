import { createHash } from "node:crypto";
import { getEventListeners } from "node:events";
import type { AgentContext, AgentFunction, StepOptions, StepScope } from "cadenza";
import { CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred, never } from "../../harness/promises.ts";
import { eventsOf, setUp, textsOf } from "../../harness/runtimes.ts";
import { HANDED_BACK, TIMERS, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

type Body = (step: StepScope) => unknown;

const MIB = 1024 * 1024;

/** A runtime with an agent that calls one step, and yields its result or the code of its error. */
function withStep(durable: boolean, body: Body, options: StepOptions = {}, runtimeOptions = {}) {
  const set = setUp(runtimeOptions);
  const thrown: unknown[] = [];
  const agent: AgentFunction = async function* (_input: unknown, { step }: AgentContext) {
    try {
      yield JSON.stringify((await step("work", body, options)) ?? null);
    } catch (error) {
      thrown.push(error);
      yield CadenzaError.is(error) ? error.code : String(error);
    }
  };
  set.runtime.register("agent", { durable }, agent);
  const begin = async (): Promise<string> => {
    const run = await set.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await set.clock.settle();
    return run.run_id;
  };
  return { ...set, begin, thrown };
}

/** A body that fails, and notes when it was called. */
function failing(times: number[], clock: () => { now(): number }): Body {
  return () => {
    times.push(clock().now());
    throw new Error("busy");
  };
}

/** How long a step waits between its attempts when each of them fails. */
async function pausesOf(
  durable: boolean,
  retry: NonNullable<StepOptions["retry"]>,
  firesEarly = false,
): Promise<number[]> {
  const times: number[] = [];
  const set = withStep(
    durable,
    failing(times, () => set.clock),
    { retry },
  );
  const { setTimeout } = set.clock;
  if (firesEarly)
    set.clock.setTimeout = (callback, ms) => setTimeout.call(set.clock, callback, ms > 100 ? Math.floor(ms / 3) : ms);
  const run_id = await set.begin();
  while ((await set.runtime.getRun(run_id)).status !== "completed") await set.clock.advance(30_000);
  expect(textsOf(await set.runtime.getRun(run_id))).toEqual(["Error: busy"]);
  return times.slice(1).map((at, index) => at - (times[index] ?? 0));
}

describe.each([false, true])("a step (durable: %s)", (durable) => {
  describe("with timeoutMs", () => {
    it("fails with step_timeout when the time is over, although its body ignores the signal", async () => {
      const set = withStep(durable, never, { timeoutMs: 1_000 });
      const run_id = await set.begin();
      await set.clock.advance(999);
      expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "in-progress", output: [] });
      await set.clock.advance(1);
      const run = await set.runtime.getRun(run_id);
      expect(textsOf(run)).toEqual(["step_timeout"]);
      expect(set.thrown.at(-1)).toMatchObject({
        code: "step_timeout",
        run_id,
        message: "Step work#1: attempt 1 took longer than its timeoutMs (1000).",
      });
    });

    it("fails the run when the agent does not catch the error", async () => {
      const { runtime, clock } = setUp();
      runtime.register("agent", { durable }, (_input, { step }) => step("work", never, { timeoutMs: 10 }));
      const creating = runtime.createRun({ agent_name: "agent", input: "" });
      await clock.advance(10);
      expect(await creating).toMatchObject({ status: "failed", error: { data: { reason: "step_timeout" } } });
    });

    it("has a signal of its own, which aborts when the time is over; that of the run does not", async () => {
      const { runtime, clock } = setUp();
      const signals: AbortSignal[] = [];
      const ofRun: AbortSignal[] = [];
      const after = deferred();
      runtime.register("agent", { durable }, async (_input, { step, signal }) => {
        ofRun.push(signal);
        const body = (s: StepScope) => {
          signals.push(s.signal, s.signal);
          return never();
        };
        await step("work", body, { timeoutMs: 50 }).catch(() => "late");
        await step("go on", () => after.promise);
      });
      await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
      await clock.advance(49);
      expect(signals[0]?.aborted).toBe(false);
      expect(signals[1]).toBe(signals[0]);
      await clock.advance(1);
      expect(signals[0]).toMatchObject({ aborted: true, reason: { code: "step_timeout" } });
      expect(ofRun[0]?.aborted).toBe(false);
      after.resolve();
      await clock.settle();
    });

    it("has a signal that is aborted already when a late body first reads it", async () => {
      const late = deferred();
      const read = deferred<AbortSignal>();
      const set = withStep(
        durable,
        async (s) => {
          await late.promise;
          read.resolve(s.signal);
        },
        { timeoutMs: 50 },
      );
      await set.begin();
      await set.clock.advance(50);
      late.resolve();
      expect(await read.promise).toMatchObject({ aborted: true, reason: { code: "step_timeout" } });
    });

    it("drops what a late body emits and returns", async () => {
      const late = deferred();
      const emitted = deferred();
      const ends = deferred();
      const { runtime, clock } = setUp();
      runtime.register("agent", { durable }, async function* (_input, { step }) {
        const body = async ({ emit }: StepScope) => {
          await emit("in time");
          await late.promise;
          await emit("late");
          emitted.resolve();
          return "late result";
        };
        yield await step("work", body, { timeoutMs: 50 }).catch(() => "given up");
        await step("go on", () => ends.promise);
      });
      const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
      await clock.advance(50);
      late.resolve();
      await emitted.promise;
      await clock.settle();
      ends.resolve();
      await clock.settle();
      const run = await runtime.getRun(run_id);
      expect(run.status).toBe("completed");
      expect(JSON.stringify(await eventsOf(runtime, run_id))).not.toContain("late");
      expect(textsOf(run).join("|")).toBe("in time|given up");
    });

    it("is tried again after a time-out, and the late result does not count, not even in the pause", async () => {
      const late = deferred();
      const attempts: number[] = [];
      const body: Body = async ({ attempt }) => {
        attempts.push(attempt);
        if (attempt > 1) return "second";
        await late.promise;
        return "first";
      };
      const set = withStep(durable, body, { timeoutMs: 50, retry: { attempts: 2, backoffMs: 1_000 } });
      const run_id = await set.begin();
      await set.clock.advance(60);
      late.resolve();
      await set.clock.advance(400);
      expect(attempts).toEqual([1]);
      expect((await set.runtime.getRun(run_id)).output).toEqual([]);
      await set.clock.advance(1_000);
      expect(attempts).toEqual([1, 2]);
      expect(textsOf(await set.runtime.getRun(run_id))).toEqual(['"second"']);
    });

    it("measures each attempt alone: the pause between two does not count", async () => {
      const attempts: number[] = [];
      const body: Body = ({ attempt }) => {
        attempts.push(attempt);
        if (attempt === 1) throw new Error("busy");
        return never();
      };
      const set = withStep(durable, body, { timeoutMs: 100, retry: { attempts: 2, backoffMs: 1_000 } });
      const run_id = await set.begin();
      while (attempts.length < 2) await set.clock.advance(1);
      await set.clock.advance(98);
      expect((await set.runtime.getRun(run_id)).output).toEqual([]);
      await set.clock.advance(2);
      expect(textsOf(await set.runtime.getRun(run_id))).toEqual(["step_timeout"]);
      expect(set.thrown.at(-1)).toMatchObject({ message: expect.stringContaining("attempt 2") });
    });

    it("gives a result in time", async () => {
      const set = withStep(durable, () => "done", { timeoutMs: 0 });
      expect(textsOf(await set.runtime.getRun(await set.begin()))).toEqual(['"done"']);
      const failed = withStep(durable, () => Promise.reject(new Error("no")), { timeoutMs: 5 });
      expect(textsOf(await failed.runtime.getRun(await failed.begin()))).toEqual(["Error: no"]);
    });

    it("has a signal that aborts when the run is cancelled, with the run's reason", async () => {
      const signals: AbortSignal[] = [];
      const body: Body = async ({ signal }) => {
        signals.push(signal);
        await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      };
      const set = withStep(durable, body, { timeoutMs: 1_000, retry: { attempts: 5 } });
      const run_id = await set.begin();
      await set.runtime.cancel(run_id);
      await set.clock.settle();
      expect(signals).toHaveLength(1);
      expect(signals[0]).toMatchObject({ aborted: true, reason: { code: "run_cancelled" } });
      expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
      await set.clock.advance(2_000);
      expect(signals[0]?.reason).toMatchObject({ code: "run_cancelled" });
    });

    unlessReplayed(TIMERS)("leaves no timer and no hold behind when its run is over", async () => {
      const set = withStep(durable, never, { timeoutMs: 3_600_000 });
      set.runtime.register("quick", { durable }, (_input, { step }) => step("work", () => 1, { timeoutMs: 1_000 }));
      await set.runtime.createRun({ agent_name: "quick", input: "" });
      await set.clock.settle();
      const idle = set.clock.timers;
      const run_id = await set.begin();
      expect(set.clock.timers).toBeGreaterThan(idle);
      await set.runtime.cancel(run_id);
      await set.clock.advance(500);
      expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
      expect(set.clock.timers).toBe(idle);
      expect(set.clock.holds).toBe(0);
    });

    unlessReplayed(TIMERS)("holds the process open beside a question, until the time is over", async () => {
      const { runtime, clock } = setUp();
      runtime.register("agent", { durable }, async (_input, { ask, step }) => {
        const answer = ask("Well?");
        await step("work", never, { timeoutMs: 1_000 }).catch(() => "late");
        await answer;
      });
      await runtime.createRun({ agent_name: "agent", input: "" });
      await clock.advance(999);
      expect(clock.holds).toBe(1);
      await clock.advance(1);
      expect(clock.holds).toBe(0);
    });
  });

  it("with timeoutMs leaves no listener on the signal of the run", async () => {
    const { runtime, clock } = setUp();
    const ends = deferred();
    const signals: AbortSignal[] = [];
    runtime.register("agent", { durable }, async (_input, { step, signal }) => {
      signals.push(signal);
      await step("read", (s) => s.signal.aborted, { timeoutMs: 10 });
      await step("fail", (s) => Promise.reject(s.signal), { timeoutMs: 10 }).catch(() => "failed");
      await step("wait", (s) => never().finally(() => s.signal), { timeoutMs: 10 }).catch(() => "late");
      await step("end", () => ends.promise);
    });
    const creating = runtime.createRun({ agent_name: "agent", input: "" });
    await clock.advance(10);
    for (const signal of signals) expect(getEventListeners(signal, "abort")).toEqual([]);
    ends.resolve();
    expect((await creating).status).toBe("completed");
  });

  it("without timeoutMs has the signal of the run", async () => {
    const { runtime, clock } = setUp();
    let same: boolean | undefined;
    runtime.register("agent", { durable }, async (_input, { step, signal }) => {
      await step("work", (s) => {
        same = s.signal === signal;
      });
    });
    await runtime.createRun({ agent_name: "agent", input: "" });
    await clock.settle();
    expect(same).toBe(true);
  });

  describe("with retry", () => {
    unlessReplayed(TOO_LONG)("pauses for the whole time where timers fire early", async () => {
      const pauses = await pausesOf(durable, { attempts: 3, backoffMs: 1_000, factor: 1 }, true);
      for (const pause of pauses) expect(pause).toBeGreaterThanOrEqual(500);
      expect(pauses).toHaveLength(2);
    });

    unlessReplayed(TOO_LONG)("pauses for half to the whole of a back-off that grows up to its limit", async () => {
      const retry = { attempts: 6, backoffMs: 1_000, factor: 3, maxBackoffMs: 10_000 };
      const pauses = await pausesOf(durable, retry);
      const whole = [1_000, 3_000, 9_000, 10_000, 10_000];
      expect(pauses).toHaveLength(whole.length);
      for (const [index, most] of whole.entries()) {
        expect(pauses[index]).toBeGreaterThanOrEqual(most / 2);
        expect(pauses[index]).toBeLessThanOrEqual(most);
        expect(Number.isInteger(pauses[index])).toBe(true);
      }
      // The jitter differs: two pauses of the same back-off are not the same.
      expect(pauses[3]).not.toBe(pauses[4]);
    });

    unlessReplayed(TOO_LONG)("doubles its pauses up to a minute by default", async () => {
      const pauses = await pausesOf(durable, { attempts: 9, backoffMs: 1_000 });
      for (const [index, pause] of pauses.entries()) {
        const most = Math.min(60_000, 1_000 * 2 ** index);
        expect(pause).toBeGreaterThanOrEqual(most / 2);
        expect(pause).toBeLessThanOrEqual(most);
      }
      expect(pauses).toHaveLength(8);
    });

    unlessReplayed(TOO_LONG)("does not shorten a backoffMs of more than a minute by default", async () => {
      const pauses = await pausesOf(durable, { attempts: 3, backoffMs: 600_000 });
      for (const pause of pauses) {
        expect(pause).toBeGreaterThanOrEqual(300_000);
        expect(pause).toBeLessThanOrEqual(600_000);
      }
    });

    it("does not pause without backoffMs", async () => {
      expect(await pausesOf(durable, { attempts: 3, factor: 5 })).toEqual([0, 0]);
      expect(await pausesOf(durable, { attempts: 3, backoffMs: 0 })).toEqual([0, 0]);
      expect(await pausesOf(durable, { attempts: 3, backoffMs: 10, maxBackoffMs: 0 })).toEqual([0, 0]);
    });

    it("is stopped in the middle of a pause when the run exceeds its own time", async () => {
      const times: number[] = [];
      const set = setUp();
      const fails = failing(times, () => set.clock);
      set.runtime.register("agent", { durable, timeoutMs: 100 }, (_input, { step }) =>
        step("work", fails, { timeoutMs: 1_000, retry: { attempts: 9, backoffMs: 10_000 } }),
      );
      const creating = set.runtime.createRun({ agent_name: "agent", input: "" });
      await set.clock.advance(100);
      expect(await creating).toMatchObject({ status: "failed", error: { data: { reason: "run_timeout" } } });
      await set.clock.advance(10_000);
      expect(times).toHaveLength(1);
    });

    it("repeats only the errors that `when` accepts, and does not ask it about the last attempt", async () => {
      const asked: unknown[] = [];
      const accepts = (error: unknown) => {
        asked.push((error as Error).message);
        return (error as Error).message !== "fatal";
      };
      const fatal: Body = ({ attempt }) => Promise.reject(new Error(attempt === 2 ? "fatal" : "busy"));
      const set = withStep(durable, fatal, { retry: { attempts: 5, when: accepts } });
      expect(textsOf(await set.runtime.getRun(await set.begin()))).toEqual(["Error: fatal"]);
      expect(asked).toEqual(["busy", "fatal"]);

      asked.length = 0;
      const busy = withStep(durable, () => Promise.reject(new Error("busy")), {
        retry: { attempts: 2, when: accepts },
      });
      expect(textsOf(await busy.runtime.getRun(await busy.begin()))).toEqual(["Error: busy"]);
      expect(asked).toEqual(["busy"]);
    });

    it("asks `when` about a time-out", async () => {
      const when = (error: unknown) => CadenzaError.is(error) && error.code === "step_timeout";
      const body: Body = ({ attempt }) => (attempt === 1 ? never() : Promise.reject(new TypeError("no")));
      const set = withStep(durable, body, { timeoutMs: 10, retry: { attempts: 5, when } });
      const run_id = await set.begin();
      await set.clock.advance(10);
      expect(textsOf(await set.runtime.getRun(run_id))).toEqual(["TypeError: no"]);
    });

    it("fails with what `when` throws, and refuses a promise", async () => {
      const broken = () => {
        throw new RangeError("when");
      };
      const thrown = withStep(durable, () => Promise.reject(new Error("busy")), {
        retry: { attempts: 5, when: broken },
      });
      expect(textsOf(await thrown.runtime.getRun(await thrown.begin()))).toEqual(["RangeError: when"]);

      const later = (() => Promise.reject(new Error("no"))) as unknown as () => boolean;
      const set = withStep(durable, () => Promise.reject(new Error("busy")), { retry: { attempts: 5, when: later } });
      expect(textsOf(await set.runtime.getRun(await set.begin()))).toEqual(["invalid_argument"]);
      expect(set.thrown.at(-1)).toMatchObject({ message: expect.stringContaining("options.retry.when") });
    });

    it("does not ask `when` once the run is cancelled", async () => {
      let asked = 0;
      const when = () => {
        asked += 1;
        return true;
      };
      const body: Body = ({ signal }) =>
        new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      const set = withStep(durable, body, { retry: { attempts: 5, when } });
      const run_id = await set.begin();
      await set.runtime.cancel(run_id);
      await set.clock.settle();
      expect(await set.runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
      expect(asked).toBe(0);
    });
  });

  it("has an idempotency key that is the same on every attempt, and different for each step and run", async () => {
    const { runtime, clock } = setUp();
    const keys: Record<string, string[]> = {};
    runtime.register("agent", { durable }, async (_input, { step, run_id }) => {
      const body = ({ key, attempt, idempotencyKey }: StepScope) => {
        keys[`${run_id} ${key}`] = [...(keys[`${run_id} ${key}`] ?? []), idempotencyKey];
        if (attempt < 3) throw new Error("busy");
      };
      await step("pay", body, { retry: { attempts: 3 } });
      await step("pay", body, { retry: { attempts: 3 } });
      await step("pay 2", body, { retry: { attempts: 3 } });
    });
    for (let n = 0; n < 2; n++) await runtime.createRun({ agent_name: "agent", input: "" });
    await clock.settle();
    const lists = Object.values(keys);
    expect(lists).toHaveLength(6);
    for (const list of lists) expect(new Set(list).size).toBe(1);
    for (const list of lists) expect(list).toHaveLength(3);
    expect(new Set(lists.flat()).size).toBe(6);
    for (const key of lists.flat())
      expect(key).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });

  it("has the same idempotency key in later versions of the library: a hash of the run's id and its own key", async () => {
    const { runtime } = setUp();
    const given: Record<string, string> = {};
    runtime.register("agent", { durable }, async (_input, { step }) => {
      for (const name of ["pay", "größer", "a".repeat(10), "b".repeat(11), "c".repeat(12), "d".repeat(200)])
        await step(name, ({ key, idempotencyKey }) => {
          given[key] = idempotencyKey;
        });
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(Object.keys(given)).toHaveLength(6);
    for (const [key, idempotencyKey] of Object.entries(given)) {
      const hash = createHash("sha1").update(`36:${run_id}${key.length}:${key}`).digest("hex");
      const sameDigits = [...hash.slice(0, 32)].filter((_digit, index) => index !== 12 && index !== 16).join("");
      const digits = [...idempotencyKey.replaceAll("-", "")].filter((_digit, index) => index !== 12 && index !== 16);
      expect(digits.join("")).toBe(sameDigits);
    }
  });

  it.each(["ask", "await", "sleep", "ask:x", "sleep:x", "run:agent", "receive:payment", "session.getState"])(
    "cannot have the name %s, since the key of another operation has this form",
    async (name) => {
      const { runtime } = setUp();
      let error: unknown;
      let key = "";
      runtime.register("agent", { durable }, async (_input, { step }) => {
        error = await step(name, () => 1).catch((thrown: unknown) => thrown);
        key = await step("asks", (s) => s.key);
      });
      const run = await runtime.createRun({ agent_name: "agent", input: "" });
      expect(run.status).toBe("completed");
      expect(error).toMatchObject({ code: "invalid_argument" });
      for (const said of ["step name", JSON.stringify(name), "ask, await and sleep", "run:", "receive:", "session."])
        expect((error as Error).message).toContain(said);
      expect(key).toBe("asks#1");
    },
  );

  it.each(["asking", "run", "receive", "sleepy", "session", "my ask", "awaits", "await:x"])(
    "can have the name %s",
    async (name) => {
      const { runtime } = setUp();
      runtime.register("agent", { durable }, (_input, { step }) => step(name, ({ key }) => key));
      expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "" }))).toEqual([`${name}#1`]);
    },
  );
});

describe("limits.maxStepBytes", () => {
  it("fails a durable step with a larger result, without another attempt", async () => {
    let calls = 0;
    const body = () => {
      calls += 1;
      // Two characters of four bytes of UTF-8 each, and two quotation marks.
      return "\u{1F600}\u{1F600}";
    };
    const options = { retry: { attempts: 3 } };
    const fits = withStep(true, body, options, { limits: { maxStepBytes: 10 } });
    expect(textsOf(await fits.runtime.getRun(await fits.begin()))).toEqual(['"\u{1F600}\u{1F600}"']);
    expect(calls).toBe(1);

    const exceeds = withStep(true, body, options, { limits: { maxStepBytes: 9 } });
    expect(textsOf(await exceeds.runtime.getRun(await exceeds.begin()))).toEqual(["limit_reached"]);
    expect(exceeds.thrown.at(-1)).toMatchObject({ limit: "maxStepBytes", message: expect.stringContaining("work#1") });
    expect(calls).toBe(2);
  });

  it("is 10 MiB by default, and can be switched off", async () => {
    const body = () => "a".repeat(10 * MIB - 1);
    const set = withStep(true, body);
    expect(textsOf(await set.runtime.getRun(await set.begin()))).toEqual(["limit_reached"]);
    const limits = { maxStepBytes: Number.POSITIVE_INFINITY, maxPartBytes: Number.POSITIVE_INFINITY };
    const unlimited = withStep(true, body, {}, { limits });
    expect((await unlimited.runtime.getRun(await unlimited.begin())).output[0]?.parts[0]?.content?.length).toBe(
      10 * MIB + 1,
    );
  });

  it("does not concern the steps of a plain agent, whose results are not stored", async () => {
    const set = withStep(false, () => "a".repeat(100), {}, { limits: { maxStepBytes: 1 } });
    expect(textsOf(await set.runtime.getRun(await set.begin()))).toEqual([`"${"a".repeat(100)}"`]);
  });
});

/** An agent that begins a step when the test lets it, whether its run has ended by then or not. */
function withLateStep() {
  const set = setUp({ cancelGraceMs: 100 });
  const gate = deferred();
  const begun: string[] = [];
  const refused: unknown[] = [];
  set.runtime.register("agent", async (_input, { step }) => {
    await gate.promise;
    await step("late", () => begun.push("late")).catch((error: unknown) => refused.push(error));
    await never();
  });
  return { ...set, gate, begun, refused };
}

unlessReplayed(HANDED_BACK)(
  "A step that a plain agent begins after its run was ended by close is refused, and its body does not run",
  async () => {
    const { runtime, clock, gate, begun, refused } = withLateStep();
    const creating = runtime.createRun({ agent_name: "agent", input: "" });
    await clock.settle();
    await runtime.close({ drainMs: 0 });
    expect((await creating).status).toBe("failed");
    gate.resolve();
    await clock.settle();
    expect(begun).toEqual([]);
    expect(refused).toMatchObject([{ code: "interrupted" }]);
  },
);

it("A step that a plain agent begins after it was left behind is refused, and its body does not run", async () => {
  const { runtime, clock, gate, begun, refused } = withLateStep();
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.settle();
  await runtime.cancel(run_id);
  await clock.advance(100);
  expect((await runtime.getRun(run_id)).status).toBe("cancelled");
  gate.resolve();
  await clock.settle();
  expect(begun).toEqual([]);
  expect(refused).toMatchObject([{ code: "run_cancelled" }]);
});
