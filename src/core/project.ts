import type { RunEvent } from "../protocol/event.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { Message } from "../protocol/message.ts";
import { isCopy } from "./emission-source.ts";
import type { EmittedEntry, Entry, Outcome } from "./log.ts";
import { goingOn, messageRecord, runRecord } from "./record.ts";
import type { OutputMessage, RunState } from "./state.ts";

/**
 * An event with its number in the run, from 1 on: the `id` from which a reader reconnects. The last event of a run that
 * has ended also has its `usage`: the tokens that its agent has reported, null for none.
 */
export type StreamedEvent = (Exclude<RunEvent, { readonly type: `run.${Outcome}` }> | EndEvent) & {
  readonly id: number;
  readonly source?: EventSource;
};

/** The last event of a run that has ended. */
type EndEvent = Extract<RunEvent, { readonly type: `run.${Outcome}` }> & { readonly usage: Usage | null };

/** The event of a sub-run that an event was copied from. HTTP clients do not get it. */
export interface EventSource {
  readonly run_id: string;
  /** The number of an event of the sub-run: the last of those that were copied together. */
  readonly event: number;
}

/**
 * The `index`-th event (from 0) of the last entry of a state; undefined past the last one. `state` is the log folded up
 * to and including the entry: `last_events` says how many events it stands for. Run records inside events are
 * snapshots: later entries do not change them.
 */
export function project(state: RunState, entry: Entry, index: number): StreamedEvent | undefined {
  const count = state.last_events;
  if (index < 0 || index >= count) return undefined;
  const id = state.events - count + index + 1;
  switch (entry.type) {
    case "created":
      return { type: "run.created", run: runRecord(state), id };
    case "awaited":
      if (entry.closes && index === 0) return { type: "message.completed", message: outputAt(state, 1), id };
      return { type: "run.awaiting", run: runRecord(state), id };
    case "emitted":
      return projectEmitted(state, entry, index, id);
    case "continued":
      if (entry.closes && index === 0) return completed(state.generation?.closed ?? undefined, id);
      return { type: "run.in-progress", run: goingOn(runRecord(state)), id };
    case "ended":
      if (entry.closes && index === 0) return { type: "message.completed", message: outputAt(state, 1), id };
      return { type: `run.${entry.outcome}`, run: runRecord(state), usage: state.usage, id };
    default:
      // `started`, or the end of a question, after which the next open one is shown.
      if (index === 1) return { type: "run.awaiting", run: runRecord(state), id };
      return { type: "run.in-progress", run: goingOn(runRecord(state)), id };
  }
}

function projectEmitted(state: RunState, entry: EmittedEntry, index: number, id: number): StreamedEvent | undefined {
  if (index === 0 && "closes" in entry) return { type: "message.completed", message: outputAt(state, 2), id };
  const event = projectOwn(state, entry, index, id);
  if (event === undefined || !isCopy(entry.source)) return event;
  const { run_id, event: number } = entry.source;
  return { ...event, source: { run_id, event: number } };
}

/** The events of an entry without the end of the message before it. */
function projectOwn(state: RunState, entry: EmittedEntry, index: number, id: number): StreamedEvent | undefined {
  switch (entry.kind) {
    case "part": {
      if (index === Number(entry.closes === true) && entry.opens) {
        return { type: "message.created", message: { ...outputAt(state, 1), parts: [] }, id };
      }
      return { type: "message.part", part: entry.part, id };
    }
    case "message": {
      const step = index - Number(entry.closes === true);
      if (step === 0) return { type: "message.created", message: outputAt(state, 1), id };
      const part = entry.message.parts[step - 1];
      if (part !== undefined) return { type: "message.part", part, id };
      return { type: "message.completed", message: outputAt(state, 1), id };
    }
    case "close":
      return { type: "message.completed", message: outputAt(state, 1), id };
    case "generic":
      return { type: "generic", generic: entry.generic, id };
  }
}

/** Undefined: the message was completed where the log is not read. */
function completed(message: OutputMessage | undefined, id: number): StreamedEvent | undefined {
  return message && { type: "message.completed", message: messageRecord(message), id };
}

/** The message `fromEnd` places before the end of the output. */
function outputAt(state: RunState, fromEnd: number): Message {
  const message = state.output.at(-fromEnd);
  if (message === undefined)
    throw new TypeError(`Run ${state.run_id}: the log completes a message that it never opened.`);
  return messageRecord(message);
}
