/**
 * Checks the tests of types against the built library, as a user's compiler sees it, with each supported version of
 * TypeScript: `npm run test:types`, or with some: `npm run test:types -- 5.6 7.0`. Installs the compilers into a folder
 * of its own.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { entryNames } from "./entries.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** The oldest supported version, and each later one. With 5.5 the input of an agent cannot be given to `yield*`. */
const ALL = ["5.6", "5.7", "5.8", "5.9", "6.0", "7.0"];
const VERSIONS = process.argv.length > 2 ? process.argv.slice(2) : ALL;
const TESTS = ["test/runtime/agents/agent-types.test.ts", "test/runtime/agents/types.test.ts"];

const folder = mkdtempSync(join(tmpdir(), "cadenza-types-"));
try {
  run("npm", ["run", "build", "--silent"], ROOT);
  writeFileSync(join(folder, "package.json"), "{}");
  const compilers = VERSIONS.map((version) => `${nameOf(version)}@npm:typescript@${version}`);
  run("npm", ["install", "--no-audit", "--no-fund", "--silent", ...compilers], folder);
  for (const version of VERSIONS) check(version);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function nameOf(version: string): string {
  return `typescript-${version}`;
}

function check(version: string): void {
  const project = join(folder, version);
  mkdirSync(project);
  const paths = Object.fromEntries(
    entryNames.map((name) => [name === "index" ? "cadenza" : `cadenza/${name}`, [join(ROOT, "dist", `${name}.d.ts`)]]),
  );
  const compilerOptions = {
    ...{ target: "es2022", lib: ["es2023", "esnext.disposable"], module: "nodenext", moduleResolution: "nodenext" },
    ...{ moduleDetection: "force", allowImportingTsExtensions: true, noEmit: true, strict: true },
    ...{ exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: false },
    ...{ types: ["node"], typeRoots: [join(ROOT, "node_modules/@types")], paths },
  };
  const files = TESTS.map((test) => join(ROOT, test));
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files }));
  const compiler = join(folder, "node_modules", nameOf(version), "bin/tsc");
  const started = performance.now();
  const { status, stdout } = spawnSync(process.execPath, [compiler, "-p", project, "--pretty", "false"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`TypeScript ${version}: ${status === 0 ? "passed" : "failed"} in ${seconds} s.`);
  if (status === 0) return;
  console.log(stdout);
  process.exitCode = 1;
}

function run(command: string, parameters: readonly string[], cwd: string): void {
  const { status, stdout, stderr } = spawnSync(command, parameters, { cwd, encoding: "utf8" });
  if (status !== 0) throw new Error(`${command} ${parameters.join(" ")} failed:\n${stdout}${stderr}`);
}
