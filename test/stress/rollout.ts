import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import { startServer } from "../harness/postgres-server.ts";
import { buildWith, hasCommit, PRESENT } from "../harness/rollout/libraries.ts";
import { librariesOf, tryRollout } from "../harness/rollout/rollout.ts";
import type { BuiltProgram } from "../harness/worker-process.ts";

/** The libraries, from the oldest to the newest. `goesOn`: whether its processes work beside those of newer ones. */
const HISTORY = [
  { name: "d0acfdf", goesOn: false },
  { name: "8713a3b", goesOn: true },
  { name: PRESENT, goesOn: true },
] as const;
const [OLD, RECENT] = HISTORY.map(({ name }) => name);
const ORDERS = {
  forward: [OLD, RECENT, PRESENT],
  leap: [OLD, PRESENT],
  step: [RECENT, PRESENT],
  back: [PRESENT, RECENT, OLD],
} as const;

export const trial = command({
  about:
    "Processes of three versions of the library work on one store, one version after the other, under load and kills. It is wrong if a run is lost or does not end, its output is not what its log says, a step is executed by two processes at once or again without a reason, or a process does not stop cleanly where a newer version has changed the store.",
  options: {
    seed,
    order: {
      about: "In which order the versions come. In each, the earlier ones are started once more at the end.",
      default: "all",
      oneOf: ["all", ...Object.keys(ORDERS)],
    },
    store: { about: "Where they work.", default: "both", oneOf: ["both", "postgres", "sqlite"] },
    seconds: { about: "How long the versions work beside each other each time.", default: 20 },
    kills: {
      about: "How many processes of each version are killed meanwhile, and how many while they first open the store.",
      default: 3,
    },
  },
  async run({ seed, order, store, seconds, kills }, report) {
    const missing = HISTORY.find(({ name }) => name !== PRESENT && !hasCommit(name));
    if (missing !== undefined) return { skipped: `the history of the repository has no ${missing.name}` };
    const orders = Object.entries(ORDERS).filter(([name]) => order === "all" || order === name);
    const programs = new Map<string, BuiltProgram>();
    for (const { name } of HISTORY) programs.set(name, await buildWith(name));
    const server = store === "sqlite" ? undefined : await startServer(18);
    try {
      for (const place of ["sqlite", "postgres"] as const) {
        if (store !== "both" && store !== place) continue;
        for (const [name, libraries] of orders) {
          report.say(`${libraries.join(", ")} on ${place}`);
          const again = { order: name, store: place };
          const before = report.wrongs;
          const data = place === "sqlite" || server === undefined ? newFile() : newSchemaOn(server.address);
          await tryRollout(
            data,
            librariesOf(libraries as readonly string[], HISTORY, programs),
            { seed, seconds, kills },
            report,
          );
          if (report.wrongs > before) report.wrong(`${name} on ${place}`, again);
        }
      }
    } finally {
      await server?.stop();
      for (const program of programs.values()) program.remove();
    }
    return `${orders.length} orders of ${HISTORY.length} versions`;
  },
});
