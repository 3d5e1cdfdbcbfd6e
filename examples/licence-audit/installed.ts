import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { LockedPackage } from "./lockfile.ts";

/** What is found on the disk where the lock file says that a package is. */
export type Finding = "not installed" | "with licence text" | "without licence text" | "stating another licence";

const LICENCE_TEXT = /^(licen[cs]es?|copying|unlicense)\b/i;

/** Looks at an installed package. One that is not there is no error: npm leaves out what is for other platforms. */
export async function inspect(folder: string, { path, licence }: LockedPackage): Promise<Finding> {
  let files: readonly string[];
  let manifest: unknown;
  try {
    files = await readdir(join(folder, path));
    manifest = JSON.parse(await readFile(join(folder, path, "package.json"), "utf8"));
  } catch {
    return "not installed";
  }
  const stated = (manifest as { license?: unknown } | null)?.license;
  if (typeof stated === "string" && stated !== licence) return "stating another licence";
  return files.some((file) => LICENCE_TEXT.test(file)) ? "with licence text" : "without licence text";
}
