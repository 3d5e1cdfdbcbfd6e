/**
 * The long tests of durable runs: crashes at every call of the store, and two of them one after the other; failures of every
 * call of the store, and outages that begin there; 100,000
 * evicted runs; 100,000 random programs; 2,000 worlds of eight tenants with a program each; 10,000 random forks.
 * `npm run test:durable -- --seed 7 --programs 1000` tries 1,000 programs from seed 7 on, and
 * `npm run test:durable -- --seed 7 --trouble crashes` tries one program alone. `--part crashes`, `failures`, `outages`,
 * `evictions`, `programs`, `isolation` or `forks` runs one part.
 */
import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { anySeed, wholeSeed } from "../test/harness/random.ts";
import type { Method } from "../test/harness/store-proxy.ts";
import { crashedOtherwise, crashPoints } from "../test/harness/world/crash-points.ts";
import { evictAndAnswer } from "../test/harness/world/evicted-runs.ts";
import {
  courses,
  failedOtherwise,
  failurePoints,
  OUTAGES_MS,
  outagePoints,
  playIn,
} from "../test/harness/world/failing-calls.ts";
import { forkAll } from "../test/harness/world/forks.ts";
import { again as againInIsolation, tryIsolation } from "../test/harness/world/isolation.ts";
import { play } from "../test/harness/world/play.ts";
import { scenarios } from "../test/harness/world/scenarios.ts";
import type { Findings, Trial } from "../test/harness/world/trials.ts";
import { again, noFindings, sumOf, trial, troubles, tryAll } from "../test/harness/world/trials.ts";
import type { Failure } from "../test/harness/world/world.ts";

const RUNS = 100_000;
const FORKS = 10_000;

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: anySeed() },
    programs: { type: "string", default: "100000" },
    worlds: { type: "string", default: "2000" },
    trouble: { type: "string" },
    part: { type: "string" },
    share: { type: "string", default: "1" },
  },
});
const seed = wholeSeed(values.seed);

/** What is tried in several processes: a range of seeds, in chunks. After each a process reports. */
interface Range {
  readonly what: "programs" | "worlds";
  readonly count: number;
  readonly chunk: number;
  readonly tried: (from: number, count: number) => Promise<Findings>;
  readonly again: (trial: Trial) => string;
}

const programs: Range = { what: "programs", count: Number(values.programs), chunk: 500, tried: tryAll, again };
const isolation: Range = {
  what: "worlds",
  count: Number(values.worlds),
  chunk: 25,
  tried: tryIsolation,
  again: againInIsolation,
};

if (process.send !== undefined) {
  await tryChunks(values.part === "isolation" ? isolation : programs, (findings) => process.send?.(findings));
  process.disconnect();
} else if (values.trouble !== undefined) {
  process.exitCode = (await tryOne(values.trouble)) ? 1 : 0;
} else {
  for (const [part, isWrong] of Object.entries({
    crashes: crashEverywhere,
    failures: () => failEverywhere("one failing call", failurePoints),
    outages: () => failEverywhere("outages", (calls) => OUTAGES_MS.flatMap((ms) => outagePoints(calls, ms))),
    evictions: evictMany,
    programs: () => tryInShards(programs),
    isolation: () => tryInShards(isolation),
    forks: tryForks,
  }))
    if ((values.part ?? part) === part && (await isWrong())) process.exitCode = 1;
}

/** Tries one program. Like the other parts, it answers whether anything went wrong. */
async function tryOne(name: string): Promise<boolean> {
  const trouble = troubles.find((one) => one === name);
  if (trouble === undefined) throw new Error(`There is no trouble ${name}: it is one of ${troubles.join(", ")}.`);
  const { crashes, steps, wrong } = await trial(seed, trouble);
  console.log(`${crashes} times something happened to a process, in ${steps} steps: ${wrong.length} wrong.`);
  for (const what of wrong) console.log(what);
  return wrong.length > 0;
}

async function crashEverywhere(): Promise<boolean> {
  const wrong: string[] = [];
  let plays = 0;
  for (const late of [false, true]) {
    for (const scenario of scenarios) {
      const uncrashed = await play(scenario, { late });
      const points = crashPoints(uncrashed.world.processes[0]?.storeCalls ?? []);
      for (const [index, point] of points.entries()) {
        const next = points[(index * 7 + 3) % points.length] ?? point;
        wrong.push(...(await crashedOtherwise(scenario, [point], uncrashed, late)));
        wrong.push(...(await crashedOtherwise(scenario, [point, next], uncrashed, late)));
        plays += 2;
      }
    }
  }
  console.log(`${scenarios.length} scenarios, ${plays} crashed plays: ${wrong.length} wrong.`);
  for (const what of wrong.slice(0, 10)) console.log(what);
  return wrong.length > 0;
}

/** Lets calls of the store fail, one at a time or all for a while, from each call on; with `--share 10` from one of ten. */
async function failEverywhere(
  what: string,
  pointsOf: (calls: readonly Method[]) => readonly Failure[],
): Promise<boolean> {
  const wrong: string[] = [];
  let plays = 0;
  let unhandled = 0;
  const count = (): void => {
    unhandled += 1;
  };
  process.on("unhandledRejection", count).on("uncaughtException", count);
  for (const course of courses) {
    for (const [index, scenario] of scenarios.entries()) {
      const unfailed = await playIn(scenario, course);
      const points = pointsOf(unfailed.world.processes[0]?.storeCalls ?? []);
      for (const [number, point] of points.entries()) {
        if ((number + index) % Number(values.share) !== 0) continue;
        plays += 1;
        wrong.push(...(await failedOtherwise(scenario, course, point, unfailed)));
      }
    }
    console.log(
      `${what}, ${JSON.stringify(course)}: ${plays} plays so far, ${wrong.length} wrong, ${unhandled} unhandled.`,
    );
  }
  process.off("unhandledRejection", count).off("uncaughtException", count);
  for (const one of wrong.slice(0, 30)) console.log(one.slice(0, 1_500));
  return wrong.length + unhandled > 0;
}

async function evictMany(): Promise<boolean> {
  const { heapBefore, heapEvicted, loaded, completed } = await evictAndAnswer(RUNS);
  const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  console.log(
    `${RUNS} evicted runs: the heap holds ${mib(heapEvicted)}, and ${mib(heapBefore)} before; ${loaded} in memory; ${completed} completed.`,
  );
  return heapEvicted > 1.1 * heapBefore || loaded > 0 || completed < RUNS;
}

async function tryForks(): Promise<boolean> {
  const { trials, troubles: happened, wrong } = await forkAll(seed, FORKS);
  console.log(`${trials} forks from seed ${seed} on, ${happened} troubles: ${wrong.length} wrong.`);
  for (const one of wrong.slice(0, 10)) console.log(`seed ${one.seed}, ${one.trouble}\n${one.wrong.join("\n")}`);
  return wrong.length > 0;
}

async function tryInShards(range: Range): Promise<boolean> {
  const { what, count, chunk } = range;
  const shards = Math.min(availableParallelism(), Math.ceil(count / chunk));
  const size = Math.ceil(count / shards);
  console.log(`Trying ${count} ${what} from seed ${seed} on, in ${shards} processes.`);
  const started = performance.now();
  let all = noFindings;
  const onProgress = (findings: Findings): void => {
    all = sumOf(all, findings);
    const seconds = ((performance.now() - started) / 1000).toFixed(0);
    console.log(
      `${all.programs} programs, ${all.trials} trials, ${all.troubles} troubles in ${seconds} s: ${all.wrong.length} wrong.`,
    );
    for (const one of findings.wrong) console.log(`${range.again(one)}\n${one.wrong.join("\n")}`);
  };
  await Promise.all(
    Array.from({ length: shards }, (_, shard) =>
      tryInShard(what, seed + shard * size, Math.min(size, count - shard * size), onProgress),
    ),
  );
  return all.wrong.length > 0 || all.programs < count || all.trials < count;
}

async function tryChunks(range: Range, onProgress: (findings: Findings) => void): Promise<void> {
  const { count, chunk, tried } = range;
  for (let done = 0; done < count; done += chunk) onProgress(await tried(seed + done, Math.min(chunk, count - done)));
}

function tryInShard(
  what: Range["what"],
  from: number,
  count: number,
  onProgress: (findings: Findings) => void,
): Promise<void> {
  const part = what === "worlds" ? "isolation" : "programs";
  const given = ["--part", part, "--seed", `${from}`, `--${what}`, `${count}`];
  const child: ChildProcess = fork(fileURLToPath(import.meta.url), given);
  child.on("message", (findings) => onProgress(findings as Findings));
  return new Promise((resolve, reject) => {
    child.once("exit", (code, signal) => {
      if (code === 0) resolve();
      else reject(new Error(`The process for the seeds from ${from} on ended with ${code ?? signal}.`));
    });
  });
}
