import { rateOf } from "../rates.mjs";
import { openSubject } from "../subjects/index.mjs";
import { runsAtOnce } from "./at-once.mjs";

/** 10,000 runs that begin at once, each of which waits for a turn of the event loop. */
export async function measureLive(name, scale) {
  const subject = await openSubject(name);
  await rateOf(scale === "quick" ? 20 : 600, () => runsAtOnce(subject, 100));
  globalThis.gc();
  const count = scale === "quick" ? 100 : 10_000;
  return { "runs a second": (count * 1000) / (await runsAtOnce(subject, count)) };
}
