import { CadenzaError } from "../../core/errors.ts";
import { LOG_FORMAT } from "../../core/format.ts";
import { sameJson } from "../../core/json.ts";
import type { CreatedEntry, Growing, Labels, ParentRun } from "../../core/log.ts";
import type { RunKey, SessionChange, StoredRun, StoredSession } from "../../core/ports.ts";
import { userOf } from "../../core/user.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { Agent } from "./agent.ts";
import { queuedBy } from "./queueing.ts";

const UNLIMITED = Number.POSITIVE_INFINITY;

/** A request for a new run, validated. */
export interface NewRun {
  readonly tenant: string;
  readonly principal: JsonValue;
  /** The user of whom alone the runs and sessions exist for the caller. Left out: all runs and sessions of the tenant exist. */
  readonly onlyOf?: string;
  readonly agent_name: string;
  readonly input: readonly Message[];
  /** Undefined: the run has a session of its own. */
  readonly session_id: string | undefined;
  readonly idempotencyKey: string | undefined;
  readonly timeoutMs: number | undefined;
  /** How many tokens the run may use with the runs below it. Undefined: what its agent says. */
  readonly totalTokens: number | undefined;
  /** How many tokens are left of the budgets above a sub-run. Undefined: no run above it has a budget. */
  readonly tokensLeft?: number | undefined;
  /** In milliseconds since 1970. Undefined: now. */
  readonly startAt: number | undefined;
  /** Replaces the content of the session before the run joins it. Undefined: the session stays as it is. */
  readonly session: StoredSession | undefined;
  /** Null for none. */
  readonly metadata: JsonValue;
  /** Undefined for none. */
  readonly labels: Labels | undefined;
  /** Undefined: what its agent says. */
  readonly priority?: number | undefined;
}

/** The session of a new run, when the run joins it. */
export interface SessionEntry {
  /** How many messages the session holds, and its generation. */
  readonly length: number;
  readonly generation: string | undefined;
  /** Creates the session if it does not exist. */
  readonly change: SessionChange;
}

/** What a new run is made of. */
export interface NewRunParts {
  readonly agent: Agent;
  readonly request: NewRun;
  readonly runId: string;
  /** The session that it joins. Left out: it has one of its own. */
  readonly session?: SessionEntry | undefined;
  /** Of a sub-run: what has started it. */
  readonly parent?: ParentRun;
}

/** A run that was asked for, and is in the store. `repeated`: its idempotency key had made it before. */
export interface RunElsewhere {
  readonly elsewhere: RunKey;
  readonly of: Pick<CreatedEntry, "agent_name" | "session_id">;
  readonly repeated?: true;
}

/** The first entry of a new run. */
export function createdEntryOf({ agent, request, runId, session, parent }: NewRunParts, at: number): CreatedEntry {
  const { input, session_id, timeoutMs, startAt, principal, metadata, labels } = request;
  const { version, durable, budget } = agent.options;
  const entry: Growing<CreatedEntry> = {
    type: "created",
    at,
    format: LOG_FORMAT,
    agent_name: agent.name,
    session_id: session_id ?? runId,
    input,
  };
  if (version !== undefined) entry.version = version;
  if (durable === true) entry.durable = true;
  if (session !== undefined && session.length > 0) {
    entry.history_length = session.length;
    entry.history_generation = session.generation ?? "";
  }
  // JSON has no infinity.
  if (timeoutMs !== undefined) entry.timeout_ms = timeoutMs === UNLIMITED ? null : timeoutMs;
  const totalTokens = Math.min(
    request.totalTokens ?? budget?.totalTokens ?? UNLIMITED,
    request.tokensLeft ?? UNLIMITED,
  );
  if (totalTokens < UNLIMITED) entry.budget = { total_tokens: totalTokens };
  if (startAt !== undefined && startAt > at) entry.start_at = startAt;
  if (principal !== null) entry.principal = principal;
  if (metadata !== null) entry.metadata = metadata;
  if (labels !== undefined) entry.labels = labels;
  if (parent !== undefined) entry.parent = parent;
  else {
    const queue = queuedBy(agent.options, request.tenant, entry, request.priority);
    if (queue !== undefined) entry.queue = queue;
  }
  return entry;
}

/**
 * The run that the idempotency key has created, if this is the same request. Agent, input and session are compared; the
 * mode and the options may differ. Throws `idempotency_conflict`.
 */
export function repeat({ key, created }: StoredRun, request: NewRun): RunElsewhere {
  const sessionId = created.session_id === key.run_id ? undefined : created.session_id;
  const isSame =
    created.agent_name === request.agent_name &&
    sessionId === request.session_id &&
    sameJson(created.input, request.input);
  const isSeen = request.onlyOf === undefined || userOf(created.principal) === request.onlyOf;
  if (isSame && isSeen) return { elsewhere: key, of: created, repeated: true };
  throw keyConflict(isSeen ? key.run_id : undefined);
}

/** The error for a key that another request has used. Clients read its message, and may not see the run of that request. */
export function keyConflict(run_id: string | undefined): CadenzaError {
  const message = "The idempotency key was used for another request. Use a new key.";
  return new CadenzaError("idempotency_conflict", message, run_id === undefined ? {} : { run_id });
}
