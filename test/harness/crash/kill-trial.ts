import type { BuiltProgram } from "../worker-process.ts";
import { buildProgram } from "../worker-process.ts";
import type { Figures } from "./ledger.ts";
import type { NewPlace, Place } from "./place.ts";

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

/** Builds the program of the worker processes, and holds a trial in a new place. */
export async function holdTrial(
  { place, remove }: NewPlace,
  trial: (program: BuiltProgram, place: Place) => Promise<KillReport>,
): Promise<KillReport> {
  const program = await buildProgram(new URL("./worker.ts", import.meta.url));
  try {
    return await trial(program, place);
  } finally {
    program.remove();
    remove();
  }
}
