import type { Message, MessageInput, MessagePartInput } from "../protocol/message.ts";
import type { Run } from "../protocol/run.ts";
import { ClientError } from "./client-error.ts";
import { jsonText, notJson, parsedJson } from "./json.ts";

/**
 * An input as messages: a text is a text, messages and parts are what they are, and any other value is a JSON part. Throws
 * `invalid_argument` for one that cannot be read.
 */
export function messagesOf(input: unknown): readonly MessageInput[] {
  try {
    if (Array.isArray(input) && input.every(isMessage)) return input;
    return [{ role: "user", parts: [partOf(input)] }];
  } catch (cause) {
    throw cause instanceof ClientError ? cause : notJson(cause);
  }
}

function partOf(input: unknown): MessagePartInput {
  if (typeof input === "string") return { content: input };
  if (isPart(input)) return input;
  return { content_type: "application/json", content: jsonText(input) };
}

function isMessage(value: unknown): value is MessageInput {
  return typeof value === "object" && value !== null && "parts" in value && Array.isArray(value.parts);
}

/** A part says what its content is. An input of the application's own is hardly named so. */
function isPart(value: unknown): value is MessagePartInput {
  if (typeof value !== "object" || value === null || !("content_type" in value)) return false;
  return "content" in value || "content_url" in value;
}

/** The value that an agent with an `output` schema has returned; the messages of any other agent. */
export function outputIn({ output }: Run): unknown {
  const part = output.flatMap(({ parts }: Message) => parts.filter(({ name }) => name === "output")).at(-1);
  if (part?.content === undefined) return output;
  const value = parsedJson(part.content);
  if (value === undefined) throw new ClientError("bad_response", "Expected JSON as the output, received another text.");
  return value;
}
