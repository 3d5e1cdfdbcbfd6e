import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { newSchemaOn } from "../harness/crash/place.ts";
import { manyProcesses } from "../harness/crash/processes.ts";
import { startServer } from "../harness/postgres-server.ts";

export const trial = command({
  about:
    "Several processes run random agent programs on one store, and a random one of them is killed again and again. No run may be lost, or be executed by two processes at once.",
  options: {
    seed,
    program: { about: "The name of one random program that all runs execute, such as 7-12.", default: "" },
    runs: { about: "How many runs are made.", default: 20_000 },
    processes: { about: "How many processes execute runs.", default: 4 },
    webs: { about: "How many more processes execute nothing.", default: 0 },
    seconds: { about: "How long it may take.", default: 900 },
    killEvery: { about: "The seconds from one kill to the next.", default: 1 },
    store: {
      about: "A SQLite file, or a PostgreSQL server that is started for it.",
      default: "sqlite",
      oneOf: ["sqlite", "postgres"],
    },
    clocks: {
      about: "Wrong clocks are off by up to an hour, and jump: each by itself on a server, all at once on a file.",
      default: "right",
      oneOf: ["right", "wrong"],
    },
    punctual: { about: "Judges delays too, which needs a quiet machine and few kills.", default: false },
  },
  async run({ seed, program, runs, processes, webs, seconds, killEvery, store, clocks, punctual }, report) {
    const server = store === "postgres" ? await startServer(18) : undefined;
    const { wrong, said, ...figures } = await manyProcesses({
      ...{ seed: String(seed), oneProgram: program || undefined, processes, webs, runs, punctual },
      killEveryMs: 1_000 * killEvery,
      wrongClocks: clocks === "wrong",
      atMostMs: 1_000 * seconds,
      place: server && newSchemaOn(server.address),
      onProgress: (progress) => report.progress(progress),
    });
    await server?.stop();
    for (const line of said.slice(0, 20)) report.say(line);
    report.say(figures);
    for (const what of wrong) report.wrong(what);
    return `${runs} runs and ${figures.kills} kills`;
  },
});
