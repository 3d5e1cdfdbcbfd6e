import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { startServer } from "../harness/postgres-server.ts";
import { feedCosts } from "../harness/watches/costs.ts";
import { watches } from "../harness/watches/watches.ts";

export const trial = command({
  about:
    "Kills watchers and workers, beside transactions that stay open. Each event of each run has to be noted, in its order, and each question mailed once to each address. Then prints what a feed costs: statements and bytes of the log of the server for each run.",
  options: {
    seed,
    runs: { about: "How many runs are watched.", default: 1_000 },
    kills: { about: "How many processes are killed, at least.", default: 150 },
    atOnce: { about: "How many runs are open at a time.", default: 400 },
    openMs: { about: "How long a transaction stays open, in milliseconds.", default: 60_000 },
  },
  async run({ seed, runs, kills, atOnce, openMs }, report) {
    // A page that is written whole after a checkpoint belongs to no run.
    const server = await startServer(18, { full_page_writes: "off" });
    if ("missing" in server.address) throw new Error(server.address.missing);
    const { host, port } = server.address;
    const { wrong, ...figures } = await watches({
      ...{ server: { host, port }, schema: "watches", seed, runs, atOnce, kills, mailsBetweenKills: 20, openMs },
      onProgress: (runs, kills) => report.progress(`${runs} runs, ${kills} kills`),
    });
    report.say(figures);
    for (const what of wrong) report.wrong(what);
    for (const cost of await feedCosts({ host, port })) report.say(cost);
    await server.stop();
    return `${figures.events} events of ${figures.runs} runs, and ${figures.kills} kills`;
  },
});
