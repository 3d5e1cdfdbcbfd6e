import { execFileSync } from "node:child_process";
import { platform } from "node:process";
import type { TestProject } from "vitest/node";
import { unpackBrowser } from "../browser/browser.ts";
import { makeProject } from "./project.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A project of a user, made once for all tests: the library is built and installed in it. */
    projectFolder: string;
  }
}

/**
 * Makes the project before the first test, and unpacks the browser. Returns the function that removes the project after the
 * last, and that fails if the tests have written into the working copy.
 */
export async function setup({ provide }: TestProject): Promise<() => void> {
  const before = unknownFiles();
  if (platform === "linux") await unpackBrowser();
  const { folder, remove } = await makeProject();
  provide("projectFolder", folder);
  return () => {
    remove();
    const written = unknownFiles().filter((file) => !before.includes(file) && !file.includes("coverage/"));
    if (written.length === 0) return;
    // An error alone does not make vitest fail once the tests have passed.
    process.exitCode = 1;
    throw new Error(`The tests have written into the working copy: ${written.join(", ")}`);
  };
}

/** The files that git does not track, with those that it ignores. None outside a working copy. */
function unknownFiles(): readonly string[] {
  try {
    const lines = execFileSync("git", ["status", "--porcelain", "--ignored"], { encoding: "utf8" }).split("\n");
    return lines.filter((line) => /^(\?\?|!!)/.test(line));
  } catch {
    return [];
  }
}
