import { setImmediate as inNextTurn } from "node:timers";
import type { StreamedEvent } from "cadenza";
import { AgentRuntime, CadenzaError, MemoryStore } from "cadenza";
import { describe, expect, it } from "vitest";
import { ModelClock } from "../../harness/model/clock.ts";
import { LateStore } from "../../harness/model/store.ts";

/** Faults that the model has found, each as a minimal scenario. */
describe("Slots of an agent", () => {
  it("An agent with one slot refuses the second run also when both come at the same time", async () => {
    const runtime = new AgentRuntime();
    runtime.register("picky", { concurrency: { max: 1, whenFull: "reject" } }, never);
    const first = runtime.createRun({ agent_name: "picky", input: "one", mode: "async" });
    const second = runtime.createRun({ agent_name: "picky", input: "two", mode: "async" });
    await expect(second).rejects.toMatchObject({ code: "limit_reached" });
    await runtime.cancel((await first).run_id);
  });

  it("A run that is cancelled while it waits for a slot takes none", async () => {
    const clock = new ModelClock();
    const runtime = new AgentRuntime({ clock });
    runtime.register("narrow", { concurrency: { max: 1 } }, async (_input, { ask }) => {
      await ask("Well?");
    });
    const asking = await runtime.createRun({ agent_name: "narrow", input: "one" });
    const other = await runtime.createRun({ agent_name: "narrow", input: "two" });
    const third = runtime.createRun({ agent_name: "narrow", input: "three" });
    await settle(clock);
    await runtime.resume({ run_id: asking.run_id, await_resume: { n: 1 }, mode: "async" });
    await runtime.resume({ run_id: other.run_id, await_resume: { n: 2 }, mode: "async" });
    await runtime.cancel(other.run_id);
    await settle(clock);
    const { run_id } = await third;
    await runtime.resume({ run_id, await_resume: { n: 3 }, mode: "async" });
    await settle(clock);
    expect((await runtime.getRun(run_id)).status).toBe("completed");
    expect((await runtime.stats()).queued).toBe(0);
  });

  it("An agent whose question expires goes on when a slot is free", async () => {
    const clock = new ModelClock();
    const runtime = new AgentRuntime({ clock });
    const steps: string[] = [];
    runtime.register("narrow", { concurrency: { max: 1 } }, async ([message], { ask, signal }) => {
      if (message?.parts[0]?.content === "works") {
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
        return;
      }
      await ask("Well?", { timeoutMs: 100, default: { n: 0 } });
      steps.push("goes on");
    });
    await runtime.createRun({ agent_name: "narrow", input: "asks" });
    const working = await runtime.createRun({ agent_name: "narrow", input: "works", mode: "async" });
    await settle(clock);
    await clock.advance(200, false, () => settle(clock));
    expect(steps).toEqual([]);
    await runtime.cancel(working.run_id);
    await settle(clock);
    expect(steps).toEqual(["goes on"]);
  });
});

describe("After the end of a run", () => {
  it("A question that is asked when the run has ended is refused, and does not hang", async () => {
    const runtime = new AgentRuntime();
    let later: Promise<unknown> = Promise.resolve();
    runtime.register("late", async (_input, { ask }) => {
      later = new Promise((resolve) => inNextTurn(resolve)).then(() => ask("Is there more?"));
    });
    await runtime.createRun({ agent_name: "late", input: "go" });
    await expect(later).rejects.toBeInstanceOf(CadenzaError);
  });
});

describe("Sub-runs", () => {
  it("An answer to a question that its sub-run does not ask any more does not hang", async () => {
    const clock = new ModelClock();
    const store = new LateStore(new MemoryStore());
    const runtime = new AgentRuntime({ clock, store });
    let finish: () => void = () => {};
    runtime.register("child", async (_input, { ask }) => {
      void ask("Well?");
      await new Promise<void>((resolve) => (finish = resolve));
    });
    runtime.register("parent", async (_input, { run }) => {
      await run("child", "go");
    });
    const asking = runtime.createRun({ agent_name: "parent", input: "go" });
    await settle(clock, store);
    const { run_id } = await asking;
    // The sub-run has ended; the withdrawal of its question is not committed yet.
    finish();
    await settle(clock);
    const answered = runtime.resume({ run_id, await_resume: { n: 1 } }).then(
      ({ status }) => status,
      (error: unknown) => CadenzaError.is(error) && error.code,
    );
    await settle(clock, store);
    expect(["completed", "not_awaiting"]).toContain(await answered);
  });
});

describe("Sessions", () => {
  it("The messages of the first run of a session stay in it, also when another run joins just before its end", async () => {
    const runtime = new AgentRuntime();
    let finish: (text: string) => void = () => {};
    runtime.register("first", () => new Promise<string>((resolve) => (finish = resolve)));
    runtime.register("second", () => "Second.");
    const { run_id } = await runtime.createRun({ agent_name: "first", input: "one", mode: "async" });
    await new Promise((resolve) => inNextTurn(resolve));
    const joining = runtime.createRun({ agent_name: "second", input: "two", session_id: run_id });
    finish("First.");
    await joining;
    const { history } = await runtime.getSession(run_id);
    expect(history.flatMap(({ parts }) => parts.map(({ content }) => content))).toEqual([
      "one",
      "First.",
      "two",
      "Second.",
    ]);
  });
});

describe("A store that answers late", () => {
  it("A write whose answer is lost is not repeated", async () => {
    const clock = new ModelClock();
    const store = new LateStore(new MemoryStore());
    const runtime = new AgentRuntime({ clock, store });
    runtime.register("shows", async function* () {
      yield "One.";
    });
    const done = runtime.createRun({ agent_name: "shows", input: "go" });
    await settle(clock);
    // The run is created: the work, and the answer.
    store.serve(0);
    store.serve(0);
    await settle(clock);
    store.fail(0, true);
    await clock.advance(1_000, false, () => settle(clock, store));
    await settle(clock, store);
    const run = await done;
    expect(run.status).toBe("completed");
    expect(run.output.map(({ parts }) => parts.map(({ content }) => content))).toEqual([["One."]]);
  });

  it("A reader that gets more entries than the runtime knows of reads on", async () => {
    const clock = new ModelClock();
    const store = new LateStore(new MemoryStore());
    const runtime = new AgentRuntime({ clock, store });
    let finish: () => void = () => {};
    runtime.register("shows", async (_input, { emit }) => {
      await emit("One.");
      await new Promise<void>((resolve) => (finish = resolve));
    });
    const creating = runtime.createRun({ agent_name: "shows", input: "go", mode: "async" });
    await settle(clock, store);
    const { run_id } = await creating;
    const events: StreamedEvent[] = [];
    const reading = (async () => {
      for await (const event of runtime.events(run_id, { until: "end" })) events.push(event);
    })();
    await settle(clock);
    finish();
    await settle(clock);
    // The write takes effect, the read is served, and only then is the write confirmed.
    store.serve(0);
    store.serve(1);
    await settle(clock, store);
    await reading;
    expect(events.map(({ id }) => id)).toEqual(events.map((_, index) => index + 1));
    expect(events.at(-1)?.type).toBe("run.completed");
  });

  it("Readers of a run that the store refuses to create are detached", async () => {
    const clock = new ModelClock();
    const store = new LateStore(new MemoryStore());
    const runtime = new AgentRuntime({ clock, store });
    let run_id = "";
    runtime.register("tells", (_input, context) => {
      run_id = context.run_id;
      return never();
    });
    const creating = runtime.createRun({ agent_name: "tells", input: "go" });
    const refused = expect(creating).rejects.toMatchObject({ code: "store_failed" });
    await settle(clock);
    const reading = runtime.events(run_id).next();
    await settle(clock);
    store.fail(0, false);
    await settle(clock, store);
    await refused;
    expect((await reading).done).toBe(true);
    const stats = runtime.stats();
    await settle(clock, store);
    expect((await stats).live).toEqual({});
  });
});

function never(): Promise<never> {
  return new Promise(() => {});
}

/** Waits until no call waits for a turn or for the store any more. */
async function settle(clock: ModelClock, store?: LateStore): Promise<void> {
  for (;;) {
    await new Promise((resolve) => inNextTurn(resolve));
    if (clock.pendingTurns > 0) clock.takeTurns(clock.pendingTurns);
    else if (store !== undefined && store.pending > 0) store.serveAll();
    else return;
  }
}
