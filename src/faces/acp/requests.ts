import type { Issue } from "../../core/errors.ts";
import { CALL_ID, MESSAGE_ID } from "../../http/claims.ts";
import { unfitAt, unfitError, WireError } from "../../http/errors.ts";
import type { RunDeclineRequest } from "../../protocol/extensions.ts";
import { runDeclineRequestSchema } from "../../protocol/extensions.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import type { RunCreateRequest, RunResumeRequest } from "../../protocol/requests.ts";
import { runCreateRequestSchema, runResumeRequestSchema } from "../../protocol/requests.ts";
import { isMessageResume } from "../../protocol/run.ts";
import type { AcpSettings } from "./options.ts";

/** Reads the body that starts a run. */
export function readCreateRequest(body: unknown, limits: Limits): RunCreateRequest {
  if (isJsonObject(body)) checkCounts(["input"], body["input"], limits);
  const request = isPlain(body) ? body : withForeignInput(readWith(runCreateRequestSchema, body));
  checkMetadata(["input"], request.input, limits);
  const { session_id, session } = request;
  if (session?.id !== undefined && session_id !== undefined && session.id !== session_id) {
    throw new WireError(400, "session_mismatch", `session_id is ${session_id}, but session.id is ${session.id}.`);
  }
  return request;
}

/** Refuses an invalid body that starts a run, with what was wrong and where. */
export function checkCreateRequest(body: unknown): void {
  readWith(runCreateRequestSchema, body);
}

/** Reads the body that resumes a run. It may decline to answer if the service has extensions. */
export function readReplyRequest(
  body: unknown,
  runId: string,
  { extensions, limits }: AcpSettings,
): RunResumeRequest | RunDeclineRequest {
  const declines = isJsonObject(body) && body["decline"] !== undefined && body["decline"] !== null;
  if (declines && !extensions && (body["await_resume"] ?? null) === null) {
    const message = "this service takes no declined answers, which are not part of ACP (option extensions)";
    throw unfitError([{ path: ["decline"], message }]);
  }
  if (declines && extensions) {
    const request = readWith(runDeclineRequestSchema, body);
    checkRunId(request, runId);
    return request;
  }
  const path = ["await_resume", "message"];
  const resume = isJsonObject(body) && body["await_resume"];
  if (isJsonObject(resume)) checkCounts(path, [resume["message"]], limits);
  const request = readWith(runResumeRequestSchema, body);
  checkRunId(request, runId);
  if (!isMessageResume(request.await_resume)) return request;
  const { message } = request.await_resume;
  checkMetadata(path, [message], limits);
  return { ...request, await_resume: { type: "message", message: foreign(message) } };
}

function withForeignInput(request: RunCreateRequest): RunCreateRequest {
  return { ...request, input: request.input.map(foreign) };
}

/** A message of a user without the ids that the service itself keeps in parts, by which pages know messages and calls. */
function foreign(message: Message): Message {
  if (message.role !== "user") return message;
  const parts = message.parts.map((part) => {
    const { [MESSAGE_ID]: _message, [CALL_ID]: _call, ...rest } = part;
    return rest as MessagePart;
  });
  return { ...message, parts };
}

/** Refuses a body whose run is not that of the path. */
function checkRunId({ run_id }: RunResumeRequest | RunDeclineRequest, runId: string): void {
  if (run_id !== undefined && run_id.replaceAll("-", "") !== runId.toLowerCase().replaceAll("-", ""))
    throw new WireError(400, "run_mismatch", `run_id: expected ${runId} as in the path, received ${run_id}.`);
}

/**
 * Whether a body holds only messages of plain text parts, as almost all bodies do. It then needs no schema: the runtime
 * copies and checks its messages anyway.
 */
function isPlain(body: unknown): body is RunCreateRequest {
  if (!isJsonObject(body)) return false;
  for (const key in body) {
    const value = body[key];
    if (key === "input" ? !Array.isArray(value) || !value.every(isPlainMessage) : !isPlainField(key, value))
      return false;
  }
  return "agent_name" in body && "input" in body;
}

function isPlainField(key: string, value: unknown): boolean {
  if (key === "agent_name") return typeof value === "string" && value !== "";
  return key === "mode" && (value === "sync" || value === "async" || value === "stream");
}

function isPlainMessage(message: unknown): boolean {
  if (!isJsonObject(message)) return false;
  for (const key in message) {
    const value = message[key];
    if (key === "parts" ? !Array.isArray(value) || !value.every(isPlainPart) : key !== "role" || value !== "user")
      return false;
  }
  return "parts" in message;
}

function isPlainPart(part: unknown): boolean {
  if (!isJsonObject(part)) return false;
  for (const key in part) {
    const value = part[key];
    if (
      key === "content" || key === "content_type"
        ? typeof value !== "string"
        : key !== "content_encoding" || value !== "plain"
    )
      return false;
  }
  return "content" in part;
}

type Limits = AcpSettings["limits"];

/** Refuses too many messages or parts. What is no list of messages is left to the schema, which would look at each part. */
export function checkCounts(path: Issue["path"], messages: unknown, { maxMessages, maxParts }: Limits): void {
  if (!Array.isArray(messages)) return;
  if (messages.length > maxMessages) throw unfitAt(path, `expected at most ${maxMessages} messages`);
  let count = 0;
  for (const message of messages as readonly unknown[]) {
    if (isJsonObject(message) && Array.isArray(message["parts"])) count += message["parts"].length;
  }
  if (count > maxParts) throw unfitAt(path, `expected at most ${maxParts} parts in all`);
}

function checkMetadata(path: Issue["path"], messages: readonly Message[], { maxMetadataLength }: Limits): void {
  for (const { parts } of messages) {
    for (const { metadata } of parts) {
      if (metadata !== undefined && JSON.stringify(metadata).length > maxMetadataLength)
        throw unfitAt(path, `expected at most ${maxMetadataLength} characters in the metadata of a part`);
    }
  }
}

/** The part of a schema that is used. */
export interface Schema<T> {
  safeParse(value: unknown):
    | { readonly success: true; readonly data: T }
    | {
        readonly success: false;
        readonly error: { readonly issues: readonly { path: PropertyKey[]; message: string }[] };
      };
}

/** Reads a value at the path `at`. Refuses an invalid value, with what was wrong and where. */
export function readWith<T>(schema: Schema<T>, value: unknown, at: Issue["path"] = []): T {
  const reading = schema.safeParse(value);
  if (reading.success) return reading.data;
  throw unfitError(
    reading.error.issues.map(({ path, message }) => ({
      path: [...at, ...path.filter((key) => typeof key !== "symbol")],
      message,
    })),
  );
}
