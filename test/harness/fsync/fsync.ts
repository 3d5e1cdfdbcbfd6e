import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** What a process writes to its output when it acknowledges something. A space follows. */
export const MARK = "acknowledged:";

/** What was seen of the system calls of a process that acknowledges. */
export interface Findings {
  readonly marks: number;
  readonly syncs: number;
  readonly wrong: readonly string[];
}

/** Whether the machine can trace system calls. */
export function canTrace(): boolean {
  return spawnSync("strace", ["-V"]).error === undefined;
}

/** Traces the system calls of a process while it acknowledges. `setting`: of SQLite; without it that by default. */
export function traceAcknowledgements(count: number, setting?: "NORMAL"): Findings {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-fsync-"));
  const calls = join(folder, "calls");
  const own = [join(folder, "runs.db"), `${count}`, ...(setting === undefined ? [] : [setting])];
  const traced = "trace=write,writev,pwrite64,pwritev,fsync,fdatasync";
  const watch = ["-f", "-y", "-qq", "-s", "80", "-e", traced, "-o", calls];
  try {
    const program = fileURLToPath(new URL("./acknowledge.ts", import.meta.url));
    const node = [process.execPath, "--import", "tsx", program, ...own];
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
    } else if (call.includes(`"${MARK} `)) {
      marks += 1;
      if (written === 0) wrong.push(`nothing was written before ${call}`);
      else if (!isSynced) wrong.push(`what was written was not on the disk before ${call}`);
      written = 0;
    }
  }
  return { marks, syncs, wrong };
}
