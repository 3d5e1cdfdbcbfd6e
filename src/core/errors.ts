import type { JsonValue } from "../protocol/json.ts";
import type { Run } from "../protocol/run.ts";

/**
 * Everything that the library refuses or reports, by code. `docs/reference/errors.md` has a line for each:
 * when it occurs, and what to do about it.
 */
export type CadenzaErrorCode =
  | "invalid_argument"
  | "agent_not_found"
  | "agent_exists"
  | "not_forkable"
  | "run_not_found"
  | "session_not_found"
  | "not_awaiting"
  | "run_cancelling"
  | "run_finished"
  | "run_not_ended"
  | "answer_rejected"
  | "answer_conflict"
  | "answer_declined"
  | "answer_pending"
  | "ambiguous"
  | "idempotency_conflict"
  | "limit_reached"
  | "runtime_closed"
  | "events_lost"
  | "invalid_input"
  | "invalid_yield"
  | "invalid_output"
  | "run_failed"
  | "run_cancelled"
  | "run_timeout"
  | "await_timeout"
  | "budget_exceeded"
  | "receive_timeout"
  | "message_rejected"
  | "withdrawn"
  | "step_interrupted"
  | "step_timeout"
  | "nested_operation"
  | "agent_failed"
  | "interrupted"
  | "crash_loop"
  | "run_blocked"
  | "newer_format"
  | "lost_ownership"
  | "store_failed";

/** What a `CadenzaError` holds besides its message. */
export interface CadenzaErrorDetails {
  readonly agent_name?: string;
  readonly run_id?: string;
  readonly session_id?: string;
  readonly await_id?: string;
  /** What was wrong and where, for invalid input and for rejected answers. */
  readonly issues?: readonly Issue[];
  /** The option that names the limit, for `limit_reached`. */
  readonly limit?: string;
  /** Why the answer was declined, for `answer_declined`; left out if no reason was given. */
  readonly reason?: string;
  /** The principal who declined it; left out if the application named none. */
  readonly by?: JsonValue;
  /** The run that has failed or was cancelled, where a call of its agent waited for its end. */
  readonly run?: Run;
  readonly cause?: unknown;
}

/** One thing that was wrong with an input. */
export interface Issue {
  /** Where: the keys and indexes that lead to the value. */
  readonly path: readonly (string | number)[];
  readonly message: string;
}

const brand = Symbol.for("cadenza.error");
const agentBrand = Symbol.for("cadenza.agent-error");

/** The one class of error that the library throws. Tell them apart by `code`. */
export class CadenzaError extends Error {
  override readonly name = "CadenzaError";
  readonly code: CadenzaErrorCode;
  // Details that an error does not have are no properties of it: logs print the properties of errors.
  declare readonly agent_name: string | undefined;
  declare readonly run_id: string | undefined;
  declare readonly session_id: string | undefined;
  declare readonly await_id: string | undefined;
  declare readonly issues: readonly Issue[] | undefined;
  declare readonly limit: string | undefined;
  declare readonly reason: string | undefined;
  declare readonly by: JsonValue | undefined;
  declare readonly run: Run | undefined;

  constructor(code: CadenzaErrorCode, message: string, details: CadenzaErrorDetails = {}) {
    const { cause, ...fields } = details;
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    for (const [name, value] of Object.entries(fields))
      if (value !== undefined) Object.defineProperty(this, name, { value, enumerable: true });
    Object.defineProperty(this, brand, { value: true });
  }

  /** Whether the value is a `CadenzaError`, also one of the library's other copy (ES module beside CommonJS). */
  static is(value: unknown): value is CadenzaError {
    return branded(value, brand);
  }
}

/**
 * An error that a run reports to its caller unchanged: throw or yield it. Any other error is reported as `server_error`
 * with a fixed text, since its message may hold what the caller must not see.
 */
export class AgentError extends Error {
  override readonly name = "AgentError";
  /** `server_error`, `invalid_input` or `not_found`: on the wire as it is. Any other code travels as `data.reason`. */
  readonly code: string;
  /** JSON that goes with the error. */
  readonly data: JsonValue | undefined;

  constructor(code: string, message: string, data?: JsonValue, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    this.data = data;
    Object.defineProperty(this, agentBrand, { value: true });
  }

  /** Whether the value is an `AgentError`, also one of the library's other copy (ES module beside CommonJS). */
  static is(value: unknown): value is AgentError {
    return branded(value, agentBrand);
  }
}

/** The error for an id that no run of the caller has: the same for one that the caller may not see. */
export function notFound(runId: string): CadenzaError {
  return new CadenzaError("run_not_found", `There is no run ${runId}.`, { run_id: runId });
}

/** Whether an error says that there is no such run: it never was, or was deleted. */
export function isNotFound(error: unknown): boolean {
  return CadenzaError.is(error) && error.code === "run_not_found";
}

/** The error for an id that no session of the caller has: the same for one that the caller may not see. */
export function noSession(id: string): CadenzaError {
  return new CadenzaError("session_not_found", `There is no session ${id}.`, { session_id: id });
}

/** Never throws: what was thrown may be a proxy that throws whatever it is asked. */
function branded(value: unknown, symbol: symbol): boolean {
  if (typeof value !== "object" || value === null) return false;
  try {
    return symbol in value;
  } catch {
    return false;
  }
}

/** What the store can never hold. */
export function unwritableError(reason: string): CadenzaError {
  return new CadenzaError("limit_reached", `The store can never hold this: ${reason}`, { limit: "entry" });
}
