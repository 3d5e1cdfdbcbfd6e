import { openSubject } from "../subjects/index.mjs";
import { runsAtOnce } from "./at-once.mjs";

/** 10,000 runs that begin at once, each of which waits for a turn of the event loop. */
export async function measureLive(name, scale) {
  const count = scale === "quick" ? 100 : 10_000;
  const subject = await openSubject(name);
  for (let i = 0; i < (scale === "quick" ? 1 : 100); i++) await runsAtOnce(subject, 100);
  globalThis.gc();
  return { "runs a second": (count * 1000) / (await runsAtOnce(subject, count)) };
}
