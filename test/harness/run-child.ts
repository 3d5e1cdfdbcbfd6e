import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const script = fileURLToPath(new URL("./child.ts", import.meta.url));

/** Runs a scenario of `child.ts` in a process of its own, with options for Node, and gives its output and exit code. */
export async function runChild(
  scenario: string,
  timeout = 50_000,
  options: readonly string[] = [],
): Promise<{ code: number; out: string }> {
  try {
    const { stdout, stderr } = await promisify(execFile)(
      process.execPath,
      [...options, "--import", "tsx", script, scenario],
      { timeout },
    );
    return { code: 0, out: `${stdout}${stderr}`.trim() };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, out: `${stdout}${stderr}`.trim() };
  }
}
