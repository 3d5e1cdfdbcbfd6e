import { join } from "node:path";
import { AgentRuntime } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { z } from "zod";
import type { Deferred } from "../../harness/promises.ts";
import { deferred } from "../../harness/promises.ts";
import { questionOf, refusal, textsOf } from "../../harness/runtimes.ts";
import { openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";
import { duel } from "../../harness/world/duels.ts";

/* Answers to two runtimes that share one SQLite file, as two processes do. */

let folder: ReturnType<typeof temporaryFolder>;
let runtimes: AgentRuntime[];

beforeEach(() => {
  folder = temporaryFolder();
  runtimes = [];
});

afterEach(async () => {
  for (const runtime of runtimes) await runtime.close({ drainMs: 0 });
  folder.remove();
});

it.each([
  { answer: "matches", n: 3 },
  { answer: "does not match", n: "many" },
])("an answer that $answer is judged by the process that executes the sub-run that asks", async ({ n }) => {
  const work = deferred();
  const first = open(work);
  const { run_id } = await first.createRun({ agent_name: "parent", input: "" });

  // The first process executes the sub-run, so that the second one cannot validate the answer.
  const second = open(work);
  const answering = second.resume({ run_id, await_resume: { n }, mode: "async" });
  if (n === 3) expect((await answering).run_id).toBe(run_id);
  else expect((await refusal(answering)).issues).toHaveLength(1);
  await second.close({ drainMs: 0 });

  work.resolve();
  const third = open(work);
  if (n !== 3) {
    expect(questionOf(await third.getRun(run_id)).await_id).toBe("run:child#1/ask#1");
    await third.resume({ run_id, await_resume: { n: 7 }, mode: "async" });
  }
  for await (const _ of third.events(run_id, { until: "end" })) {
    // The run goes on to its end.
  }
  expect(textsOf(await third.getRun(run_id))).toEqual([n === 3 ? "3" : "7"]);
});

it("of two answers at once, no line after `ask` sees the refused one", async () => {
  for (let seed = 0; seed < 20; seed++) expect(await duel(join(folder.path, `${seed}.db`), seed)).toEqual([]);
});

const number = z.object({ n: z.number() });

function open(work: Deferred<void>): AgentRuntime {
  const store = new SqliteStore(openDatabase(join(folder.path, "runs.db")), {
    synchronous: "NORMAL",
    closeDatabase: true,
    // A process looks at the answers for its runs with each heartbeat.
    durability: { heartbeatMs: 300, answerTimeoutMs: 50_000 },
  });
  const runtime = new AgentRuntime({ store });
  runtime.register("child", { durable: true }, async (_input, { ask, step }) => {
    const [answer] = await Promise.all([ask("n?", { schema: number }), step("work", () => work.promise)]);
    return `${answer.n}`;
  });
  runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("child", "")).output);
  runtimes.push(runtime);
  return runtime;
}
