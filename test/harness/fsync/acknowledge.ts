import { writeSync } from "node:fs";
import { AgentRuntime } from "cadenza";
import type { SqliteStoreOptions } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import { openDatabase } from "../sqlite-files.ts";
import { MARK } from "./fsync.ts";

/* A process that acknowledges in turn that a run was created, answered and cancelled. */
const [file = "", times, setting] = process.argv.slice(2);
const count = Number(times);
const options: SqliteStoreOptions = setting === "NORMAL" ? { synchronous: setting } : {};
const store = new SqliteStore(openDatabase(file), { ...options, closeDatabase: true });
const runtime = new AgentRuntime({ store });
runtime.register("asks", { durable: true }, async (_input, { ask, step }) => {
  await step("prepare", () => "prepared");
  await ask("Go on?");
  await ask("And on?");
});
const alive = setInterval(() => undefined, 1_000);
let done = 0;
while (done < count) {
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "", mode: "async" });
  mark("created");
  await asksAgain(run_id);
  await runtime.resume({ run_id, await_resume: { yes: true }, mode: "async" });
  mark("answered");
  await asksAgain(run_id);
  await runtime.cancel(run_id);
  mark("cancelled");
}
clearInterval(alive);
await runtime.close();
store.close();

function mark(what: string): void {
  if (done < count) writeSync(1, `${MARK} ${what}\n`);
  done += 1;
}

async function asksAgain(run_id: string): Promise<void> {
  for await (const event of runtime.events(run_id)) if (event.type === "run.failed") throw new Error("The run failed.");
}
