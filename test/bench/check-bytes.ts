import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/*
 * Limits what a run allocates and what a waiting run keeps, in bytes, by the major version of Node: a change that adds 3 %
 * fails. With one thread, which compiles at the same places each time, they differ by 0.3 % from process to process, and on
 * a busy machine by 3 %: then the least of a few is taken. A change that is worth its bytes writes down the new figures,
 * and one that saves some does, too.
 */
const known: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  20: { run: 5_330, cycle: 10_050, waiting: 2_880 },
  22: { run: 5_260, cycle: 9_940, waiting: 2_960 },
  24: { run: 5_430, cycle: 10_410, waiting: 2_950 },
  26: { run: 5_320, cycle: 10_400, waiting: 2_960 },
};
const MOST = 1.03;
/** Where a limit seems to be passed it is measured again: code that was compiled late allocates more, and never less. */
const MAX_TRIES = 4;

/** The objects of the library's own classes that a waiting run holds: its four, its question, and the row of the store. */
const MOST_OBJECTS = 6;

const bytes = fileURLToPath(new URL("./bytes.ts", import.meta.url));
const objects = fileURLToPath(new URL("./objects.ts", import.meta.url));
const flags = ["--single-threaded", "--min-semi-space-size=1024", "--max-semi-space-size=1024", "--expose-gc"];
const major = process.versions.node.split(".")[0] ?? "";
const limits = known[major] ?? {};
if (known[major] === undefined) console.log(`There are no figures for Node ${major}: nothing is compared.`);

const least: Record<string, number> = {};
for (let tries = 0; tries < MAX_TRIES && (tries === 0 || passed().length > 0); tries++) {
  const printed = execFileSync(process.execPath, [...flags, "--import", "tsx", bytes], {
    encoding: "utf8",
  });
  for (const [what, taken] of Object.entries(JSON.parse(printed) as Record<string, number>))
    least[what] = Math.min(taken, least[what] ?? Number.POSITIVE_INFINITY);
}
for (const [what, taken] of Object.entries(least))
  console.log(`${passed().includes(what) ? "OVER" : "ok  "} ${what}: ${Math.round(taken)} B, known ${limits[what]}`);
const counted = execFileSync(process.execPath, ["--import", "tsx", objects], { encoding: "utf8" });
const classes = Object.entries(JSON.parse(counted) as Record<string, number>);
const held = Math.round(classes.reduce((sum, [, count]) => sum + count, 0));
console.log(`${held > MOST_OBJECTS ? "OVER" : "ok  "} objects of a waiting run: ${held}, known ${MOST_OBJECTS}`);
console.log(`     ${classes.map(([name, count]) => `${name} ${count}`).join(", ")}`);
process.exitCode = passed().length > 0 || held > MOST_OBJECTS ? 1 : 0;

/** What takes more than its limit. */
function passed(): readonly string[] {
  return Object.keys(least).filter((what) => (least[what] ?? 0) > MOST * (limits[what] ?? Number.POSITIVE_INFINITY));
}
