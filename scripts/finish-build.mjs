/*
 * Finishes what tsup has built, in the folder that is named or else in dist.
 *
 * CommonJS is made of the ES modules. tsup would lower newer syntax for it, which makes it larger and slower.
 *
 * The command line becomes a file, and one more for each command. They use the library by its public names, and so share
 * the files of the entries instead of having a copy.
 *
 * The declaration files of the entries are linked. What an entry gives back may have a type that another entry exports,
 * such as the waker of `cadenza/nats`. TypeScript names such a type in the declarations of a user's own code by an entry
 * that it has loaded, so each entry loads those that export what others give back.
 */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transformSync } from "esbuild";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const DIST = process.argv[2] ?? join(ROOT, "dist");
/** The entries that export types of others. */
const owners = ["index", "http", "store", "client"];

const built = readdirSync(DIST, { recursive: true }).map((name) => join(DIST, String(name)));
const common = built.filter((file) => file.endsWith(".cjs"));
for (const file of common) rmSync(file);
for (const file of common.length === 0 ? [] : built) {
  if (!file.endsWith(".js")) continue;
  const { code } = transformSync(readFileSync(file, "utf8"), {
    ...{ format: "cjs", platform: "node", target: "node20", minifySyntax: true },
    // What is loaded later is of the same copy of the library, and jest can load it.
    supported: { "dynamic-import": false },
    // ES modules are strict, and CommonJS is only where it says so.
    banner: '"use strict";',
  });
  writeFileSync(file.replace(/\.js$/, ".cjs"), code.replaceAll(/require\("(\.[^"]*)\.js"\)/g, 'require("$1.cjs")'));
}

await build({
  entryPoints: { cli: `${ROOT}src/cli/main.ts` },
  outdir: DIST,
  chunkNames: "cli-[name]-[hash]",
  bundle: true,
  splitting: true,
  platform: "node",
  format: "esm",
  target: "node20",
  external: ["cadenza", "cadenza/*"],
  // Otherwise the names of the library mean its sources.
  tsconfigRaw: {},
});

const { exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const entries = Object.keys(exports).flatMap((key) => (key === "./package.json" ? [] : key.slice(2) || "index"));
for (const [types, code] of [
  [".d.ts", ".js"],
  [".d.cts", ".cjs"],
]) {
  for (const entry of entries) {
    const file = join(DIST, entry + types);
    // Tests build no types.
    if (!existsSync(file)) continue;
    const links = owners
      .filter((owner) => owner !== entry)
      .map((owner) => `import type {} from "./${relative(dirname(file), join(DIST, owner + code))}";\n`);
    writeFileSync(file, links.join("") + readFileSync(file, "utf8"));
  }
}
