/**
 * Races answers against deadlines and against each other. First: 1,000 answers of each kind to the question of a
 * sub-run, within 10 ms of its deadline, in the simulated world and with the machine's clock. Then: 200 times two
 * different answers at once to two runtimes on one file. `npm run test:answers -- --seed 7 --count 100 --duels 20`
 * tries fewer, with the numbers of seed 7.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { anySeed, wholeSeed } from "../test/harness/random.ts";
import { temporaryFolder } from "../test/harness/sqlite-files.ts";
import type { AnswerKind, Verdicts } from "../test/harness/world/deadline-answers.ts";
import { answerInTime, answerInWorld, answerKinds, sumOf } from "../test/harness/world/deadline-answers.ts";
import { duel } from "../test/harness/world/duels.ts";

/** How many runs are asked at once with the machine's clock. */
const AT_ONCE = 50;

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: anySeed() },
    count: { type: "string", default: "1000" },
    duels: { type: "string", default: "200" },
  },
});
const seed = wholeSeed(values.seed);
const count = Number(values.count);
const duels = Number(values.duels);
console.log(`seed ${seed}`);

const folder = temporaryFolder();
const wrong: string[] = [];
for (const kind of answerKinds) {
  tell(kind, "in the simulated world", await inWorld(kind));
  tell(kind, "with the machine's clock", await inTime(kind));
}
for (let n = 0; n < duels; n++) wrong.push(...(await duel(join(folder.path, `duel-${n}.db`), seed + n)));
console.log(`${duels} times two answers at once.`);
for (const what of wrong.slice(0, 50)) console.error(what);
console.log(`${wrong.length} wrong.`);
folder.remove();
process.exitCode = wrong.length === 0 ? 0 : 1;

async function inWorld(kind: AnswerKind): Promise<Verdicts> {
  const all: Verdicts[] = [];
  for (let n = 0; n < count; n++) all.push(await answerInWorld(kind, seed + n));
  return sumOf(all);
}

async function inTime(kind: AnswerKind): Promise<Verdicts> {
  const all: Verdicts[] = [];
  for (let done = 0; done < count; done += AT_ONCE) {
    const file = join(folder.path, `${kind.durable}-${kind.answer.replaceAll(" ", "-")}-${done}.db`);
    all.push(await answerInTime(kind, Math.min(AT_ONCE, count - done), seed + done, file));
  }
  return sumOf(all);
}

function tell({ durable, answer }: AnswerKind, where: string, verdicts: Verdicts): void {
  wrong.push(...verdicts.wrong);
  const outcomes = Object.entries(verdicts.outcomes).map(([outcome, times]) => `${times} ${outcome}`);
  console.log(`answers ${answer}, ${durable ? "durable" : "plain"}, ${where}: ${outcomes.join(", ")}`);
}
