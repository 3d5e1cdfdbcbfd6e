import { createRequire } from "node:module";
import { join } from "node:path";
import { cwd } from "node:process";

/* The packages of the project in whose folder the command was called. */

const fromProject = createRequire(join(cwd(), "package.json"));

/** The file that stands for a package; undefined if the project does not have it. */
export function fileOf(name: string): string | undefined {
  try {
    return fromProject.resolve(name);
  } catch {
    return undefined;
  }
}

/** What a package exports; undefined if the project does not have it. */
export function load(name: string): unknown {
  const file = fileOf(name);
  return file === undefined ? undefined : (fromProject(file) as unknown);
}
