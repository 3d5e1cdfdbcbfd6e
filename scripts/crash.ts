/**
 * Kills a process at random moments while it runs random agent programs, and starts it again. Checks that nothing was
 * lost or done twice, and that each run has the right output.
 * `npm run test:crash -- --kills 1000 --runs 10000 --seed mine`
 */
import { parseArgs } from "node:util";
import { crash } from "../test/harness/crash/crash.ts";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "1000" },
    runs: { type: "string", default: "10000" },
    seed: { type: "string", default: `${Date.now()}` },
  },
});
const { seed } = values;
console.log(`seed ${seed}`);
let said = 0;
const started = Date.now();
const {
  wrong,
  said: lines,
  ...figures
} = await crash({
  seed,
  kills: Number(values.kills),
  runs: Number(values.runs),
  onProgress: (progress) => {
    if (progress.kills < said + 20) return;
    said = progress.kills;
    console.log(`${Math.round((Date.now() - started) / 1000)} s: ${JSON.stringify(progress)}`);
  },
});
for (const line of lines.slice(0, 20)) console.log(line);
for (const line of wrong.slice(0, 50)) console.error(line);
console.log(JSON.stringify({ ...figures, wrong: wrong.length }));
process.exitCode = wrong.length === 0 ? 0 : 1;
