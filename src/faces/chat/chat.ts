import { CadenzaError } from "../../core/errors.ts";
import type { RunSummary } from "../../core/record.ts";
import { WireError } from "../../http/errors.ts";
import { MIB } from "../../http/options.ts";
import type { Call } from "../../http/service.ts";
import { checkAgent, checkSession } from "../../http/visibility.ts";
import type { RunDetails } from "../../runtime/requests.ts";

/* A chat is a session under the id that its pages give it. Its runs are those of one agent. */

/** A page sends the whole chat with each message, and the files in it. */
export const chatLimits = { maxBodyBytes: 10 * MIB };

/** Refuses a chat that does not exist for the caller. Gives the id of its session. */
export async function checkChat({ caller, parameter: name }: Call, chatId: string): Promise<string> {
  checkAgent(caller, name);
  await caller.scope.getAgent(name);
  const session_id = caller.scope.sessionId(chatId);
  await checkSession(caller, session_id);
  return session_id;
}

/** The details of a run of this chat. Any other run does not exist here. */
export async function detailsIn(call: Call, session_id: string, run_id: string): Promise<RunDetails> {
  const details = await call.caller.scope.details(run_id);
  if (details.session_id === session_id && details.agent_name === call.parameter) return details;
  throw new WireError(404, "run_not_found", `There is no run ${run_id}.`);
}

const OPEN = ["created", "in-progress", "awaiting", "cancelling"] as const;

/** The newest run of the chat that has not ended. */
export async function openRun(
  { caller, parameter: agent_name }: Call,
  session_id: string,
): Promise<RunSummary | undefined> {
  const [run] = await caller.scope.listRuns({ session_id, agent_name, roots: true, status: OPEN, limit: 1 });
  return run;
}

/** Cancels the runs of the chat that have not ended. */
export async function cancelOpenRuns({ caller, parameter: agent_name }: Call, session_id: string): Promise<void> {
  for (const { run_id } of await caller.scope.listRuns({ session_id, agent_name, roots: true, status: OPEN })) {
    try {
      await caller.scope.cancel(run_id);
    } catch (error) {
      // It has ended meanwhile.
      if (!CadenzaError.is(error) || error.code !== "run_finished") throw error;
    }
  }
}

/** The headers of a response without a body. */
export const noContentHeaders = { "cache-control": "no-store", "x-content-type-options": "nosniff" };

/** The idempotency key of what a page may send twice. Undefined: it has no id, or too long a one. */
export function keyOf(chatId: string, id: string): string | undefined {
  // Both may hold any character.
  const key = JSON.stringify([chatId, id]);
  return id === "" || key.length > MAX_KEY_LENGTH ? undefined : key;
}

const MAX_KEY_LENGTH = 255;
