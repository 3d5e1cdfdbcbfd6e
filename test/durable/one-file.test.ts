import { join } from "node:path";
import { AgentRuntime } from "cadenza";
import { afterEach, beforeEach, expect, it } from "vitest";
import { z } from "zod";
import { SqliteStore } from "../../src/stores/sqlite.ts";
import type { Deferred } from "../harness/promises.ts";
import { deferred } from "../harness/promises.ts";
import { questionOf, refusal, textsOf } from "../harness/runtimes.ts";
import { openDatabase, temporaryFolder } from "../harness/sqlite-files.ts";
import { duel } from "../harness/world/duels.ts";

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
])("an answer that $answer changes nothing in a process that does not have the sub-run that asks", async ({ n }) => {
  const work = deferred();
  const first = open(work);
  const { run_id } = await first.createRun({ agent_name: "parent", input: "" });
  const events = await first.events(run_id).next();
  expect(events.done).toBe(false);

  // The first process executes the sub-run, so that the second one cannot validate the answer.
  const second = open(work);
  const refused = refusal(second.resume({ run_id, await_resume: { n } }));
  expect((await refused).code).toBe("lost_ownership");
  await second.close({ drainMs: 0 });

  work.resolve();
  const third = open(work);
  expect(questionOf(await third.getRun(run_id)).await_id).toBe("run:child#1/ask#1");
  await first.close({ drainMs: 0 });
  expect(textsOf(await third.resume({ run_id, await_resume: { n: 7 } }))).toEqual(["7"]);
});

it("of two answers at once, no line after `ask` sees the refused one", async () => {
  for (let seed = 0; seed < 20; seed++) expect(await duel(join(folder.path, `${seed}.db`), seed)).toEqual([]);
});

const number = z.object({ n: z.number() });

function open(work: Deferred<void>): AgentRuntime {
  const store = new SqliteStore(openDatabase(join(folder.path, "runs.db")), {
    synchronous: "NORMAL",
    closeDatabase: true,
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
