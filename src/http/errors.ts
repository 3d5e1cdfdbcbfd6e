import type { CadenzaErrorCode, Issue } from "../core/errors.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Logger } from "../core/ports.ts";
import type { ErrorCode } from "../protocol/error.ts";
import type { WireResponse } from "./wire.ts";
import { json } from "./wire.ts";

/** The response to an error of the library. */
interface Row {
  readonly status: number;
  readonly code: ErrorCode;
  /** Sent instead of the error's own message, which is for the host. */
  readonly message?: string;
}

const missing: Row = { status: 404, code: "not_found" };
const wrongState: Row = { status: 403, code: "invalid_input" };
const conflict: Row = { status: 409, code: "invalid_input" };
const unfit: Row = { status: 422, code: "invalid_input" };
const busy: Row = { status: 503, code: "server_error" };
const unavailable: Row = { ...busy, message: "The service cannot answer now." };
const broken = { status: 500, code: "server_error", message: "The service failed to answer." } as const;

/** The one table from error codes of the library to responses. */
const rows: Readonly<Record<CadenzaErrorCode, Row>> = {
  invalid_argument: unfit,
  invalid_input: unfit,
  answer_rejected: unfit,
  message_rejected: unfit,
  agent_not_found: missing,
  run_not_found: missing,
  session_not_found: missing,
  not_awaiting: wrongState,
  ambiguous: conflict,
  run_cancelling: wrongState,
  run_finished: wrongState,
  answer_conflict: conflict,
  idempotency_conflict: conflict,
  run_not_ended: conflict,
  not_forkable: conflict,
  limit_reached: busy,
  runtime_closed: busy,
  run_blocked: busy,
  newer_format: unavailable,
  answer_pending: busy,
  lost_ownership: busy,
  store_failed: unavailable,
  events_lost: unavailable,
  // Errors of a run are in its record, and errors of the host are thrown to the host: neither refuses a request.
  agent_exists: broken,
  invalid_yield: broken,
  invalid_output: broken,
  run_failed: broken,
  run_cancelled: broken,
  run_timeout: broken,
  await_timeout: broken,
  budget_exceeded: broken,
  answer_declined: broken,
  receive_timeout: broken,
  withdrawn: broken,
  step_interrupted: broken,
  step_timeout: broken,
  nested_operation: broken,
  agent_failed: broken,
  interrupted: broken,
  crash_loop: broken,
};

/** Whether a text is one of the library's own codes. An agent may have declared any other one. */
export function isLibraryCode(code: unknown): boolean {
  return typeof code === "string" && Object.hasOwn(rows, code);
}

/** After how many seconds a client may try again. */
const RETRY_AFTER_SECONDS = 1;

/** A request that the HTTP layer refuses, without the runtime. */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly status: number;
  readonly code: ErrorCode;
  readonly data: Refusal["data"];
  readonly headers: Record<string, string>;

  constructor(
    status: number,
    reason: string,
    message: string,
    {
      issues,
      limit,
      headers = {},
    }: {
      readonly issues?: readonly Issue[];
      /** The option that names the limit that is reached. */
      readonly limit?: string;
      readonly headers?: Record<string, string>;
    } = {},
  ) {
    super(message);
    this.status = status;
    this.code = status === 404 ? "not_found" : status >= 500 ? "server_error" : "invalid_input";
    this.data = { reason, ...(issues !== undefined && { issues }), ...(limit !== undefined && { limit }) };
    this.headers = headers;
  }
}

/** The error for an invalid body or parameter, with what was wrong and where. */
export function unfitError(issues: readonly Issue[]): WireError {
  return new WireError(422, "invalid_argument", issuesText(issues), { issues });
}

/** What was wrong and where, in words. */
export function issuesText(issues: readonly Issue[]): string {
  return issues.map(({ path, message }) => (path.length === 0 ? message : `${path.join(".")}: ${message}`)).join("; ");
}

/** The error for one invalid value. */
export function unfitAt(path: readonly (string | number)[], message: string): WireError {
  return unfitError([{ path, message }]);
}

/** The error for a limit of the service that is reached. */
export function busyError(limit: string, message: string): WireError {
  return new WireError(503, "limit_reached", `${message} (${limit})`, { limit });
}

/** What a client is told about an error. */
export interface Refusal {
  readonly status: number;
  readonly code: ErrorCode;
  readonly message: string;
  readonly data: Readonly<Record<string, unknown>> & { readonly reason: unknown };
  readonly headers: Record<string, string>;
}

/** What a client is told about an error. One that is no refusal is logged, and the client gets a fixed text. */
export function refusalOf(error: unknown, logger: Logger): Refusal {
  const { status, code, message, data, headers } = untimed(error, logger);
  return {
    status,
    code,
    message,
    data,
    headers: status === 503 ? { "retry-after": String(RETRY_AFTER_SECONDS), ...headers } : headers,
  };
}

function untimed(error: unknown, logger: Logger): Refusal {
  if (error instanceof WireError) return error;
  if (!CadenzaError.is(error)) {
    logger.error("A request failed.", { error });
    return { status: 500, code: "server_error", message: broken.message, data: { reason: "internal" }, headers: {} };
  }
  // The same request is refused later too.
  const row = error.limit === "maxExaminedRuns" ? unfit : (rows[error.code] ?? broken);
  if (isForHost(error)) logger.error("A request failed.", { error });
  const data = {
    reason: error.code,
    ...(error.issues !== undefined && { issues: error.issues }),
    ...(error.limit !== undefined && { limit: error.limit }),
    ...(error.await_id !== undefined && { await_id: error.await_id }),
  };
  return { status: row.status, code: row.code, message: row.message ?? messageOf(error), data, headers: {} };
}

/** What a client reads. The message of the host lists the agents, of which the client may see others. */
function messageOf(error: CadenzaError): string {
  const isList = error.code === "agent_not_found" && error.agent_name !== undefined;
  return isList ? `There is no agent ${JSON.stringify(error.agent_name)}.` : error.message;
}

/** The response of ACP to an error. An error that is no refusal is logged. */
export function errorResponse(error: unknown, logger: Logger): WireResponse {
  const { status, code, message, data, headers } = refusalOf(error, logger);
  return json(status, { code, message, data }, headers);
}

/** What a reader gets when its events cannot be read further. It says why only if the error is for clients. */
export function readError(error: unknown): {
  readonly code: ErrorCode;
  readonly message: string;
  readonly data?: object;
} {
  if (!CadenzaError.is(error) || isForHost(error))
    return { code: "server_error", message: "The events cannot be read further." };
  return { code: rows[error.code].code, message: messageOf(error), data: { reason: error.code } };
}

/** After how many milliseconds a reader may come back, to this process or to another one. Undefined: that would not help. */
export function retryMsOf(error: unknown): number | undefined {
  return CadenzaError.is(error) && passes.has(error.code) ? RETRY_AFTER_SECONDS * 1_000 : undefined;
}

/** What keeps a reader from events that are there. */
const passes: ReadonlySet<CadenzaErrorCode> = new Set([
  "runtime_closed",
  "store_failed",
  "lost_ownership",
  "newer_format",
]);

/** Whether an error is logged for the host, and the client learns only that there was one. Refusals are not logged. */
export function isForHost(error: unknown): boolean {
  return !CadenzaError.is(error) || (rows[error.code] ?? broken).message !== undefined;
}
