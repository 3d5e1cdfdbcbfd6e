import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import type { HostileResult, Layout, Wrong } from "../harness/hostile/trial.ts";
import { alike, playHostile, removeProgram } from "../harness/hostile/trial.ts";
import { startServer } from "../harness/postgres-server.ts";

const STORES = ["memory", "sqlite", "postgres"] as const;
const LAYOUTS = ["one process", "front and worker", "replayed"] as const satisfies readonly Layout[];
const parts: readonly (readonly [store: (typeof STORES)[number], layout: Layout])[] = [
  ["memory", "one process"],
  ["memory", "replayed"],
  ["sqlite", "one process"],
  ["sqlite", "front and worker"],
  ["sqlite", "replayed"],
  ["postgres", "one process"],
  ["postgres", "front and worker"],
];
const CHUNK = 2_500;

export const trial = command({
  about:
    "Sends hostile inputs, answers, messages, outputs and schemas over every face, on each store. It is wrong if a process dies, a refusal is not clear, or a run is stuck.",
  options: {
    seed,
    cases: { about: "How many cases are played.", default: 100_000 },
    stores: { about: "The stores.", default: STORES, oneOf: STORES },
    layouts: { about: "How the processes are set up.", default: LAYOUTS, oneOf: LAYOUTS },
    from: { about: "The number of the first case.", default: 0 },
  },
  async run({ seed, cases, stores, layouts, from }, report) {
    const chosen = parts.filter(([store, layout]) => stores.includes(store) && layouts.includes(layout));
    const server = chosen.some(([store]) => store === "postgres") ? await startServer(18) : undefined;
    const all = new Map<string, readonly HostileResult[]>();
    let played = 0;
    for (const [index, [store, layout]] of chosen.entries()) {
      const where = { stores: [store], layouts: [layout] };
      const wrong: Wrong[] = [];
      const share = Math.ceil(cases / chosen.length);
      for (let done = 0; done < share; done += CHUNK) {
        const place =
          store === "memory" ? undefined : server && store === "postgres" ? newSchemaOn(server.address) : newFile();
        const count = Math.min(CHUNK, share - done);
        const first = from + index * share + done;
        const result = await playHostile({ layout, place, seed: String(seed), from: first, count });
        place?.remove();
        played += count;
        const name = `${store}, ${layout}`;
        all.set(name, [...(all.get(name) ?? []), result]);
        wrong.push(...result.wrong);
        for (const line of result.deaths) report.wrong(`death: ${line}`, where);
        for (const line of result.slow.slice(0, 5)) report.say(`slow: ${line}`);
        report.progress(`${name}: ${played} cases`);
      }
      for (const line of alike(wrong)) report.wrong(line, { ...where, ...caseIn(line) });
    }
    await server?.stop();
    await removeProgram();
    for (const line of saidIn([...all.values()].flat())) report.say(line);
    for (const line of tableOf(all)) report.say(line);
    return `${played} cases`;
  },
});

/** The case that a mistake names. */
function caseIn(line: string): { readonly from?: number; readonly cases?: number } {
  const [, number] = /\n {2}case (\d+)/.exec(line) ?? [];
  return number === undefined ? {} : { from: Number(number), cases: 1 };
}

/** The errors that the logger got, the most frequent first. */
function saidIn(results: readonly HostileResult[]): readonly string[] {
  const said = new Map<string, number>();
  for (const result of results) for (const [line, count] of result.said) said.set(line, (said.get(line) ?? 0) + count);
  const sorted = [...said].sort(([, one], [, other]) => other - one);
  return sorted.slice(0, 20).map(([line, count]) => `${count} × ${line}`);
}

/** What was refused, by face and kind, in a column for each store. */
function tableOf(all: ReadonlyMap<string, readonly HostileResult[]>): readonly string[] {
  const names = [...new Set([...all.values()].flat().flatMap(({ counts }) => [...counts.keys()]))].sort();
  const rows = names.map((name) => {
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
    return `| ${name.replace("/", ", ")} | ${cells.join(" | ")} |`;
  });
  return ["", `| face, kind | ${[...all.keys()].join(" | ")} |`, `| --- |${" ---: |".repeat(all.size)}`, ...rows];
}
