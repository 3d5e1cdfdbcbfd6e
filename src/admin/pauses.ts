import { CadenzaError } from "../core/errors.ts";
import type { NewPause, Pause, PausedRuns } from "../core/pauses.ts";
import { pauseKey } from "../core/pauses.ts";
import type { Store } from "../core/ports.ts";
import { isOwn } from "../core/tenants.ts";
import { isoTime } from "../core/time.ts";
import type { JsonValue } from "../protocol/json.ts";
import { badArgument, checkKey, checkKeys, checkObject, checkText, maxLengths } from "../runtime/agent/check.ts";
import type { Pauses } from "../runtime/log/pauses.ts";

/** Which runs to pause or to resume: those that match everything that is named. An agent or a tenant is named. */
export interface AdminPauseQuery extends PausedRuns {
  /** Who asks for it: JSON, which `pauses` and `onAudit` have as `by`. Default: the principal of the `Admin`. */
  readonly by?: JsonValue | undefined;
}

/** A pause: what it names, since when, and who has asked for it. */
export interface AdminPause extends NewPause {
  readonly since: string;
  /** Null: it is not known. */
  readonly by: JsonValue;
}

/** How many pauses there may be: each process knows all of them. */
const MAX_PAUSES = 1_000;
/** How long the principal of one may be, as JSON. */
const MAX_BY = 10_000;

/** Reads which runs are meant. Throws `invalid_argument`, also if neither an agent nor a tenant is named. */
export function readPauseQuery(query: AdminPauseQuery): {
  readonly runs: PausedRuns;
  readonly by: JsonValue | undefined;
} {
  checkObject("query", query);
  checkKeys("query", query, ["agent_name", "version", "tenant", "by"]);
  const { agent_name, version, tenant, by } = query;
  if (agent_name === undefined && tenant === undefined)
    throw badArgument("query", "an `agent_name`, a `tenant`, or both", query);
  if (agent_name !== undefined) checkText("query.agent_name", agent_name);
  if (version !== undefined && agent_name === undefined)
    throw badArgument("query.version", "an `agent_name` beside it", version);
  if (version !== undefined && version !== null) checkKey("query.version", version, maxLengths.version);
  if (tenant !== undefined && isOwn(tenant)) throw badArgument("query.tenant", "a tenant of the application", tenant);
  if (tenant !== undefined && tenant !== "") checkKey("query.tenant", tenant, maxLengths.tenant);
  const runs: PausedRuns = {
    ...(agent_name !== undefined && { agent_name }),
    ...(version !== undefined && { version }),
    ...(tenant !== undefined && { tenant }),
  };
  return { runs, by };
}

/** Throws `invalid_argument` for a principal that is too long: each process reads it again and again. */
export function checkBy(by: JsonValue): void {
  if (JSON.stringify(by).length > MAX_BY) throw badArgument("query.by", `JSON of at most ${MAX_BY} characters`, "more");
}

/** Whether the runs were not paused before, or not with `now`. */
export async function pauseRuns(store: Store, pause: NewPause, by: JsonValue): Promise<boolean> {
  const pauses = await store.pauses();
  if (pauses.length >= MAX_PAUSES && !pauses.some((one) => pauseKey(one) === pauseKey(pause)))
    throw new CadenzaError("limit_reached", `There are ${pauses.length} pauses already. Resume what needs none.`);
  return store.pause(pause, by);
}

/** Whether the runs were paused before. What was set aside has come back then, also after an earlier call that was interrupted. */
export async function resumeRuns(store: Store, runs: PausedRuns, pauses: Pauses): Promise<boolean> {
  const isResumed = await store.resume(runs);
  await pauses.comeBack();
  return isResumed;
}

export function adminPause({ at, ...pause }: Pause): AdminPause {
  return { ...pause, since: isoTime(at) };
}
