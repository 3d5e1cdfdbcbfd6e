import { command } from "../harness/commands/commands.ts";
import { tryCustomers, tryFairness } from "../harness/queues/queues.ts";

/** Before how many runs of a customer with many those of the others have begun. */
const MAX_BEFORE = 200;
/** How many times the ideal time the runs of limited customers may take. */
const MAX_RATIO = 1.5;

export const trial = command({
  about:
    "Queues runs of many customers on PostgreSQL. Part limits: three agents share a limit of each customer, and a process is killed each second; it is wrong if a customer has more runs at work, or more begun in any window by the server's clock, than its limit, or if all take more than 1.5 times as long as they would at the speed of the same runs without limits, each customer in its turn. Part fair: a customer with many runs and 99 with one each; it is wrong if 200 runs of the first begin before one of the others.",
  options: {
    part: { about: "The part that is tried.", default: "all", oneOf: ["all", "limits", "fair"] },
    runs: { about: "How many runs all customers of the part limits have.", default: 20_000 },
    customers: { about: "How many customers the part limits has.", default: 1_000 },
    first: { about: "How many of these runs the first customer has.", default: 400 },
    many: { about: "How many runs the first customer of the part fair has.", default: 100_000 },
    perMs: { about: "The window of the rate, in milliseconds. A customer may begin 100 runs in it.", default: 30_000 },
    work: { about: "How long a run works, in milliseconds.", default: 20 },
    processes: { about: "How many processes execute runs.", default: 4 },
  },
  async run({ part, runs, customers, first, many, perMs, work, processes }, report) {
    if (part !== "fair") {
      const onDone = (done: number): void => report.progress(`${done} runs`);
      const limits = { max: 2, count: 100, perMs, killEveryMs: 1_000 };
      const figures = await tryCustomers({ processes, runs, customers, first, work, ...limits, onDone });
      const { most, granted, seconds, ideal, kills } = figures;
      report.say(`limits: ${JSON.stringify(figures)}`);
      report.check(most <= 2, `${most} runs of a customer were at work at a time, of 2, through ${kills} kills`);
      report.check(granted <= 100, `${granted} runs of a customer were let in in one window, of 100`);
      report.check(seconds <= MAX_RATIO * ideal, `they took ${seconds.toFixed(1)} s, ideally ${ideal.toFixed(1)} s`);
    }
    if (part !== "limits") {
      const before = await tryFairness({ processes, many, work, until: 2 * MAX_BEFORE });
      report.check(
        before < MAX_BEFORE,
        `${before} runs of a customer with ${many} began before those of 99 with one each`,
      );
    }
    return part === "fair" ? `${many + 99} runs` : `${runs} runs`;
  },
});
