import { createInterface } from "node:readline";
import { AgentRuntime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { SqliteStore } from "cadenza/sqlite";
import Database from "libsql";

/*
 * A live process with a SQLite file, which is its parameter. Orders are lines on its stdin, and each has one line as its
 * answer: `create` makes a run that waits, `load 5000` executes runs as fast as it can for so many milliseconds.
 */
const AT_ONCE = 20;

/** How often a statement met the lock of another process. */
let busy = 0;
const db = new Database(process.argv[2] ?? "");
const counted = <T>(work: () => T): T => {
  try {
    return work();
  } catch (error) {
    if (String((error as { code?: unknown }).code).startsWith("SQLITE_BUSY")) busy += 1;
    throw error;
  }
};
const store = new SqliteStore({
  exec: (sql) => counted(() => db.exec(sql)),
  prepare(sql) {
    const statement = db.prepare(sql);
    return {
      run: (...values) => counted(() => statement.run(...values)),
      get: (...values) => counted(() => statement.get(...values)),
      all: (...values) => counted(() => statement.all(...values)),
    };
  },
  close: () => db.close(),
});
const runtime = new AgentRuntime({ store });
// It executes what operators do to many runs.
createAdmin(runtime);
runtime.register("waits", { durable: true }, async (_input, { ask }) => {
  await ask("Go on?");
  return "It went on.";
});
runtime.register("works", { durable: true }, async function* (_input, { step }) {
  for (let n = 0; n < 5; n++) yield await step("work", () => `part ${n}`);
});

for await (const line of createInterface({ input: process.stdin })) {
  const [order, ms] = line.split(" ");
  const answer = order === "load" ? await load(Number(ms)) : await create();
  process.stdout.write(`${JSON.stringify({ ...answer, busy, at: Date.now() })}\n`);
}
process.exit();

async function create(): Promise<object> {
  const { run_id } = await runtime.createRun({ agent_name: "waits", input: "", mode: "async" });
  return { run_id };
}

async function load(ms: number): Promise<object> {
  const end = performance.now() + ms;
  let runs = 0;
  const work = async (): Promise<void> => {
    for (; performance.now() < end; runs++) await runtime.createRun({ agent_name: "works", input: "" });
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return { runs };
}
