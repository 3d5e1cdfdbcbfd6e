import { median } from "../bench/figures.ts";
import { command } from "../harness/commands/commands.ts";
import { inspectBeside } from "../harness/inspected/beside.ts";

const LIMITS = { slower: 0.05, readMs: 50, logMs: 5_000, shownMs: 1_000 };

export const trial = command({
  about:
    "Measures what cadenza inspect costs a process that writes the same SQLite file, and how soon it shows what that process does. It wants a quiet machine.",
  options: {
    pairs: { about: "How many pairs of turns there are, with the command and without it.", default: 10 },
    seconds: { about: "How long a turn takes.", default: 6 },
    runs: { about: "How many runs the file holds.", default: 20_000 },
    changes: { about: "How many changes the command has to show.", default: 50 },
  },
  async run(options, report) {
    const figures = await inspectBeside({
      ...options,
      onPair: (one, other) => report.say(`${one.toFixed(0)} runs/s with the command, ${other.toFixed(0)} without`),
    });
    const { speeds, busy, reads, longest, logMs, logPages, shown } = figures;
    const slower = 1 - median(speeds.with.map((speed, index) => speed / (speeds.without[index] ?? speed)));
    const [one, other] = [speeds.with, speeds.without].map((some) => median(some).toFixed(0));
    report.check(
      slower <= LIMITS.slower,
      `the writer is ${(100 * slower).toFixed(1)} % slower at the median (${one} and ${other} runs/s), at most ${100 * LIMITS.slower}`,
    );
    report.check(busy === 0, `the writer met ${busy} locks`);
    const sorted = reads.toSorted((a, b) => a - b);
    const quantile = (of: number): string => (sorted[Math.floor(of * (sorted.length - 1))] ?? 0).toFixed(2);
    const sql = longest.sql.trim().slice(0, 80).replaceAll(/\s+/g, " ");
    report.check(
      longest.ms <= LIMITS.readMs,
      `the longest of ${reads.length} reads took ${longest.ms.toFixed(1)} ms, of which ${longest.cpuMs.toFixed(1)} on a processor (median ${quantile(0.5)}, p99.9 ${quantile(0.999)}), at most ${LIMITS.readMs}: ${sql}`,
    );
    report.check(
      logMs <= LIMITS.logMs,
      `the log was over its checkpoint size for ${logMs} ms at a time, at most ${LIMITS.logMs}; it had up to ${logPages} pages`,
    );
    report.check(
      Math.max(...shown) <= LIMITS.shownMs,
      `${shown.length} changes were shown within ${Math.max(...shown)} ms (median ${median(shown)}), at most ${LIMITS.shownMs}`,
    );
    return `${speeds.with.length} pairs of turns and ${shown.length} changes`;
  },
});
