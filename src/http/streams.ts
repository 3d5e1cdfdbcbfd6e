import type { DetailedEvent, EventStream } from "../runtime/events.ts";
import { prefersEventStream } from "./accept.ts";
import type { Caller } from "./caller.ts";
import type { Leave } from "./disconnects.ts";
import { notCounted } from "./disconnects.ts";
import { isForHost, unfitAt } from "./errors.ts";
import type { EventSource, EventTextOptions } from "./event-text.ts";
import { EventText, eventListFormat, eventStreamFormat } from "./event-text.ts";
import type { Reader } from "./readers.ts";
import type { Call } from "./service.ts";
import { queryFlag } from "./service.ts";
import type { WireResponse } from "./wire.ts";
import { jsonText } from "./wire.ts";

const streamHeaders = {
  "content-type": "text/event-stream",
  // Keeps proxies and middleware from compressing or collecting events, which would delay them.
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  "x-content-type-options": "nosniff",
};

const noContentHeaders = { "cache-control": "no-store", "x-content-type-options": "nosniff" };

/** Starts or resumes a run, and answers with its events until it rests. */
export async function streamRun(call: Call, start: () => EventStream): Promise<WireResponse> {
  const reader = call.service.readers.enter();
  let events: EventStream | undefined;
  try {
    events = start();
    const first = await events.poll();
    const runId = first.done !== true && "run" in first.value ? first.value.run.run_id : call.parameter;
    reader.join(runId);
    const leave = call.service.disconnects.enter(call.caller.scope, runId);
    const options = { ...textOptions(call, reader, runId, leave), first };
    const headers = { ...streamHeaders, "run-id": runId };
    return { status: 200, headers, body: new EventText(events, eventStreamFormat, options) };
  } catch (error) {
    void events?.return();
    reader.leave();
    throw error;
  }
}

/**
 * Answers with the events of a run that goes on without this reader. As JSON: all so far. As an event stream: those
 * after the last one known, then live until the run rests or ends. A client that knows all events of a run that has
 * ended gets 204.
 */
export async function followRun(call: Call): Promise<WireResponse> {
  const { request, caller, parameter } = call;
  const until = untilOf(call);
  const detail = wantsDetail(call);
  const isStream = prefersEventStream(request.header("accept"));
  const after = isStream ? lastEventId(request.header("last-event-id")) : 0;
  const { run_id, finished_at } = await caller.scope.getRun(parameter);
  const reader = call.service.readers.enter();
  try {
    reader.join(run_id);
    const events = visibleEvents(
      caller,
      caller.scope.events(run_id, { after, until: isStream ? until : "now", detail }) as EventStream,
    );
    const headers = { vary: "Accept", "run-id": run_id };
    if (!isStream) {
      const options = textOptions(call, reader, run_id, notCounted);
      return jsonText(200, new EventText(events, eventListFormat, options), headers);
    }
    const first = after > 0 && finished_at !== null ? await events.poll() : undefined;
    if (first?.done === true) {
      reader.leave();
      return { status: 204, headers: { ...noContentHeaders, ...headers }, body: "" };
    }
    const leave = call.service.disconnects.follow(caller.scope, run_id);
    const body = new EventText(events, eventStreamFormat, { ...textOptions(call, reader, run_id, leave), first });
    return { status: 200, headers: { ...streamHeaders, ...headers }, body };
  } catch (error) {
    reader.leave();
    throw error;
  }
}

function textOptions({ service }: Call, reader: Reader, runId: string, leave: Leave): EventTextOptions {
  const { clock, logger, settings } = service;
  return {
    clock,
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

function untilOf({ query }: Call): "rest" | "end" {
  const until = new URLSearchParams(query).get("until") ?? "rest";
  if (until === "rest" || until === "end") return until;
  throw unfitAt(["until"], "expected rest or end");
}

/** Without extensions the parameter means nothing, like any other that ACP does not have. */
function wantsDetail({ service, query }: Call): boolean {
  return service.settings.extensions && queryFlag(new URLSearchParams(query), "detail") === true;
}

/** The events without the sub-runs whose agents do not exist for the client. */
function visibleEvents({ sees }: Caller, events: EventStream): EventSource {
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

function lastEventId(text: string | undefined): number {
  if (text === undefined || text === "") return 0;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw unfitAt(["Last-Event-ID"], "expected the id of an event");
}
