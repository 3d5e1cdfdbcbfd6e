import { CadenzaError } from "./errors.ts";
import { newerFormatError } from "./format.ts";
import type { Mismatch } from "./ports.ts";

/** The error for a blocked run. */
export function blockedError(runId: string, agent_name: string, mismatch: Mismatch): CadenzaError {
  if (mismatch.newer === true) return newerFormatError(runId, mismatch);
  const { expected, asked, position } = mismatch;
  const message =
    `Run ${runId} is blocked: the registered code of ${JSON.stringify(agent_name)} does not match its history ` +
    `at entry ${position + 1} (history: ${expected}; code: ${asked}). Register matching code, or cancel the run.`;
  return new CadenzaError("run_blocked", message, { run_id: runId, agent_name });
}
