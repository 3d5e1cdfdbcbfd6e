import type { AgentFunction, StepScope } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { createFakeClock, drive } from "cadenza/testing";
import { afterEach, describe, expect, it, vi } from "vitest";
import * as z from "zod";
import { deferred } from "../harness/promises.ts";
import { withoutTimers } from "../harness/without-timers.ts";

/* In a process of its own: it replaces the timers, and loads modules again. */

const DAY_MS = 86_400_000;
const confirm = z.object({ ok: z.boolean() });

/** Three steps, a sub-agent, and a question with a deadline in a day. */
function booking(hasDefault: boolean): AgentFunction {
  return async function* (_input, { ask, now, run, step }) {
    try {
      const plan = await step("plan", () => "via Brussels");
      const price = await step("price", () => 49);
      const hotel = await run("hotel", "Paris");
      const { ok } = await ask(`${plan} for ${price}, and ${hotel.output.length} hotel?`, {
        schema: confirm,
        timeoutMs: DAY_MS,
        ...(hasDefault && { default: { ok: false } }),
      });
      yield ok ? await step("book", () => "Booked.") : "Left as it is.";
    } finally {
      yield { closed: new Date(now()).toISOString() };
    }
  };
}
const agents = { hotel: defineAgent("hotel", () => "Room 12") };

describe("a deadline of 24 hours", () => {
  it(
    "that is met",
    withoutTimers(async () => {
      const t = drive(booking(false), "Paris", { agents, now: "2025-06-01T12:00:00Z" });
      expect(await t.next()).toMatchObject({
        question: "via Brussels for 49, and 1 hotel?",
        expires_at: "2025-06-02T12:00:00.000Z",
      });
      await t.clock.advance("23h");
      await t.answer({ ok: true });
      expect(await t.next()).toMatchObject({ text: "Booked." });
      expect(await t.next()).toMatchObject({ generic: { closed: "2025-06-02T11:00:00.000Z" } });
      expect((await t.finish()).status).toBe("completed");
    }),
  );

  it(
    "that passes, with a default",
    withoutTimers(async () => {
      const t = drive(booking(true), "Paris", { agents });
      await t.until("await");
      await t.clock.advance("24h");
      expect(await t.next()).toMatchObject({ text: "Left as it is." });
      await expect(t.answer({ ok: true })).rejects.toThrow(/ask#1 .* has expired/);
    }),
  );

  it(
    "that passes, without a default, and an answer that comes too late",
    withoutTimers(async () => {
      const t = drive(booking(false), "Paris", { agents });
      await t.until("await");
      await t.clock.set("2025-01-02T00:00:00Z");
      expect(await t.next()).toMatchObject({ generic: { closed: "2025-01-02T00:00:00.000Z" } });
      expect(await t.next()).toMatchObject({
        type: "end",
        status: "failed",
        error: { data: { reason: "await_timeout" } },
      });
      await expect(t.answer({ ok: true })).rejects.toThrow(/has expired, and the run is failed/);
      await expect(t.resume({ ok: true }, { await_id: "ask#1" })).rejects.toMatchObject({ code: "not_awaiting" });
    }),
  );

  it(
    "that is cut short by a cancel",
    withoutTimers(async () => {
      const t = drive(booking(false), "Paris", { agents });
      await t.until("await");
      expect(await t.cancel()).toMatchObject({ status: "cancelled" });
      expect(await t.next()).toMatchObject({ type: "generic" });
      expect(t.clock.pending).toBe(0);
    }),
  );
});

describe("time", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it("passes while the agent waits for it, up to the limit of the test", async () => {
    let tries = 0;
    const flaky: AgentFunction = async function* (_input, { step }) {
      const fetch = (): string => {
        tries += 1;
        if (tries < 3) throw new Error("busy");
        return `after ${tries} tries`;
      };
      yield await step("fetch", fetch, { retry: { attempts: 3, backoffMs: 60_000 } });
    };
    const impatient = drive(flaky, "x", { patienceMs: 5 });
    await expect(impatient.next()).rejects.toThrow(
      /A timer of the clock is due in ([345]\d(\.\d+)?s|1m): t\.next\(\{ within: "\1" \}\) lets that time pass\./,
    );
    tries = 0;
    const t = drive(flaky, "x", { patienceMs: 5 });
    await expect(t.next({ within: "59s" })).rejects.toThrow("Nothing came within 59s.");
    expect(await t.next({ within: "61s" })).toMatchObject({ text: "after 3 tries" });
    // Each pause lasts from 30 to 60 seconds.
    expect(t.clock.now()).toBeGreaterThanOrEqual(Date.UTC(2025, 0, 1) + 60_000);
    expect(t.clock.now()).toBeLessThanOrEqual(Date.UTC(2025, 0, 1) + 120_000);
  });

  it("ends an attempt at a step that takes too long, and the next one counts", async () => {
    const late = deferred();
    const slow: AgentFunction = async function* (_input, { step }) {
      const fetch = async ({ attempt, emit }: StepScope): Promise<string> => {
        if (attempt > 1) return "in time";
        await late.promise;
        await emit("too late");
        return "too late";
      };
      yield await step("fetch", fetch, { timeoutMs: 60_000, retry: { attempts: 2, backoffMs: 60_000 } });
    };
    const t = drive(slow, "x", { patienceMs: 5 });
    await expect(t.next({ within: "1m" })).rejects.toThrow("Nothing came within 1m.");
    late.resolve();
    expect(await t.next({ within: "1m" })).toMatchObject({ text: "in time" });
    expect(await t.finish()).toMatchObject({ status: "completed" });
    expect(t.text()).toBe("in time");
    expect(t.clock.pending).toBe(0);
  });

  it("limits how long a run may be active", async () => {
    const t = drive(() => new Promise<never>(() => {}), "x", { timeoutMs: 60_000, patienceMs: 5 });
    await expect(t.finish()).rejects.toThrow(/no activity/);
    await t.clock.advance("61s");
    expect(await t.finish()).toMatchObject({ status: "failed", error: { data: { reason: "run_timeout" } } });
  });

  it("is the test's own also under fake timers, and nothing hangs", async () => {
    vi.useFakeTimers();
    const t = drive(booking(true), "Paris", { agents, patienceMs: 30 });
    await t.until("await");
    await t.clock.advance("24h");
    expect((await t.finish()).status).toBe("completed");
    const stuck = drive(() => new Promise<never>(() => {}), "x", { patienceMs: 30 });
    await expect(stuck.next()).rejects.toThrow(/no activity for 30ms/);
  });

  it("goes on if the kit is loaded under fake timers", async () => {
    vi.useFakeTimers();
    vi.resetModules();
    const kit = await import("cadenza/testing");
    const t = kit.drive(booking(true), "Paris", { agents, patienceMs: 30 });
    await t.until("await");
    await t.clock.advance("24h");
    expect((await t.finish()).status).toBe("completed");
    const stuck = kit.drive(() => new Promise<never>(() => {}), "x", { patienceMs: 30 });
    await expect(stuck.next()).rejects.toThrow("no activity");
  });

  it("of a runtime can be a fake clock: deadlines, retention", async () => {
    const clock = createFakeClock({ now: Date.UTC(2030, 0, 1) });
    const runtime = new AgentRuntime({ clock, retention: { maxAgeMs: 3_600_000 } });
    runtime.register("ask", async (_input, { ask }) => ask("Sure?", { timeoutMs: DAY_MS }));
    const { run_id } = await runtime.createRun({ agent_name: "ask", input: "x" });
    expect(clock.nextDue).toBe(Date.UTC(2030, 0, 2));
    await clock.advance("1d");
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "failed", finished_at: "2030-01-02T00:00:00.000Z" });
    await clock.advance("3h");
    await expect(runtime.getRun(run_id)).rejects.toMatchObject({ code: "run_not_found" });
  });

  it("takes durations and times in every form, and goes forward only", async () => {
    const clock = createFakeClock({ now: new Date(1_000) });
    const called: string[] = [];
    clock.setTimeout(() => called.push("b"), 20);
    clock.setTimeout(() => called.push("a"), 10);
    clock.setTimeout(() => called.push("never"), Number.POSITIVE_INFINITY);
    const takeBack = clock.setTimeout(() => called.push("taken back"), 15);
    takeBack();
    expect(clock.pending).toBe(2);
    await Promise.all([clock.advance(10), clock.advance("0.01s")]);
    expect(called).toEqual(["a", "b"]);
    await clock.advance("2m");
    expect(clock.now()).toBe(121_020);
    expect(clock.nextDue).toBeUndefined();
    await expect(clock.set(0)).rejects.toThrow(/to: expected a time from .* on/);
    await expect(clock.advance(Number.POSITIVE_INFINITY)).rejects.toThrow(/by: expected a time that ends/);
    await expect(clock.advance("soon" as "1s")).rejects.toThrow(/by: expected milliseconds .* received "soon"/);
    await expect(clock.set("soon")).rejects.toThrow(/to: expected a valid date/);
    expect(() => createFakeClock({ now: Number.NaN })).toThrow(/options.now/);
    expect(() => createFakeClock({ time: 1 } as object)).toThrow(/there is no option "time"/);
  });
});
