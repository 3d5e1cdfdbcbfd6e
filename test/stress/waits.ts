import { command } from "../harness/commands/commands.ts";
import { ownRate, sleep, takeMessages } from "../harness/waits/waits.ts";

const OWN_RUNS = 5_000;
const MAX_HEAP_MB = 30;
const MAX_P99_MS = 50;
const LEAST_SHARE = 0.5;
const MAX_GROWTH = 2;

export const trial = command({
  about:
    "Measures what waits for time and for messages. It is wrong if sleeping runs hold more than 30 MB of heap, are loaded before their time, are lost, wake at less than half the rate of durable runs, or block the event loop for more than 50 ms at the 99th percentile; and if a message of several processes to one run at work is lost, comes twice, overtakes one of its sender, or if the last messages take more than twice as long as the first.",
  options: {
    sleepers: { about: "How many runs sleep.", default: 100_000 },
    waking: { about: "How many runs sleep in a smaller trial before.", default: 10_000 },
    messages: { about: "How many messages are sent.", default: 10_000 },
  },
  async run({ sleepers, waking, messages }, report) {
    const own = await ownRate(OWN_RUNS);
    report.say(`completes ${Math.round(own)} durable runs/s`);
    for (const count of [waking, sleepers]) {
      const { mb, early, isLate, woken, perSecond, p99Ms } = await sleep(count);
      const share = perSecond / own;
      if (isLate) report.wrong(`${count} sleepers began to sleep after their time; nothing is measured`);
      report.check(mb <= MAX_HEAP_MB, `${count} sleepers hold ${mb.toFixed(1)} MB of heap`);
      report.check(early === 0, `${early} of ${count} sleepers were loaded before their time`);
      report.check(woken === count, `${woken} of ${count} sleepers woke`);
      report.check(
        share >= LEAST_SHARE,
        `they wake at ${Math.round(perSecond)} runs/s, ${share.toFixed(2)} of the own rate`,
      );
      report.check(p99Ms <= MAX_P99_MS, `the event loop is blocked for ${p99Ms.toFixed(1)} ms at the p99`);
    }
    const { taken, overtaken, growth, perSecond } = await takeMessages(messages);
    const arrived = new Set(taken).size;
    const areAll = arrived === messages && taken.length === messages;
    report.check(areAll, `${arrived} of ${messages} messages arrived, ${Math.round(perSecond)} a second`);
    report.check(overtaken === 0, `${overtaken} messages came in another order than they were sent`);
    report.check(growth <= MAX_GROWTH, `the last tenth took ${growth.toFixed(2)} of the time of the first`);
    return `${waking + sleepers} sleepers and ${messages} messages`;
  },
});
