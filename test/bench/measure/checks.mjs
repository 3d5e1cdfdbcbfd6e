import { deepEqual, equal } from "node:assert/strict";

/** Refuses a run that has not completed, or whose output is anything but this one text. */
export function checkRun(run, text) {
  if (run.status !== "completed" || run.output.length !== 1 || run.output[0] !== text) {
    deepEqual({ status: run.status, output: [...run.output] }, { status: "completed", output: [text] });
  }
}

/** Has a run stream so many parts, and refuses it unless each comes, in order, before the run is completed. */
export async function checkedStream(subject, count) {
  let seen = 0;
  const { status } = await subject.stream(count, (text) => {
    if (text !== `part ${seen}`) equal(text, `part ${seen}`);
    seen += 1;
  });
  equal(seen, count);
  equal(status, "completed");
}
