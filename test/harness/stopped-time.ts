import type { FakeClock } from "cadenza/testing";
import { createFakeClock } from "cadenza/testing";
import { onTestFinished, vi } from "vitest";
import { postgresClock } from "./internals.ts";

/**
 * Stops the time of the stores on PostgreSQL until the end of the test. What waits for a deadline or a pause waits until the
 * test moves the time, so that nothing is too late, however slow the machine is.
 */
export function stopPostgresTime(): FakeClock {
  const time = createFakeClock();
  const timers = vi.spyOn(postgresClock, "setTimeout");
  timers.mockImplementation((callback, delayMs) => time.setTimeout(callback, delayMs));
  const now = vi.spyOn(postgresClock, "monotonic").mockImplementation(() => time.monotonic?.() ?? time.now());
  onTestFinished(() => {
    timers.mockRestore();
    now.mockRestore();
  });
  return time;
}
