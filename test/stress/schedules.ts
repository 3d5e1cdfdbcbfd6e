import { command } from "../harness/commands/commands.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import { startServer } from "../harness/postgres-server.ts";
import { Random } from "../harness/random.ts";
import { trySchedules } from "../harness/schedules/trial.ts";

export const trial = command({
  about:
    "Schedules in several processes, of which one is killed or frozen each second, while they are changed, paused, resumed and triggered. It is wrong if a time or a trigger has no run or two, or if there is a run for what is no time.",
  options: {
    store: { about: "Where the runs are.", default: "all", oneOf: ["all", "sqlite", "postgres"] },
    seed: { about: "The seed of what is done.", default: 1 },
    schedules: { about: "How many schedules there are, each with a time every two to five seconds.", default: 24 },
    seconds: { about: "How long it takes on each store.", default: 120 },
    processes: { about: "How many processes execute them.", default: 4 },
  },
  async run({ store, seed, schedules, seconds, processes }, report) {
    const options = { processes, count: schedules, seconds };
    for (const kind of ["sqlite", "postgres"] as const) {
      if (store !== "all" && store !== kind) continue;
      const server = kind === "postgres" ? await startServer(18) : undefined;
      try {
        const place = server === undefined ? newFile() : newSchemaOn(server.address);
        // On a file all processes have the clock of the machine.
        const clocks = server === undefined ? "right" : "wrong";
        const onDone = (kills: number): void => report.progress(`${kind}: ${kills} kills`);
        const { wrong, ...figures } = await trySchedules(place, {
          ...{ ...options, clocks, onDone },
          random: new Random(seed),
        });
        report.say(`${kind}: ${JSON.stringify(figures)}`);
        for (const one of wrong.slice(0, 20)) report.say(`${kind}: ${one}`);
        report.check(wrong.length === 0, `${kind}: ${wrong.length} wrong of ${figures.runs} runs`);
      } finally {
        await server?.stop();
      }
    }
    return `${schedules} schedules`;
  },
});
