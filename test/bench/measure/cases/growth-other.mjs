import { equal } from "node:assert/strict";
import { checkedStream, checkRun } from "../checks.mjs";
import { rateOf, timeOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";

/** What a run costs when so many ended ones are remembered: microseconds. */
export async function measureGrowthOfRemembered(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  const run = async (index) => checkRun(await subject.echo(`text ${index}`), `text ${index}`);
  let remembered = 0;
  for (const count of scale === "quick" ? [10, 100] : [1000, 1_000_000]) {
    // The runs that are measured are remembered too, as the ones before them.
    await timeOf(count - remembered, 100, run);
    const milliseconds = scale === "quick" ? 10 : 500;
    const rate = await rateOf(milliseconds, run);
    remembered = count + Math.round((rate * milliseconds) / 1000);
    figures[count] = 1e6 / rate;
  }
  return figures;
}

/** What a run costs when so many listeners are told of its end: microseconds. */
export async function measureGrowthOfListeners(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  const run = async (index) => checkRun(await subject.echo(`text ${index}`), `text ${index}`);
  await rateOf(scale === "quick" ? 10 : 500, run);
  let listeners = 0;
  let told = 0;
  for (const count of scale === "quick" ? [1, 10] : [1, 1000]) {
    for (; listeners < count; listeners++) {
      subject.runtime.on("run.completed", () => {
        told += 1;
      });
    }
    const runs = scale === "quick" ? 10 : 10_000;
    told = 0;
    const milliseconds = await timeOf(runs, 1, run);
    // Listeners are called after the run's caller has its answer.
    await new Promise(setImmediate);
    equal(told, runs * count);
    figures[count] = (milliseconds * 1000) / runs;
  }
  return figures;
}

/** What a part costs in a stream of so many: microseconds. */
export async function measureGrowthOfParts(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  await rateOf(scale === "quick" ? 10 : 500, () => checkedStream(subject, 1000));
  for (const count of scale === "quick" ? [10, 100] : [1000, 1_000_000]) {
    const times = Math.max(1, 100_000 / count);
    const milliseconds = await timeOf(times, 1, () => checkedStream(subject, count));
    figures[count] = (milliseconds * 1000) / (times * count);
  }
  return figures;
}
