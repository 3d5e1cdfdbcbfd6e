import type { AgentContext, StepScope } from "cadenza";
import { describe, expect, expectTypeOf, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { questionOf, setUp, textsOf } from "../../harness/runtimes.ts";
import { World } from "../../harness/world/world.ts";

/* An operation in the body of a step is refused: a body whose result is in the log is not called in a replay. */

type Operation = (context: AgentContext) => Promise<unknown>;

const operations: Readonly<Record<string, Operation>> = {
  ask: ({ ask }) => ask("May I?"),
  step: ({ step }) => step("inner", () => "done"),
  run: ({ run }) => run("other", ""),
};
const durableOperations: Readonly<Record<string, Operation>> = {
  ...operations,
  emit: ({ emit }) => emit("shown"),
  "session.getState": ({ session }) => session.getState(),
  "session.setState": ({ session }) => session.setState(1),
};

/** An agent that begins an operation in the body of its step, at once or after a wait. */
async function nestedRun(
  durable: boolean,
  operation: Operation,
  wait?: (context: { turn(): Promise<void> }) => Promise<void>,
) {
  const { runtime, clock } = setUp();
  let bodies = 0;
  runtime.register("other", () => "ok");
  runtime.register("agent", { durable }, (_input, context) =>
    context.step(
      "tool",
      async () => {
        bodies += 1;
        if (wait !== undefined) await wait(clock);
        return JSON.stringify(await operation(context));
      },
      { retry: { attempts: 3 } },
    ),
  );
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.settle();
  const run = await runtime.getRun(run_id);
  return { run, bodies };
}

describe("in the synchronous part of a body", () => {
  it.each(Object.entries(operations))("%s is refused in a plain agent", async (_name, operation) => {
    const { run, bodies } = await nestedRun(false, operation);
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "nested_operation" } } });
    expect(bodies).toBe(1);
  });

  it.each(Object.entries(durableOperations))("%s is refused in a durable agent", async (name, operation) => {
    const { run, bodies } = await nestedRun(true, operation);
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "nested_operation" } }, output: [] });
    expect(run.error?.message).toContain(`: ${name}`);
    expect(bodies).toBe(1);
  });
});

it.each(Object.entries(durableOperations))(
  "after a wait of the body %s is refused in a durable agent",
  async (_name, operation) => {
    const turns = async ({ turn }: { turn(): Promise<void> }) => {
      for (let n = 0; n < 5; n++) await turn();
    };
    const { run, bodies } = await nestedRun(true, operation, turns);
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "nested_operation" } }, output: [] });
    expect(bodies).toBe(1);
  },
);

it("a refused operation takes no key: an agent that catches the error goes on with the same keys", async () => {
  const { runtime } = setUp();
  runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
    const refused = await step("tool", async () =>
      ask("May I?").then(
        () => "asked",
        (error: { code: string }) => error.code,
      ),
    );
    return [refused, JSON.stringify(await ask("May I?"))];
  });
  const asked = await runtime.createRun({ agent_name: "agent", input: "" });
  expect(questionOf(asked).await_id).toBe("ask#1");
  const run = await runtime.resume({ run_id: asked.run_id, await_resume: { ok: true } });
  expect(textsOf(run)).toEqual(['nested_operation|{"ok":true}']);
});

it("beside a body, an operation after a bare wait is refused in a durable agent", async () => {
  const { runtime, clock } = setUp();
  const work = deferred();
  runtime.register("agent", { durable: true }, async (_input, { step }) => {
    const beside = async (): Promise<unknown> => {
      for (let n = 0; n < 5; n++) await clock.turn();
      return step("second", () => "done");
    };
    const [, second] = await Promise.allSettled([step("first", () => work.promise), beside()]);
    return second.status;
  });
  const creating = runtime.createRun({ agent_name: "agent", input: "" });
  await clock.settle();
  work.resolve();
  expect(textsOf(await creating)).toEqual(["rejected"]);
});

describe("beside a body that has not ended, a durable agent may begin an operation", () => {
  /** Runs an agent with a step whose body ends after `rest`. */
  async function besideWork(rest: (context: AgentContext) => Promise<unknown>, answers = 0) {
    const { runtime, clock } = setUp();
    const work = deferred();
    runtime.register("other", () => "ok");
    runtime.register("agent", { durable: true }, async (_input, context) => {
      const besides = rest(context).finally(() => work.resolve());
      await Promise.all([context.step("long", () => work.promise), besides]);
      return "through";
    });
    let run = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    for (let left = answers; left >= 0; left--) {
      await clock.settle();
      run = await runtime.getRun(run.run_id);
      if (run.status === "awaiting")
        await runtime.resume({ run_id: run.run_id, await_resume: { n: left }, mode: "async" });
    }
    await clock.settle();
    return textsOf(await runtime.getRun(run.run_id))
      .join()
      .replace(/^.*(through)$/, "$1");
  }

  it.each<[name: string, rest: Operation, answers?: number]>([
    ["at once", ({ step, ask }) => Promise.all([step("a", () => 1), ask("b")]), 1],
    ["after the result of a step", async ({ step }) => step(`${await step("a", () => 1)}`, () => 2)],
    ["after an answer", async ({ step, ask }) => step(JSON.stringify(await ask("a")), () => 2), 1],
    ["after a sub-run", async ({ step, run }) => step((await run("other", "")).status, () => 2)],
    ["after the state of the session", async ({ step, session }) => step(`${await session.getState()}`, () => 2)],
    [
      "after the history of the session",
      async ({ step, session }) => step(`${(await session.history()).length}`, () => 2),
    ],
    [
      "after a step that failed",
      async ({ step }) => step("a", () => Promise.reject(new Error("no"))).catch(() => step("b", () => 2)),
    ],
    ["after something that was emitted", async ({ step, emit }) => emit("a").then(() => step("b", () => 2))],
    [
      "after very much that was emitted",
      async ({ step, emit }) => {
        for (let n = 0; n < 200; n++) await emit("a");
        await step("b", () => 2);
      },
    ],
    [
      "after a chain of promises",
      async ({ step }) => {
        await step("a", () => 1);
        for (let n = 0; n < 50; n++) await Promise.resolve();
        await step("b", () => 2);
      },
    ],
    [
      "after each of many results",
      async ({ step }) => {
        for (let n = 0; n < 20; n++) await step("a", () => 1);
      },
    ],
  ])("%s", async (_name, rest, answers) => {
    expect(await besideWork(rest, answers)).toBe("through");
  });

  it("after a yield, and in several steps after one result", async () => {
    const { runtime } = setUp();
    runtime.register("agent", { durable: true }, async function* (_input, { step }) {
      const work = deferred();
      const long = step("long", () => work.promise);
      yield "one";
      yield [];
      yield ["two", "three"];
      const calls = await step("model", () => ["a", "b", "c"]);
      await Promise.all(calls.map(async (call) => step(call, async () => Promise.resolve())));
      work.resolve();
      await long;
      yield "through";
    });
    expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "" }))).toEqual(["one|two|three|through"]);
  });
});

it.each([false, true])(
  "a run whose agent asks in a step fails at once, and not at the next start (late: %s)",
  async (late) => {
    const world = new World({
      late,
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, (_input, { step, ask }) =>
          step("tool", async () => {
            await process.wait(50);
            return JSON.stringify(await ask("May I?"));
          }),
        ),
    });
    const process = world.start();
    const outcome = await world.until(process.runtime.createRun({ agent_name: "agent", input: "" }), process);
    expect(outcome).toMatchObject({ value: { status: "failed", error: { data: { reason: "nested_operation" } } } });
  },
);

it("the context of a body has no operations", () => {
  expectTypeOf<keyof StepScope & keyof Pick<AgentContext, "ask" | "run" | "step">>().toEqualTypeOf<never>();
});
