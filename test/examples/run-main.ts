import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Ended } from "../harness/processes.ts";
import { runProgram } from "../harness/processes.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Node 22 warns of its SQLite on stderr. */
const QUIET = "--disable-warning=ExperimentalWarning";

const TSX = import.meta.resolve("tsx");

/** Runs an example of the repository: there, as its page says, or in another folder. Without `input` its stdin is closed. */
export function runMain(file: string, args: readonly string[] = [], input?: string, cwd = ROOT): Promise<Ended> {
  const env = { ...process.env, TSX_TSCONFIG_PATH: join(ROOT, "tsconfig.json") };
  return runProgram([QUIET, "--import", TSX, join(ROOT, "examples", file), ...args], { cwd, input, env });
}
