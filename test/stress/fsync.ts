import { command } from "../harness/commands/commands.ts";
import { canTrace, traceAcknowledgements } from "../harness/fsync/fsync.ts";

/** How many acknowledgements with `NORMAL` show that a missing `fsync` is found. */
const FEW = 20;

export const trial = command({
  about:
    "Checks with strace that a write is on the disk before it is acknowledged. An fsync has to be between the last write to SQLite's log and each acknowledgement; with NORMAL none is, which has to be noticed.",
  options: { count: { about: "How many acknowledgements are looked at.", default: 1_000 } },
  async run({ count }, report) {
    if (!canTrace()) return { skipped: "strace is not installed" };
    const full = traceAcknowledgements(count);
    report.check(full.marks === count, `by default: ${full.marks} acknowledgements, ${full.syncs} times fsync`);
    for (const what of full.wrong) report.wrong(what);
    const normal = traceAcknowledgements(FEW, "NORMAL");
    report.check(normal.wrong.length > 0, `with NORMAL: ${normal.wrong.length} of ${normal.marks} noticed`);
    return `${full.marks} acknowledgements`;
  },
});
