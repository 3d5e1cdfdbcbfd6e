import { CadenzaError } from "../core/errors.ts";
import { sameJson } from "../core/json.ts";
import type { CreatedEntry, Growing, ParentRun } from "../core/log.ts";
import type { RunKey, StoredRun, StoredSession } from "../core/ports.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { Agent } from "./agent.ts";

/** What is asked of a new run. */
export interface NewRun {
  readonly tenant: string;
  readonly principal: JsonValue;
  readonly agent_name: string;
  readonly input: readonly Message[];
  /** Undefined: a session of its own. */
  readonly session_id: string | undefined;
  readonly idempotencyKey: string | undefined;
  readonly timeoutMs: number | undefined;
  /** What the session holds before the run joins it; undefined: what it holds already. */
  readonly session: StoredSession | undefined;
}

/** The first entry of a new run. `historyLength`: how many messages its session holds already. */
export function createdEntryOf(
  agent: Agent,
  { input, session_id, timeoutMs, principal }: NewRun,
  runId: string,
  at: number,
  historyLength: number,
  parent: ParentRun | undefined,
): CreatedEntry {
  const { version, durable } = agent.options;
  const sessionId = session_id ?? runId;
  const entry: Growing<CreatedEntry> = { type: "created", at, agent_name: agent.name, session_id: sessionId, input };
  if (version !== undefined) entry.version = version;
  if (durable === true) entry.durable = true;
  if (historyLength > 0) entry.history_length = historyLength;
  if (timeoutMs !== undefined) entry.timeout_ms = timeoutMs;
  if (principal !== null) entry.principal = principal;
  if (parent !== undefined) entry.parent = parent;
  return entry;
}

/** The run that an idempotency key made before, if this is the same request again; how the answer is to come may differ. */
export function repeat({ key, created }: StoredRun, request: NewRun): { readonly repeated: RunKey } {
  const sessionId = created.session_id === key.run_id ? undefined : created.session_id;
  const isSame =
    created.agent_name === request.agent_name &&
    sessionId === request.session_id &&
    sameJson(created.input, request.input);
  if (isSame) return { repeated: key };
  throw new CadenzaError("idempotency_conflict", "The idempotency key was used for another request already.", {
    run_id: key.run_id,
  });
}
