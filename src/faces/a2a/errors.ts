import type { Issue } from "../../core/errors.ts";
import type { Logger } from "../../core/ports.ts";
import { refusalOf, WireError } from "../../http/errors.ts";

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

/** `message`: sent instead of the error's own one, which names the run, the agent or the session. */
type Row = readonly [code: number, status: number, name: string, reason?: string, message?: string];

const noTaskMessage = "The task does not exist.";
const notFound: Row = [-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND", noTaskMessage];
const unsupported: Row = [-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"];
const contentType: Row = [-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"];

/** The one table from reasons to errors of A2A. For other reasons the status decides. */
const rows: Readonly<Record<string, Row>> = {
  run_not_found: notFound,
  agent_not_found: notFound,
  session_not_found: [-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND", "The context does not exist."],
  task_not_cancelable: [-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"],
  push_not_supported: [-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"],
  unsupported_operation: unsupported,
  run_finished: unsupported,
  not_awaiting: unsupported,
  run_cancelling: unsupported,
  answer_conflict: unsupported,
  unsupported_media_type: contentType,
  content_type_not_supported: contentType,
  version_not_supported: [-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"],
  malformed_body: [-32700, 400, "INVALID_ARGUMENT"],
};

const invalid: Row = [-32602, 400, "INVALID_ARGUMENT"];

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

function byStatus(status: number): Row {
  if (ofValues.has(status)) return invalid;
  return [status < 500 ? -32600 : -32603, status, names[status] ?? "FAILED_PRECONDITION"];
}

/** A refusal that the runtime has no word for. */
export function refusal(reason: keyof typeof rows, message: string): WireError {
  return new WireError(400, reason, message);
}

/** The refusal of a task that does not exist, or not for this client. */
export function noTask(): WireError {
  return new WireError(404, "run_not_found", noTaskMessage);
}

/** The error that a client gets. One that is no refusal is logged, and the client gets a fixed text. */
export function faultOf(error: unknown, logger: Logger): Fault {
  const { status: http, message, data, headers } = refusalOf(error, logger);
  const row = rows[String(data.reason)] ?? byStatus(http);
  const [code, status, name, reason, instead = message] = row;
  return {
    ...{ code, status, name, headers },
    message: instead,
    details: reason === undefined ? violations(data["issues"] as readonly Issue[] | undefined) : [errorInfo(reason)],
  };
}

function errorInfo(reason: string): object {
  return { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason, domain: "a2a-protocol.org" };
}

function violations(issues: readonly Issue[] = []): readonly object[] {
  if (issues.length === 0) return [];
  const fieldViolations = issues.map(({ path, message }) => ({ field: path.join("."), description: message }));
  return [{ "@type": "type.googleapis.com/google.rpc.BadRequest", fieldViolations }];
}
