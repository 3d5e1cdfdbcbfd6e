import type { Entry } from "../core/log.ts";
import { awaitRequest, runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitRequest, Run, RunStatus } from "../protocol/run.ts";
import { textOf } from "../runtime/input.ts";

/** The next thing that an agent did, told apart by `type`. */
export type Happening = PartHappening | MessageHappening | GenericHappening | AwaitHappening | EndHappening;

/** The agent showed a part: a text, or anything else that has a content. */
export interface PartHappening {
  readonly type: "part";
  /** The content, where it is text; else empty. */
  readonly text: string;
  readonly part: MessagePart;
}

/** The agent showed a whole message. */
export interface MessageHappening {
  readonly type: "message";
  /** The text of all its parts. */
  readonly text: string;
  readonly message: Message;
}

/** The agent showed an object of its own. */
export interface GenericHappening {
  readonly type: "generic";
  readonly generic: JsonObject;
}

/** The agent asks, and waits for the answer. */
export interface AwaitHappening {
  readonly type: "await";
  /** The question as text. */
  readonly question: string;
  readonly await_id: string;
  /** The question as the client sees it. */
  readonly message: Message;
  /** What the answer has to fit, as JSON Schema; undefined if anything will do. */
  readonly schema: JsonValue | undefined;
  /** When the question expires; undefined for never. */
  readonly expires_at: string | undefined;
}

/** The run is over. */
export interface EndHappening {
  readonly type: "end";
  readonly status: Extract<RunStatus, "completed" | "failed" | "cancelled">;
  /** The run as a client gets it. */
  readonly run: Run;
  /** Why it failed, as a client is told; else null. */
  readonly error: ProtocolError | null;
  /** What the agent threw, which clients are not told. */
  readonly cause: unknown;
}

const SCHEMA_TYPE = "application/schema+json";

/** What an entry shows; undefined for one that shows nothing. `state` is the log up to and including it. */
export function happeningOf(entry: Entry, state: RunState, cause: unknown): Happening | undefined {
  switch (entry.type) {
    case "emitted":
      if (entry.kind === "part") return { type: "part", text: partText(entry.part), part: entry.part };
      if (entry.kind === "message") return { type: "message", text: textOf(entry.message), message: entry.message };
      return entry.kind === "generic" ? { type: "generic", generic: entry.generic } : undefined;
    case "awaited":
      return awaitHappening(awaitRequest(state, entry));
    case "ended":
      return { type: "end", status: entry.outcome, run: runRecord(state), error: entry.error ?? null, cause };
    default:
      return undefined;
  }
}

/** A question as text, without the schema that may be a part of it. */
export function questionText(parts: readonly MessagePart[]): string {
  return textOf({ role: "agent", parts: parts.filter((part) => part.content_type !== SCHEMA_TYPE) });
}

/** A happening in a few words, for messages: `part "Looking for trains…"`, `question ask#1 "Book it?"`. */
export function describeHappening(happening: Happening): string {
  switch (happening.type) {
    case "part": {
      if (happening.text !== "") return `part ${quote(happening.text)}`;
      const { name, content_type } = happening.part;
      return `part ${name === undefined ? content_type : `${quote(name)} (${content_type})`}`;
    }
    case "message":
      return `message ${quote(happening.text)}`;
    case "generic":
      return `object ${shorten(JSON.stringify(happening.generic))}`;
    case "await":
      return `question ${happening.await_id} ${quote(happening.question)}`;
    case "end":
      return happening.error === null ? `end: ${happening.status}` : `end: failed, ${happening.error.message}`;
  }
}

/** A text in quotes, shortened. */
export function quote(text: string): string {
  return JSON.stringify(shorten(text));
}

function awaitHappening(request: AwaitRequest): AwaitHappening {
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
  return textOf({ role: "agent", parts: [part] });
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}
