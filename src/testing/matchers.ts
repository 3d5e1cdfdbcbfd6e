import type { Run } from "../protocol/run.ts";
import { describe } from "../runtime/agent/check.ts";
import { messageText } from "../runtime/agent/input.ts";
import { Drive } from "./drive.ts";
import { questionText } from "./drive-event.ts";
import { Report } from "./report.ts";
import { matches } from "./text-match.ts";

/** What the matchers add to `expect`. `Result` is what an assertion returns: `void` in vitest and jest. */
export interface CadenzaMatchers<Result = void> {
  /** The run has completed. */
  toHaveCompleted(): Result;
  /** The run has failed; with a text or a pattern: with this reason, code or message. */
  toHaveFailed(because?: string | RegExp): Result;
  /** The run was cancelled. */
  toHaveBeenCancelled(): Result;
  /** The run waits for an answer; with a text or a pattern: to this question. */
  toBeAwaiting(question?: string | RegExp): Result;
  /** The output of the agent contains this text. */
  toHaveSaid(text: string | RegExp): Result;
  /** The report of `everyInterruption` or `everyCrash` has no problems. */
  toSurviveInterruptions(): Result;
}

/** What a matcher returns to `expect`. */
export interface MatcherResult {
  readonly pass: boolean;
  readonly message: () => string;
}

/**
 * Matchers for the `expect` of vitest and jest: `expect.extend(matchers)`. They take a drive, or a run as the runtime
 * gives it.
 *
 * @example
 * ```ts
 * import { defineAgent } from "cadenza";
 * import { type CadenzaMatchers, drive, matchers } from "cadenza/testing";
 * import { expect, it } from "vitest";
 *
 * declare module "vitest" {
 *   interface Matchers<T> extends CadenzaMatchers<T> {}
 * }
 * expect.extend(matchers);
 *
 * it("asks before it books", async () => {
 *   const t = drive(defineAgent("booking", async (_input, { ask }) => ask("Book it?")), "Berlin to Paris");
 *   await t.until("await");
 *   expect(t).toBeAwaiting("Book it?");
 *   await t.answer({ ok: true });
 *   expect(await t.finish()).toHaveCompleted();
 * });
 * ```
 */
export const matchers = {
  toHaveCompleted(received: unknown): MatcherResult {
    const run = runOf(received);
    return result(run.status === "completed", run, "completed");
  },

  toHaveFailed(received: unknown, because?: string | RegExp): MatcherResult {
    const run = runOf(received);
    const { error } = run;
    const said = error === null ? [] : [error.code, error.message, String(error.data?.["reason"] ?? "")];
    const fits = because === undefined || said.some((text) => matches(text, because));
    return result(
      run.status === "failed" && fits,
      run,
      `failed${because === undefined ? "" : `, with ${String(because)}`}`,
    );
  },

  toHaveBeenCancelled(received: unknown): MatcherResult {
    const run = runOf(received);
    return result(run.status === "cancelled", run, "cancelled");
  },

  toBeAwaiting(received: unknown, question?: string | RegExp): MatcherResult {
    const run = runOf(received);
    const asked = run.await_request === null ? "" : questionText(run.await_request.message.parts);
    const fits = question === undefined || matches(asked, question);
    const expected = question === undefined ? "awaiting" : `awaiting the answer to ${String(question)}`;
    return result(run.status === "awaiting" && fits, run, expected);
  },

  toHaveSaid(received: unknown, text: string | RegExp): MatcherResult {
    const run = runOf(received);
    const said = outputText(run);
    const pass = matches(said, text);
    const message = (): string =>
      `expected the agent ${pass ? "not " : ""}to have said ${String(text)}\n\nIt has said:\n${said === "" ? "(nothing)" : said}`;
    return { pass, message };
  },

  toSurviveInterruptions(received: unknown): MatcherResult {
    if (!(received instanceof Report))
      throw new TypeError(`expected the report of everyInterruption or everyCrash, received ${describe(received)}`);
    return { pass: received.ok, message: () => received.toString() };
  },
};

function result(pass: boolean, run: Run, expected: string): MatcherResult {
  return {
    pass,
    message: () => `expected the run ${pass ? "not " : ""}to be ${expected}\n\nIt is ${describeRun(run)}`,
  };
}

function describeRun({ status, error, await_request, output }: Run): string {
  const details = [
    ...(error === null ? [] : [`${error.code}: ${error.message}`, `data: ${JSON.stringify(error.data ?? null)}`]),
    ...(await_request === null ? [] : [`question: ${questionText(await_request.message.parts)}`]),
    ...(output.length === 0 ? [] : [`said: ${output.map(messageText).join("\n")}`]),
  ];
  return [`${status}.`, ...details].join("\n");
}

function runOf(received: unknown): Run {
  if (received instanceof Drive) return received.run;
  if (typeof received === "object" && received !== null && "run_id" in received && "status" in received)
    return received as Run;
  throw new TypeError(`expected a run or a drive, received ${describe(received)}`);
}

function outputText({ output }: Run): string {
  return output.map(messageText).join("\n");
}
