import { expect, inject, it } from "vitest";
import { PROCESS_TIMEOUT_MS } from "../harness/processes.ts";
import { oneOf } from "../harness/share.ts";
import { programsFor, tryPage } from "./programs.ts";

const cwd = inject("projectFolder");
const programs = oneOf(3, programsFor(process.version)).map((program) => [program.name, program] as const);

it.concurrent.each(programs)(
  "%s, saved in a file, prints what its comments say and ends",
  {
    timeout: PROCESS_TIMEOUT_MS,
  },
  async (_, program) => {
    expect(await tryPage(program, { cwd })).toBeUndefined();
  },
);
