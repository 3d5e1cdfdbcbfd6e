import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/*
 * Runs the official compatibility kit of A2A, which needs Python, against the agent of kit-server.ts, in both bindings.
 * Fails where a check does not pass that is not among the expected ones, and where one of those does. Says so where git
 * cannot get the kit, or Python its packages. A2A_KIT names a folder with the kit, and A2A_PYTHON a Python with its
 * packages, for machines that have them.
 */

const REPOSITORY = "https://github.com/a2aproject/a2a-tck";
/** Of the branch `1.0-dev`. */
const COMMIT = "357c4a87afa2818731590647cccbea31c31733a2";
const PACKAGES = [
  ...["pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-html==4.2.0", "httpx==0.28.1", "grpcio==1.85.3"],
  ...["protobuf==7.36.2", "googleapis-common-protos==1.76.0", "jsonschema==4.26.0", "gherkin-official==42.0.1"],
  "Jinja2==3.1.6",
];
/** What does not pass, and why: see the end of docs/guides/a2a.md. */
const EXPECTED = ["CORE-SEND-003", "HTTP_JSON-STATUS-001", "DM-MSG-001"];

const { A2A_KIT, A2A_PYTHON } = process.env;
const folder = mkdtempSync(join(tmpdir(), "a2a-kit-"));

/** Whether a program ends without an error. */
async function does(command: string, args: readonly string[], cwd = folder): Promise<boolean> {
  const child = spawn(command, args, { cwd, stdio: "ignore" });
  try {
    const [status] = (await once(child, "close")) as [number | null];
    return status === 0;
  } catch {
    return false;
  }
}

async function kit(): Promise<string | undefined> {
  if (A2A_KIT !== undefined) return A2A_KIT;
  const isThere =
    (await does("git", ["init", "-q"])) &&
    (await does("git", ["fetch", "-q", "--depth", "1", REPOSITORY, COMMIT])) &&
    (await does("git", ["checkout", "-q", "FETCH_HEAD"]));
  return isThere ? folder : undefined;
}

async function python(): Promise<string | undefined> {
  if (A2A_PYTHON !== undefined) return A2A_PYTHON;
  const made = join(folder, "python/bin/python");
  const isThere =
    (await does("python3", ["-m", "venv", "python"])) &&
    (await does(made, ["-m", "pip", "install", "-q", "--disable-pip-version-check", ...PACKAGES]));
  return isThere ? made : undefined;
}

interface Report {
  readonly per_requirement: Readonly<Record<string, { readonly status: string; readonly errors: readonly string[] }>>;
}

async function check(program: string, cwd: string): Promise<void> {
  const server = spawn(process.execPath, ["--import", "tsx", join(import.meta.dirname, "kit-server.ts")], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [url] = (await once(createInterface({ input: server.stdout }), "line")) as [string];
  const report = join(cwd, "reports/compatibility.json");
  rmSync(report, { force: true });
  await does(program, ["run_tck.py", "--sut-host", url, "--transport", "jsonrpc,http_json"], cwd);
  server.stdin.end();
  server.kill();
  if (!existsSync(report)) throw new Error("The compatibility kit of A2A gave no report.");
  const checks = Object.entries((JSON.parse(readFileSync(report, "utf8")) as Report).per_requirement);
  const counts = new Map<string, number>();
  for (const [id, { status, errors }] of checks) {
    counts.set(status, (counts.get(status) ?? 0) + 1);
    if ((status === "FAIL") === EXPECTED.includes(id)) continue;
    process.stdout.write(`${id}: ${status}, which was not expected. ${errors.join("; ")}\n`);
    process.exitCode = 1;
  }
  const sums = [...counts].map(([status, count]) => `${count} ${status}`).join(", ");
  process.stdout.write(`The compatibility kit of A2A, ${checks.length} requirements: ${sums}.\n`);
}

try {
  const cwd = await kit();
  const program = cwd && (await python());
  if (cwd === undefined) process.stdout.write("git could not get the compatibility kit of A2A: it is skipped.\n");
  else if (program === undefined)
    process.stdout.write("Python could not install the packages of the compatibility kit of A2A: it is skipped.\n");
  else await check(program, cwd);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
