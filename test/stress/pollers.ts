import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { pollThroughKills } from "../harness/pollers/pollers.ts";
import { Random } from "../harness/random.ts";

export const trial = command({
  about:
    "Polls tasks of MCP at three processes behind one address, which are killed in turn. It is wrong if a client sees a state twice, out of order or not at all.",
  options: { seed, kills: { about: "How many processes are killed.", default: 200 } },
  async run({ seed, kills }, report) {
    const { tasks, states, wrong, kills: done } = await pollThroughKills(kills, new Random(seed));
    for (const line of wrong) report.wrong(line);
    return `${done} kills, ${tasks} tasks, ${states} states`;
  },
});
