import { checkRun } from "../checks.mjs";
import { bytesInUse, timeOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";

const WIDTH = 100;

/** Many runs that wait for an answer: the memory of each, and the time to answer them all. */
export async function measureWaiting(name, scale) {
  // What a collection drops in between may weigh as much as a hundred runs.
  const count = scale === "quick" ? 1_000 : 5_000;
  const subject = await openSubject(name);
  for (let i = 0; i < 200; i++) checkRun(await subject.answer(await subject.ask("warm?"), "up"), "up");
  const before = await bytesInUse();
  const waiting = new Array(count);
  await timeOf(count, WIDTH, async (index) => {
    waiting[index] = await subject.ask(`question ${index}`);
  });
  const after = await bytesInUse();
  const milliseconds = await timeOf(count, WIDTH, async (index) => {
    const text = `answer ${index}`;
    checkRun(await subject.answer(waiting[index], text), text);
  });
  return { bytes: (after - before) / count, resume: (count * 1000) / milliseconds };
}
