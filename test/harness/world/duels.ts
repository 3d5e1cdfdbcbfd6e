import { AgentRuntime, CadenzaError } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { Random } from "../random.ts";
import { openDatabase } from "../sqlite-files.ts";

/**
 * Two runtimes share a file, as two processes do, and get different answers to one question at once. Gives what went
 * wrong: one answer has to be taken, the other refused, and no line after `ask` may see the refused one.
 */
export async function duel(file: string, seed: number): Promise<readonly string[]> {
  const random = new Random(seed);
  const seen = new Set<string>();
  const runtimes = [open(file, seen), open(file, seen)] as const;
  const { run_id } = await runtimes[0].createRun({ agent_name: "agent", input: "" });
  const mode = random.pick(["sync", "async"] as const);
  const isInBoth = random.chance(0.5);
  // A refused answer to another question loads the run into the second runtime.
  if (isInBoth) await runtimes[1].resume({ run_id, await_id: "ask#9", await_resume: {} }).catch(() => undefined);
  const outcomes = await Promise.all(
    runtimes.map(async (runtime, n) => {
      for (let turns = random.below(4); turns > 0; turns--) await runtime.clock.turn();
      return runtime.resume({ run_id, await_id: "ask#1", await_resume: { n }, mode }).then(
        () => "taken",
        (error: unknown) => (CadenzaError.is(error) ? error.code : String(error)),
      );
    }),
  );
  const winner = outcomes.indexOf("taken");
  let answers: readonly string[] = [];
  // The step after the answer has ended when the run has.
  for (let { status } = await runtimes[0].getRun(run_id); status !== "completed"; ) {
    await runtimes[0].clock.turn();
    status = (await runtimes[0].getRun(run_id)).status;
  }
  for (const runtime of runtimes)
    answers = (await runtime.getRun(run_id)).output.map(({ parts }) => parts[0]?.content ?? "");
  for (const runtime of runtimes) await runtime.close({ drainMs: 0 });

  const wrong: string[] = [];
  const said = `seed ${seed}, ${mode}: `;
  if (outcomes.filter((outcome) => outcome === "taken").length !== 1) wrong.push(`${said}${outcomes.join(" and ")}`);
  if (!outcomes.some((outcome) => /^(answer_conflict|lost_ownership)$/.test(outcome)))
    wrong.push(`${said}refused with ${outcomes.join(" and ")}`);
  if (answers.join() !== `{"n":${winner}}`) wrong.push(`${said}${winner} was taken, and ${answers.join()} counts`);
  if ([...seen].join() !== answers.join()) wrong.push(`${said}the agent saw ${[...seen].join(" and ")}`);
  return wrong;
}

function open(file: string, seen: Set<string>): AgentRuntime {
  const store = new SqliteStore(openDatabase(file), { synchronous: "NORMAL", closeDatabase: true });
  const runtime = new AgentRuntime({ store });
  runtime.register("agent", { durable: true }, async (_input, { ask, step }) => {
    let answer: unknown = "nothing";
    try {
      answer = await ask("Well?");
    } finally {
      seen.add(JSON.stringify(answer));
    }
    await step("stay", () => void seen.add(JSON.stringify(answer)));
    return JSON.stringify(answer);
  });
  return runtime;
}
