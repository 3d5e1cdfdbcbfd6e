import { command } from "../harness/commands/commands.ts";
import { runLimited } from "../harness/limits/limits.ts";

/** How many times as long as with slots that are never free it may take. */
const MAX_RATIO = 4;

export const trial = command({
  about:
    "Lets several processes execute runs of one agent with concurrency on PostgreSQL, and counts how many are at work at a time.",
  options: {
    runs: { about: "How many runs are made.", default: 4_000 },
    processes: { about: "How many processes execute runs.", default: 4 },
    max: { about: "How many runs may be at work at a time.", default: 3 },
    work: { about: "How long a run works, in milliseconds.", default: 20 },
  },
  async run(options, report) {
    const { done, most, seconds, ideal } = await runLimited(options);
    report.check(done === options.runs, `${done} runs were executed`);
    report.check(most <= options.max, `${most} were at work at a time, of ${options.max}`);
    const [took, least] = [seconds, ideal].map((time) => time.toFixed(1));
    report.check(seconds <= MAX_RATIO * ideal, `they took ${took} s, with slots that are never free ${least} s`);
    return `${done} runs in ${options.processes} processes`;
  },
});
