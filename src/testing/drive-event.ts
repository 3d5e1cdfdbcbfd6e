import type { Entry } from "../core/log.ts";
import { awaitRequest, runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitRequest, Run, RunStatus } from "../protocol/run.ts";
import { SCHEMA_TYPE } from "../protocol/run.ts";
import { messageText } from "../runtime/agent/input.ts";

/** The next thing that an agent did, told apart by `type`. */
export type DriveEvent = PartDriveEvent | MessageDriveEvent | GenericDriveEvent | AwaitDriveEvent | EndDriveEvent;

/** The agent emitted a part: a text, or any other content. */
export interface PartDriveEvent {
  readonly type: "part";
  /** The content, if it is text; else empty. */
  readonly text: string;
  readonly part: MessagePart;
}

/** The agent emitted a whole message. */
export interface MessageDriveEvent {
  readonly type: "message";
  /** The text of all its parts. */
  readonly text: string;
  readonly message: Message;
}

/** The agent emitted an object. */
export interface GenericDriveEvent {
  readonly type: "generic";
  readonly generic: JsonObject;
}

/** The agent asks, and waits for the answer. */
export interface AwaitDriveEvent {
  readonly type: "await";
  /** The question as text. */
  readonly question: string;
  readonly await_id: string;
  /** The question as the client sees it. */
  readonly message: Message;
  /** What the answer has to match, as JSON Schema; undefined if any answer is accepted. */
  readonly schema: JsonValue | undefined;
  /** When the question expires; undefined for never. */
  readonly expires_at: string | undefined;
}

/** The run has ended. */
export interface EndDriveEvent {
  readonly type: "end";
  readonly status: Extract<RunStatus, "completed" | "failed" | "cancelled">;
  /** The run as a client gets it. */
  readonly run: Run;
  /** Why it failed, as a client sees it; else null. */
  readonly error: ProtocolError | null;
  /** What the agent threw, which clients do not see. */
  readonly cause: unknown;
}

/** The drive event of an entry; undefined if it has none. `state` is the log up to and including the entry. */
export function driveEventOf(entry: Entry, state: RunState, cause: unknown): DriveEvent | undefined {
  switch (entry.type) {
    case "emitted":
      if (entry.kind === "part") return { type: "part", text: partText(entry.part), part: entry.part };
      if (entry.kind === "message")
        return { type: "message", text: messageText(entry.message), message: entry.message };
      return entry.kind === "generic" ? { type: "generic", generic: entry.generic } : undefined;
    case "awaited":
      return awaitDriveEvent(awaitRequest(state, entry));
    case "ended":
      return { type: "end", status: entry.outcome, run: runRecord(state), error: entry.error ?? null, cause };
    default:
      return undefined;
  }
}

/** A question as text, without the schema that may be a part of it. */
export function questionText(parts: readonly MessagePart[]): string {
  return messageText({ role: "agent", parts: parts.filter((part) => part.content_type !== SCHEMA_TYPE) });
}

/** A drive event in a few words, for messages: `part "Looking for trains…"`, `question ask#1 "Book it?"`. */
export function describeDriveEvent(driveEvent: DriveEvent): string {
  switch (driveEvent.type) {
    case "part": {
      if (driveEvent.text !== "") return `part ${quote(driveEvent.text)}`;
      const { name, content_type } = driveEvent.part;
      return `part ${name === undefined ? content_type : `${quote(name)} (${content_type})`}`;
    }
    case "message":
      return `message ${quote(driveEvent.text)}`;
    case "generic":
      return `object ${shorten(JSON.stringify(driveEvent.generic))}`;
    case "await":
      return `question ${driveEvent.await_id} ${quote(driveEvent.question)}`;
    case "end":
      return driveEvent.error === null ? `end: ${driveEvent.status}` : `end: failed, ${whyFailed(driveEvent)}`;
  }
}

/** What the agent threw. Otherwise what a client is told. */
function whyFailed({ error, cause }: EndDriveEvent): string {
  return String(cause ?? error?.message).replace(/\.$/, "");
}

/** A text in quotes, shortened. */
export function quote(text: string): string {
  return JSON.stringify(shorten(text));
}

function awaitDriveEvent(request: AwaitRequest): AwaitDriveEvent {
  const { await_id, message, expires_at } = request;
  const part = message.parts.find(({ content_type }) => content_type === SCHEMA_TYPE);
  const schema = part?.content === undefined ? undefined : (JSON.parse(part.content) as JsonValue);
  return {
    type: "await",
    question: questionText(message.parts),
    await_id,
    message,
    schema,
    expires_at: expires_at ?? undefined,
  };
}

function partText(part: MessagePart): string {
  return messageText({ role: "agent", parts: [part] });
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}
