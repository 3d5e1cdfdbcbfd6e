import { KEPT_RUNS, watchForLeaks } from "../test/harness/leak-watch.ts";

/**
 * Runs a million runs, cancels ten thousand, and prints what stays in memory. `npm run test:leak -- 100000 1000` runs
 * fewer.
 */
const [finished = 1_000_000, cancelled = 10_000] = process.argv.slice(2).map(Number);
const MIB = 1024 * 1024;

const figures = await watchForLeaks({ warmUp: 10_000, finished, cancelled });
const growth = figures.heapAfter / figures.heapBefore - 1;
const checks: readonly (readonly [text: string, holds: boolean])[] = [
  [
    `heap: ${(figures.heapBefore / MIB).toFixed(2)} MiB after 10,000 runs, ${(figures.heapAfter / MIB).toFixed(2)} MiB at the end (${(100 * growth).toFixed(1)} %)`,
    growth <= 0.1,
  ],
  [`runs in the store: ${figures.storedRuns}`, figures.storedRuns <= KEPT_RUNS + KEPT_RUNS / 16 + 1],
  [`live runs: ${figures.liveRuns}`, figures.liveRuns === 0],
  [`sessions of removed runs: ${figures.sessions}`, figures.sessions === 0],
  [
    `timers: ${figures.timers}, after close: ${figures.timersAfterClose}`,
    figures.timers <= 1 && figures.timersAfterClose === 0,
  ],
  [`listeners: ${figures.listeners}`, figures.listeners === 0],
];
console.log(`${finished} finished and ${cancelled} cancelled runs in ${figures.seconds.toFixed(1)} s`);
for (const [text, holds] of checks) console.log(`${holds ? "ok  " : "LEAK"} ${text}`);
process.exitCode = checks.every(([, holds]) => holds) ? 0 : 1;
