import type { AgentContext, StreamedEvent } from "cadenza";
import { AgentError, awaitMessage } from "cadenza";
import { describe, expect, it } from "vitest";
import { deferred, never, nextTurn } from "../../harness/promises.ts";
import {
  drain,
  eventsOf,
  questionOf,
  refusal,
  reply,
  runAgent,
  setUp,
  textOf,
  textsOf,
  typesOf,
} from "../../harness/runtimes.ts";
import { countingStore } from "../../harness/store-proxy.ts";
import { RUN_ONCE, TIMERS, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

/* Faults of another server, each with the expected behaviour. */

const SESSION = "00000000-0000-4000-8000-0000000000a1";

describe("faults of other servers", () => {
  unlessReplayed(RUN_ONCE)("cancel stops the agent, and its side effects with it", async () => {
    const { runtime, clock } = setUp();
    let counter = 0;
    runtime.register("counts", async function* () {
      for (; counter < 100; counter++) {
        await clock.turn();
        yield `${counter}`;
      }
    });
    const { run_id } = await runtime.createRun({ agent_name: "counts", input: "x", mode: "async" });
    await clock.settle();
    await runtime.cancel(run_id);
    await clock.settle();
    const then = counter;
    await clock.settle();
    expect(then).toBeLessThan(100);
    expect(counter).toBe(then);
  });

  it("cancel while awaiting runs the agent's finally", async () => {
    const { runtime, clock } = setUp();
    let cleaned = false;
    const run = await runAgent(runtime, async function* () {
      try {
        yield awaitMessage("?");
      } finally {
        cleaned = true;
      }
    });
    await runtime.cancel(run.run_id);
    await clock.settle();
    expect(cleaned).toBe(true);
  });

  it("an agent that throws a cancellation error of its own has failed, and not completed", async () => {
    const { runtime } = setUp();
    for (const error of [
      new DOMException("Aborted", "AbortError"),
      Object.assign(new Error("Cancelled"), { name: "CancelledError" }),
      AbortSignal.abort().reason as unknown,
    ]) {
      const run = await runAgent(runtime, async function* () {
        yield "a";
        throw error;
      });
      expect(run).toMatchObject({ status: "failed", error: { data: { reason: "agent_failed" } } });
    }
  });

  it("a slow reader among several misses no event, and does not hang", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", async function* () {
      for (let i = 0; i < 20; i++) {
        await clock.turn();
        yield `${i}`;
      }
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    const read = async (turns: number): Promise<StreamedEvent[]> => {
      const events: StreamedEvent[] = [];
      for await (const event of runtime.events(run_id, { until: "end" })) {
        events.push(event);
        for (let turn = 0; turn < turns; turn++) await nextTurn();
      }
      return events;
    };
    const [fast, slow, slower] = await Promise.all([read(0), read(3), read(10)]);
    expect(typesOf(fast).at(-1)).toBe("run.completed");
    expect(slow).toEqual(fast);
    expect(slower).toEqual(fast);
  });

  it("a resume stream that is read late has all its events, and ends", async () => {
    const { runtime, clock } = setUp();
    const run = await runAgent(runtime, async (_input, { ask }) => {
      await ask("?");
      return "done";
    });
    const stream = runtime.resume({ run_id: run.run_id, await_resume: reply("ok"), mode: "stream" });
    await clock.settle();
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "completed" });
    expect(typesOf(await drain(stream))).toEqual([
      "run.in-progress",
      "message.created",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
  });

  it("a completed run cannot be resumed, and stays completed", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, (_input, { ask }) => ask("?").then(() => "done"));
    const done = await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    expect(done.await_request).toBeNull();
    expect((await refusal(runtime.resume({ run_id: run.run_id, await_resume: reply("again") }))).code).toBe(
      "not_awaiting",
    );
    expect(await runtime.getRun(run.run_id)).toEqual(done);
  });

  it("of two quick resumes the second does not silently answer the next question", async () => {
    const { runtime } = setUp();
    const given: Record<string, unknown> = {};
    const run = await runAgent(runtime, async (_input, { ask }) => {
      given["one"] = await ask("one?");
      given["two"] = await ask("two?");
    });
    const { await_id } = questionOf(run);
    const resume = (n: number) => runtime.resume({ run_id: run.run_id, await_id, await_resume: { n } });
    const [first, second] = await Promise.allSettled([resume(1), resume(2)]);
    expect([first.status, second.status]).toEqual(["fulfilled", "rejected"]);
    expect(given).toEqual({ one: { n: 1 } });
    expect(questionOf(await runtime.getRun(run.run_id)).await_id).not.toBe(await_id);
  });

  it("after a resume a plain yield returns undefined again", async () => {
    const { runtime } = setUp();
    const sent: unknown[] = [];
    const run = await runAgent(runtime, async function* (): AsyncGenerator<unknown, void, unknown> {
      yield awaitMessage("?");
      sent.push(yield "a");
      sent.push(yield { b: 1 });
    });
    await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") });
    expect(sent).toEqual([undefined, undefined]);
  });

  unlessReplayed(TIMERS)("a finished run leaves no listeners, and its writes notify no other run", async () => {
    const { store, calls } = countingStore();
    const { runtime, clock } = setUp({
      store,
      retention: { maxAgeMs: Number.POSITIVE_INFINITY, maxIdleSessionMs: Number.POSITIVE_INFINITY },
    });
    runtime.register("waits", () => never());
    const { run_id } = await runtime.createRun({ agent_name: "waits", input: "x", mode: "async" });
    await clock.settle();
    const readers = [runtime.events(run_id, { after: 2 }).next(), runtime.events(run_id, { after: 2 }).next()];
    await clock.settle();
    const reads = calls.read ?? 0;
    for (let i = 0; i < 20; i++) await runAgent(runtime, () => "ok");
    await clock.settle();
    expect(calls.read ?? 0).toBe(reads);
    expect(clock.timers).toBe(0);
    expect((await runtime.stats()).live).toEqual({ "in-progress": 1 });
    await runtime.cancel(run_id);
    await clock.advance(500);
    expect((await Promise.all(readers)).map(({ value }) => (value as StreamedEvent).type)).toEqual([
      "run.cancelled",
      "run.cancelled",
    ]);
  });

  unlessReplayed(TOO_LONG)("the cost of a part does not depend on the number of parts", async () => {
    const work = async (parts: number): Promise<number> => {
      const { store, entries } = countingStore();
      const { runtime } = setUp({ store });
      runtime.register("agent", function* () {
        for (let i = 0; i < parts; i++) yield "x";
      });
      await drain(runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" }));
      return (entries.written + entries.read) / parts;
    };
    expect(await work(8_000)).toBeLessThan(1.1 * (await work(1_000)));
  });

  it("a stream without a reader does not stop its run", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", () => "ok");
    runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" });
    await clock.settle();
    expect(await runtime.listRuns()).toMatchObject([{ status: "completed" }]);
  });

  it("two runs at once in one session lose no history", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", async (input) => {
      await clock.turn();
      return input;
    });
    const create = (input: string) => runtime.createRun({ agent_name: "agent", input, session_id: SESSION });
    await Promise.all([create("a"), create("b")]);
    expect((await runtime.getSession(SESSION)).history.map(textOf).sort()).toEqual(["a", "a", "b", "b"]);
  });

  it("session state works by default, and is null until it is set", async () => {
    const { runtime } = setUp();
    runtime.register("agent", async (_input, { session }) => {
      const before = await session.getState();
      await session.setState({ visits: 1 });
      return JSON.stringify([before, await session.getState()]);
    });
    expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "x" }))).toEqual(['[null,{"visits":1}]']);
  });

  it("timeouts of questions and of runs are enforced", async () => {
    const { runtime, clock } = setUp({ cancelGraceMs: 0 });
    runtime.register("asks", (_input, { ask }) => ask("?", { timeoutMs: 100 }));
    runtime.register("works", { timeoutMs: 100 }, () => never());
    for (const agent_name of ["asks", "works"]) await runtime.createRun({ agent_name, input: "x", mode: "async" });
    await clock.advance(200);
    const reasons = (await runtime.listRuns()).map(({ error }) => error?.data?.["reason"]);
    expect(reasons.sort()).toEqual(["await_timeout", "run_timeout"]);
  });

  it("an agent's statistics are filled in", async () => {
    const { runtime } = setUp();
    await runAgent(runtime, async (_input, { usage }) => usage.add({ totalTokens: 9 }));
    expect((await runtime.getAgent("agent")).status).toEqual({
      avg_run_tokens: 9,
      avg_run_time_seconds: 0,
      success_rate: 100,
    });
  });

  it("the retention of finished runs removes neither live runs nor sessions", async () => {
    const { runtime, clock } = setUp({ retention: { maxRuns: 5 } });
    const gate = deferred();
    runtime.register("slow", async function* () {
      yield "a";
      await gate.promise;
      yield "b";
    });
    runtime.register("quick", (input) => input);
    await runtime.createRun({ agent_name: "quick", input: "kept", session_id: SESSION });
    const stream = drain(runtime.createRun({ agent_name: "slow", input: "x", mode: "stream" }));
    for (let i = 0; i < 100; i++) await runtime.createRun({ agent_name: "quick", input: "x" });
    await clock.settle();
    gate.resolve();
    expect(typesOf(await stream).at(-1)).toBe("run.completed");
    expect((await runtime.getSession(SESSION)).history).toHaveLength(2);
    expect((await runtime.listRuns()).length).toBeLessThanOrEqual(6);
  });

  it("the status cancelling is stored and listed until the run has ended", async () => {
    const { runtime, clock, store } = setUp();
    runtime.register("agent", () => never());
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    await runtime.cancel(run_id);
    const stored = await store.find({ tenant: "", run_id });
    expect(stored?.head.status).toBe("cancelling");
    expect(await runtime.listRuns({ status: "cancelling" })).toHaveLength(1);
    await clock.advance(500);
    expect(await runtime.listRuns({ status: "cancelling" })).toEqual([]);
    expect(await runAgent(runtime, () => "the next run is not cancelled")).toMatchObject({ status: "completed" });
  });

  it("the text of an agent's error does not go to the client", async () => {
    const { runtime } = setUp();
    const run = await runAgent(runtime, async () => {
      throw new Error("postgres://user:password@host");
    });
    expect(JSON.stringify([run, await eventsOf(runtime, run.run_id)])).not.toContain("password");
    const meant = await runAgent(runtime, async () => {
      throw new AgentError("invalid_input", "meant for the client");
    });
    expect(meant.error?.message).toBe("meant for the client");
  });

  it("a resume overwrites nothing that the agent emits meanwhile", async () => {
    const { runtime, clock } = setUp();
    const gate = deferred<boolean>();
    const { z } = await import("zod");
    const run = await runAgent(runtime, async (_input: unknown, { ask, emit }: AgentContext) => {
      const answer = ask("?", { schema: z.object({}).refine(() => gate.promise) });
      for (let i = 0; i < 5; i++) {
        await clock.turn();
        await emit(`${i}`);
      }
      await answer;
      return "done";
    });
    const resuming = runtime.resume({ run_id: run.run_id, await_resume: {} });
    await clock.settle();
    gate.resolve(true);
    expect(textsOf(await resuming)).toEqual(["0|1|2|3|4|done"]);
  });

  it("a second agent of the same name is refused, and does not replace the first", async () => {
    const { runtime } = setUp();
    runtime.register("agent", () => "first");
    expect(() => runtime.register("agent", () => "second")).toThrow(expect.objectContaining({ code: "agent_exists" }));
    expect(textsOf(await runtime.createRun({ agent_name: "agent", input: "x" }))).toEqual(["first"]);
  });
});
