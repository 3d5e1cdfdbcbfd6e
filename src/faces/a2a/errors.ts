import type { Issue } from "../../core/errors.ts";
import type { Logger } from "../../core/ports.ts";
import { refusalOf, WireError } from "../../http/errors.ts";
import { codeFor, INVALID_PARAMS, INVALID_REQUEST } from "../../http/json-rpc.ts";

/** An error as clients get it, in any binding. */
export interface Fault {
  /** The code of JSON-RPC. */
  readonly code: number;
  /** The status of HTTP. */
  readonly status: number;
  /** Its name among the codes of gRPC. */
  readonly name: string;
  readonly message: string;
  readonly details: readonly object[];
  readonly headers: Record<string, string>;
}

type Row = readonly [code: number, status: number, name: string];

/** The errors of A2A by their names. */
const errors = {
  TASK_NOT_FOUND: [-32001, 404, "NOT_FOUND"],
  TASK_NOT_CANCELABLE: [-32002, 400, "FAILED_PRECONDITION"],
  PUSH_NOTIFICATION_NOT_SUPPORTED: [-32003, 400, "FAILED_PRECONDITION"],
  UNSUPPORTED_OPERATION: [-32004, 400, "FAILED_PRECONDITION"],
  CONTENT_TYPE_NOT_SUPPORTED: [-32005, 400, "INVALID_ARGUMENT"],
  VERSION_NOT_SUPPORTED: [-32009, 400, "FAILED_PRECONDITION"],
} as const satisfies Readonly<Record<string, Row>>;

type ErrorName = keyof typeof errors;

/** The one table from reasons of the runtime to errors of A2A. For other reasons the status decides. */
const ofRuntime: Readonly<Record<string, ErrorName>> = {
  run_not_found: "TASK_NOT_FOUND",
  agent_not_found: "TASK_NOT_FOUND",
  session_not_found: "TASK_NOT_FOUND",
  run_finished: "UNSUPPORTED_OPERATION",
  not_awaiting: "UNSUPPORTED_OPERATION",
  run_cancelling: "UNSUPPORTED_OPERATION",
  answer_conflict: "UNSUPPORTED_OPERATION",
  unsupported_media_type: "CONTENT_TYPE_NOT_SUPPORTED",
};

/** The names of statuses with which a request is refused before it is read, or by the host. */
const names: Readonly<Record<number, string>> = {
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  500: "INTERNAL",
  503: "UNAVAILABLE",
};

/** The statuses of this library for values that are invalid. */
const ofValues: ReadonlySet<number> = new Set([400, 409, 422]);

function byStatus(status: number, reason: unknown): Row {
  const code = codeFor(status, reason);
  if (ofValues.has(status)) return [code === INVALID_REQUEST ? INVALID_PARAMS : code, 400, "INVALID_ARGUMENT"];
  return [code, status, names[status] ?? "FAILED_PRECONDITION"];
}

/** A refusal that the runtime has no word for. */
export function refusal(error: ErrorName, message: string): WireError {
  return new WireError(400, error, message);
}

/** The refusal of a task that does not exist, or not for this client. */
export function noTask(): WireError {
  return new WireError(404, "run_not_found", "The task does not exist.");
}

/** The error that a client gets. One that is no refusal is logged, and the client gets a fixed text. */
export function faultOf(error: unknown, logger: Logger): Fault {
  const { status: http, message: given, data, headers } = refusalOf(error, logger);
  const reason = String(data.reason);
  const found = ofRuntime[reason] ?? (reason in errors ? (reason as ErrorName) : undefined);
  const [code, status, name] = found === undefined ? byStatus(http, reason) : errors[found];
  // The message of the runtime names the run, the agent or the session.
  const message =
    found === "TASK_NOT_FOUND" ? `The ${reason === "session_not_found" ? "context" : "task"} does not exist.` : given;
  const details = found === undefined ? violations(data["issues"] as readonly Issue[] | undefined) : [errorInfo(found)];
  return { code, status, name, message, details, headers };
}

function errorInfo(reason: string): object {
  return { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason, domain: "a2a-protocol.org" };
}

function violations(issues: readonly Issue[] = []): readonly object[] {
  if (issues.length === 0) return [];
  const fieldViolations = issues.map(({ path, message }) => ({ field: path.join("."), description: message }));
  return [{ "@type": "type.googleapis.com/google.rpc.BadRequest", fieldViolations }];
}
