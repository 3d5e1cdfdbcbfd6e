import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/*
 * Runs the official conformance runner of MCP, which needs Node 22, against the agents of server.ts: the required sets of
 * both eras. Fails where one fails that is not in the file of expected failures, or passes that is. Says so where npm cannot
 * install the runner.
 */

const RUNNER = ["-p", "node@22", "-p", "@modelcontextprotocol/conformance@0.2.0-alpha.12"];
const here = import.meta.dirname;

/** The status with which the runner ends. Where it passes: 1, if a scenario fails that `expected` does not name. */
async function runnerStatus(expected: string, ...args: readonly string[]): Promise<number> {
  const cwd = mkdtempSync(join(tmpdir(), "mcp-conformance-"));
  const child = spawn("npx", ["--yes", ...RUNNER, "--", "conformance", ...args], {
    cwd,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  const [status] = (await once(child, "close")) as [number | null];
  process.stdout.write(`${text.slice(Math.max(0, text.indexOf("=== SUMMARY")))}\n`);
  // The runner compares no scenario of an extension with the file.
  const failed = [...text.matchAll(/^✗ ([\w-]+): /gm)].map(([, name = ""]) => name);
  const unexpected = failed.filter((name) => !new RegExp(`^ *- ${name}(:|$)`, "m").test(expected));
  if (unexpected.length > 0) process.stdout.write(`Not expected to fail: ${unexpected.join(", ")}.\n`);
  return status === 0 && unexpected.length === 0 ? 0 : 1;
}

if ((await runnerStatus("", "--version")) !== 0) {
  process.stdout.write("npm could not install the conformance runner of MCP with Node 22: it is skipped.\n");
} else {
  const server = spawn(process.execPath, ["--import", "tsx", join(here, "server.ts")], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: server.stdout });
  const [url] = (await once(lines, "line")) as [string];
  for (const revision of ["2026-07-28", "2025-11-25"]) {
    process.stdout.write(`The required set of ${revision}:\n`);
    const expected = join(here, `expected-${revision}.yml`);
    const status = await runnerStatus(
      readFileSync(expected, "utf8"),
      "server",
      "--url",
      url,
      "--requirements",
      revision,
      "--expected-failures",
      expected,
    );
    if (status !== 0) process.exitCode = 1;
  }
  server.stdin.end();
  server.kill();
}
