import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

const SOURCE = fileURLToPath(new URL("../../src/", import.meta.url));

/** Every file of `src`, by its path below `src` with forward slashes. */
export function readSources(): Map<string, string> {
  return new Map(
    readdirSync(SOURCE, { recursive: true, withFileTypes: true })
      .filter((file) => file.isFile() && /\.tsx?$/.test(file.name))
      .map((file) => join(file.parentPath, file.name))
      .map((path) => [relative(SOURCE, path).split(sep).join("/"), readFileSync(path, "utf8")]),
  );
}
