/**
 * Runs the booking in three processes. The first is killed while the run waits. The second gets the answer, and is killed
 * during the booking. The third completes the run. `npx tsx examples/durable-approval/demo.ts`
 */
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "cadenza-booking-"));

try {
  await life("The first process:", async ({ until, kill }) => {
    await until("Book it?");
    await kill();
  });
  await life("The second process:", async ({ until, say, kill }) => {
    await until("Book it?");
    say("y");
    await until("booking");
    await kill();
  });
  await life("The third process:", ({ until }) => until("Done."));
} finally {
  rmSync(folder, { recursive: true, force: true });
}

interface Life {
  /** Resolves when the process has written a line with this text. */
  until(text: string): Promise<void>;
  /** Types a line. */
  say(line: string): void;
  kill(): Promise<void>;
}

/** Runs one process, from its start to its end. */
async function life(title: string, story: (life: Life) => Promise<void>): Promise<void> {
  console.log(title);
  const child = spawn(process.execPath, ["--import", "tsx", MAIN, join(folder, "booking.db")], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const gone = once(child, "exit");
  const { until, ended } = readLines(child);
  await story({
    until,
    say(line) {
      console.log(`  > ${line}`);
      child.stdin.write(`${line}\n`);
    },
    async kill() {
      child.kill("SIGKILL");
      await gone;
      console.log("  kill -9");
    },
  });
  child.stdin.end();
  await Promise.all([gone, ended]);
}

/** Prints what a process writes. */
function readLines({ stdout }: ChildProcess): { until: Life["until"]; readonly ended: Promise<unknown> } {
  if (stdout === null) throw new Error("the process writes nowhere");
  const lines = createInterface({ input: stdout });
  const ended = once(lines, "close");
  const seen: string[] = [];
  lines.on("line", (line) => {
    seen.push(line);
    console.log(`  ${line}`);
  });
  const until = async (text: string): Promise<void> => {
    while (!seen.some((line) => line.includes(text))) await Promise.race([once(lines, "line"), ended.then(fail)]);
  };
  const fail = (): never => {
    throw new Error(`the process ended early, after: ${seen.join("\n")}`);
  };
  return { until, ended };
}
