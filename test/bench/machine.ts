import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { cpus, loadavg, release, type } from "node:os";
import { fileURLToPath } from "node:url";
import type { Figures, Machine } from "./figures.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Where the library's packages are, and those of the peers. */
const FOLDERS = ["node_modules", "test/bench/node_modules"];

/** What figures depend on beside the code. */
export function describeMachine(): Machine {
  const [processor] = cpus();
  return {
    processor: processor?.model.trim() ?? "unknown",
    cores: cpus().length,
    system: `${type()} ${release()}`,
    load: Math.round((loadavg()[0] ?? 0) * 100) / 100,
  };
}

/** What was measured: the day, the version of Node, the commit, and the versions of the packages, these among them. */
export function describeCode(
  node: string,
  peers: readonly string[],
): Pick<Figures, "date" | "node" | "commit" | "packages"> {
  const { version, dependencies } = readManifest("package.json");
  const versions = [...Object.keys(dependencies), ...peers].map((name) => [name, installedVersion(name)] as const);
  return {
    date: new Date().toISOString().slice(0, 10),
    node: say(node, "--version"),
    commit: say("git", "describe", "--always", "--dirty=+"),
    packages: Object.fromEntries([["cadenza", version], ...versions]),
  };
}

function installedVersion(name: string): string {
  const manifests = FOLDERS.map((folder) => `${folder}/${name}/package.json`);
  const manifest = manifests.find((path) => existsSync(ROOT + path));
  return manifest === undefined ? "missing" : readManifest(manifest).version;
}

interface Manifest {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
}

function readManifest(path: string): Manifest {
  return JSON.parse(readFileSync(ROOT + path, "utf8")) as Manifest;
}

/** The output of a command; empty if it cannot be run. */
function say(command: string, ...parameters: readonly string[]): string {
  try {
    return execFileSync(command, parameters, {
      cwd: ROOT,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return "";
  }
}
