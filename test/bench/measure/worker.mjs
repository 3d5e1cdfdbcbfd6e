/**
 * Takes one measurement in a process of its own and prints it as one line of JSON:
 * `worker.mjs <case> <subject> [quick]`. This folder is plain JavaScript, so that no compiler takes part in a measurement.
 */
import { cases } from "./cases/index.mjs";

const [caseName, subject, scale = "full"] = process.argv.slice(2);
const figures = await cases[caseName](subject, scale);
// Some peers leave timers running.
process.stdout.write(`${JSON.stringify(figures)}\n`, () => process.exit(0));
