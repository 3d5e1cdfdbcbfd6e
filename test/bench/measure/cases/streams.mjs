import { checkedStream } from "../checks.mjs";
import { rateOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";

/** A run that emits 1,000 parts, and one that emits 10,000, with one reader: parts a second. */
export async function measureStreams(name, scale) {
  const subject = await openSubject(name);
  const part = scale === "quick" ? 20 : 1000;
  const partsOf = async (count, milliseconds) =>
    count * (await rateOf(milliseconds, () => checkedStream(subject, count)));
  await partsOf(1000, 0.4 * part);
  const short = await partsOf(1000, 0.6 * part);
  // Where each part costs as much as all before it, this takes a minute and more.
  if (subject.isQuadratic) return { "1,000 parts": short };
  await partsOf(10_000, 0);
  return { "1,000 parts": short, "10,000 parts": await partsOf(10_000, 0.6 * part) };
}
