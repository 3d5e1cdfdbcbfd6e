/**
 * Checks with `strace` that a write is on the disk before it is acknowledged: between the last write to SQLite's log
 * and each acknowledgement there has to be an `fsync`. `npm run test:fsync`
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { AgentRuntime } from "cadenza";
import type { SqliteStoreOptions } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import { openDatabase } from "../test/harness/sqlite-files.ts";

const ACKNOWLEDGEMENTS = 1_000;
/** How many acknowledgements with `NORMAL` show that a missing `fsync` is found. */
const FEW = 20;
const MARK = "acknowledged:";

const { values } = parseArgs({
  options: { acknowledge: { type: "string" }, setting: { type: "string" }, count: { type: "string" } },
});

if (values.acknowledge !== undefined) await acknowledge(values.acknowledge, Number(values.count), values.setting);
else if (spawnSync("strace", ["-V"]).error !== undefined) console.log("Skipped: strace is not installed.");
else process.exitCode = look() ? 0 : 1;

/** Whether each acknowledgement came after its `fsync`. */
function look(): boolean {
  const full = trace(ACKNOWLEDGEMENTS);
  console.log(`by default: ${full.marks} acknowledgements, ${full.syncs} times fsync, ${full.wrong.length} wrong`);
  for (const line of full.wrong.slice(0, 10)) console.log(line);
  const normal = trace(FEW, "NORMAL");
  console.log(
    `with NORMAL: ${normal.marks} acknowledgements, ${normal.syncs} times fsync, ${normal.wrong.length} noticed`,
  );
  return full.marks === ACKNOWLEDGEMENTS && full.wrong.length === 0 && normal.wrong.length > 0;
}

interface Findings {
  readonly marks: number;
  readonly syncs: number;
  readonly wrong: readonly string[];
}

/** Traces the system calls of another process while it acknowledges. */
function trace(count: number, setting?: "NORMAL"): Findings {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-fsync-"));
  const calls = join(folder, "calls");
  const own = [
    "--acknowledge",
    join(folder, "runs.db"),
    "--count",
    `${count}`,
    ...(setting ? ["--setting", setting] : []),
  ];
  const watch = [
    "-f",
    "-y",
    "-qq",
    "-s",
    "80",
    "-e",
    "trace=write,writev,pwrite64,pwritev,fsync,fdatasync",
    "-o",
    calls,
  ];
  try {
    const node = [process.execPath, "--import", "tsx", fileURLToPath(import.meta.url), ...own];
    const { status, stderr } = spawnSync("strace", [...watch, ...node], { encoding: "utf8", maxBuffer: 2 ** 30 });
    if (status !== 0) throw new Error(`The process ended with ${status}: ${stderr}`);
    return judge(readFileSync(calls, "utf8").split("\n"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What is wrong with system calls, which come one a line. */
function judge(calls: readonly string[]): Findings {
  const wrong: string[] = [];
  let marks = 0;
  let syncs = 0;
  let written = 0;
  let isSynced = true;
  for (const call of calls) {
    if (/pwritev?(64)?\(\d+<[^>]*-wal>/.test(call)) {
      written += 1;
      isSynced = false;
    } else if (/f(data)?sync\(\d+<[^>]*-wal>/.test(call)) {
      syncs += 1;
      isSynced = true;
    } else if (call.includes(`"${MARK}`)) {
      marks += 1;
      if (written === 0) wrong.push(`nothing was written before ${call}`);
      else if (!isSynced) wrong.push(`what was written was not on the disk before ${call}`);
      written = 0;
    }
  }
  return { marks, syncs, wrong };
}

/** Acknowledges in turn that a run was created, answered and cancelled. */
async function acknowledge(file: string, count: number, setting: string | undefined): Promise<void> {
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
  const mark = (what: string): void => {
    if (done < count) writeSync(1, `${MARK} ${what}\n`);
    done += 1;
  };
  while (done < count) {
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "", mode: "async" });
    mark("created");
    await asksAgain(runtime, run_id);
    await runtime.resume({ run_id, await_resume: { yes: true }, mode: "async" });
    mark("answered");
    await asksAgain(runtime, run_id);
    await runtime.cancel(run_id);
    mark("cancelled");
  }
  clearInterval(alive);
  await runtime.close();
  store.close();
}

async function asksAgain(runtime: AgentRuntime, run_id: string): Promise<void> {
  for await (const event of runtime.events(run_id)) if (event.type === "run.failed") throw new Error("The run failed.");
}
