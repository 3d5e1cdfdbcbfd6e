import { execFileSync } from "node:child_process";
import { lstatSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const BYTES_IN_MB = 1e6;
/** The unit of `blocks` in the status of a file. */
const BLOCK = 512;

/** What a user of each subject installs. */
const packages: Readonly<Record<string, readonly string[]>> = {
  zod: ["zod"],
  a2a: ["@a2a-js/sdk"],
  langgraph: ["@langchain/langgraph", "@langchain/langgraph-checkpoint", "@langchain/core"],
  mastra: ["@mastra/core", "zod"],
  xstate: ["xstate"],
};

/** Installs a subject alone, as a user would, and counts. The library is packed first, from `dist/` as it is. */
export function measureInstalled(subject: string): { readonly packages: number; readonly megabytes: number } {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-installed-"));
  const run = (...parameters: readonly string[]): string =>
    execFileSync("npm", parameters, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  try {
    const { dependencies, overrides } = JSON.parse(
      readFileSync(join(ROOT, "test/bench/package.json"), "utf8"),
    ) as Pinned;
    writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, overrides }));
    const wanted =
      subject === "cadenza"
        ? [`./${run("pack", ROOT, "--silent", "--ignore-scripts").trim()}`]
        : (packages[subject] ?? []).map((name) => `${name}@${dependencies[name]}`);
    run("install", ...wanted, "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund", "--prefer-offline");
    const modules = join(folder, "node_modules");
    return { packages: countPackages(modules), megabytes: sizeOf(modules) / BYTES_IN_MB };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What the packages take on the disk of a clone, as `du -sm` counts it. Caches that tools keep beside them do not count. */
export function measureClone(): number {
  const modules = join(ROOT, "node_modules");
  const packages = readdirSync(modules).filter((name) => !name.startsWith("."));
  const blocks = packages.reduce((sum, name) => sum + blocksIn(join(modules, name)), 0);
  return (blocks * BLOCK) / 2 ** 20;
}

function blocksIn(path: string): number {
  const own = lstatSync(path);
  if (!own.isDirectory()) return own.blocks;
  return readdirSync(path).reduce((sum, name) => sum + blocksIn(join(path, name)), own.blocks);
}

interface Pinned {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly overrides: Readonly<Record<string, string>>;
}

/** The packages that npm has written down, also those within packages. */
function countPackages(modules: string): number {
  const lock = JSON.parse(readFileSync(join(modules, ".package-lock.json"), "utf8")) as { packages: object };
  return Object.keys(lock.packages).length;
}

/** The bytes of all files below a folder. */
function sizeOf(folder: string): number {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}
