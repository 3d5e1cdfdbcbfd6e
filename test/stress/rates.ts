import { command } from "../harness/commands/commands.ts";
import type { Report } from "../harness/commands/report.ts";
import { startServer } from "../harness/postgres-server.ts";
import { fullWorkers, takesPerRun } from "../harness/rates/asking.ts";
import type { Rate } from "../harness/rates/rates.ts";
import { deadlines, ownRate, readElsewhere, SLOW_RUNS, slowCommits, takeOver } from "../harness/rates/rates.ts";

const MAX_P99_MS = 50;
const LEAST_SHARE = 0.5;
const MAX_DELAY_MS = 250;
const LEAST_OF_IDEAL = 0.9;
const MOST_TAKES = 1.2;
const WORKERS = 15;
/** How many runs a second the workers get that have hints. */
const ARRIVALS = [20, 50];

export const trial = command({
  about:
    "Compares how fast a process takes over and completes the runs of another process with how fast it completes its own. It is wrong if a rate is below half of the own rate, if the event loop was blocked for more than 50 ms at the 99th percentile, if a reader in another process saw an event later than 250 ms, or if a living process lost its lease. Also measures how fast workers with 20 places work off runs of 50 ms, which is wrong below 0.9 of what the places allow, and how often 15 workers on a PostgreSQL server ask for each run, which is wrong above 1.2.",
  options: {
    runs: { about: "How many runs are taken over.", default: 5_000 },
    questions: { about: "How many questions have a deadline at the same time.", default: 10_000 },
    tries: { about: "How often runs are taken over while commits are slow.", default: 10 },
    seconds: { about: "For how long runs come to workers that have hints.", default: 10 },
  },
  async run({ runs, questions, tries, seconds }, report) {
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
    for (const workers of [1, 4]) {
      const { perSecond, ofIdeal } = await fullWorkers(workers, Math.ceil(runs / 10) * workers);
      const what = `${workers} full workers: ${Math.round(perSecond)}/s, ${ofIdeal.toFixed(2)} of what their places allow`;
      report.check(ofIdeal >= LEAST_OF_IDEAL, what);
    }
    const server = await startServer(18);
    if ("missing" in server.address) throw new Error(server.address.missing);
    for (const perSecond of ARRIVALS) {
      const asked = await takesPerRun(server.address, { workers: WORKERS, perSecond, seconds });
      const { takes, p50Ms, most } = asked;
      const what = `${perSecond} runs/s for ${WORKERS} workers: ${takes.toFixed(2)} takes a run, begun after ${p50Ms.toFixed(0)} ms, ${(100 * most).toFixed(0)} % by one`;
      report.check(takes <= MOST_TAKES, what);
    }
    await server.stop();
    return `${runs} runs, ${questions} questions and ${tries} tries with slow commits`;
  },
});

function judge(what: string, { perSecond, p99Ms }: Rate, own: number, report: Report): void {
  const share = perSecond / own;
  report.check(share >= LEAST_SHARE, `${what}: ${Math.round(perSecond)}/s, ${share.toFixed(2)} of the own rate`);
  report.check(p99Ms <= MAX_P99_MS, `${what}: the event loop is blocked for ${p99Ms.toFixed(1)} ms at the p99`);
}
