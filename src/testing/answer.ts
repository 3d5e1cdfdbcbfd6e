import { copyJson } from "../core/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import { describe } from "../runtime/check.ts";
import { readMessage, textPart, userMessage } from "../runtime/input.ts";
import { DriveError } from "./drive-error.ts";

/**
 * An answer as a client sends it: a text and a message as a message, an object as it is, and any other JSON value
 * (`true`, `42`, a list, null) as a message with a JSON part.
 */
export function resumeOf(answer: unknown): AwaitResume {
  if (typeof answer === "string") return { type: "message", message: userMessage([textPart(answer)]) };
  if (isJsonObject(answer)) {
    if (Array.isArray(answer["parts"])) return { type: "message", message: readMessage("answer", answer) };
    return copyJson(answer) as AwaitResume;
  }
  const json = answer === undefined ? undefined : copyJson(answer);
  if (json === undefined)
    throw new DriveError(`answer: expected a text, a message or a JSON value, received ${describe(answer)}.`);
  const part: MessagePart = {
    content_type: "application/json",
    content: JSON.stringify(json),
    content_encoding: "plain",
  };
  return { type: "message", message: userMessage([part]) };
}
