import type { StepOptions, StepScope } from "cadenza";
import { expect, it } from "vitest";
import { never } from "../../harness/promises.ts";
import { setUp, textsOf } from "../../harness/runtimes.ts";

/** Begins a run whose agent calls one step, and yields its result or the error's message. */
async function begin(durable: boolean, body: (step: StepScope) => unknown, options: StepOptions) {
  const set = setUp();
  set.runtime.register("agent", { durable }, async function* (_input, { step }) {
    yield await step("work", async (scope) => String(await body(scope)), options).catch(
      (error: Error) => error.message,
    );
  });
  const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await set.clock.settle();
  return { ...set, texts: async () => textsOf(await set.runtime.getRun(run_id)) };
}

it.each([false, true])(
  "an attempt that is silent for stallMs fails, and its signal aborts (durable: %s)",
  async (durable) => {
    let signal: AbortSignal | undefined;
    const body = (step: StepScope) => {
      signal = step.signal;
      return never();
    };
    const { clock, texts } = await begin(durable, body, { stallMs: 1_000 });
    await clock.advance(999);
    expect(signal?.aborted).toBe(false);
    await clock.advance(1);
    expect(signal?.reason).toMatchObject({ code: "step_timeout" });
    expect(await texts()).toEqual(["Step work#1: attempt 1 emitted nothing for longer than its stallMs (1000)."]);
  },
);

it.each([false, true])(
  "an attempt goes on while it says so, and fails at the latest after twice stallMs (durable: %s)",
  async (durable) => {
    let step: StepScope | undefined;
    const body = (scope: StepScope) => {
      step = scope;
      return never();
    };
    const { clock, texts } = await begin(durable, body, { stallMs: 1_000, timeoutMs: 60_000 });
    for (let second = 0; second < 3; second++) {
      await clock.advance(500);
      step?.progress();
      await clock.advance(500);
    }
    await clock.advance(999);
    expect(await texts()).toEqual([]);
    await clock.advance(1);
    expect(await texts()).toHaveLength(1);
  },
);

it.each([false, true])(
  "the pause that an error asks for takes the place of the computed one, up to maxBackoffMs (durable: %s)",
  async (durable) => {
    const rejected = () => Promise.reject(new Error("late"));
    const asked = [() => 70, () => 5_000, () => undefined, () => Number.NaN, rejected];
    const times: number[] = [];
    let now = (): number => 0;
    const body = () => {
      times.push(now());
      throw new Error(String(times.length - 1));
    };
    const pauseMs = (error: unknown) => asked[Number((error as Error).message)]?.() as number | undefined;
    const begun = begin(durable, body, { retry: { attempts: 6, maxBackoffMs: 1_000, pauseMs } });
    const { clock, texts } = await begun;
    now = () => clock.now();
    times[0] = clock.now();
    await clock.advance(5_000);
    expect(await texts()).toEqual(["5"]);
    expect(times.slice(1).map((at, index) => at - (times[index] ?? 0))).toEqual([70, 1_000, 0, 0, 0]);
  },
);
