import { CadenzaError } from "./errors.ts";
import { newerFormatError } from "./format.ts";
import type { Mismatch } from "./ports.ts";

/** The error for a blocked run. */
export function blockedError(runId: string, agent_name: string, mismatch: Mismatch): CadenzaError {
  if (mismatch.newer === true) return newerFormatError(runId, mismatch);
  const message =
    `Run ${runId} is blocked: the registered code of ${JSON.stringify(agent_name)} does not match its history ` +
    `${whereBlocked(mismatch)}. Register matching code, or cancel the run.`;
  return new CadenzaError("run_blocked", message, { run_id: runId, agent_name });
}

/** Where the code and the history of a run differ, in words that follow "does not match its history". */
export function whereBlocked({ position, expected, asked }: Mismatch): string {
  return `at position ${position} (history: ${expected}; code: ${asked})`;
}
