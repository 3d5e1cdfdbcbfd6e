import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { entryNames } from "../../scripts/entries.ts";
import { command } from "../harness/commands/commands.ts";
import { runNpm } from "../harness/commands/npm.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** The oldest supported version, and each later one. With 5.5 the input of an agent cannot be given to `yield*`. */
const VERSIONS = ["5.6", "5.7", "5.8", "5.9", "6.0", "7.0"] as const;
const TESTS = ["test/runtime/agents/agent-types.test.ts", "test/runtime/agents/types.test.ts"];

export const trial = command({
  about:
    "Checks the tests of types against the built library, as a user's compiler sees it, with each supported version of TypeScript. Installs the compilers into a folder of its own.",
  options: { versions: { about: "The versions of TypeScript.", default: VERSIONS, oneOf: VERSIONS } },
  async run({ versions }, report) {
    const folder = mkdtempSync(join(tmpdir(), "cadenza-types-"));
    try {
      await runNpm("run", "build", "--silent");
      writeFileSync(join(folder, "package.json"), "{}");
      const compilers = versions.map((version) => `${nameOf(version)}@npm:typescript@${version}`);
      await runNpm("install", "--prefix", folder, "--no-audit", "--no-fund", "--silent", ...compilers);
      for (const version of versions) {
        const complaints = complaintsOf(version, folder);
        if (complaints === undefined) report.say(`TypeScript ${version}: passed`);
        else report.wrong(`TypeScript ${version}: failed\n${complaints}`, { versions: [version] });
      }
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    return `${versions.length} versions of TypeScript`;
  },
});

function nameOf(version: string): string {
  return `typescript-${version}`;
}

/** What a compiler says; undefined if it has nothing to say. */
function complaintsOf(version: string, folder: string): string | undefined {
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
  const { status, stdout } = spawnSync(process.execPath, [compiler, "-p", project, "--pretty", "false"], {
    cwd: ROOT,
    encoding: "utf8",
  });
  return status === 0 ? undefined : stdout;
}
