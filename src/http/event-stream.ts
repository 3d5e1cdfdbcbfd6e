import type { DetailedEvent, EventStream } from "../runtime/log/event-stream.ts";
import type { Caller } from "./caller.ts";
import type { Leave } from "./disconnects.ts";
import { isForHost, unfitAt } from "./errors.ts";
import type { EventSource, EventTextOptions } from "./event-text.ts";
import type { Reader } from "./readers.ts";
import type { Service } from "./service.ts";

/** The headers of a response with server-sent events. */
export const streamHeaders = {
  "content-type": "text/event-stream",
  // Keeps proxies and middleware from compressing or collecting events, which would delay them.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  "x-content-type-options": "nosniff",
};

/** What the text of a stream needs: `leave` is called when its reader is done or has left. */
export function textOptions(
  { clock, logger, settings }: Pick<Service, "clock" | "logger" | "settings">,
  reader: Reader,
  runId: string,
  leave: Leave,
): EventTextOptions {
  return {
    clock,
    logger,
    heartbeatMs: settings.heartbeatMs,
    onClose: (done) => {
      reader.leave();
      leave(done);
    },
    onFailure: (error) => {
      logger[isForHost(error) ? "error" : "debug"]("The events of a run could not be read further.", {
        run_id: runId,
        error,
      });
    },
  };
}

/** The events without the sub-runs whose agents do not exist for the client. */
export function visibleEvents({ sees }: Caller, events: EventStream): EventSource {
  if (sees === undefined) return events;
  const visible = (event: DetailedEvent): DetailedEvent | undefined => {
    if ((event.type === "sub_run.started" || event.type === "sub_run.ended") && !sees(event.agent_name))
      return undefined;
    if (event.type !== "question.asked") return event;
    // The run that asks may be one of them.
    return { ...event, question: { ...event.question, of: null } };
  };
  const shown = (result: IteratorResult<DetailedEvent, undefined>): typeof result | undefined => {
    if (result.done === true) return result;
    const value = visible(result.value);
    return value && { done: false, value };
  };
  const poll: EventSource["poll"] = () => {
    for (;;) {
      const result = events.poll();
      if ("then" in result) return result.then((later) => shown(later) ?? poll());
      const now = shown(result);
      if (now !== undefined) return now;
    }
  };
  return { poll, return: () => events.return() };
}

/** The number of the last event that a client knows, by its header; 0 for none. */
export function lastEventId(text: string | undefined): number {
  if (text === undefined || text === "") return 0;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw unfitAt(["Last-Event-ID"], "expected the id of an event");
}
