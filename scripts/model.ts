import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import type { Findings } from "../test/harness/model/run.ts";
import { explain, playAll } from "../test/harness/model/run.ts";
import { anySeed, wholeSeed } from "../test/harness/random.ts";

/*
 * Plays 200,000 random schedules against the runtime, in one process per processor: half of them over a store that
 * answers at once, the others over one that answers late, and over one that also fails. `npm run test:model -- 7 1000`
 * plays 1,000, from seed 7 on.
 */
const stores = ["at once", "late", "at once", "failing"] as const;
const DEFAULT_COUNT = 200_000;

const [, , first = anySeed(), second = DEFAULT_COUNT] = process.argv;
const [from, count] = [wholeSeed(first), Number(second)];

if (process.send === undefined) process.exitCode = await playInShards(from, count);
else {
  const findings = await playAll({ from, count, stores });
  process.send(findings);
  process.disconnect();
}

async function playInShards(from: number, count: number): Promise<number> {
  const shards = Math.min(availableParallelism(), count);
  const size = Math.ceil(count / shards);
  console.log(`Playing ${count} schedules from seed ${from} on, in ${shards} processes.`);
  const started = performance.now();
  const all = await Promise.all(
    Array.from({ length: shards }, (_, shard) => {
      return playShard(from + shard * size, Math.min(size, count - shard * size));
    }),
  );
  const seconds = (performance.now() - started) / 1000;
  const sum = (key: "schedules" | "runs" | "entries") => all.reduce((total, findings) => total + findings[key], 0);
  const failures = all.flatMap((findings) => findings.failures);
  console.log(
    `${sum("schedules")} schedules, ${sum("runs")} runs, ${sum("entries")} entries in ${seconds.toFixed(1)} s; ${failures.length} broke a rule.`,
  );
  for (const { seed } of failures) console.log(await explain(seed, { stores }));
  return failures.length > 0 || sum("schedules") < count ? 1 : 0;
}

function playShard(from: number, count: number): Promise<Findings> {
  const child: ChildProcess = fork(fileURLToPath(import.meta.url), [String(from), String(count)]);
  return new Promise((resolve, reject) => {
    child.once("message", (findings) => resolve(findings as Findings));
    child.once("exit", (code) => reject(new Error(`The processes for the seeds from ${from} on ended with ${code}.`)));
  });
}
