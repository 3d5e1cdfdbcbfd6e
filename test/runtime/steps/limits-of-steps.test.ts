import type { AgentContext, RuntimeOptions, StepOptions } from "cadenza";
import { AgentRuntime } from "cadenza";
import { expect, it } from "vitest";
import { deferred, never } from "../../harness/promises.ts";
import { refusal, setUp, textsOf } from "../../harness/runtimes.ts";

/** How long the time of a rate of 1,000 ms is counted. */
const SECOND = 1_050;

/** Agents whose steps note when they begin, under limits. */
function begin(stepLimits: RuntimeOptions["stepLimits"], options: RuntimeOptions = {}) {
  const set = setUp({ stepLimits, ...options });
  const begun: (readonly [name: string, at: number])[] = [];
  const t0 = set.clock.now();
  const note = (name: string): void => void begun.push([name, set.clock.now() - t0]);
  return { ...set, begun, note, times: () => begun.map(([, at]) => at), names: () => begun.map(([name]) => name) };
}

const forms = [{ durable: false }, { durable: true }];

it.each(forms)("no more attempts begin in the time of a rate than it says (durable: $durable)", async ({ durable }) => {
  const { runtime, clock, note, times } = begin({ api: { rate: { count: 3, perMs: 1_000 } } });
  runtime.register("agent", { durable }, (_input, { step }) => step("call", () => note("call"), { limit: "api" }));
  const create = () => runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  for (let n = 0; n < 4; n++) await create();
  await clock.advance(400);
  for (let n = 0; n < 4; n++) await create();
  await clock.advance(SECOND - 401);
  expect(times()).toEqual([0, 0, 0]);
  await clock.advance(5_000);
  expect(times()).toEqual([0, 0, 0, SECOND, SECOND, SECOND, 2 * SECOND, 2 * SECOND]);
});

it.each(forms)(
  "no more bodies are at work at a time than max says, of all agents (durable: $durable)",
  async ({ durable }) => {
    const { runtime, clock, note, names } = begin({ api: { max: 2 } });
    const ends: (() => void)[] = [];
    const body = (name: string) => () => {
      note(name);
      return new Promise<string>((resolve) => ends.push(() => resolve(name)));
    };
    for (const name of ["one", "other"])
      runtime.register(name, { durable }, (_input, { step }) =>
        Promise.all([1, 2].map((n) => step(`${name} ${n}`, body(`${name} ${n}`), { limit: "api" }))).then(() => "done"),
      );
    const one = await runtime.createRun({ agent_name: "one", input: "", mode: "async" });
    await clock.settle();
    const other = await runtime.createRun({ agent_name: "other", input: "", mode: "async" });
    await clock.settle();
    expect(names()).toEqual(["one 1", "one 2"]);
    ends.shift()?.();
    await clock.settle();
    expect(names()).toEqual(["one 1", "one 2", "other 1"]);
    for (let n = 0; n < 3; n++) {
      ends.shift()?.();
      await clock.settle();
    }
    expect(names()).toEqual(["one 1", "one 2", "other 1", "other 2"]);
    for (const { run_id } of [one, other]) expect((await runtime.getRun(run_id)).status).toBe("completed");
  },
);

it.each(forms)("with max and rate an attempt waits for both (durable: $durable)", async ({ durable }) => {
  const { runtime, clock, note, times } = begin({ api: { max: 1, rate: { count: 2, perMs: 1_000 } } });
  const work = async ({ step, sleep }: AgentContext) => {
    await step("call", () => note("call"), { limit: "api" });
    await sleep(1);
  };
  runtime.register("agent", { durable }, (_input, context) => work(context));
  for (let n = 0; n < 5; n++) await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.advance(3_000);
  expect(times()).toEqual([0, 0, SECOND, SECOND, 2 * SECOND]);
});

it.each(forms)("each attempt waits, and a result that is there does not (durable: $durable)", async ({ durable }) => {
  const { runtime, clock, note, times } = begin({ api: { rate: { count: 1, perMs: 1_000 } } });
  runtime.register("agent", { durable }, async (_input, { step, ask }) => {
    const call = ({ attempt }: { attempt: number }) => {
      note("call");
      if (attempt < 3) throw new Error("Try again.");
      return "called";
    };
    const result = await step("call", call, { limit: "api", retry: { attempts: 3 } });
    await ask("Well?");
    return result;
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.advance(10_000);
  expect(times()).toEqual([0, SECOND, 2 * SECOND]);
  expect((await runtime.resume({ run_id, await_resume: { ok: true } })).status).toBe("completed");
  expect(times()).toHaveLength(3);
});

it.each(forms)(
  "a run that is cancelled while it waits leaves at once, and takes nothing (durable: $durable)",
  async ({ durable }) => {
    const { runtime, clock, note, names } = begin({ api: { max: 1 } });
    const first = deferred<string>();
    runtime.register("agent", { durable }, ([message], { step }) => {
      const name = message?.parts[0]?.content ?? "";
      const body = () => {
        note(name);
        return name === "first" ? first.promise : name;
      };
      return step("call", body, { limit: "api" });
    });
    const runs: string[] = [];
    for (const input of ["first", "second", "third"]) {
      runs.push((await runtime.createRun({ agent_name: "agent", input, mode: "async" })).run_id);
      await clock.settle();
    }
    const run_id = runs[1] ?? "";
    await runtime.cancel(run_id);
    await clock.settle();
    expect((await runtime.getRun(run_id)).status).toBe("cancelled");
    first.resolve("done");
    await clock.settle();
    expect(names()).toEqual(["first", "third"]);
  },
);

it.each(forms)("a grant of a run that is cancelled is for the next one (durable: $durable)", async ({ durable }) => {
  const { runtime, clock, note, times } = begin({ api: { rate: { count: 1, perMs: 1_000 } } });
  runtime.register("agent", { durable }, (_input, { step }) => step("call", () => note("call"), { limit: "api" }));
  const create = () => runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await create();
  await clock.settle();
  const { run_id } = await create();
  await clock.settle();
  await create();
  await runtime.cancel(run_id);
  await clock.advance(3_000);
  expect(times()).toEqual([0, SECOND]);
});

it.each(forms)(
  "waiting for a limit counts for no time limit of the run or the attempt (durable: $durable)",
  async ({ durable }) => {
    const { runtime, clock, note } = begin({ api: { rate: { count: 1, perMs: 10_000 } } }, { timeoutMs: 1_000 });
    const options: StepOptions = { limit: "api", timeoutMs: 1_000, stallMs: 1_000 };
    runtime.register("agent", { durable }, (_input, { step }) => step("call", () => note("call"), options));
    const create = () => runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await create();
    const { run_id } = await create();
    await clock.advance(9_000);
    expect((await runtime.getRun(run_id)).status).toBe("in-progress");
    await clock.advance(2_000);
    expect((await runtime.getRun(run_id)).status).toBe("completed");
  },
);

it.each(forms)(
  "a body that does not end holds its permit until its run is over (durable: $durable)",
  async ({ durable }) => {
    const { runtime, clock, note, names } = begin({ api: { max: 1 } }, { cancelGraceMs: 500 });
    runtime.register("agent", { durable }, ([message], { step }) => {
      const name = message?.parts[0]?.content ?? "";
      const body = () => {
        note(name);
        return name === "hung" ? never() : name;
      };
      return step("call", body, { limit: "api" });
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "hung", mode: "async" });
    await clock.settle();
    await runtime.createRun({ agent_name: "agent", input: "next", mode: "async" });
    await runtime.cancel(run_id);
    await clock.advance(10_000);
    expect(names()).toEqual(["hung", "next"]);
  },
);

it("an unknown limit is refused", async () => {
  const { runtime } = begin({ api: { max: 1 }, mail: { max: 2 } });
  runtime.register("agent", (_input, { step }) =>
    step("call", () => "", { limit: "apy" }).catch((error: Error) => error.message),
  );
  expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "" }))).toEqual([
    `options.limit: expected one of the runtime's stepLimits (there are api, mail), received "apy".`,
  ]);
});

const invalid: readonly (readonly [unknown, string])[] = [
  [[], "options.stepLimits: expected an object"],
  [{ api: 1 }, "options.stepLimits.api: expected an object"],
  [{ api: {} }, "options.stepLimits.api: expected a limit with max, rate or both"],
  [{ api: { max: 0 } }, "options.stepLimits.api.max: expected a whole number from 1"],
  [{ api: { maximum: 1 } }, `options.stepLimits.api: there is no option "maximum"`],
  [
    { api: { rate: { count: 1.5, perMs: 1 } } },
    "options.stepLimits.api.rate.count: expected a whole number from 1 to 100000",
  ],
  [{ api: { rate: { count: 1, perMs: 0 } } }, "options.stepLimits.api.rate.perMs: expected a number above 0"],
  [{ api: { rate: { count: 1 } } }, "options.stepLimits.api.rate.perMs: expected a number above 0"],
  [{ ["a".repeat(129)]: { max: 1 } }, "a name in options.stepLimits: expected a string of 1 to 128 characters"],
];

it.each(invalid)("an invalid limit is refused: %j", async (stepLimits, message) => {
  const error = await refusal(
    Promise.resolve().then(() => new AgentRuntime({ stepLimits: stepLimits as RuntimeOptions["stepLimits"] })),
  );
  expect(error.code).toBe("invalid_argument");
  expect(error.message).toContain(message);
});
