import { copyJson } from "../core/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { AwaitResume } from "../protocol/run.ts";
import { resumeOf as resumeOfValue } from "../runtime/answer.ts";
import { describe } from "../runtime/check.ts";
import { readMessage } from "../runtime/input.ts";
import { DriveError } from "./drive-error.ts";

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
