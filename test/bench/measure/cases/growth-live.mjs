import { checkRun } from "../checks.mjs";
import { rateOf, timeOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";
import { runsAtOnce } from "./at-once.mjs";

const LIVE = [100, 10_000, 100_000];
const QUICK = [10, 100];

/** What one run costs when so many are at work at the same time: microseconds. */
export async function measureGrowthOfLive(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  for (let i = 0; i < (scale === "quick" ? 1 : 100); i++) await runsAtOnce(subject, 100);
  for (const count of scale === "quick" ? QUICK : LIVE) {
    globalThis.gc();
    const times = Math.max(1, 2000 / count);
    let milliseconds = 0;
    for (let i = 0; i < times; i++) milliseconds += await runsAtOnce(subject, count);
    figures[count] = (milliseconds * 1000) / (times * count);
  }
  return figures;
}

/** What a run costs, and what answering costs, while so many others wait for an answer: microseconds. */
export async function measureGrowthOfParked(name, scale) {
  const figures = {};
  const subject = await openSubject(name);
  const parked = [];
  const run = async (index) => checkRun(await subject.echo(`text ${index}`), `text ${index}`);
  const milliseconds = scale === "quick" ? 10 : 500;
  await rateOf(milliseconds, run);
  for (const count of scale === "quick" ? QUICK : LIVE) {
    await timeOf(count - parked.length, 100, async (index) => {
      parked.push(await subject.park(`question ${index}`));
    });
    globalThis.gc();
    figures[`run ${count}`] = 1e6 / (await rateOf(milliseconds, run));
    const answered = Math.min(1000, count / 2);
    const handles = parked.splice(0, answered);
    const elapsed = await timeOf(answered, 1, async (index) => {
      checkRun(await subject.answer(handles[index], `answer ${index}`), `answer ${index}`);
    });
    figures[`answer ${count}`] = (elapsed * 1000) / answered;
  }
  return figures;
}
