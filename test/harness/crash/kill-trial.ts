import { rmSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "../sqlite-files.ts";
import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram } from "../worker-process.ts";
import type { Figures } from "./ledger.ts";

/** What happened in a trial whose processes are killed. */
export interface KillFigures extends Figures {
  readonly kills: number;
}

export interface KillReport extends KillFigures {
  /** What was wrong, one sentence each; empty if nothing was. */
  readonly wrong: readonly string[];
  /** What the library told its logger. */
  readonly said: readonly string[];
}

/** Builds the program of the worker processes, and holds a trial on a new file. */
export async function holdTrial(
  trial: (program: BuiltProgram, file: string) => Promise<KillReport>,
): Promise<KillReport> {
  const folder = temporaryFolder();
  const program = await buildProgram(new URL("./worker.ts", import.meta.url));
  try {
    return await trial(program, join(folder.path, "runs.db"));
  } finally {
    program.remove();
    rmSync(folder.path, { recursive: true, force: true });
  }
}
