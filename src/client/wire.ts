import type { OpenQuestionDetails } from "../protocol/extensions.ts";
import type { Run } from "../protocol/run.ts";
import { ClientError } from "./client-error.ts";
import { isRecord, parsedJson } from "./json.ts";
import type { ClientEvent } from "./run-view.ts";
import type { ServerEvent } from "./server-events.ts";
import { Passing, unreadable } from "./tries.ts";

/* The answers of a server of `cadenza/http`. The functions here refuse the answers of any other server. */

/** Whether a value is the record of a run. */
export function isRun(value: unknown): value is Run {
  if (!isRecord(value)) return false;
  return typeof value["run_id"] === "string" && typeof value["status"] === "string" && Array.isArray(value["output"]);
}

const ends = ["completed", "failed", "cancelled"] as const;

/** Whether a value is the record of a run that has ended. */
export function isEnded(value: unknown): value is Run & { readonly status: (typeof ends)[number] } {
  return isRun(value) && ends.some((end) => end === value.status);
}

/** Whether a value is the details of a run. */
export function isDetails(value: unknown): value is { readonly await_requests: readonly OpenQuestionDetails[] } {
  return isRecord(value) && Array.isArray(value["await_requests"]);
}

/** Whether an event is the last one of its run. */
export function isEnd({ type }: ClientEvent): boolean {
  return ends.some((end) => type === `run.${end}`);
}

/** The name of the field in which an event has its content, by the type of the event. Events of a run have the record. */
const contents: Readonly<Record<string, string>> = {
  "message.created": "message",
  "message.part": "part",
  "message.completed": "message",
  generic: "generic",
  error: "error",
  "question.asked": "question",
  usage: "total",
};

/** The event in a server-sent event. Throws {@link Passing} for one after which the stream is read again. */
export function readEvent({ id, data, retryMs }: ServerEvent): ClientEvent {
  const event = parsedJson(data);
  if (!isEvent(event)) throw unreadable("an event that is broken", { status: 200 });
  if (event.type === "error") {
    const { code, message, data } = event.error;
    const error = new ClientError(String(data?.["reason"] ?? code), String(message));
    throw retryMs === undefined ? error : new Passing("away", error, retryMs);
  }
  if ("position" in event) return event;
  const number = Number(id ?? Number.NaN);
  if (!Number.isInteger(number)) throw unreadable("an event without a number", { status: 200 });
  return { ...event, id: number };
}

function isEvent(value: unknown): value is ClientEvent {
  if (!isRecord(value)) return false;
  const { type } = value;
  if (typeof type !== "string") return false;
  const content = type.startsWith("run.") ? "run" : contents[type];
  return content === undefined || isRecord(value[content]);
}
