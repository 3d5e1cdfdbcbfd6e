import { checkRun } from "../checks.mjs";
import { rateAtOnce, rateOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";

/** A run that answers with what it was given: one after the other, and a hundred at a time. */
export async function measureRuns(name, scale) {
  const subject = await openSubject(name);
  const one = async (index) => {
    const text = `hello ${index}`;
    checkRun(await subject.echo(text), text);
  };
  const part = scale === "quick" ? 20 : 1000;
  await rateOf(0.6 * part, one);
  const inTurn = await rateOf(0.8 * part, one);
  await rateAtOnce(100, 0.2 * part, one);
  return { "in turn": inTurn, "100 at once": await rateAtOnce(100, 0.8 * part, one) };
}
