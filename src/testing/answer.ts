import { copyJson } from "../core/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { AwaitResume } from "../protocol/run.ts";
import { resumeOf as resumeOfValue } from "../runtime/agent/answer.ts";
import { describe } from "../runtime/agent/check.ts";
import { readMessage } from "../runtime/agent/input.ts";
import type { ResumeRequest } from "../runtime/runs/requests.ts";
import { DriveError } from "./drive-error.ts";

/** Stands for an answer that is declined. Made by {@link decline}. */
export class Declined {
  readonly reason: string | undefined;

  constructor(reason: string | undefined) {
    this.reason = reason;
  }
}

/**
 * Declines a question, in the `answers` of `everyInterruption` and `everyCrash`.
 *
 * @example
 * ```ts
 * import { defineAgent } from "cadenza";
 * import { decline, everyCrash } from "cadenza/testing";
 *
 * const booking = defineAgent("booking", (_input, { ask }) => ask("Book it?").catch(({ code }) => code));
 * const report = await everyCrash(booking, "Berlin to Paris", { answers: [decline("Too expensive.")] });
 * report.assert();
 * ```
 */
export function decline(reason?: string): Declined {
  return new Declined(reason);
}

/** The reply to a question as a client sends it: an answer, or a refusal to answer. */
export function replyOf(answer: unknown): Pick<ResumeRequest, "await_resume" | "decline"> {
  return answer instanceof Declined ? { decline: { reason: answer.reason } } : { await_resume: resumeOf(answer) };
}

/**
 * An answer as a client sends it: a text and a message as a message, an object as it is, and any other JSON value
 * (`true`, `42`, a list, null) as a message with a JSON part.
 */
export function resumeOf(answer: unknown): AwaitResume {
  if (isJsonObject(answer) && Array.isArray(answer["parts"]))
    return { type: "message", message: readMessage("answer", answer) };
  const json = answer === undefined ? undefined : copyJson(answer);
  if (json === undefined)
    throw new DriveError(`answer: expected a text, a message or a JSON value, received ${describe(answer)}.`);
  return resumeOfValue(json);
}
