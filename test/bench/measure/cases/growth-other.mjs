import { equal } from "node:assert/strict";
import { checkedStream, checkRun } from "../checks.mjs";
import { rateOf, timeOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";

/** The cost of a run, in microseconds, by the number of ended runs that are retained. */
export async function measureGrowthOfRemembered(name, scale) {
  const figures = {};
  let subject = await openSubject(name);
  const run = async (index) => checkRun(await subject.echo(`text ${index}`), `text ${index}`);
  await rateOf(scale === "quick" ? 10 : 1000, run);
  for (const count of scale === "quick" ? [10, 100] : [1000, 1_000_000]) {
    const times = Math.max(1, 20_000 / count);
    // The measured runs are retained too, so their number has the same limit.
    const measured = Math.min(count, 50_000);
    let milliseconds = 0;
    for (let i = 0; i < times; i++) {
      subject = await openSubject(name);
      await timeOf(count, 100, run);
      milliseconds += await timeOf(measured, 1, run);
    }
    figures[count] = (milliseconds * 1000) / (times * measured);
  }
  return figures;
}

/** The cost of a run, in microseconds, by the number of listeners to its end. */
export async function measureGrowthOfListeners(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  const run = async (index) => checkRun(await subject.echo(`text ${index}`), `text ${index}`);
  await rateOf(scale === "quick" ? 10 : 1000, run);
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

/** The cost of a part, in microseconds, by the length of the stream. */
export async function measureGrowthOfParts(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  await rateOf(scale === "quick" ? 10 : 500, () => checkedStream(subject, 1000));
  for (const count of scale === "quick" ? [10, 100] : [1000, 1_000_000]) {
    const times = Math.max(1, 200_000 / count);
    const milliseconds = await timeOf(times, 1, () => checkedStream(subject, count));
    figures[count] = (milliseconds * 1000) / (times * count);
  }
  return figures;
}
