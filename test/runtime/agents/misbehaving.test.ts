import type { AgentContext, AgentFunction, Run } from "cadenza";
import { AgentRuntime } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred, never, nextTurn } from "../../harness/promises.ts";
import { runChild } from "../../harness/run-child.ts";
import { eventsOf, setUp, typesOf } from "../../harness/runtimes.ts";
import { OWN_PROCESS, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

type Agent = (input: unknown, context: AgentContext) => unknown;

const GRACE_MS = 200;
const TIMEOUT_MS = 1_000;
/** Agents that never pause fill every turn of the event loop, so that the clock waits for few turns. */
const TURNS = 6;

/** How a run ends by itself: `stays`, where only a cancel or a timeout ends it. */
type End = "completed" | "failed" | "cancelled" | "awaiting" | "stays";

/** Counts the tests: an agent that cannot be stopped goes on until the next test. */
let round = 0;

/** Never ends, and never waits for longer than a microtask, but through the runtime. */
async function* endless(values: () => unknown): AsyncGenerator<unknown> {
  for (;;) yield values();
}

const hostile: readonly [title: string, agent: Agent, alone: End][] = [
  ["ignores the signal", () => never(), "stays"],
  [
    "hangs in an await of a generator",
    async function* () {
      yield "a";
      await never();
    },
    "stays",
  ],
  [
    "swallows the abort and goes on",
    async (_input, { signal, emit }) => {
      for (;;) {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        await emit("not me").catch(() => {});
        await never();
      }
    },
    "stays",
  ],
  [
    "catches what its questions throw and asks again, for ever",
    async (_input, { ask }) => {
      for (const mine = round; mine === round; ) await ask("?").catch(() => {});
    },
    "awaiting",
  ],
  [
    "throws in its finally block",
    async function* (_input, { signal }) {
      try {
        yield "a";
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      } finally {
        // biome-ignore lint/correctness/noUnsafeFinally: the test needs such an agent.
        throw new Error("from finally");
      }
    },
    "stays",
  ],
  [
    "hangs in its finally block",
    async function* (_input, { signal }) {
      try {
        yield "a";
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      } finally {
        await never();
      }
    },
    "stays",
  ],
  ...(
    [
      ["texts", () => "more"],
      ["nulls", () => null],
      ["empty lists", () => []],
      ["requests", () => ({ type: "message", message: "?" })],
      ["numbers", () => 5],
      ["objects", () => ({})],
    ] as const
  ).map(([what, value]): [string, Agent, End] => [
    `yields ${what} without end in its finally block`,
    async function* (_input, { signal }) {
      try {
        yield "a";
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      } finally {
        yield* endless(value);
      }
    },
    "stays",
  ]),
  [
    "yields without end in the finally block of a plain generator",
    function* (_input, { signal }) {
      try {
        yield "a";
        yield new Promise((resolve) => signal.addEventListener("abort", () => resolve("b")));
      } finally {
        for (;;) yield "more";
      }
    },
    "stays",
  ],
  ["yields texts without end", () => endless(() => "more"), "stays"],
  ["yields nulls without end", () => endless(() => null), "stays"],
  ["yields empty lists without end", () => endless(() => []), "stays"],
  [
    "yields texts without end from a plain generator",
    function* () {
      for (;;) yield "more";
    },
    "stays",
  ],
  [
    "emits without end",
    async (_input, { emit }) => {
      for (const mine = round; mine === round; ) await emit("more");
    },
    "stays",
  ],
  ["yields a number", () => endless(() => 5), "failed"],
  ["yields a rejected promise", () => endless(() => Promise.reject(new Error("rejected"))), "failed"],
  [
    "yields a rejected promise from a plain generator",
    function* () {
      yield Promise.reject(new Error("rejected"));
    },
    "failed",
  ],
  ...[undefined, null, "a text", 5, Symbol("s"), Object.freeze({ a: 1 }), Object.create(null), unprintable()].map(
    (thrown, index): [string, Agent, End] => [
      `throws a value that is no Error (${index})`,
      async () => {
        throw thrown;
      },
      "failed",
    ],
  ),
  [
    "throws before it returns an iterator",
    () => {
      throw new Error("at once");
    },
    "failed",
  ],
  ["returns an invalid iterator", () => ({ [Symbol.asyncIterator]: () => ({ next: () => undefined }) }), "failed"],
  [
    "returns an object whose properties throw",
    () => ({
      get parts(): never {
        throw new Error("a getter threw");
      },
    }),
    "failed",
  ],
  [
    "throws in a listener of its signal",
    async (_input, { signal }) => {
      signal.addEventListener("abort", () => {});
      await never();
    },
    "stays",
  ],
];

function unprintable(): unknown {
  return {
    get message(): never {
      throw new Error("no text");
    },
    toString(): never {
      throw new Error("no text");
    },
  };
}

/** Expects one final entry at the end of the log, and no more events after it. */
async function expectOneEnd(set: ReturnType<typeof setUp>, run: Run): Promise<void> {
  const events = await eventsOf(set.runtime, run.run_id);
  const ends = typesOf(events).filter((type) => /^run\.(completed|failed|cancelled)$/.test(type));
  expect(ends).toEqual([typesOf(events).at(-1)]);
  await set.clock.settle();
  expect(await eventsOf(set.runtime, run.run_id)).toHaveLength(events.length);
  expect(await set.runtime.getRun(run.run_id)).toEqual(run);
}

/** Begins a run of the agent. `others` checks that other runs are served. */
async function begin(agent: Agent) {
  round += 1;
  const set = setUp({ cancelGraceMs: GRACE_MS, limits: { maxLogEntries: Number.POSITIVE_INFINITY } }, TURNS);
  set.runtime.register("hostile", { timeoutMs: TIMEOUT_MS }, agent as AgentFunction);
  set.runtime.register("friendly", () => "fine");
  const { run_id } = await set.runtime.createRun({ agent_name: "hostile", input: "x", mode: "async" });
  await set.clock.settle();
  const getRun = () => set.runtime.getRun(run_id);
  const others = async (): Promise<void> => {
    expect(await set.runtime.createRun({ agent_name: "friendly", input: "x" })).toMatchObject({ status: "completed" });
  };
  return { set, run_id, getRun, others };
}

describe.each(hostile)("an agent that %s", (_title, agent, alone) => {
  it("does not affect other runs", async () => {
    const { set, getRun, others } = await begin(agent);
    await others();
    const run = await getRun();
    expect(run.status).toBe(alone === "stays" ? "in-progress" : alone);
    if (run.finished_at !== null) await expectOneEnd(set, run);
    else await set.runtime.close({ drainMs: 0 });
  });

  unlessReplayed(TOO_LONG)("is cancelled in time", async () => {
    const { set, run_id, getRun, others } = await begin(agent);
    if ((await getRun()).finished_at !== null) return expectOneEnd(set, await getRun());
    await set.runtime.cancel(run_id);
    await others();
    await set.clock.advance(GRACE_MS);
    const run = await getRun();
    expect(run).toMatchObject({ status: "cancelled", error: null });
    await expectOneEnd(set, run);
    await others();
    return undefined;
  });

  unlessReplayed(TOO_LONG)("times out in time", async () => {
    const { set, getRun, others } = await begin(agent);
    await set.clock.advance(TIMEOUT_MS);
    await others();
    await set.clock.advance(GRACE_MS);
    const run = await getRun();
    // The timeout does not count waiting for an answer.
    expect(run.status).toBe(alone === "awaiting" ? "awaiting" : "failed");
    if (alone === "stays") expect(run.error?.data).toEqual({ reason: "run_timeout" });
    if (run.status === "failed") await expectOneEnd(set, run);
  });
});

describe("an agent", () => {
  unlessReplayed(TOO_LONG)("that yields a million parts lets other runs be served", async () => {
    const set = setUp({ limits: { maxLogEntries: Number.POSITIVE_INFINITY } });
    set.runtime.register("million", function* () {
      for (let i = 0; i < 1_000_000; i++) yield "x";
    });
    set.runtime.register("friendly", () => "fine");
    const running = set.runtime.createRun({ agent_name: "million", input: "x" });
    let ended = false;
    void running.then(() => {
      ended = true;
    });
    let served = 0;
    while (!ended) {
      await set.runtime.createRun({ agent_name: "friendly", input: "x" });
      await nextTurn();
      served += 1;
    }
    expect((await running).output[0]?.parts).toHaveLength(1_000_000);
    expect(served).toBeGreaterThan(300);
  });

  it("that blocks the event loop is stopped as soon as it awaits, and emits nothing more", async () => {
    const runtime = new AgentRuntime({ timeoutMs: 50, cancelGraceMs: 20 });
    const spin = (ms: number): void => {
      for (const end = Date.now() + ms; Date.now() < end; );
    };
    runtime.register("spins", async function* () {
      yield "a";
      spin(200);
      yield "b";
      await never();
    });
    const timedOut = await runtime.createRun({ agent_name: "spins", input: "x" });
    expect(timedOut).toMatchObject({ status: "failed", error: { data: { reason: "run_timeout" } } });

    const { run_id } = await runtime.createRun({ agent_name: "spins", input: "x", mode: "async" });
    await runtime.cancel(run_id);
    for (let run = await runtime.getRun(run_id); run.finished_at === null; run = await runtime.getRun(run_id))
      await nextTurn();
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
    await runtime.close();
  });

  it("may create runs, cancel them, and answer its own questions", async () => {
    const { runtime, clock } = setUp();
    runtime.register("friendly", () => never());
    runtime.register("busy", async (_input, { ask, run_id }) => {
      const other = await runtime.createRun({ agent_name: "friendly", input: "x", mode: "async" });
      await runtime.cancel(other.run_id);
      const answer = ask("What now?");
      await nextTurn();
      await runtime.resume({ run_id, await_resume: { said: "this" }, mode: "async" });
      return `${JSON.stringify(await answer)} ${(await runtime.getRun(other.run_id)).status}`;
    });
    const { run_id } = await runtime.createRun({ agent_name: "busy", input: "x", mode: "async" });
    await clock.advance(1_000);
    const run = await runtime.getRun(run_id);
    expect(run).toMatchObject({ status: "completed" });
    expect(run.output[0]?.parts[0]?.content).toMatch(/^{"said":"this"} cancel/);
  });

  it("that answers its own run in mode sync is refused", async () => {
    const { runtime, clock } = setUp();
    runtime.register("loop", (_input, { run_id }) =>
      runtime.resume({ run_id, await_resume: {} }).catch(() => "refused"),
    );
    const run = await runtime.createRun({ agent_name: "loop", input: "x" });
    expect(run.output[0]?.parts[0]?.content).toBe("refused");
    await clock.settle();
  });

  it("that emits something after its end is ignored, and that is counted", async () => {
    const { runtime, clock } = setUp();
    const gate = deferred();
    runtime.register("late", async (_input, { emit, ask, step, run, session, usage, signal }) => {
      void gate.promise.then(async () => {
        await emit("late");
        await expect(ask("late?")).rejects.toMatchObject({ code: "run_cancelled" });
        await expect(run("late", "x")).rejects.toMatchObject({ code: "run_cancelled" });
        usage.add({ totalTokens: 5 });
        expect(await step("late", () => "runs all the same").catch(() => "refused")).toBeTypeOf("string");
        await session.history();
        expect(signal.aborted).toBe(true);
      });
      return "done";
    });
    const done = await runtime.createRun({ agent_name: "late", input: "x" });
    const events = await eventsOf(runtime, done.run_id);
    gate.resolve();
    await clock.settle();
    expect(await eventsOf(runtime, done.run_id)).toEqual(events);
    expect(await runtime.stats()).toMatchObject({ dropped: 1, live: {} });
    expect(await runtime.listRuns()).toHaveLength(1);
  });
});

describe("a process", () => {
  unlessReplayed(OWN_PROCESS)(
    "lives, and exits by itself, whatever its agents do: the library adds no unhandled rejection",
    async () => {
      expect(await runChild("hostile")).toEqual({ code: 0, out: "all ended, 0 unhandled" });
    },
  );

  unlessReplayed(OWN_PROCESS)(
    "lives, whatever listeners of signals and of events throw, and whatever its logger throws",
    async () => {
      const ends = "cancelled, failed, failed";
      expect(await runChild("callbacks")).toEqual({ code: 0, out: `${ends}\n${ends}` });
    },
  );

  unlessReplayed(OWN_PROCESS)(
    "gets an unhandled rejection of the agent's own code, by the host's setting",
    async () => {
      const { code, out } = await runChild("floating");
      expect(code).toBe(1);
      expect(out).toContain("the agent left this one");
    },
  );
});
