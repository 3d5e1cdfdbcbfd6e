import { describe, expect, it } from "vitest";
import { T0 } from "../../harness/logs.ts";
import { deferred } from "../../harness/promises.ts";
import { drain, refusal, setUp, typesOf } from "../../harness/runtimes.ts";
import { HANDED_BACK, TIMERS, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";
import { again, begin, outcome, reasonOf, shown } from "../../harness/waiting-agents.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

describe("a sleep", () => {
  it.each([
    { duration: 0, ms: 0 },
    { duration: 1, ms: 1 },
    { duration: 1_500, ms: 1_500 },
    { duration: 0.5, ms: 0.5 },
    { duration: "250ms", ms: 250 },
    { duration: "2s", ms: 2_000 },
    { duration: "1.5s", ms: 1_500 },
    { duration: "2 s", ms: 2_000 },
    { duration: "0d", ms: 0 },
    { duration: new Date(T0 + 700), ms: 700 },
    { duration: new Date(T0), ms: 0 },
    { duration: new Date(T0 - DAY), ms: 0 },
  ])("of $duration ends after $ms ms, and not before", async ({ duration, ms }) => {
    const set = setUp();
    const run_id = await begin(set, async ({ sleep }) => `${await sleep(duration)}`);
    if (ms >= 1) {
      await set.clock.advance(ms - 1);
      expect(await shown(set, run_id)).toBe("in-progress");
    }
    await set.clock.advance(1);
    expect(await shown(set, run_id)).toBe("completed: undefined");
  });

  const long = [
    { duration: "3m", ms: 3 * MINUTE },
    { duration: "24h", ms: DAY },
    { duration: "2d", ms: 2 * DAY },
    { duration: "1w", ms: 7 * DAY },
    { duration: 400 * DAY, ms: 400 * DAY },
    { duration: new Date(T0 + 30 * DAY), ms: 30 * DAY },
  ];
  for (const { duration, ms } of long)
    unlessReplayed(TOO_LONG)(`of ${String(duration)} ends after ${ms} ms, and not before`, async () => {
      const set = setUp();
      const run_id = await begin(set, async ({ sleep }) => `${await sleep(duration)}`);
      await set.clock.advance(ms - 1);
      expect(await shown(set, run_id)).toBe("in-progress");
      await set.clock.advance(1);
      expect(await shown(set, run_id)).toBe("completed: undefined");
    });

  it.each([
    [-1],
    [Number.NaN],
    [Number.POSITIVE_INFINITY],
    [Number.MAX_VALUE],
    [""],
    ["soon"],
    ["5"],
    ["-1s"],
    [" 1s"],
    ["1s "],
    ["1 day"],
    ["1e3s"],
    ["1h30m"],
    [`${"9".repeat(400)}s`],
    [new Date(Number.NaN)],
    [null],
    [undefined],
    [{}],
    [[1_000]],
    [true],
  ])("of %s is refused", async (duration) => {
    const set = setUp();
    const run_id = await begin(set, ({ sleep }) => outcome(sleep(duration as number)));
    expect(await shown(set, run_id)).toBe("completed: invalid_argument");
  });

  it.each([
    [null],
    ["name"],
    [{ name: "" }],
    [{ name: 5 }],
    [{ signal: {} }],
    [{ signal: new AbortController() }],
    [{ timeoutMs: 5 }],
  ])("with the options %j is refused", async (options) => {
    const set = setUp();
    const run_id = await begin(set, ({ sleep }) => outcome(sleep(1, options as object)));
    expect(await shown(set, run_id)).toBe("completed: invalid_argument");
  });

  it("says what was wrong with its duration", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ sleep }) => sleep("tomorrow"));
    const { status, error } = await set.runtime.getRun(run_id);
    expect({ status, message: error?.message }).toEqual({
      status: "failed",
      message: expect.stringMatching(/duration: expected .*"90s".*"tomorrow"/),
    });
  });

  it("shows no question: its run is in progress, and neither a caller nor a stream comes to rest", async () => {
    const set = setUp();
    set.runtime.register("agent", async function* (_input, { sleep }) {
      yield "before";
      await sleep(1_000);
      yield "after";
    });
    let rests = 0;
    const stream = drain(set.runtime.createRun({ agent_name: "agent", input: "", mode: "stream" }));
    const sync = set.runtime.createRun({ agent_name: "agent", input: "" });
    for (const waiting of [stream, sync]) void (waiting as Promise<unknown>).then(() => (rests += 1));
    await set.clock.advance(900);
    expect(await set.runtime.listRuns()).toMatchObject([
      { status: "in-progress", await_request: null },
      { status: "in-progress", await_request: null },
    ]);
    expect(rests).toBe(0);
    await set.clock.advance(200);
    expect((await sync).status).toBe("completed");
    expect(typesOf(await stream)).toEqual([
      ...["run.created", "run.in-progress", "message.created", "message.part", "message.part"],
      ...["message.completed", "run.completed"],
    ]);
  });

  it("takes no answer", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ sleep }) => sleep(1_000));
    expect((await refusal(set.runtime.resume({ run_id, await_resume: { ok: true } }))).code).toBe("not_awaiting");
  });

  it("beside others ends at its own time", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ sleep, emit }) => {
      const one = async (ms: number) => {
        await sleep(ms);
        await emit(`${ms}`);
      };
      await Promise.all([one(300), one(100), one(200), one(100)]);
    });
    const seen: string[] = [];
    for (let at = 50; at <= 350; at += 100) {
      await set.clock.advance(at === 50 ? 50 : 100);
      seen.push(await shown(set, run_id));
    }
    expect(seen).toEqual([
      "in-progress",
      "in-progress: 100|100",
      "in-progress: 100|100|200",
      "completed: 100|100|200|300",
    ]);
  });

  it.each([
    { sleepMs: 100, stepMs: 200, winner: "sleep" },
    { sleepMs: 200, stepMs: 100, winner: "step" },
  ])("of $sleepMs ms in a race with a step of $stepMs ms: the $winner wins", async ({ sleepMs, stepMs, winner }) => {
    const set = setUp();
    const run_id = await begin(set, async ({ sleep, step }) => {
      const work = step("work", () => new Promise<void>((resolve) => set.clock.setTimeout(resolve, stepMs)));
      const first = await Promise.race([sleep(sleepMs).then(() => "sleep"), work.then(() => "step")]);
      // Both results are in the log before the agent ends.
      await sleep(500);
      return first;
    });
    await set.clock.advance(1_000);
    expect(await shown(set, run_id)).toBe(`completed: ${winner}`);
  });

  it("that the agent does not wait for ends with its run", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ sleep }) => {
      void sleep(10_000);
      return "done";
    });
    expect(await shown(set, run_id)).toBe("completed: done");
  });

  unlessReplayed(TIMERS)("leaves no timer, however it ends", async () => {
    const never = Number.POSITIVE_INFINITY;
    const set = setUp({ retention: { maxAgeMs: never, maxIdleSessionMs: never } });
    const before = set.clock.timers;
    const ended = await begin(set, ({ sleep }) => sleep(100));
    const dropped = await begin(set, ({ sleep }) => void sleep(10_000));
    const withdrawn = await begin(set, async ({ sleep, step }) => {
      const controller = new AbortController();
      const sleeping = outcome(sleep(10_000, { signal: controller.signal }));
      await step("work", () => 1);
      controller.abort(new Error("enough"));
      return sleeping;
    });
    const cancelled = await begin(set, ({ sleep }) => sleep(10_000));
    await set.runtime.cancel(cancelled);
    await set.clock.advance(1_000);
    const all = await Promise.all([ended, dropped, withdrawn, cancelled].map((id) => shown(set, id)));
    expect(all).toEqual(["completed", "completed", "completed: Error: enough", "cancelled"]);
    expect(set.clock.timers).toBe(before);
  });

  it("of a cancelled run rejects, and its `finally` blocks run", async () => {
    const set = setUp();
    const run_id = await begin(set, async ({ sleep, emit }) => {
      try {
        await sleep(10_000);
      } catch (error) {
        await emit(await outcome(Promise.reject(error)));
        throw error;
      } finally {
        await emit("cleaned up");
        await emit(await outcome(sleep(1)));
      }
    });
    expect((await set.runtime.cancel(run_id)).status).toBe("cancelling");
    await set.clock.advance(10);
    expect(await shown(set, run_id)).toBe("cancelled: run_cancelled|cleaned up|run_cancelled");
  });

  it("does not count for the time-out of its run, on either side of it", async () => {
    const set = setUp();
    const body = (lastMs: number) => (context: Parameters<Parameters<typeof begin>[1]>[0]) => {
      const work = (ms: number) =>
        context.step("work", () => new Promise<void>((resolve) => set.clock.setTimeout(resolve, ms)));
      return work(400)
        .then(() => context.sleep(5_000))
        .then(() => work(lastMs));
    };
    const inTime = await begin(set, body(500), { timeoutMs: 1_000 }, "in-time");
    const late = await begin(set, body(700), { timeoutMs: 1_000 }, "late");
    await set.clock.advance(5_350);
    expect(await shown(set, late)).toBe("in-progress");
    await set.clock.advance(1_500);
    expect(await shown(set, inTime)).toBe("completed");
    const run = await set.runtime.getRun(late);
    expect([run.status, reasonOf(run)]).toEqual(["failed", "run_timeout"]);
    const { agents } = await set.runtime.stats();
    expect(agents["in-time"]).toMatchObject({ active_ms: 900, waiting_ms: 5_000 });
  });

  it("gives back the slot of its agent, and waits for one when it ends", async () => {
    const set = setUp();
    const gate = deferred();
    const body = async ({ sleep, step }: Parameters<Parameters<typeof begin>[1]>[0]) => {
      await sleep(1_000);
      await step("work", () => gate.promise);
    };
    const options = { concurrency: { max: 1 } };
    const first = await begin(set, body, options);
    await set.clock.advance(500);
    const second = await again(set);
    expect(await shown(set, second)).toBe("in-progress");
    await set.clock.advance(600);
    // The first one works, and the second one sleeps.
    const third = await again(set);
    expect(await shown(set, third)).toBe("created");
    await set.clock.advance(600);
    // The second one has slept enough, and waits for the slot.
    expect(await shown(set, second)).toBe("in-progress");
    gate.resolve();
    await set.clock.advance(2_000);
    for (const run_id of [first, second, third]) expect(await shown(set, run_id)).toBe("completed");
  });

  it("keeps the slot of its session", async () => {
    const set = setUp();
    const session_id = "00000000-0000-4000-8000-00000000feed";
    set.runtime.register("agent", { concurrency: { max: 1, per: "session" } }, (_input, { sleep }) => sleep(1_000));
    const create = () => set.runtime.createRun({ agent_name: "agent", input: "", session_id, mode: "async" });
    const [first, second] = [await create(), await create()];
    await set.clock.advance(900);
    expect(await shown(set, first.run_id)).toBe("in-progress");
    expect(await shown(set, second.run_id)).toBe("created");
    await set.clock.advance(200);
    expect(await shown(set, first.run_id)).toBe("completed");
    expect(await shown(set, second.run_id)).toBe("in-progress");
  });

  it("inside the body of a step is refused", async () => {
    const set = setUp();
    const run_id = await begin(set, ({ sleep, step }) => step("work", () => outcome(sleep(1))));
    expect(await shown(set, run_id)).toBe("completed: nested_operation");
  });
});

unlessReplayed(HANDED_BACK)("a runtime that is closed does not wait for sleeping runs, and reports them", async () => {
  const set = setUp();
  const run_id = await begin(set, ({ sleep }) => sleep("24h", { name: "until tomorrow" }));
  const closing = set.runtime.close({ drainMs: 5_000 });
  await set.clock.settle();
  expect(await closing).toEqual({
    left: [{ run_id, agent_name: "agent", status: "in-progress", waits_for: "sleep:until tomorrow#1" }],
  });
  expect(await outcome(set.runtime.getRun(run_id).then(reasonOf))).toBe('"interrupted"');
});
