import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * Every file of `src`, or of another folder of the project, by its path below that folder with forward slashes. Left out are
 * packages, which `npm run bench` installs into its folder.
 */
export function readSources(folder = "src"): Map<string, string> {
  const root = fileURLToPath(new URL(`../../${folder}/`, import.meta.url));
  return new Map(
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((file) => file.isFile() && /\.tsx?$/.test(file.name))
      .map((file) => join(file.parentPath, file.name))
      .filter((path) => !path.split(sep).includes("node_modules"))
      .map((path) => [relative(root, path).split(sep).join("/"), readFileSync(path, "utf8")]),
  );
}
