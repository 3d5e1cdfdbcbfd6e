/*
 * Builds the command line into one file, in the folder that is named or else in dist. It uses the library by its public
 * names, and so shares the files of the entries instead of having a copy.
 */
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

await build({
  entryPoints: [`${ROOT}src/cli/main.ts`],
  outfile: `${process.argv[2] ?? `${ROOT}dist`}/cli.js`,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  external: ["cadenza", "cadenza/*"],
  // Otherwise the names of the library mean its sources.
  tsconfigRaw: {},
});
