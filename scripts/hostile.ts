/**
 * Hostile inputs, answers, messages, outputs and schemas over every face, on each store: `npm run test:hostile -- --cases
 * 100000 --seed mine`. `--only 17 --place memory,one` plays one case. Prints what was refused by face, kind and store, and exits
 * with 1 if a process died, a refusal was not clear, or a run is stuck.
 */
import { parseArgs } from "node:util";
import { newFile, newSchemaOn } from "../test/harness/crash/place.ts";
import type { HostileResult, Layout } from "../test/harness/hostile/trial.ts";
import { alike, playHostile, removeProgram } from "../test/harness/hostile/trial.ts";
import { startServer } from "../test/harness/postgres-server.ts";

const { values } = parseArgs({
  options: {
    cases: { type: "string", default: "100000" },
    seed: { type: "string", default: `${Date.now()}` },
    stores: { type: "string", default: "memory,sqlite,postgres" },
    layouts: { type: "string", default: "one process,front and worker,replayed" },
    only: { type: "string" },
    show: { type: "string", default: "30" },
  },
});
const parts: readonly (readonly [store: string, layout: Layout])[] = [
  ["memory", "one process"],
  ["memory", "replayed"],
  ["sqlite", "one process"],
  ["sqlite", "front and worker"],
  ["sqlite", "replayed"],
  ["postgres", "one process"],
  ["postgres", "front and worker"],
];
const CHUNK = 2_500;

console.log(`seed ${values.seed}`);
const chosen = parts.filter(
  ([store, layout]) => values.stores.split(",").includes(store) && values.layouts.split(",").includes(layout),
);
const server = chosen.some(([store]) => store === "postgres") ? await startServer(18) : undefined;
const all = new Map<string, HostileResult[]>();
const since = Date.now();
for (const [index, [store, layout]] of chosen.entries()) {
  const share = values.only === undefined ? Math.ceil(Number(values.cases) / chosen.length) : 1;
  for (let from = 0; from < share; from += CHUNK) {
    const place =
      store === "memory" ? undefined : server && store === "postgres" ? newSchemaOn(server.address) : newFile();
    const first = values.only === undefined ? index * share + from : Number(values.only);
    const result = await playHostile({
      layout,
      place,
      seed: values.seed,
      from: first,
      count: Math.min(CHUNK, share - from),
    });
    place?.remove();
    const name = `${store}, ${layout}`;
    all.set(name, [...(all.get(name) ?? []), result]);
    const seconds = Math.round((Date.now() - since) / 1_000);
    console.log(
      `${seconds} s: ${name} ${from}: ${result.deaths.length} deaths, ${result.wrong.length} wrong, ${result.slow.length} slow`,
    );
  }
}
await server?.stop();
await removeProgram();

const results = [...all.values()].flat();
const wrong = results.flatMap((result) => result.wrong);
const deaths = results.flatMap((result) => result.deaths);
const slow = results.flatMap((result) => result.slow);
for (const line of deaths.slice(0, Number(values.show))) console.error(`death: ${line}`);
for (const line of alike(wrong).slice(0, Number(values.show))) console.error(`wrong: ${line}`);
for (const line of slow.slice(0, 5)) console.error(`slow: ${line}`);
const said = new Map<string, number>();
for (const result of results) for (const [line, count] of result.said) said.set(line, (said.get(line) ?? 0) + count);
for (const [line, count] of [...said].sort(([, one], [, other]) => other - one).slice(0, 20))
  console.log(`${count} × ${line}`);

const names = [...new Set(results.flatMap(({ counts }) => [...counts.keys()]))].sort();
console.log(`\n| face, kind | ${[...all.keys()].join(" | ")} |\n| --- |${" ---: |".repeat(all.size)}`);
for (const name of names) {
  const cells = [...all.values()].map((chunks) => {
    const sum = { cases: 0, sent: 0, refused: 0 };
    for (const { counts } of chunks) {
      const { cases = 0, sent = 0, refused = 0 } = counts.get(name) ?? {};
      sum.cases += cases;
      sum.sent += sent;
      sum.refused += refused;
    }
    return `${sum.cases} (${sum.sent} sent, ${sum.refused} refused)`;
  });
  console.log(`| ${name.replace("/", ", ")} | ${cells.join(" | ")} |`);
}
const cases = results.flatMap(({ counts }) => [...counts.values()]).reduce((sum, { cases }) => sum + cases, 0);
console.log(JSON.stringify({ cases, deaths: deaths.length, wrong: wrong.length, slow: slow.length }));
process.exitCode = deaths.length + wrong.length > 0 ? 1 : 0;
