import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { KEPT_RUNS, watchForLeaks } from "../../harness/leak-watch.ts";

/* In a process of its own: it measures memory. */

/**
 * How many bytes a removed run may leave on the heap, on average. A retained run takes 1,000 and more, and the heap of
 * a test process varies. `npm run stress -- leak` runs a hundred times as many, and is stricter.
 */
const BYTES_PER_RUN = 200;
/** Far less than any of the timers that are still set in the process. */
const AT_ONCE_MS = 5_000;

describe("Runs that have ended leave nothing", () => {
  it("on the heap, in timers, listeners, sessions or the list of live runs", async () => {
    const counts = { warmUp: 3_000, finished: 12_000, cancelled: 150 };
    const figures = await watchForLeaks(counts);
    const growth = (figures.heapAfter - figures.heapBefore) / (counts.finished - counts.warmUp);
    expect(growth).toBeLessThan(BYTES_PER_RUN);
    expect(figures).toMatchObject({ timersAfterClose: 0, listeners: 0, liveRuns: 0, sessions: 0 });
    expect(figures.timers).toBeLessThanOrEqual(1);
    expect(figures.storedRuns).toBeLessThanOrEqual(KEPT_RUNS + KEPT_RUNS / 16 + 1);
  });

  it("and a process that has nothing else to do exits at once, also with runs that wait", async () => {
    const script = fileURLToPath(new URL("./leak-exit.ts", import.meta.url));
    const { stdout } = await promisify(execFile)(process.execPath, ["--import", "tsx", script]);
    expect(Number(stdout)).toBeLessThan(AT_ONCE_MS);
  });
});
