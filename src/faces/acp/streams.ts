import { inBackground } from "../../core/background.ts";
import { notCounted } from "../../http/disconnects.ts";
import { unfitAt } from "../../http/errors.ts";
import { lastEventId, streamHeaders, textOptions, visibleEvents } from "../../http/event-stream.ts";
import { EventText } from "../../http/event-text.ts";
import { queryFlag } from "../../http/service.ts";
import type { WireResponse } from "../../http/wire.ts";
import { jsonText } from "../../http/wire.ts";
import type { EventStream } from "../../runtime/log/event-stream.ts";
import { prefersEventStream } from "./accept.ts";
import { eventListFormat, eventStreamFormat } from "./event-formats.ts";
import type { AcpCall } from "./options.ts";

const noContentHeaders = { "cache-control": "no-store", "x-content-type-options": "nosniff" };

/** Starts or resumes a run, and answers with its events until it rests. */
export async function streamRun(call: AcpCall, start: () => EventStream): Promise<WireResponse> {
  const reader = call.service.readers.enter(call.caller.tenant);
  let events: EventStream | undefined;
  try {
    events = start();
    const first = await events.poll();
    const runId = first.done !== true && "run" in first.value ? first.value.run.run_id : call.parameter;
    reader.join({ tenant: call.caller.tenant, run_id: runId });
    const leave = call.service.disconnects.enter(call.caller, runId);
    const options = { ...textOptions(call.service, reader, runId, leave), first };
    const headers = { ...streamHeaders, "run-id": runId };
    return { status: 200, headers, body: new EventText(events, eventStreamFormat, options) };
  } catch (error) {
    if (events !== undefined) inBackground(call.service.logger, events.return());
    reader.leave();
    throw error;
  }
}

/**
 * Answers with the events of a run that goes on without this reader. As JSON: all so far. As an event stream: those
 * after the last one known, then live until the run rests or ends. A client that knows all events of a run that has
 * ended gets 204.
 */
export async function followRun(call: AcpCall): Promise<WireResponse> {
  const { request, caller, parameter } = call;
  const until = untilOf(call);
  const detail = wantsDetail(call);
  const isStream = prefersEventStream(request.header("accept"));
  const known = lastEventId(request.header("last-event-id"));
  const after = isStream ? known : 0;
  const { run_id, finished_at } = await caller.scope.getRun(parameter);
  const reader = call.service.readers.enter(caller.tenant);
  try {
    reader.join({ tenant: caller.tenant, run_id });
    const events = visibleEvents(
      caller,
      caller.scope.events(run_id, { after, until: isStream ? until : "now", detail }) as EventStream,
    );
    const headers = { vary: "Accept", "run-id": run_id };
    if (!isStream) {
      const options = textOptions(call.service, reader, run_id, notCounted);
      return jsonText(200, new EventText(events, eventListFormat(), options), headers);
    }
    const first = after > 0 && finished_at !== null ? await events.poll() : undefined;
    if (first?.done === true) {
      reader.leave();
      return { status: 204, headers: { ...noContentHeaders, ...headers }, body: "" };
    }
    const leave = call.service.disconnects.follow(caller, run_id);
    const body = new EventText(events, eventStreamFormat, {
      ...textOptions(call.service, reader, run_id, leave),
      first,
    });
    return { status: 200, headers: { ...streamHeaders, ...headers }, body };
  } catch (error) {
    reader.leave();
    throw error;
  }
}

function untilOf({ query }: AcpCall): "rest" | "end" {
  const until = new URLSearchParams(query).get("until") ?? "rest";
  if (until === "rest" || until === "end") return until;
  throw unfitAt(["until"], "expected rest or end");
}

/** Without extensions the parameter means nothing, like any other that ACP does not have. */
function wantsDetail({ service, query }: AcpCall): boolean {
  return service.settings.extensions && queryFlag(new URLSearchParams(query), "detail") === true;
}
