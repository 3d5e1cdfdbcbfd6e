import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { LockedPackage } from "./lockfile.ts";

/** What the disk has at the place of a package in the lock file. */
export type Finding = "not installed" | "with licence text" | "without licence text" | "stating another licence";

const LICENCE_TEXT = /^(licen[cs]es?|copying|unlicense)\b/i;

/** Reads an installed package. A missing package is no error: npm does not install those for other platforms. */
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
