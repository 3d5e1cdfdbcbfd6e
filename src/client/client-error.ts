import type { Run } from "../protocol/run.ts";

/** What is wrong with a value, and where. */
export interface ClientIssue {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

interface Details {
  readonly status?: number | undefined;
  readonly issues?: readonly ClientIssue[] | undefined;
  readonly run?: Run | undefined;
  readonly cause?: unknown;
}

/** The server refuses a request, it cannot be reached, or a run ends otherwise than its caller needs. */
export class ClientError extends Error {
  override readonly name = "ClientError";
  /**
   * What the server gives as the reason, for example `answer_rejected` or `run_not_found`. `unreachable`: there is no
   * answer. `run_failed` and `run_cancelled`: the run has ended so.
   */
  readonly code: string;
  /** The status of the response; undefined without one. */
  readonly status: number | undefined;
  /** What is wrong with an answer or an input, and where; undefined for any other error. */
  readonly issues: readonly ClientIssue[] | undefined;
  /** The run that has ended, for `run_failed` and `run_cancelled`. */
  readonly run: Run | undefined;

  constructor(code: string, message: string, { status, issues, run, cause }: Details = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.status = status;
    this.issues = issues;
    this.run = run;
  }
}

/** A value as JSON. Throws `invalid_argument` for one that JSON cannot express. */
export function jsonText(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw notJson(cause);
  }
  if (text === undefined) throw notJson();
  return text;
}

export function notJson(cause?: unknown): ClientError {
  return new ClientError("invalid_argument", "Expected a JSON value, received one that JSON cannot express.", {
    cause,
  });
}

/** The error that a response tells. */
export async function errorOf(response: Response): Promise<ClientError> {
  const { status } = response;
  const text = await response.text().catch(() => "");
  const { code, message, data = {} } = told(text);
  return new ClientError(data.reason ?? code ?? "refused", message ?? `The server answered with ${status}.`, {
    status,
    issues: data.issues,
  });
}

interface Told {
  readonly code?: string;
  readonly message?: string;
  readonly data?: { readonly reason?: string; readonly issues?: readonly ClientIssue[] };
}

function told(text: string): Told {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return text === "" ? {} : { message: text };
  }
}
