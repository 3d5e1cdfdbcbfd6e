import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Run } from "cadenza";
import { AgentRuntime } from "cadenza";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { licenceAudit } from "../../examples/licence-audit/agent.ts";
import { readArguments } from "../../examples/licence-audit/arguments.ts";
import type { AuditReport } from "../../examples/licence-audit/report.ts";
import { renderReport, renderStatistics, reportIn } from "../../examples/licence-audit/report.ts";
import { parseExpression, verdictOn } from "../../examples/licence-audit/spdx.ts";
import { onDurableStore } from "../harness/durable-runtime.ts";
import { PROCESS_TIMEOUT_MS } from "../harness/processes.ts";
import { runMain } from "./run-main.ts";

const DEMO = "licence-audit/main.ts";
const OWN_LOCKFILE = fileURLToPath(new URL("../../package-lock.json", import.meta.url));
const ownPackages = Object.keys(JSON.parse(readFileSync(OWN_LOCKFILE, "utf8")).packages).length - 1;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "licence-audit-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function write(name: string, content: unknown): string {
  const file = join(folder, name);
  writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
  return file;
}

function writeLockfile(name: string, licences: Readonly<Record<string, unknown>>): string {
  const packages = Object.entries(licences).map(([path, license]) => [`node_modules/${path}`, { license }]);
  return write(name, {
    lockfileVersion: 3,
    packages: { "": { license: "UNLICENSED" }, ...Object.fromEntries(packages) },
  });
}

/** Audits a file and gives each question the answer that is listed for it. */
async function auditWith(
  file: string,
  answers: Readonly<Record<string, boolean>>,
  { durable = false } = {},
): Promise<{ run: Run; asked: readonly string[]; runtime: AgentRuntime }> {
  const { name, options, fn } = licenceAudit;
  const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: durable } })).register(
    name,
    { ...options, durable },
    fn,
  );
  let run = await runtime.createRun({ agent_name: "licence-audit", input: file });
  const asked: string[] = [];
  while (run.status === "awaiting") {
    const question = run.await_request?.message.parts[0]?.content ?? "";
    asked.push(question);
    const answer = Object.entries(answers).find(([licence]) => question.startsWith(`Allow ${licence}`));
    run = await runtime.resume({ run_id: run.run_id, await_resume: { allow: answer?.[1] ?? false } });
  }
  return { run, asked, runtime };
}

function verdicts(run: Run): Readonly<Record<string, string>> {
  const { licences } = reportIn(run) ?? { licences: [] };
  return Object.fromEntries(licences.map(({ licence, verdict, asked }) => [licence, `${verdict}${asked ? "!" : ""}`]));
}

describe("licence expressions", () => {
  const known = new Map([
    ["MIT", true],
    ["Apache-2.0", true],
    ["GPL-3.0-only", false],
  ]);
  it.each([
    ["MIT", true],
    ["GPL-3.0-only", false],
    ["MPL-2.0", "MPL-2.0"],
    ["(MIT OR Apache-2.0)", true],
    ["MIT OR MPL-2.0", true],
    ["MIT AND MPL-2.0", "MPL-2.0"],
    ["GPL-3.0-only OR MPL-2.0", "MPL-2.0"],
    ["GPL-3.0-only AND MPL-2.0", false],
    ["GPL-3.0-only OR MIT AND Apache-2.0", true],
    ["(GPL-3.0-only OR MIT) AND GPL-3.0-only", false],
    ["((MIT))", true],
    ["mit or GPL-3.0-only", "mit"],
    ["GPL-2.0-only WITH Classpath-exception-2.0 OR GPL-3.0-only", "GPL-2.0-only WITH Classpath-exception-2.0"],
    ["SEE LICENSE IN LICENSE.md", "SEE LICENSE IN LICENSE.md"],
    ["(MIT OR", "(MIT OR"],
    ["MIT OR", "MIT OR"],
    ["MIT)", "MIT)"],
    ["AND", "AND"],
    ["", ""],
  ])("%s is %s", (text, verdict) => {
    expect(verdictOn(parseExpression(text), known)).toBe(verdict);
  });
});

describe("the agent", () => {
  it("asks once about each licence that is not on the list, and not if an alternative is on it", async () => {
    const file = writeLockfile("mixed.json", {
      a: "MIT",
      b: "(GPL-3.0-only OR MIT)",
      c: "MPL-2.0",
      d: "MIT AND MPL-2.0",
      e: "(MPL-2.0 OR GPL-3.0-only)",
      f: "GPL-3.0-only",
    });
    const { run, asked } = await auditWith(file, { "MPL-2.0": true });
    expect(asked).toEqual([
      "Allow MPL-2.0 as part of (MPL-2.0 OR GPL-3.0-only)? It is not on the list of allowed licences. (1 package: e)",
      "Allow GPL-3.0-only? It is not on the list of allowed licences. (1 package: f)",
    ]);
    expect(verdicts(run)).toEqual({
      MIT: "allowed",
      "(GPL-3.0-only OR MIT)": "allowed",
      "MPL-2.0": "allowed",
      "MIT AND MPL-2.0": "allowed",
      "(MPL-2.0 OR GPL-3.0-only)": "allowed!",
      "GPL-3.0-only": "refused!",
    });
  });

  it("asks once about all packages without a licence", async () => {
    const file = writeLockfile("unknown.json", {
      a: undefined,
      b: undefined,
      "@c/d": "",
      e: "ISC",
      f: undefined,
      g: undefined,
    });
    const { run, asked } = await auditWith(file, {});
    expect(asked).toEqual([
      "Allow packages whose licence the lock file does not name? (5 packages: @c/d, a, b and 2 more)",
    ]);
    expect(verdicts(run)).toEqual({ ISC: "allowed", unknown: "refused!" });
  });

  it("reads the older forms of a licence, and counts a workspace link with what it links to", async () => {
    const file = write("forms.json", {
      lockfileVersion: 2,
      packages: {
        "": {},
        "node_modules/object": { license: { type: "MIT", url: "https://example.org" } },
        "node_modules/list": { license: [{ type: "MIT" }, "Apache-2.0"] },
        "node_modules/member": { resolved: "packages/member", link: true },
        "packages/member": { name: "@us/member", license: "ISC" },
      },
    });
    const { run, asked } = await auditWith(file, {});
    expect(asked).toEqual([]);
    expect(reportIn(run)).toMatchObject({ packages: 4, findings: { "not installed": 4 } });
    expect(verdicts(run)).toEqual({ MIT: "allowed", "MIT OR Apache-2.0": "allowed", ISC: "allowed" });
  });

  it("audits nothing at all", async () => {
    const { run } = await auditWith(write("empty.json", { lockfileVersion: 3, packages: {} }), {});
    expect(run.status).toBe("completed");
    expect(renderReport(reportIn(run) as AuditReport)).toContain("Packages: 0");
  });

  it("looks at the installed packages", async () => {
    const { run } = await auditWith(OWN_LOCKFILE, {});
    const { packages, findings } = reportIn(run) as AuditReport;
    expect(packages).toBe(ownPackages);
    expect(findings["with licence text"]).toBeGreaterThan(100);
    expect(Object.values(findings).reduce((sum, count) => sum + count, 0)).toBe(packages);
  });

  it("gives the same output when it is replayed, as after a crash", async () => {
    const file = writeLockfile("durable.json", { a: "MIT", b: "MPL-2.0", c: "Zlib AND X11", d: undefined });
    const live = await auditWith(file, { "MPL-2.0": true, Zlib: true, X11: true });
    const replayed = await auditWith(file, { "MPL-2.0": true, Zlib: true, X11: true }, { durable: true });
    expect(replayed.asked).toEqual(live.asked);
    expect(replayed.asked).toHaveLength(4);
    expect(reportIn(replayed.run)).toEqual(reportIn(live.run));
  });

  it.each([
    ["no path", "", /one text/],
    ["a folder", tmpdir(), /cannot be read \(EISDIR\)/],
  ])("refuses %s", async (_, input, message) => {
    const { run, runtime } = await auditWith(input, {});
    expect(run.error).toMatchObject({ code: "invalid_input", message: expect.stringMatching(message) });
    expect(renderStatistics(await runtime.getAgent("licence-audit"))).toMatch(/success_rate +0/);
  });

  it.each([
    ["a lock file that names no licences", { lockfileVersion: 1, dependencies: {} }, /version 1/],
    ["JSON that is no lock file", [1], /is not a package-lock\.json:/],
  ])("refuses %s", async (_, content, message) => {
    const { run } = await auditWith(write("wrong.json", content), {});
    expect(run.error).toMatchObject({ code: "invalid_input", message: expect.stringMatching(message) });
  });
});

describe("the command line", () => {
  it.each([
    [[], { path: undefined, help: false, answer: undefined }],
    [["--yes", "some.json"], { path: "some.json", help: false, answer: true }],
    [["--no"], { path: undefined, help: false, answer: false }],
    [["-h"], { path: undefined, help: true, answer: undefined }],
  ])("%j", (args, expected) => {
    expect(readArguments(args)).toEqual(expected);
  });

  it.each([
    [["a", "b"], /One path is enough: a, b/],
    [["--yes", "--no"], /Either --yes or --no\./],
    [["--maybe"], /Unknown option '--maybe'/],
  ])("refuses %j", (args, message) => {
    expect(() => readArguments(args)).toThrow(message);
  });
});

describe("the licence audit at the command line", { timeout: PROCESS_TIMEOUT_MS }, () => {
  it.concurrent("--yes audits the project's own lock file", async () => {
    const { code, stdout, stderr } = await runMain(DEMO, ["--yes"], undefined, folder);
    expect(stderr).toBe("");
    expect(code).toBe(0);
    expect(stdout).toContain(`Packages: ${ownPackages}\n`);
    expect(stdout).toMatch(/The run is awaiting \(ask#1\): Allow .* yes \(--yes\)/);
    expect(stdout).toMatch(/created → in-progress .*→ awaiting .*→ completed/);
    expect(stdout).toMatch(/MIT +█+ +\d+ +allowed\n/);
    expect(stdout).toContain("Verdict: every licence is allowed.");
    expect(stdout).toMatch(/To see what run \S+ did: npm run demo -- inspect\n/);
    expect(countsIn(stdout)).toBe(ownPackages);
  });

  it.concurrent("--no refuses what is not on the list, which is a result and no failure", async () => {
    const { code, stdout } = await runMain(DEMO, ["--no", "--store", join(folder, "no.db")]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/Verdict: refused are (?:[\w.-]+, )*MPL-2\.0\b/);
    expect(stdout).toMatch(/success_rate +100\n/);
  });

  it.concurrent("takes answers from a pipe, one line for each question, for another lock file", async () => {
    const file = writeLockfile("piped.json", { a: "MPL-2.0", b: "X11", c: "Zlib" });
    const { code, stdout } = await runMain(DEMO, [file, "--store", join(folder, "piped.db")], "perhaps\nyes\nn\n");
    expect(code).toBe(0);
    expect(stdout).toMatch(/Allow MPL-2\.0\? .* perhaps\nThe answer to \S+ of run \S+ is invalid: allow: /);
    expect(stdout).toMatch(/MPL-2\.0 +█+ +1 +allowed by answer/);
    expect(stdout).toMatch(/Allow Zlib\? .* no \(no answer\)/);
    expect(stdout).toContain("Verdict: refused are X11, Zlib (packages: 2).");
  });

  it.concurrent.each([
    ["a file that is not there", () => "nowhere.json", /^not_found: There is no file .*nowhere\.json\.$/],
    ["JSON that is broken", () => write("broken.json", '{ "packages": '), /broken\.json is not JSON: /],
  ])("says what is wrong with %s", async (_, path, message) => {
    const file = path();
    // A store of its own: the demo goes on with a run that has not ended.
    const { code, stderr } = await runMain(DEMO, [file, "--store", join(folder, `${basename(file)}.db`)]);
    expect(code).toBe(1);
    expect(stderr.trim()).toMatch(message);
    expect(stderr).not.toMatch(/^ +at /m);
  });
});

/** The sum of the counts beside the bars. */
function countsIn(report: string): number {
  return [...report.matchAll(/[▏▎▍▌▋▊▉█]\s+(\d+) {2}(?:allowed|refused)/g)].reduce((sum, [, n]) => sum + Number(n), 0);
}
