import { keep } from "../../src/stores/contract/samples.ts";
import { command } from "../harness/commands/commands.ts";
import type { Report } from "../harness/commands/report.ts";
import type { NewPlace, Place } from "../harness/crash/place.ts";
import { newFile, newSchemaOn, openPlace } from "../harness/crash/place.ts";
import type { LongRun } from "../harness/long-logs/long-logs.ts";
import { copyRun, inspect, kinds, longRuntime, makeLong, readers } from "../harness/long-logs/long-logs.ts";
import { longestTurnOf } from "../harness/longest-turn.ts";
import { startServer } from "../harness/postgres-server.ts";

type Act = (run: LongRun) => Promise<unknown>;

const { resume, ...reading } = readers;
/** What is done with two runs of the same log, in order. */
const acts: readonly Readonly<Record<string, Act>>[] = [
  {
    ...reading,
    inspector: inspect,
    resume,
    "getRun, ended": readers.getRun,
    prune: ({ store }) => Promise.resolve(store.prune({ ...keep, endedBefore: Number.POSITIVE_INFINITY })),
  },
  { resume, delete: ({ runtime, run_id }) => runtime.delete(run_id) },
];

interface Options {
  readonly entries: number;
  readonly turn: number;
}

export const trial = command({
  about:
    "Reads runs with long logs by each call, executes them again, and deletes them, each in a runtime that has not read them. It is wrong if a turn of the event loop takes more processor time than allowed, without what the collector of Node may have had of it.",
  options: {
    entries: { about: "How many entries the logs have.", default: 100_000 },
    turn: { about: "The processor time of a turn that is allowed, in milliseconds.", default: 20 },
    store: { about: "Where the runs are.", oneOf: ["sqlite", "postgres", "both"], default: "both" },
    kind: { about: "What the logs are made of.", oneOf: [...kinds, "all"], default: "all" },
  },
  async run({ store, kind, ...options }, report) {
    // Node loads the parts of `fetch` at their first use.
    await new Response(new Request("http://localhost").url).text();
    for (const each of kinds) {
      if (kind !== "all" && kind !== each) continue;
      const made = newFile();
      const runtime = longRuntime(await openPlace(made.place), options.entries);
      const run_id = await makeLong(runtime, each, options.entries);
      await runtime.close();
      if (store !== "postgres") await tryActs(made.place, newFile, run_id, `sqlite, ${each}`, options, report);
      if (store !== "sqlite") {
        const server = await startServer(18);
        await tryActs(made.place, () => newSchemaOn(server.address), run_id, `postgres, ${each}`, options, report);
        await server.stop();
      }
      made.remove();
    }
    return `logs of ${options.entries} entries`;
  },
});

async function tryActs(
  made: Place,
  newPlace: () => NewPlace,
  run_id: string,
  name: string,
  { entries, turn }: Options,
  report: Report,
): Promise<void> {
  for (const several of acts) {
    const { place, remove } = newPlace();
    const [from, to] = [await openPlace(made), await openPlace(place)];
    await copyRun(from, to, { tenant: "", run_id });
    await Promise.all([from.close(), to.close()]);
    for (const [what, act] of Object.entries(several)) {
      const store = await openPlace(place);
      const runtime = longRuntime(store, entries);
      const { turnMs, collectedMs, ms } = await longestTurnOf(() => act({ runtime, store, run_id }));
      await runtime.close();
      const longest = `longest turn ${turnMs.toFixed(1)} ms, of which the collector up to ${collectedMs.toFixed(1)}`;
      report.check(turnMs - collectedMs <= turn, `${name}, ${what}: ${Math.round(ms)} ms, ${longest}`);
    }
    remove();
  }
}
