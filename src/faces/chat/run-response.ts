import type { Leave } from "../../http/disconnects.ts";
import { streamHeaders, textOptions, visibleEvents } from "../../http/event-stream.ts";
import type { EventFormat, EventSource } from "../../http/event-text.ts";
import { EventText } from "../../http/event-text.ts";
import { Relay } from "../../http/relay.ts";
import type { Call } from "../../http/service.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { EventStream } from "../../runtime/log/event-stream.ts";

/** A run whose events answer a request. */
export interface RunResponse {
  readonly run_id: string;
  /** The number of the event after which the response begins. */
  readonly after: number;
  readonly format: EventFormat;
  /** The events that the client gets. Default: the events of the run. */
  readonly tell?: (events: EventSource) => EventSource;
  /** Headers beside those of all streams. */
  readonly headers: Readonly<Record<string, string>>;
  /** Whether the client has begun or resumed the run, and so is one whose leaving may cancel it. */
  readonly isMine: boolean;
  /** Counts the client, if its leaving means something else. */
  readonly enter?: () => Leave;
  /** Where the response ends: where the run rests, or with the end of the run. Default: `rest`. */
  readonly until?: "rest" | "end";
  /**
   * Begins another run once this one rests. Its events follow. Undefined: it begins none. A client that leaves before that
   * has begun it all the same.
   */
  readonly goOn?: () => Promise<{ readonly run_id: string } | undefined>;
}

/** Answers with the events of a run until it rests. `begin` gives the run, or the whole response without one. */
export async function respond(
  { service, caller }: Call,
  begin: () => Promise<RunResponse | WireResponse>,
): Promise<WireResponse> {
  const reader = service.readers.enter(caller.tenant);
  try {
    const begun = await begin();
    if ("status" in begun) {
      reader.leave();
      return begun;
    }
    const { run_id, after, format, tell = asTheyAre, headers, isMine, until = "rest", goOn } = begun;
    const { disconnects } = service;
    reader.join({ tenant: caller.tenant, run_id });
    const { enter = () => disconnects[isMine ? "enter" : "follow"](caller, run_id) } = begun;
    const leave = enter();
    const eventsOf = (id: string, from: number): EventSource => {
      const options = { after: from, until, detail: true } as const;
      return visibleEvents(caller, caller.scope.events(id, options) as EventStream);
    };
    const first = { events: tell(eventsOf(run_id, after)), leave };
    const relay =
      goOn &&
      new Relay(service.logger, first, async () => {
        const next = await goOn();
        return next && { events: eventsOf(next.run_id, 0), leave: disconnects.enter(caller, next.run_id) };
      });
    return {
      status: 200,
      headers: { ...streamHeaders, ...headers, "run-id": run_id },
      body: new EventText(relay ?? first.events, format, textOptions(service, reader, run_id, (relay ?? first).leave)),
    };
  } catch (error) {
    reader.leave();
    throw error;
  }
}

function asTheyAre(events: EventSource): EventSource {
  return events;
}
