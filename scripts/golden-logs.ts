/**
 * Writes the logs that every later version has to read: `npx tsx scripts/golden-logs.ts`. A log that exists is kept.
 * `--replace <name>` writes it again, which declares that later versions need not read the old one.
 */
import { existsSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { agents } from "../test/golden/agents.ts";
import { record } from "../test/golden/play.ts";

// The library does not keep the process alive.
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
