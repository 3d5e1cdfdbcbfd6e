import type { TestProject } from "vitest/node";
import { makeProject } from "./project.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A project of a user, made once for all tests: the library is built and installed in it. */
    projectFolder: string;
  }
}

/** Makes the project before the first test, and gives back what takes it away after the last. */
export async function setup({ provide }: TestProject): Promise<() => void> {
  const { folder, remove } = await makeProject();
  provide("projectFolder", folder);
  return remove;
}
