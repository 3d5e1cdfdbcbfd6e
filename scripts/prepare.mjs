/*
 * Builds the library when it is packed, published or installed from a git URL: npm runs this script for all three, and
 * never for those who install the package from a registry. `npm ci` in a clone needs no build, and gets none.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const TSUP = `${ROOT}node_modules/tsup/dist/cli-default.js`;

/** The command that npm was called with. Other package managers do not set it. */
const command = process.env["npm_command"];
const isPacked = command === "pack" || command === "publish";
if (isPacked || (command !== "ci" && !existsSync(`${ROOT}dist`))) prepare();

function prepare() {
  // A fresh clone has no build tools yet.
  if (isPacked && !existsSync(TSUP)) run(process.execPath, [process.env["npm_execpath"], "ci"]);
  // Without development dependencies there is no build: the library is used from a package.
  if (!existsSync(TSUP)) return;
  run(process.execPath, [TSUP]);
  run(process.execPath, [`${ROOT}scripts/finish-build.mjs`]);
}

/** Runs a program. Its output goes to stderr: stdout belongs to the npm that called this script. */
function run(program, args) {
  const { status, error } = spawnSync(program, args, { cwd: ROOT, stdio: ["ignore", 2, 2] });
  if (error !== undefined || status !== 0) {
    process.stderr.write(
      `The library could not be built: ${error?.message ?? `${program} ended with code ${status}`}.\n`,
    );
    process.exit(1);
  }
}
