import type { TestProject } from "vitest/node";
import type { ServerAddress } from "./postgres-server.ts";
import { startServer } from "./postgres-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The servers that all tests share, by their version. Each test has a schema of its own. */
    postgres: { readonly 15: ServerAddress; readonly 18: ServerAddress };
  }
}

/** Starts the servers before the first test. Returns the function that stops them after the last. */
export async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  const [oldest, newest] = await Promise.all([startServer(15), startServer(18)]);
  provide("postgres", { 15: oldest.address, 18: newest.address });
  return async () => {
    await Promise.all([oldest.stop(), newest.stop()]);
  };
}
