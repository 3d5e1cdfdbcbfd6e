import { command } from "../harness/commands/commands.ts";
import { measureFailures } from "../harness/failures/failures.ts";

export const trial = command({
  about:
    "Measures how long runs on PostgreSQL stand still when a process fails, with default settings. It is wrong if a run is lost or a part comes twice.",
  options: {},
  async run(_, report) {
    let tried = 0;
    await measureFailures(({ name, runs, medianMs, mostMs, wrong }) => {
      tried += runs;
      const [median, most] = [medianMs, mostMs].map((ms) => `${(ms / 1_000).toFixed(2)} s`);
      report.say(`${name}: ${runs} runs, longest pause ${median} at the median, ${most} at most`);
      for (const parts of wrong) report.wrong(`${name}: the parts of a run are ${parts.join(" ")}`);
    });
    return `${tried} runs`;
  },
});
