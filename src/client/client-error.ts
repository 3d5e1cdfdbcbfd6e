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
   * answer. `bad_response`: the answer is not one of the server, such as a page of a proxy. `redirected`: the server sends
   * its clients elsewhere, and this one does not follow. `run_failed` and `run_cancelled`: the run has ended so.
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
