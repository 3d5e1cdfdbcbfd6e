import { copyJson } from "../core/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import { describe } from "../runtime/check.ts";
import { readMessage, textPart, userMessage } from "../runtime/input.ts";
import { DriveError } from "./drive-error.ts";

/**
 * An answer as it travels: a text and a message as a message, an object as it is, and what else JSON knows (`true`, `42`, a list, null) as a
 * message with a JSON part.
 */
export function resumeOf(answer: unknown): AwaitResume {
  if (typeof answer === "string") return { type: "message", message: userMessage([textPart(answer)]) };
  if (isJsonObject(answer)) {
    if (Array.isArray(answer["parts"])) return { type: "message", message: readMessage("answer", answer) };
    return copyJson(answer) as AwaitResume;
  }
  const json = answer === undefined ? undefined : copyJson(answer);
  if (json === undefined)
    throw new DriveError(`An answer is a text, a message, or a JSON value; ${describe(answer)} is none.`);
  const part: MessagePart = {
    content_type: "application/json",
    content: JSON.stringify(json),
    content_encoding: "plain",
  };
  return { type: "message", message: userMessage([part]) };
}
