import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import type { Report } from "../harness/commands/report.ts";
import { inShards } from "../harness/commands/shards.ts";
import type { Method } from "../harness/store-proxy.ts";
import { crashedOtherwise, crashPoints } from "../harness/world/crash-points.ts";
import { evictAndAnswer } from "../harness/world/evicted-runs.ts";
import {
  courses,
  failedOtherwise,
  failurePoints,
  OUTAGES_MS,
  outagePoints,
  playIn,
} from "../harness/world/failing-calls.ts";
import { forkAll } from "../harness/world/forks.ts";
import { tryIsolation } from "../harness/world/isolation.ts";
import { play } from "../harness/world/play.ts";
import { scenarios } from "../harness/world/scenarios.ts";
import type { Findings, Trial } from "../harness/world/trials.ts";
import { noFindings, sumOf, troubles, tryAll, trial as tryProgram } from "../harness/world/trials.ts";
import type { Failure } from "../harness/world/world.ts";

const PARTS = ["all", "crashes", "failures", "outages", "evictions", "programs", "isolation", "forks"] as const;
type Part = (typeof PARTS)[number];

interface Given {
  readonly seed: number;
  readonly part: Part;
  readonly trouble: (typeof troubles)[number] | "";
  readonly scenario: string;
  readonly programs: number;
  readonly worlds: number;
  readonly evictions: number;
  readonly forks: number;
  readonly share: number;
}
type Reporting = Report<Given>;

export const trial = command({
  about:
    "Durable runs in the simulated world, under all that may happen to their processes and their store. Parts: crashes at every call of the store, and two of them one after the other; failures of every call, and outages that begin there; evicted runs; random programs; worlds of eight tenants with a program each; random forks.",
  options: {
    seed,
    part: { about: "The part that is tried.", default: "all", oneOf: PARTS },
    trouble: { about: "Tries one program alone, that of the seed, with this trouble.", default: "", oneOf: troubles },
    scenario: { about: "A text in the names of the scenarios that crash or whose calls fail.", default: "" },
    programs: { about: "How many random programs are tried.", default: 100_000 },
    worlds: { about: "How many worlds of eight tenants are tried.", default: 2_000 },
    evictions: { about: "How many runs are evicted.", default: 100_000 },
    forks: { about: "How many forks are made, at least.", default: 10_000 },
    share: { about: "Lets one of so many calls fail, or begin an outage.", default: 1 },
  },
  async run(given, report) {
    const { part, trouble } = given;
    if (trouble !== "") return tryOne(given, trouble, report);
    const parts: Readonly<Record<Exclude<Part, "all">, () => Promise<string>>> = {
      crashes: () => crashEverywhere(given, report),
      failures: () => failEverywhere("failures", given, failurePoints, report),
      outages: () =>
        failEverywhere("outages", given, (calls) => OUTAGES_MS.flatMap((ms) => outagePoints(calls, ms)), report),
      evictions: () => evictMany(given, report),
      programs: () => tryPrograms(given, report),
      isolation: () => tryWorlds(given, report),
      forks: () => tryForks(given, report),
    };
    const tried: string[] = [];
    for (const [name, tryIt] of Object.entries(parts)) if (part === "all" || part === name) tried.push(await tryIt());
    return tried.join(", ");
  },
});

async function tryOne({ seed }: Given, trouble: (typeof troubles)[number], report: Reporting): Promise<string> {
  const one = await tryProgram(seed, trouble);
  if (one.wrong.length > 0) report.wrong(one.wrong.join("\n"));
  return `one program of ${one.steps} steps, disturbed ${one.crashes} times`;
}

async function crashEverywhere({ scenario: text }: Given, report: Reporting): Promise<string> {
  let plays = 0;
  for (const late of [false, true]) {
    for (const scenario of scenarios.filter(({ name }) => name.includes(text))) {
      const uncrashed = await play(scenario, { late });
      const points = crashPoints(uncrashed.world.processes[0]?.storeCalls ?? []);
      for (const [index, point] of points.entries()) {
        const next = points[(index * 7 + 3) % points.length] ?? point;
        for (const crashes of [[point], [point, next]])
          for (const what of await crashedOtherwise(scenario, crashes, uncrashed, late))
            report.wrong(what, { part: "crashes", scenario: scenario.name });
        plays += 2;
      }
      report.progress(`${plays} crashed plays`);
    }
  }
  return `${plays} crashed plays`;
}

/** Lets calls of the store fail, one at a time or all for a while, from each call on. */
async function failEverywhere(
  part: "failures" | "outages",
  { share, scenario: text }: Given,
  pointsOf: (calls: readonly Method[]) => readonly Failure[],
  report: Reporting,
): Promise<string> {
  let plays = 0;
  const onUnhandled = (error: unknown): void => report.wrong(`unhandled: ${String(error)}`, { part });
  process.on("unhandledRejection", onUnhandled).on("uncaughtException", onUnhandled);
  for (const course of courses) {
    for (const [index, scenario] of scenarios.entries()) {
      if (!scenario.name.includes(text)) continue;
      const unfailed = await playIn(scenario, course);
      const points = pointsOf(unfailed.world.processes[0]?.storeCalls ?? []);
      for (const [number, point] of points.entries()) {
        if ((number + index) % share !== 0) continue;
        plays += 1;
        for (const what of await failedOtherwise(scenario, course, point, unfailed))
          report.wrong(what.slice(0, 1_500), { part, scenario: scenario.name });
      }
      report.progress(`${plays} plays with ${part}, ${JSON.stringify(course)}`);
    }
  }
  process.off("unhandledRejection", onUnhandled).off("uncaughtException", onUnhandled);
  return `${plays} plays with ${part}`;
}

async function evictMany({ evictions }: Given, report: Reporting): Promise<string> {
  const { heapBefore, heapEvicted, loaded, completed } = await evictAndAnswer(evictions);
  const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  const part = { part: "evictions" } as const;
  report.say(`${evictions} evicted runs: the heap holds ${mib(heapEvicted)}, and ${mib(heapBefore)} before`);
  if (heapEvicted > 1.1 * heapBefore) report.wrong("evicted runs hold more than 10 % of the heap before", part);
  if (loaded > 0) report.wrong(`${loaded} evicted runs are in memory`, part);
  if (completed < evictions) report.wrong(`only ${completed} evicted runs completed`, part);
  return `${evictions} evictions`;
}

async function tryForks({ seed, forks }: Given, report: Reporting): Promise<string> {
  const { trials, wrong } = await forkAll(seed, forks);
  for (const one of wrong)
    report.wrong(`${one.trouble}\n${one.wrong.join("\n")}`, { part: "forks", seed: one.seed, forks: 1 });
  return `${trials} forks`;
}

function tryPrograms({ seed, programs }: Given, report: Reporting): Promise<string> {
  const again = ({ seed, trouble }: Trial): Partial<Given> => ({ seed, trouble });
  return tryRange(tryAll.name, "trials.ts", { from: seed, count: programs, chunk: 500 }, again, report);
}

function tryWorlds({ seed, worlds }: Given, report: Reporting): Promise<string> {
  const again = ({ seed }: Trial): Partial<Given> => ({ part: "isolation", seed, worlds: 1 });
  return tryRange(tryIsolation.name, "isolation.ts", { from: seed, count: worlds, chunk: 25 }, again, report);
}

/** Tries seeds in several processes. */
async function tryRange(
  name: string,
  file: string,
  seeds: { readonly from: number; readonly count: number; readonly chunk: number },
  again: (one: Trial) => Partial<Given>,
  report: Reporting,
): Promise<string> {
  let all: Findings = noFindings;
  const tried = { module: new URL(`../harness/world/${file}`, import.meta.url), name };
  await inShards<Findings>(tried, seeds, (found) => {
    all = sumOf(all, found);
    report.progress(`${all.programs} programs, ${all.trials} trials, ${all.troubles} troubles`);
    for (const one of found.wrong) report.wrong(one.wrong.join("\n"), again(one));
  });
  if (all.programs < seeds.count || all.trials < seeds.count) report.wrong(`only ${all.trials} trials were made`);
  return `${all.trials} trials of ${all.programs} programs with ${all.troubles} troubles`;
}
