import type { Clock } from "cadenza";
import { describe, expect, it } from "vitest";
import { ActiveTime } from "../../../src/runtime/log/active-time.ts";
import { FakeClock } from "../../harness/clock.ts";
import { silentLogger } from "../../harness/internals.ts";
import type { Deferred } from "../../harness/promises.ts";
import { deferred } from "../../harness/promises.ts";

const LIMIT_MS = 1_000;

/** The active time of a run whose writes a test controls. */
function measure({ recordedMs = 0, isMonotonic = true } = {}) {
  const clock = new FakeClock();
  const wall: Clock = {
    now: () => clock.now(),
    setTimeout: (callback, ms) => clock.setTimeout(callback, ms),
    turn: () => clock.turn(),
  };
  let writing: Deferred<void> | undefined;
  const over: number[] = [];
  const time = new ActiveTime({
    clock: isMonotonic ? clock : wall,
    logger: silentLogger,
    limitMs: LIMIT_MS,
    recordedMs,
    writing: () => writing?.promise,
    onOver: () => over.push(clock.monotonic()),
  });
  const start = clock.monotonic();
  return {
    clock,
    time,
    /** After how many milliseconds the time was over. */
    over: () => over.map((at) => at - start),
    /** A write begins: the first one, or at the end of the one before. */
    beginWrite(): void {
      const ending = writing;
      writing = deferred();
      time.count();
      ending?.resolve();
    },
    async endWrite(hasFailed = false): Promise<void> {
      const ending = writing;
      writing = undefined;
      if (hasFailed) time.discount();
      ending?.resolve();
      await clock.settle();
    },
  };
}

describe("the active time of a run", () => {
  it("passes while the run is active, and is over at its limit", async () => {
    const { clock, time, over } = measure();
    await clock.advance(500);
    expect(time.ms).toBe(0);
    for (const settle of ["goOn", "pause", "goOn"] as const) {
      time[settle]();
      time[settle]();
      await clock.advance(400);
    }
    expect({ ms: time.ms, left: time.leftMs, over: over() }).toEqual({ ms: 800, left: 200, over: [] });
    await clock.advance(200);
    expect({ ms: time.ms, left: time.leftMs, over: over() }).toEqual({ ms: 1_000, left: 0, over: [1_900] });
  });

  it("begins with what is recorded", async () => {
    const { clock, time, over } = measure({ recordedMs: 900 });
    time.goOn();
    await clock.advance(1_000);
    expect(over()).toEqual([100]);
  });

  it("leaves no timer while the run is not active", async () => {
    const { clock, time } = measure();
    time.goOn();
    expect(clock.timers).toBe(1);
    time.pause();
    expect(clock.timers).toBe(0);
    time.goOn();
    time.discount();
    expect(clock.timers).toBe(0);
  });

  it("does not depend on the wall clock", async () => {
    const { clock, time, over } = measure();
    time.goOn();
    clock.set(3_600_000);
    await clock.advance(600);
    clock.set(-7_200_000);
    expect(time.ms).toBe(600);
    await clock.advance(400);
    expect(over()).toEqual([1_000]);
  });

  it("does not go back with a wall clock that is the only one", async () => {
    const { clock, time } = measure({ isMonotonic: false });
    time.goOn();
    await clock.advance(300);
    expect(time.ms).toBe(300);
    clock.set(-3_600_000);
    expect(time.ms).toBe(300);
    await clock.advance(100);
    expect(time.ms).toBe(400);
  });

  it("is measured again where a timer fires early", async () => {
    const { clock, time, over } = measure();
    const { setTimeout } = clock;
    clock.setTimeout = (callback, ms) => setTimeout.call(clock, callback, Math.ceil(ms / 2));
    time.goOn();
    await clock.advance(999);
    expect(over()).toEqual([]);
    await clock.advance(1);
    expect(over()).toEqual([1_000]);
  });

  it("is as long as that of a sub-run, and over with it", async () => {
    const { clock, time, over } = measure();
    time.goOn();
    await clock.advance(100);
    time.atLeast(50);
    expect(time.ms).toBe(100);
    time.atLeast(700);
    expect({ ms: time.ms, over: over() }).toEqual({ ms: 700, over: [] });
    await clock.advance(300);
    expect(over()).toEqual([400]);
    const idle = measure();
    idle.time.atLeast(LIMIT_MS);
    expect(idle.over()).toEqual([0]);
  });

  describe("from the begin of a write", () => {
    it("counts when the write has succeeded", async () => {
      const { clock, time, over, beginWrite, endWrite } = measure();
      time.goOn();
      await clock.advance(300);
      beginWrite();
      await clock.advance(400);
      expect(time.ms).toBe(300);
      await endWrite();
      expect(time.ms).toBe(700);
      await clock.advance(300);
      expect(over()).toEqual([1_000]);
    });

    it("does not count when the write has failed", async () => {
      const { clock, time, over, beginWrite, endWrite } = measure();
      time.goOn();
      await clock.advance(300);
      beginWrite();
      await clock.advance(5_000);
      await endWrite(true);
      expect({ ms: time.ms, over: over() }).toEqual({ ms: 300, over: [] });
      await clock.advance(5_000);
      time.goOn();
      await clock.advance(699);
      expect(over()).toEqual([]);
      await clock.advance(1);
      expect(over()).toHaveLength(1);
    });

    it("is over at the end of the write, if it has succeeded", async () => {
      const { clock, time, over, beginWrite, endWrite } = measure();
      time.goOn();
      await clock.advance(300);
      beginWrite();
      await clock.advance(5_000);
      expect(over()).toEqual([]);
      await endWrite();
      expect(over()).toEqual([5_300]);
    });

    it("is over although the next write begins at the end of each", async () => {
      const { clock, time, over, beginWrite } = measure();
      time.goOn();
      for (let writes = 0; writes < 20; writes++) {
        beginWrite();
        await clock.advance(99);
      }
      expect(over()).toEqual([11 * 99]);
    });
  });
});
