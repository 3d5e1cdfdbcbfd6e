import type { Leave } from "../../http/disconnects.ts";
import { streamHeaders, textOptions, visibleEvents } from "../../http/event-stream.ts";
import { EventText } from "../../http/event-text.ts";
import type { Call } from "../../http/service.ts";
import type { WireResponse } from "../../http/wire.ts";
import type { EventStream } from "../../runtime/log/events.ts";
import type { ItemFormat } from "./item-format.ts";

/** A run whose events answer a request. */
export interface RunResponse {
  readonly run_id: string;
  /** The number of the event after which the response begins. */
  readonly after: number;
  readonly format: ItemFormat;
  /** Headers beside those of all streams. */
  readonly headers: Readonly<Record<string, string>>;
  /** Whether the client has begun or resumed the run, and so is one whose leaving may cancel it. */
  readonly isMine: boolean;
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
    const { run_id, after, format, headers, isMine } = begun;
    const { disconnects } = service;
    const leave: Leave = isMine ? disconnects.enter(caller, run_id) : disconnects.follow(caller, run_id);
    reader.join({ tenant: caller.tenant, run_id });
    const options = { after, until: "rest", detail: true } as const;
    const events = visibleEvents(caller, caller.scope.events(run_id, options) as EventStream);
    return {
      status: 200,
      headers: { ...streamHeaders, ...headers, "run-id": run_id },
      body: new EventText(events, format, textOptions(service, reader, run_id, leave)),
    };
  } catch (error) {
    reader.leave();
    throw error;
  }
}
