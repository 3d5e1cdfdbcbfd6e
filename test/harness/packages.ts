import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

/** Packages that are too many for the repository, in a folder of their own. */
export interface Packages {
  /** Where they are installed. */
  readonly folder: string;
  /** Imports one of the packages that the folder's `package.json` names. */
  load(name: string): Promise<unknown>;
  remove(): void;
}

/**
 * Installs the packages of a folder with a `package.json` and a lock file, outside of the repository. Gives why not where
 * the registry cannot be reached.
 */
export async function installPackages(from: URL): Promise<Packages | string> {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-packages-"));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  const source = fileURLToPath(from);
  for (const file of ["package.json", "package-lock.json"]) cpSync(join(source, file), join(folder, file));
  const names = Object.keys(JSON.parse(readFileSync(join(source, "package.json"), "utf8")).dependencies);
  try {
    const quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
    await promisify(execFile)("npm", ["ci", ...quiet], { cwd: folder, encoding: "utf8", timeout: 180_000 });
  } catch (error) {
    remove();
    const [, code] =
      /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH)\b/.exec(String(error)) ?? [];
    if (code !== undefined) return `the npm registry cannot be reached: ${code}`;
    throw error;
  }
  // A file among the packages finds them by their names.
  const door = join(folder, "node_modules/.packages");
  mkdirSync(door);
  const exported = names.map((name) => `export const ${idOf(name)} = () => import(${JSON.stringify(name)});\n`);
  writeFileSync(join(door, "index.mjs"), exported.join(""));
  const loaders = (await import(pathToFileURL(join(door, "index.mjs")).href)) as Record<string, () => Promise<unknown>>;
  return { folder, load: (name) => (loaders[idOf(name)] as () => Promise<unknown>)(), remove };
}

function idOf(name: string): string {
  return name.replace(/\W/g, "_");
}
