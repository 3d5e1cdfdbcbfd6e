import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import * as six from "ai";

/** A version of the AI SDK, and the version of the models that its providers make. */
export interface SdkVersion {
  readonly name: string;
  /** The functions that the tests use have the same types in 6 and 7. */
  readonly sdk: typeof six;
  readonly models: "v3" | "v4";
}

/** Where the `ai` is that a version of `@ai-sdk/react` brings. Each version is installed once, with its hook. */
export function sdkOf(hook: string): string {
  return createRequire(createRequire(import.meta.url).resolve(hook)).resolve("ai");
}

/** The SDK that a version of `@ai-sdk/react` brings. */
export async function loadSdk(hook: string): Promise<typeof six> {
  return await import(pathToFileURL(sdkOf(hook)).href);
}

const [major = 0] = process.versions.node.split(".").map(Number);

/** The versions that run on this Node: `ai` 7 needs 22. */
export const versions: readonly SdkVersion[] = [
  { name: "ai 6", sdk: six, models: "v3" },
  ...(major >= 22 ? [{ name: "ai 7", sdk: await loadSdk("ai-sdk-react-7"), models: "v4" as const }] : []),
];
