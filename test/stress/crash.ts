import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { crash } from "../harness/crash/crash.ts";

export const trial = command({
  about:
    "Kills a process at random moments while it runs random agent programs, and starts it again. Checks that nothing was lost or done twice, and that each run has the right output.",
  options: {
    seed,
    program: { about: "The name of one random program that all runs execute, such as 7-12.", default: "" },
    kills: { about: "How often the process is killed.", default: 1_000 },
    runs: { about: "How many runs are made, at least.", default: 10_000 },
    replays: {
      about:
        "Whether each run is also replayed after each commit, with a snapshot of each entry. Every second snapshot is lost, torn or of another format.",
      oneOf: ["no", "always"],
      default: "no",
    },
  },
  async run({ seed, program, kills, runs, replays }, report) {
    const { wrong, said, ...figures } = await crash({
      ...{ seed: String(seed), oneProgram: program || undefined, kills, runs, replays: replays === "always" },
      onProgress: (progress) => report.progress(progress),
    });
    for (const line of said.slice(0, 20)) report.say(line);
    report.say(figures);
    for (const what of wrong) report.wrong(what);
    return `${figures.kills} kills`;
  },
});
