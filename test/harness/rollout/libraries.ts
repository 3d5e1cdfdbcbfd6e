import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram, CACHE } from "../worker-process.ts";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** The name of the library as it is here. */
export const PRESENT = "present";

/** Whether the history of the repository has a commit. */
export function hasCommit(commit: string): boolean {
  try {
    execFileSync("git", ["cat-file", "-e", `${commit}^{commit}`], { cwd: ROOT, stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Builds the program of a process with the library of a commit, or of the sources as they are. */
export async function buildWith(library: string): Promise<BuiltProgram> {
  const worker = new URL("./worker.ts", import.meta.url);
  if (library === PRESENT) return buildProgram(worker);
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, `cadenza-${library}-`));
  try {
    const archive = execFileSync("git", ["archive", library, "src"], { cwd: ROOT, maxBuffer: 2 ** 28 });
    execFileSync("tar", ["x", "-C", folder], { input: archive });
    return await buildProgram(worker, entriesOf(join(folder, "src")));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The files behind the public names of the library in a folder. */
function entriesOf(source: string): Readonly<Record<string, string>> {
  const files = readdirSync(source).filter((file) => file.endsWith(".ts"));
  const entries = Object.fromEntries(
    files.map((file) => [file === "index.ts" ? "cadenza" : `cadenza/${file.slice(0, -3)}`, join(source, file)]),
  );
  // Once `durable` had an entry of its own.
  if (!existsSync(join(source, "durable.ts"))) return entries;
  const both = join(source, "store-and-durable.ts");
  writeFileSync(both, `export * from "./store.ts";\nexport { durable } from "./durable.ts";\n`);
  return { ...entries, "cadenza/store": both };
}
