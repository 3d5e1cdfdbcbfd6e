/**
 * Writes the logs that every later version has to understand: `npx tsx scripts/golden-logs.ts`. A log that is there is
 * kept; `--replace <name>` writes it anew, which says that logs like it are not understood any more.
 */
import { existsSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { agents } from "../test/golden/agents.ts";
import { record } from "../test/golden/play.ts";

// The library itself holds the process open with nothing.
const alive = setInterval(() => undefined, 1_000);
const { values } = parseArgs({ options: { replace: { type: "string", multiple: true, default: [] } } });
for (const name of Object.keys(agents)) {
  const file = new URL(`../test/golden/${name}.json`, import.meta.url);
  if (existsSync(file) && !values.replace.includes(name)) {
    console.log(`kept      ${name}`);
    continue;
  }
  writeFileSync(file, `${JSON.stringify(await record(name), null, 1)}\n`);
  console.log(`written   ${name}`);
}
clearInterval(alive);
