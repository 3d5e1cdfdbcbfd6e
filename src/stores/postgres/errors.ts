import { CadenzaError } from "../../core/errors.ts";

/**
 * What an error of a driver means.
 * - `retry`: nothing was written, and the same statement may succeed at once.
 * - `statement`: nothing was written, because of what the statement contains.
 * - `server`: nothing was written. The server cannot do it now, or is not set up for it.
 * - `unknown`: the connection was lost. Whether the statement was carried out is unknown.
 */
export type Outcome = "retry" | "statement" | "server" | "unknown";

/** SQLSTATEs and classes of them, of which the longest that fits counts. */
const outcomes: Readonly<Record<string, readonly [outcome: Outcome, said: string]>> = {
  "40001": ["retry", "Other transactions were in the way, again and again."],
  "40P01": ["retry", "Other transactions were in the way, again and again."],
  "55P03": ["server", "A lock was held for longer than the server's `lock_timeout`."],
  "57014": ["server", "The server has cancelled the statement, for example after its `statement_timeout`."],
  "25006": ["server", "The server is read-only: a standby. The pool has to connect to the primary."],
  "3D000": ["server", "The database does not exist."],
  "3F000": ["server", "The schema is not set up."],
  "42P01": ["server", "A table of the schema is missing: it is not set up, or was changed."],
  "42883": ["server", "A function of the schema is missing: it is not set up, or was changed."],
  "42501": ["server", "The role lacks a right that the store needs."],
  "28": ["server", "The server has refused the role or its password."],
  "53100": ["server", "The server's disk is full."],
  "53200": ["retry", "The server has no memory left, or no room for locks."],
  "57": ["unknown", "The server has closed the connection."],
  "53": ["unknown", "The server has no connection or memory left."],
  "08": ["unknown", "The connection was lost."],
};

/** What an error of a driver means. One without an SQLSTATE comes from the connection. */
export function outcomeOf(error: unknown): Outcome {
  const code = codeOf(error);
  return code === undefined ? "unknown" : (entryOf(code)?.[0] ?? "statement");
}

/** Whether a lock was held for too long, or two transactions waited for each other: only this statement lacks a lock. */
export function isLocked(error: unknown): boolean {
  return codeOf(error) === "55P03";
}

/** Whether another connection made a schema after this one had looked for it: the server remembers that it was not there. */
export function isMadeElsewhere(error: unknown): boolean {
  const code = codeOf(error);
  const { constraint } = error as { readonly constraint?: unknown };
  return code === "42P06" || (code === "23505" && constraint === "pg_namespace_nspname_index");
}

/** Why the database can never hold what was written, if that is what an error says. */
export function unwritableReason(error: unknown): string | undefined {
  if (error instanceof RangeError) return "its JSON is longer than a string can be.";
  const code = codeOf(CadenzaError.is(error) ? error.cause : error);
  return code !== undefined && /^(22|54)/.test(code) ? `PostgreSQL refuses it (SQLSTATE ${code}).` : undefined;
}

/** The error that a caller gets. What the driver threw is its cause: clients may see the message. */
export function storeFailed(cause: unknown): CadenzaError {
  if (cause instanceof CadenzaError) return cause;
  if (cause instanceof DeadlineError) return new CadenzaError("store_failed", cause.message, { cause });
  const code = codeOf(cause);
  const said = code === undefined ? "The connection to PostgreSQL failed." : (entryOf(code)?.[1] ?? "A query failed.");
  return new CadenzaError("store_failed", code === undefined ? said : `${said} (SQLSTATE ${code})`, { cause });
}

/** The error after a deadline of the client. */
export class DeadlineError extends Error {
  constructor(timeoutMs: number) {
    super(`There was no answer within ${timeoutMs} ms. Whether the statement was carried out is unknown.`);
  }
}

function entryOf(code: string): readonly [outcome: Outcome, said: string] | undefined {
  return outcomes[code] ?? outcomes[code.slice(0, 2)];
}

/** The SQLSTATE of an error. Other codes, such as `ECONNRESET`, are those of the system. */
function codeOf(error: unknown): string | undefined {
  const code = (error as { readonly code?: unknown } | null)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) && /[0-9]/.test(code) ? code : undefined;
}
