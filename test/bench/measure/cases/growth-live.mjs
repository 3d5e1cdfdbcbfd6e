import { checkRun } from "../checks.mjs";
import { rateOf, timeOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";
import { runsAtOnce } from "./at-once.mjs";

const LIVE = [100, 10_000, 100_000];
const QUICK = [10, 100];

/** The cost of one run, in microseconds, by the number of runs that execute at the same time. */
export async function measureGrowthOfLive(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  for (let i = 0; i < (scale === "quick" ? 1 : 200); i++) await runsAtOnce(subject, 100);
  for (const count of scale === "quick" ? QUICK : LIVE) {
    globalThis.gc();
    const times = Math.max(1, 20_000 / count);
    let milliseconds = 0;
    for (let i = 0; i < times; i++) milliseconds += await runsAtOnce(subject, count);
    figures[count] = (milliseconds * 1000) / (times * count);
  }
  return figures;
}

/**
 * The cost of a run, and of asking and answering, in microseconds, by the number of other runs that wait for an answer.
 */
export async function measureGrowthOfWaiting(name, scale) {
  const figures = {};
  const milliseconds = scale === "quick" ? 10 : 600;
  let subject = await openSubject(name);
  const run = async (index) => checkRun(await subject.echo(`text ${index}`), `text ${index}`);
  const ask = async (index) => {
    const text = `answer ${index}`;
    checkRun(await subject.answer(await subject.ask(`question ${index}`), text), text);
  };
  await rateOf(milliseconds, run);
  await rateOf(milliseconds, ask);
  for (const count of scale === "quick" ? QUICK : LIVE) {
    subject = await openSubject(name);
    await timeOf(count, 100, (index) => subject.ask(`question ${index}`));
    globalThis.gc();
    figures[`run ${count}`] = 1e6 / (await rateOf(milliseconds, run));
    figures[`answer ${count}`] = 1e6 / (await rateOf(milliseconds, ask));
  }
  return figures;
}
