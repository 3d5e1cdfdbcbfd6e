import { checkRun } from "../checks.mjs";

/** Begins `count` runs at once, each of which waits for a turn of the event loop; milliseconds until all have ended. */
export async function runsAtOnce(subject, count) {
  const started = performance.now();
  const runs = await Promise.all(Array.from({ length: count }, (_, index) => subject.later(`text ${index}`)));
  const milliseconds = performance.now() - started;
  for (const [index, run] of runs.entries()) checkRun(run, `text ${index}`);
  return milliseconds;
}
