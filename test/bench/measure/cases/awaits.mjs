import { checkRun } from "../checks.mjs";
import { rateOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";

/** A run that asks, is answered by the caller, and completes with the answer: one after the other. */
export async function measureAwaits(name, scale) {
  const subject = await openSubject(name);
  const one = async (index) => {
    const text = `answer ${index}`;
    checkRun(await subject.answer(await subject.ask(`question ${index}`), text), text);
  };
  const part = scale === "quick" ? 20 : 1000;
  await rateOf(0.6 * part, one);
  return { "in turn": await rateOf(0.8 * part, one) };
}
