import { CadenzaError, noSession, notFound } from "../core/errors.ts";
import { runIdSchema } from "../protocol/identifier.ts";
import type { Run } from "../protocol/run.ts";
import type { Session } from "../runtime/runs/requests.ts";
import type { Caller } from "./caller.ts";
import { checkMayWrite } from "./caller.ts";
import { markRefused } from "./refusals.ts";

/* What exists for a caller, by the agents that do. */

/** How many runs of a session are listed at a time. */
const PAGE = 1_000;

/** Refuses an agent that does not exist for the caller. The error is that of an agent that does not exist at all. */
export function checkAgent(client: Caller, name: string): void {
  const { sees } = client;
  if (sees === undefined || sees(name)) return;
  const message = `There is no agent ${JSON.stringify(name)}.`;
  throw markRefused(new CadenzaError("agent_not_found", message, { agent_name: name }), { client });
}

/** The id of a run, as a client gives it. What is no id is refused as a run that does not exist. */
export function runIdIn(id: unknown): string {
  const read = runIdSchema.safeParse(id);
  if (read.success) return read.data;
  throw notFound(typeof id === "string" ? id : "");
}

/** Refuses a run whose agent does not exist for the caller. The error is that of a run that does not exist at all. */
export async function checkRun(caller: Caller, runId: string): Promise<void> {
  if (caller.sees !== undefined) checkVisibleRun(caller, await caller.scope.getRun(runId));
}

/** Refuses to change a run that does not exist for the caller, as {@link checkRun} does, or that it may only look at. */
export async function checkChange(caller: Caller, runId: string): Promise<void> {
  if (caller.isReader) checkVisibleRun(caller, await caller.scope.getRun(runId));
  else await checkRun(caller, runId);
  checkMayWrite(caller);
}

/** Refuses a run whose agent does not exist for the caller. */
export function checkVisibleRun(client: Caller, { agent_name, run_id }: Run): void {
  const { sees } = client;
  if (sees === undefined || sees(agent_name)) return;
  throw markRefused(notFound(run_id), { client });
}

/** Refuses to continue an existing session that does not exist for the caller. */
export async function checkSession(caller: Caller, id: string): Promise<void> {
  if (caller.sees === undefined) return;
  const session = await findSession(caller.scope, id);
  if (session !== undefined) await checkVisibleSession(caller, session);
}

/** Refuses a session that does not exist for the caller. The error is that of a session that does not exist at all. */
export async function checkVisibleSession(client: Caller, session: Session): Promise<void> {
  if (!(await isVisible(client, session))) throw markRefused(noSession(session.id), { client });
}

/** A session does not exist for the caller if an agent that does not exist for the caller takes part in it. */
async function isVisible({ scope, sees }: Caller, { id, history }: Session): Promise<boolean> {
  if (sees === undefined) return true;
  const hidden = (await scope.listAgents()).filter(({ name }) => !sees(name));
  const roles = new Set<string>(hidden.map(({ name }) => `agent/${name}`));
  if (history.some(({ role }) => roles.has(role))) return false;
  // Runs that have not completed are not in the session's history.
  for (let after: string | undefined; ; ) {
    const runs = await scope.listRuns({ session_id: id, limit: PAGE, after });
    if (!runs.every(({ agent_name }) => sees(agent_name))) return false;
    if (runs.length < PAGE) return true;
    after = runs.at(-1)?.run_id;
  }
}

/** The session with this id; undefined if it does not exist for the caller. */
export async function findVisibleSession(caller: Caller, id: string): Promise<Session | undefined> {
  const session = await findSession(caller.scope, id);
  return session !== undefined && (await isVisible(caller, session)) ? session : undefined;
}

async function findSession(scope: Caller["scope"], id: string): Promise<Session | undefined> {
  try {
    return await scope.getSession(id);
  } catch (error) {
    if (CadenzaError.is(error) && (error.code === "session_not_found" || error.code === "invalid_argument"))
      return undefined;
    throw error;
  }
}
