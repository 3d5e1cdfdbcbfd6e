import { fileURLToPath } from "node:url";
import type { Ended } from "../harness/processes.ts";
import { runProgram } from "../harness/processes.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Node 22 warns of its SQLite on stderr. */
const QUIET = "--disable-warning=ExperimentalWarning";

/** Runs an example in the repository, as its page says. Without `input` its stdin is closed. */
export function runMain(file: string, args: readonly string[] = [], input?: string): Promise<Ended> {
  return runProgram([QUIET, "--import", "tsx", `examples/${file}`, ...args], { cwd: ROOT, input });
}
