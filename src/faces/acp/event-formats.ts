import { userOf } from "../../core/user.ts";
import { readError, retryMsOf } from "../../http/errors.ts";
import type { EventFormat, EventText } from "../../http/event-text.ts";
import { escapeBreaks, STREAM_HEARTBEAT } from "../../http/event-text.ts";
import type { RunEvent } from "../../protocol/event.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";

/**
 * Server-sent events. The id of an event is its number, so that a client can reconnect from it. A detail has none: a
 * client reconnects from the event before it.
 */
export const eventStreamFormat: EventFormat = {
  begin: "",
  write: (event, out) => {
    const id = event.type === "error" || !("id" in event) ? "" : `id: ${event.id}\n`;
    putEvent(event, `${id}event: ${event.type}\ndata: `, "\n\n", out);
  },
  end: () => "",
  heartbeat: STREAM_HEARTBEAT,
  failure: (error) => {
    const retryMs = retryMsOf(error);
    // In the block of an event: some clients take a block without data for an event.
    const retry = retryMs === undefined ? "" : `retry: ${retryMs}\n`;
    return `${retry}event: error\ndata: ${escapeBreaks(JSON.stringify({ type: "error", error: readError(error) }))}\n\n`;
  },
};

/** One JSON text: `{ "events": [ … ] }`. */
export function eventListFormat(): EventFormat {
  let isFirst = true;
  return {
    begin: '{"events":[',
    write: (event, out) => {
      putEvent(event, isFirst ? "" : ",", "", out);
      isFirst = false;
    },
    end: () => "]}",
    heartbeat: undefined,
    failure: undefined,
  };
}

/**
 * Writes an event without its number, which is not in its JSON. Of a principal clients see the user's id: what else the host
 * has put into it is not for them.
 */
function putEvent(event: DetailedEvent, before: string, after: string, out: EventText): void {
  if (!("id" in event)) {
    out.put(before, "by" in event ? { ...event, by: userOf(event.by as JsonValue) ?? null } : event, after);
    return;
  }
  const [name, content] = contentOf(event);
  out.put(`${before}{"type":"${event.type}","${name}":`, content, `}${after}`);
}

/** What an event holds besides its type, and the name of that property. The number is not included. */
function contentOf(event: RunEvent): readonly [name: string, content: object] {
  switch (event.type) {
    case "message.part":
      return ["part", event.part];
    case "message.created":
    case "message.completed":
      return ["message", event.message];
    case "generic":
      return ["generic", event.generic];
    case "error":
      return ["error", event.error];
    default:
      return ["run", event.run];
  }
}
