import { readError, retryMsOf } from "../../http/errors.ts";
import type { EventFormat, EventText } from "../../http/event-text.ts";
import { escapeBreaks, STREAM_HEARTBEAT } from "../../http/event-text.ts";
import type { DetailedEvent } from "../../runtime/log/event-stream.ts";

/** Tells the events of a run as the items of another protocol. */
export interface Teller {
  /** The items of an event. */
  take(event: DetailedEvent): readonly object[];
  /** The items after the last event. */
  end(): readonly object[];
  /** The items when the events cannot be read further. `retryMs`: after that time they may be. Undefined: they cannot. */
  fail(error: ReturnType<typeof readError>, retryMs: number | undefined): readonly object[];
}

/**
 * Writes what is told as server-sent events. The last item of an event of the run has the event's number as its id, so
 * that a client can go on behind it.
 */
export class ItemFormat implements EventFormat {
  readonly begin: string;
  readonly heartbeat = STREAM_HEARTBEAT;
  readonly #teller: Teller;
  readonly #tail: string;
  readonly #known: number;
  #isKnown: boolean;

  /**
   * `tail`: the text after the last item. `known`: the number of the event up to which the client has the items.
   * `after`: the number of the event after which they begin.
   */
  constructor(teller: Teller, tail: string, known = 0, after = 0) {
    // The id joins the block of the first item: some clients take a block without data for an event.
    this.begin = after > 0 ? `id: ${after}\n` : "";
    this.#teller = teller;
    this.#tail = tail;
    this.#known = known;
    this.#isKnown = known > 0;
  }

  write(event: DetailedEvent, out: EventText): void {
    const number = event.type !== "error" && "id" in event ? event.id : undefined;
    const items = this.#teller.take(event);
    if (this.#isKnown) {
      if (number !== undefined && number >= this.#known) this.#isKnown = false;
      return;
    }
    for (const [index, item] of items.entries()) {
      const isLast = index === items.length - 1;
      out.put(isLast && number !== undefined ? `id: ${number}\ndata: ` : "data: ", item, "\n\n");
    }
  }

  end(): string {
    return itemText(this.#teller.end()) + this.#tail;
  }

  readonly failure = (error: unknown): string => {
    const retryMs = retryMsOf(error);
    const retry = retryMs === undefined ? "" : `retry: ${retryMs}\n`;
    return `${retry}${itemText(this.#teller.fail(readError(error), retryMs))}${this.#tail}`;
  };
}

/** Items as text. */
export function itemText(items: readonly object[]): string {
  return items.map((item) => `data: ${escapeBreaks(JSON.stringify(item))}\n\n`).join("");
}
