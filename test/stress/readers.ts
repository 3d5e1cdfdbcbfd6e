import { command } from "../harness/commands/commands.ts";
import { cases } from "../harness/readers/cases.ts";
import { readAll } from "../harness/readers/readers.ts";

const MIB = 1024 * 1024;
const MAX_RESIDENT_MIB = 300;

export const trial = command({
  about:
    "Lets slow readers read long events, in real time and over sockets. All have to read to the end, and the server's memory has a limit.",
  options: { only: { about: "A text in the names of the cases that are tried.", default: "" } },
  async run({ only }, report) {
    const chosen = cases.filter(({ name }) => name.includes(only));
    for (const one of chosen) {
      const { complete, bytes, seconds, before, most } = await readAll(one);
      const [first, last] = [before, most].map((resident) => (resident / MIB).toFixed(0));
      const rate = (bytes / seconds / 1_000).toFixed(0);
      const text = `${one.name}: ${complete} of ${one.readers} complete, ${bytes} bytes each, in ${seconds.toFixed(1)} s (${rate} KB/s); resident ${first} MiB before, ${last} MiB at most`;
      const holds = complete === one.readers && most <= MAX_RESIDENT_MIB * MIB;
      if (holds) report.say(text);
      else report.wrong(text, { only: one.name });
    }
    return `${chosen.length} cases`;
  },
});
