import { command } from "../harness/commands/commands.ts";
import { KEPT_RUNS, watchForLeaks } from "../harness/leak-watch.ts";

const MIB = 1024 * 1024;

export const trial = command({
  about: "Lets many runs finish, cancels others, and looks at what stays in memory.",
  options: {
    finished: { about: "How many runs finish.", default: 1_000_000 },
    cancelled: { about: "How many runs are cancelled.", default: 10_000 },
  },
  async run({ finished, cancelled }, report) {
    const figures = await watchForLeaks({ warmUp: 10_000, finished, cancelled });
    const { heapBefore, heapAfter, storedRuns, liveRuns, sessions, timers, timersAfterClose, listeners } = figures;
    const growth = heapAfter / heapBefore - 1;
    const [before, after] = [heapBefore, heapAfter].map((bytes) => `${(bytes / MIB).toFixed(2)} MiB`);
    report.check(
      growth <= 0.1,
      `heap: ${before} after 10,000 runs, ${after} at the end (${(100 * growth).toFixed(1)} %)`,
    );
    report.check(storedRuns <= KEPT_RUNS + KEPT_RUNS / 16 + 1, `runs in the store: ${storedRuns}`);
    report.check(liveRuns === 0, `live runs: ${liveRuns}`);
    report.check(sessions === 0, `sessions of removed runs: ${sessions}`);
    report.check(timers <= 1 && timersAfterClose === 0, `timers: ${timers}, after close: ${timersAfterClose}`);
    report.check(listeners === 0, `listeners: ${listeners}`);
    return `${finished} finished and ${cancelled} cancelled runs`;
  },
});
