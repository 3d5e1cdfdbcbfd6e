import { command } from "../harness/commands/commands.ts";
import { runStepLimits } from "../harness/step-limits/step-limits.ts";

/** The share of the rate that is used at least while steps wait. */
const LEAST = 0.9;

export const trial = command({
  about:
    "Lets several processes execute steps with limits on PostgreSQL, and counts by its clock how many are granted in any second and at work at a time.",
  options: {
    seconds: { about: "For how long runs are made.", default: 30 },
    processes: { about: "How many processes execute runs.", default: 4 },
    count: { about: "How many steps may begin in a second.", default: 50 },
    max: { about: "How many steps may be at work at a time.", default: 3 },
    work: { about: "How long each of these works, in milliseconds.", default: 50 },
  },
  async run(options, report) {
    const { granted, begun, rate, atWork, worked, busy } = await runStepLimits(options);
    report.check(granted <= options.count, `${granted} steps were granted in a second at most, of ${options.count}`);
    report.check(begun <= options.count, `${begun} bodies began in a second at most`);
    report.check(rate >= LEAST * options.count, `${rate.toFixed(1)} bodies began in a second on average`);
    report.check(atWork <= options.max, `${atWork} bodies were at work at a time at most, of ${options.max}`);
    return `${worked} steps under a max, of which ${busy.toFixed(1)} were at work on average, in ${options.processes} processes`;
  },
});
