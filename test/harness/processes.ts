import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";

/** The output of a program, and how it ended. */
export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** How a program is run. */
export interface RunOptions {
  readonly cwd: string;
  /** Default: the environment of this process. */
  readonly env?: NodeJS.ProcessEnv;
  /** Default: the Node that runs the tests. */
  readonly node?: string | undefined;
  /** The text for its stdin. Without it stdin is closed. */
  readonly input?: string | undefined;
  /** When it is killed, in milliseconds. Default: {@link PROCESS_TIMEOUT_MS}. */
  readonly timeoutMs?: number | undefined;
}

/** Starting a process takes a while on a busy machine. */
export const PROCESS_TIMEOUT_MS = 180_000;

/** Runs a program in a process of its own, to its end. It is killed when its time is over. */
export function runProgram(
  args: readonly string[],
  { cwd, node = process.execPath, input, env, timeoutMs = PROCESS_TIMEOUT_MS }: RunOptions,
): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(node, args, {
      cwd,
      env,
      stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
      timeout: timeoutMs,
    });
    let stdout = "";
    let stderr = "";
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
    child.stdin?.end(input);
  });
}

/**
 * Why a program counts as failed; undefined if it does not. Node's warning about an experimental driver does not count.
 */
export function faultOf({ code, stderr }: Ended): string | undefined {
  const complaints = stderr
    .split("\n")
    .filter((line) => line !== "" && !/ExperimentalWarning|--trace-warnings/.test(line));
  return code === 0 && complaints.length === 0 ? undefined : `ended with ${code}: ${stderr}`;
}

/** Resolves when a process has ended with code 0, and rejects if it has ended otherwise. */
export async function endOf(child: ChildProcess): Promise<void> {
  const { exitCode, signalCode } = child;
  const isGone = exitCode !== null || signalCode !== null;
  const [code, signal] = isGone
    ? [exitCode, signalCode]
    : ((await once(child, "exit")) as [number | null, string | null]);
  if (code !== 0) throw new Error(`A process ended with ${code ?? signal}.`);
}
