import type { AgentContext, AgentFunction, DurableContext, Run } from "cadenza";
import { defineAgent } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred, never } from "../../harness/promises.ts";
import type { LogLine, Setup } from "../../harness/runtimes.ts";
import { reply, runAgent, setUp } from "../../harness/runtimes.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import { FLOATING, unlessReplayed } from "../../harness/unless-replayed.ts";

const LINE = "An operation failed, and nothing awaited it.";

const linesOf = ({ said }: Setup): LogLine[] => said.filter(({ message }) => message === LINE);

type Drops = (context: DurableContext) => unknown;

const fails = (): never => {
  throw new Error("The body failed.");
};

const failing = defineAgent("failing", fails);

/** What an agent drops, and what the line says of it. */
const dropped: readonly [what: string, drops: Drops, key: string | undefined, error: object][] = [
  ["a step", ({ step }) => step("charge", fails), "charge#1", { message: "The body failed." }],
  [
    "a step with retries",
    ({ step }) => step("charge", fails, { retry: { attempts: 2 } }),
    "charge#1",
    { message: "The body failed." },
  ],
  [
    "a question that its signal withdraws",
    ({ ask }) => {
      const controller = new AbortController();
      const asked = ask("?", { signal: controller.signal });
      controller.abort(new Error("Not needed."));
      return asked;
    },
    "ask#1",
    { message: "Not needed." },
  ],
  [
    "a question with an unknown kind",
    ({ ask }) => ask("?", { kind: "odd" as "input" }),
    undefined,
    { code: "invalid_argument" },
  ],
  ["a sleep of no duration", ({ sleep }) => sleep("soon"), undefined, { code: "invalid_argument" }],
  [
    "a sleep that its signal withdraws",
    ({ sleep }) => sleep("1h", { signal: AbortSignal.abort(new Error("Awake.")) }),
    undefined,
    { message: "Awake." },
  ],
  ["a receive", ({ receive }) => receive("paid", { timeoutMs: 0 }), "receive:paid#1", { code: "receive_timeout" }],
  ["a sub-run", ({ run }) => run("missing", "x"), "run:missing#1", { code: "agent_not_found" }],
  ["a call of an agent", ({ call }) => call(failing, "x"), "run:failing#1", { code: "run_failed" }],
  ["a value that it emits", ({ emit }) => emit(5), undefined, { code: "invalid_yield" }],
  [
    "a state of the session",
    ({ session }) => session.setState(1n as unknown as string),
    undefined,
    { code: "invalid_argument" },
  ],
];

describe.each([{ durable: false }, { durable: true }])(
  "with durable: $durable, what fails and is not awaited:",
  ({ durable }) => {
    it.each(dropped)("%s is logged at the end of the run", async (_what, drops, key, error) => {
      const set = setUp();
      const { runtime, clock } = set;
      runtime.register(failing);
      const agent = async (_input: unknown, context: DurableContext): Promise<string> => {
        const work = drops(context);
        // Those of the table that are functions of their own await their outer step.
        if (work instanceof Promise && Object.getPrototypeOf(work) === Promise.prototype) await work;
        await context.sleep(10);
        return "done";
      };
      runtime.register("agent", { durable }, agent as AgentFunction);
      const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
      await clock.settle();
      await clock.advance(10);
      expect((await runtime.getRun(run_id)).status).toBe("completed");
      const about = { run_id, tenant: "", agent_name: "agent", error: expect.objectContaining(error) };
      expect(linesOf(set)).toEqual([
        { level: "warn", message: LINE, fields: key === undefined ? about : { ...about, key } },
      ]);
    });
  },
);

/** Agents that see to what fails. */
const observing: readonly [how: string, agent: (context: AgentContext) => Promise<unknown>][] = [
  ["catch", ({ step }) => step("a", fails).catch(() => "none")],
  ["then", ({ step }) => step("a", fails).then(undefined, () => "none")],
  [
    "finally",
    ({ step }) =>
      step("a", fails)
        .finally(() => {})
        .catch(() => "none"),
  ],
  ["Promise.allSettled", ({ step, run }) => Promise.allSettled([step("a", fails), run("missing", "x")])],
  ["Promise.any", ({ step }) => Promise.any([step("a", fails), step("b", () => "b")])],
  [
    "a race that something else wins",
    async ({ step, sleep }) => {
      const late = async (): Promise<never> => {
        await never();
        return fails();
      };
      return Promise.race([sleep(5), step("a", late), step("b", () => "b")]);
    },
  ],
  [
    "an await that comes after it has failed",
    async ({ step, sleep }) => {
      const first = step("a", fails);
      const second = step("b", () => "b");
      await sleep(10);
      return [await second, await first.catch(() => "none")];
    },
  ],
  ["the return of an async function", async ({ step }) => (async () => step("a", fails))().catch(() => "none")],
];

it.each(observing)("What fails and is observed by %s is not logged", async (_how, agent) => {
  const set = setUp();
  const { runtime, clock } = set;
  runtime.register("agent", async (_input, context) => {
    await agent(context);
    return "done";
  });
  const creating = runtime.createRun({ agent_name: "agent", input: "x" });
  await clock.settle();
  await clock.advance(10);
  expect((await creating).status).toBe("completed");
  await clock.settle();
  expect(linesOf(set)).toEqual([]);
});

describe.each([{ durable: false }, { durable: true }])(
  "with durable: $durable, a step at work when its agent returns",
  ({ durable }) => {
    /** A run that has returned while its step is at work. */
    const withStepAtWork = async (begin: (context: AgentContext, gate: Promise<never>) => unknown, waits = false) => {
      const set = setUp();
      const gate = deferred<never>();
      const agent = async (_input: unknown, context: AgentContext): Promise<string> => {
        begin(context, gate.promise);
        if (waits) await context.ask("?");
        // The body has begun when the clock is settled.
        await context.sleep(1);
        return "done";
      };
      set.runtime.register("agent", { durable }, agent as AgentFunction);
      const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
      await set.clock.settle();
      await set.clock.advance(1);
      return { ...set, gate, run_id };
    };

    const drop = ({ step }: AgentContext, gate: Promise<never>): unknown => void step("late", () => gate);

    unlessReplayed(FLOATING)("is logged when it fails later, and nothing has awaited it", async () => {
      const { gate, run_id, ...set } = await withStepAtWork(drop);
      expect((await set.runtime.getRun(run_id)).status).toBe("completed");
      expect(linesOf(set)).toEqual([]);
      gate.reject(new Error("too late"));
      await set.clock.settle();
      const error = expect.objectContaining({ message: "too late" });
      expect(linesOf(set)).toMatchObject([{ fields: { run_id, agent_name: "agent", key: "late#1", error } }]);
    });

    unlessReplayed(FLOATING)("is not logged when a race had observed it", async () => {
      const { gate, ...set } = await withStepAtWork(
        ({ step }, body) => void Promise.race([step("late", () => body), "first"]),
      );
      gate.reject(new Error("too late"));
      await set.clock.settle();
      expect(linesOf(set)).toEqual([]);
    });

    unlessReplayed(FLOATING)("is not logged when it ends because its run has ended", async () => {
      const { run_id, ...set } = await withStepAtWork(({ step }) => {
        const stops = ({ signal }: { signal: AbortSignal }): Promise<never> =>
          new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        void step("late", stops);
      });
      await set.clock.settle();
      expect((await set.runtime.getRun(run_id)).status).toBe("completed");
      expect(linesOf(set)).toEqual([]);
    });

    unlessReplayed(FLOATING)("is not logged when the run was cancelled", async () => {
      const { gate, run_id, ...set } = await withStepAtWork(drop, true);
      await set.runtime.cancel(run_id);
      gate.reject(new Error("too late"));
      await set.clock.settle();
      expect((await set.runtime.getRun(run_id)).status).toBe("cancelled");
      expect(linesOf(set)).toEqual([]);
    });
  },
);

it("A run that fails, or is cancelled, still tells what had failed before", async () => {
  for (const end of ["failed", "cancelled"]) {
    const set = setUp();
    set.runtime.register("agent", async (_input, { step, ask }) => {
      void step("charge", fails);
      await ask("?");
      throw new Error("The agent failed.");
    });
    const { run_id } = await set.runtime.createRun({ agent_name: "agent", input: "x" });
    expect(linesOf(set)).toEqual([]);
    if (end === "cancelled") await set.runtime.cancel(run_id);
    else await set.runtime.resume({ run_id, await_resume: { type: "message", message: { role: "user", parts: [] } } });
    await set.clock.settle();
    expect((await set.runtime.getRun(run_id)).status).toBe(end);
    expect(linesOf(set)).toMatchObject([{ fields: { key: "charge#1" } }]);
  }
});

describe("What the body of a step does, and does not await, is logged when it fails:", () => {
  const notRepeated = unlessReplayed("the body of a step is not called again");

  notRepeated("what it emits, with the key of the step", async () => {
    const set = setUp();
    await runAgent(set.runtime, async (_input, { step }) => {
      await step("outer", ({ emit }) => void emit(5));
    });
    const error = expect.objectContaining({ code: "invalid_yield" });
    expect(linesOf(set)).toMatchObject([{ fields: { key: "outer#1", error } }]);
  });

  notRepeated("an operation that it begins", async () => {
    const set = setUp();
    await runAgent(set.runtime, async (_input, { step, sleep }) => {
      await step("outer", () => void sleep("1s"));
    });
    expect(linesOf(set)).toMatchObject([{ fields: { error: { code: "nested_operation" } } }]);
  });
});

unlessReplayed("each execution has failures of its own")(
  "An agent that never ends has told of its oldest failures after a hundred",
  async () => {
    const set = setUp();
    set.runtime.register("agent", async (_input, { receive, ask }) => {
      for (let count = 0; count < 102; count++) void receive("none", { timeoutMs: 0 });
      await ask("?");
    });
    await set.runtime.createRun({ agent_name: "agent", input: "x" });
    expect(linesOf(set).map(({ fields }) => fields["key"])).toEqual(["receive:none#1", "receive:none#2"]);
  },
);

unlessReplayed("is replayed by itself")("A durable run that is executed again tells it once, at its end", async () => {
  const set = setUp({ store: lastingStore(), durability: { evictAfterMs: 50 } });
  const { runtime, clock } = set;
  let calls = 0;
  runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
    calls += 1;
    void step("charge", fails);
    await ask("first?");
    await ask("second?");
    return "done";
  });
  const settled = async (call: Promise<Run>): Promise<Run> => {
    await clock.advance(1_000);
    return call;
  };
  let run = await settled(runtime.createRun({ agent_name: "agent", input: "x" }));
  const { run_id } = run;
  for (let count = 0; count < 2; count++) {
    expect(linesOf(set)).toEqual([]);
    run = await settled(runtime.resume({ run_id, await_resume: reply("yes") }));
  }
  expect(calls).toBe(3);
  expect(run.status).toBe("completed");
  expect(linesOf(set)).toMatchObject([{ fields: { run_id, key: "charge#1" } }]);
  const told: unknown[] = [];
  for await (const event of runtime.events(run_id, { detail: true })) told.push(event);
  expect(told).toContainEqual(expect.objectContaining({ type: "step.failed", key: "charge#1" }));
});
