import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { inShards } from "../harness/commands/shards.ts";
import type { Findings } from "../harness/model/run.ts";
import { explain, playAll } from "../harness/model/run.ts";

const stores = ["at once", "late", "at once", "failing"] as const;
/** So many failures are explained, which takes long. */
const EXPLAINED = 5;

/** What each process plays. */
export function playChunk(from: number, count: number): Promise<Findings> {
  return playAll({ from, count, stores });
}

export const trial = command({
  about:
    "Plays random schedules against the runtime. Half of them over a store that answers at once, the others over one that answers late, and over one that also fails.",
  options: { seed, schedules: { about: "How many schedules are played.", default: 200_000 } },
  async run({ seed, schedules }, report) {
    let [played, runs, entries] = [0, 0, 0];
    const failed: number[] = [];
    const seeds = { from: seed, count: schedules, chunk: 1_000 };
    await inShards<Findings>({ module: new URL(import.meta.url), name: playChunk.name }, seeds, (found) => {
      played += found.schedules;
      runs += found.runs;
      entries += found.entries;
      failed.push(...found.failures.map(({ seed }) => seed));
      report.progress(`${played} schedules, ${runs} runs, ${entries} entries; ${failed.length} broke a rule`);
    });
    for (const [index, one] of failed.entries()) {
      const what = index < EXPLAINED ? await explain(one, { stores }) : "a rule is broken";
      report.wrong(what, { seed: one, schedules: 1 });
    }
    if (failed.length === 0 && played < schedules) report.wrong(`only ${played} schedules were played`);
    return `${played} schedules, ${runs} runs and ${entries} entries`;
  },
});
