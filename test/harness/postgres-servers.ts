import type { TestProject } from "vitest/node";
import { installPackages } from "./packages.ts";
import type { Server, ServerAddress } from "./postgres-server.ts";
import { missingServer, startServer } from "./postgres-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The servers that all tests share, by their version. Each test has a schema of its own. */
    postgres: { readonly 15: ServerAddress; readonly 18: ServerAddress };
  }
}

/** Starts the servers before the first test. Returns the function that stops them after the last. */
export async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  const [oldest, newest] = await Promise.all([startOldest(), startServer(18)]);
  provide("postgres", { 15: oldest.address, 18: newest.address });
  return async () => {
    await Promise.all([oldest.stop(), newest.stop()]);
  };
}

/** The oldest version is installed for these tests: all others need the newest one only. */
async function startOldest(): Promise<Server> {
  const packages = await installPackages(new URL("../postgres/oldest/", import.meta.url));
  if (typeof packages === "string") return missingServer(packages);
  const server = await startServer(15, {}, packages.folder);
  return {
    ...server,
    async stop() {
      await server.stop();
      packages.remove();
    },
  };
}
