import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Report } from "./report.ts";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** Runs test files with a setting in the environment, passes on what Vitest prints, and resolves with what was tried. */
export async function runTests(
  report: Report,
  files: readonly string[],
  setting: Readonly<Record<string, string>>,
): Promise<string> {
  const child = spawn(process.execPath, [`${ROOT}node_modules/vitest/vitest.mjs`, "run", ...files], {
    cwd: ROOT,
    env: { ...process.env, ...setting },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let end = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    process.stdout.write(text);
    end = (end + text).slice(-200);
  });
  const [code] = await once(child, "close");
  // The closing line of our reporter.
  const [, passed = "0", failed = "0"] = /(\d+) passed, (\d+) failed[^\n]*\n$/.exec(end) ?? [];
  if (code !== 0) report.wrong(`${failed} tests have failed: Vitest ended with ${code}`);
  return `${Number(passed) + Number(failed)} tests`;
}
