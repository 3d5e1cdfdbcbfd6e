import { tmpdir } from "node:os";
import { join } from "node:path";
import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { temporaryFolder } from "../harness/sqlite-files.ts";
import type { AnswerKind, Verdicts } from "../harness/world/deadline-answers.ts";
import { answerInTime, answerInWorld, answerKinds, sumOf } from "../harness/world/deadline-answers.ts";
import { duel } from "../harness/world/duels.ts";

/** How many runs are asked at once with the machine's clock. */
const AT_ONCE = 50;

export const trial = command({
  about:
    "Races answers against deadlines and against each other. First come answers of each kind to the question of a sub-run, within 10 ms of its deadline, in the simulated world and with the machine's clock. Then two different answers at once to two runtimes on one file.",
  options: {
    seed,
    count: { about: "How many answers of each kind are given at a deadline.", default: 1_000 },
    duels: { about: "How often two answers are given at once.", default: 200 },
  },
  async run({ seed, count, duels }, report) {
    const folder = temporaryFolder(tmpdir());
    const tell = ({ durable, answer }: AnswerKind, where: string, verdicts: Verdicts): void => {
      for (const what of verdicts.wrong) report.wrong(what, { duels: 0 });
      const outcomes = Object.entries(verdicts.outcomes).map(([outcome, times]) => `${times} ${outcome}`);
      report.say(`answers ${answer}, ${durable ? "durable" : "plain"}, ${where}: ${outcomes.join(", ")}`);
    };
    for (const kind of answerKinds) {
      const inWorld: Verdicts[] = [];
      for (let n = 0; n < count; n++) inWorld.push(await answerInWorld(kind, seed + n));
      tell(kind, "in the simulated world", sumOf(inWorld));
      const inTime: Verdicts[] = [];
      for (let done = 0; done < count; done += AT_ONCE) {
        const file = join(folder.path, `${kind.durable}-${kind.answer.replaceAll(" ", "-")}-${done}.db`);
        inTime.push(await answerInTime(kind, Math.min(AT_ONCE, count - done), seed + done, file));
      }
      tell(kind, "with the machine's clock", sumOf(inTime));
    }
    for (let n = 0; n < duels; n++)
      for (const what of await duel(join(folder.path, `duel-${n}.db`), seed + n))
        report.wrong(what, { seed: seed + n, count: 0, duels: 1 });
    folder.remove();
    return `${2 * answerKinds.length * count} answers at deadlines and ${duels} duels`;
  },
});
