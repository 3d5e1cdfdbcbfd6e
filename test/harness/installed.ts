import type { TestProject } from "vitest/node";
import { makeProject } from "./project.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A project of a user, made once for all tests: the library is built and installed in it. */
    projectFolder: string;
  }
}

/** Makes the project before the first test. Returns the function that removes it after the last. */
export async function setup({ provide }: TestProject): Promise<() => void> {
  const { folder, remove } = await makeProject();
  provide("projectFolder", folder);
  return remove;
}
