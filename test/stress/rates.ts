import { command } from "../harness/commands/commands.ts";
import type { Report } from "../harness/commands/report.ts";
import type { Rate } from "../harness/rates/rates.ts";
import { deadlines, ownRate, readElsewhere, SLOW_RUNS, slowCommits, takeOver } from "../harness/rates/rates.ts";

const MAX_P99_MS = 50;
const LEAST_SHARE = 0.5;
const MAX_DELAY_MS = 250;

export const trial = command({
  about:
    "Compares how fast a process takes over and completes the runs of another process with how fast it completes its own. It is wrong if a rate is below half of the own rate, if the event loop was blocked for more than 50 ms at the 99th percentile, if a reader in another process saw an event later than 250 ms, or if a living process lost its lease.",
  options: {
    runs: { about: "How many runs are taken over.", default: 5_000 },
    questions: { about: "How many questions have a deadline at the same time.", default: 10_000 },
    tries: { about: "How often runs are taken over while commits are slow.", default: 10 },
  },
  async run({ runs, questions, tries }, report) {
    const own = await ownRate(runs);
    report.say(`completes ${Math.round(own)} runs/s`);
    judge("takes over", await takeOver(runs), own, report);
    judge("deadlines, in a living process", await deadlines(questions, false), own, report);
    judge("deadlines, after a restart", await deadlines(questions, true), own, report);
    const { p99Ms, outdated } = await readElsewhere();
    report.check(p99Ms <= MAX_DELAY_MS, `events of another process are ${p99Ms.toFixed(0)} ms late at the p99`);
    report.check(outdated === 0, `${outdated} records of another process were older`);
    for (let attempt = 1; attempt <= tries; attempt++) {
      const { completed, twice } = await slowCommits();
      const holds = completed === SLOW_RUNS && twice === 0;
      report.check(holds, `slow commits, try ${attempt}: ${completed} completed, ${twice} begun twice`);
    }
    return `${runs} runs, ${questions} questions and ${tries} tries with slow commits`;
  },
});

function judge(what: string, { perSecond, p99Ms }: Rate, own: number, report: Report): void {
  const share = perSecond / own;
  report.check(share >= LEAST_SHARE, `${what}: ${Math.round(perSecond)}/s, ${share.toFixed(2)} of the own rate`);
  report.check(p99Ms <= MAX_P99_MS, `${what}: the event loop is blocked for ${p99Ms.toFixed(1)} ms at the p99`);
}
