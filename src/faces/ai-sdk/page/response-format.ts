import { readError, retryMsOf } from "../../../http/errors.ts";
import type { EventFormat, EventText } from "../../../http/event-text.ts";
import { escapeBreaks, STREAM_HEARTBEAT } from "../../../http/event-text.ts";
import type { DetailedEvent } from "../../../runtime/events.ts";
import type { UiChunk } from "./chunks.ts";
import type { Response } from "./response.ts";

/**
 * Writes a response as server-sent events. The last chunk of an event of the run has the event's number as its id, so that
 * a client can go on behind it.
 */
export class ResponseFormat implements EventFormat {
  readonly begin = "";
  readonly heartbeat = STREAM_HEARTBEAT;
  readonly #response: Response;
  readonly #known: number;
  #isKnown: boolean;

  /** `known`: the number of the event up to which the client has the response. */
  constructor(response: Response, known = 0) {
    this.#response = response;
    this.#known = known;
    this.#isKnown = known > 0;
  }

  write(event: DetailedEvent, out: EventText): void {
    const number = event.type !== "error" && "id" in event ? event.id : undefined;
    const chunks = this.#response.take(event);
    if (this.#isKnown) {
      if (number !== undefined && number >= this.#known) this.#isKnown = false;
      return;
    }
    for (const [index, chunk] of chunks.entries()) {
      const isLast = index === chunks.length - 1;
      out.put(isLast && number !== undefined ? `id: ${number}\ndata: ` : "data: ", chunk, "\n\n");
    }
  }

  end(): string {
    return responseText(this.#response.end());
  }

  readonly failure = (error: unknown): string => {
    const retryMs = retryMsOf(error);
    const retry = retryMs === undefined ? "" : `retry: ${retryMs}\n`;
    return `${retry}${responseText([{ type: "error", errorText: readError(error).message }])}`;
  };
}

/** A whole response as text. */
export function responseText(chunks: readonly UiChunk[]): string {
  return `${chunks.map(textOf).join("")}${DONE}`;
}

const DONE = "data: [DONE]\n\n";

function textOf(chunk: UiChunk): string {
  return `data: ${escapeBreaks(JSON.stringify(chunk))}\n\n`;
}
