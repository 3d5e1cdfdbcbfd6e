import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Command, Script } from "./commands.ts";
import { start } from "./commands.ts";

const FOLDER = new URL("../../stress/", import.meta.url);

/** `npm run stress`: each file of `test/stress` is a trial, and exports it as `trial`. */
export const stress: Script = {
  name: "stress",
  about: "long trials of the library, and what is tried rarely",
  names: readdirSync(FOLDER)
    .map((file) => file.replace(/\.ts$/, ""))
    .sort(),
  load: async (name) => ((await import(new URL(`${name}.ts`, FOLDER).href)) as { readonly trial: Command }).trial,
};

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit(await start(stress, process.argv.slice(2)));
