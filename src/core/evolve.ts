import type { EmittedEntry, EndedEntry, Entry, PartSource, ResumedEntry } from "./log.ts";
import { eventCount } from "./project.ts";
import { agentRole } from "./role.ts";
import type { Exchange, OutputMessage, RunState } from "./state.ts";
import { createdEntry, initialState } from "./state.ts";
import { isoTime } from "./time.ts";
import { addUsage } from "./usage.ts";

/**
 * Folds one entry into the state and returns the same object. No entry is refused: the log is the truth. The work per
 * entry does not grow with the log.
 */
export function evolve(state: RunState, entry: Entry): RunState {
  state.position += 1;
  state.events += eventCount(entry);
  switch (entry.type) {
    case "created":
      state.created = entry;
      break;
    case "started":
      state.started = entry;
      state.status = "in-progress";
      break;
    case "emitted":
      emit(state, entry);
      break;
    case "intent":
      takeBack(state, entry.key);
      break;
    case "step":
      state.usage = addUsage(state.usage, entry.usage);
      state.drafts?.delete(entry.key);
      break;
    case "awaited":
      if (entry.closes) close(state, entry.at);
      state.usage = addUsage(state.usage, entry.usage ?? null);
      state.shown = entry;
      state.shown_after = state.output.length;
      state.shown_event = state.events;
      state.status = "awaiting";
      break;
    case "resumed":
      takeDown(state, entry.at, entry);
      state.status = "in-progress";
      break;
    case "withdrawn":
      takeDown(state, entry.at);
      state.status = "in-progress";
      break;
    case "timed-out":
      if (!entry.defaulted) state.overdue = entry;
      if (entry.await_id === null) break;
      takeDown(state, entry.at);
      state.status = "in-progress";
      break;
    case "cancel-requested":
      takeDown(state, entry.at);
      state.status = "cancelling";
      break;
    case "ended":
      end(state, entry);
      break;
  }
  return state;
}

/** The state that a whole log, or its beginning, describes. */
export function foldEntries(runId: string, entries: Iterable<Entry>): RunState {
  const state = initialState(runId);
  for (const entry of entries) evolve(state, entry);
  return state;
}

/** The list is created with its first message: an empty array that grows reserves memory for seventeen. */
function addMessage(state: RunState, message: OutputMessage): void {
  if (state.output.length === 0) state.output = [message];
  else state.output.push(message);
}

/** Ends the question that is shown, if there is one. */
function takeDown(state: RunState, at: number, resumed?: ResumedEntry): void {
  const { shown } = state;
  if (shown === null) return;
  const exchange: Exchange = {
    asked: shown,
    answer: resumed?.answer ?? null,
    at,
    idempotency_key: resumed?.idempotency_key ?? null,
    after: state.shown_after,
    event: state.shown_event,
  };
  if (state.exchanges === null) state.exchanges = [exchange];
  else state.exchanges.push(exchange);
  state.shown = null;
  state.waiting_ms = (state.waiting_ms ?? 0) + at - shown.at;
}

function emit(state: RunState, entry: EmittedEntry): void {
  if (entry.source !== undefined) takeBackBefore(state, entry.source);
  switch (entry.kind) {
    case "part": {
      if (entry.closes) close(state, entry.at);
      if (entry.opens) {
        const created_at = isoTime(entry.at);
        const role = agentRole(createdEntry(state).agent_name);
        addMessage(state, { role, parts: [entry.part], created_at, completed_at: null });
        state.source = entry.source ?? null;
        draft(state, state.source);
      } else state.output.at(-1)?.parts.push(entry.part);
      break;
    }
    case "message": {
      if (entry.closes) close(state, entry.at);
      const { role, parts, created_at, completed_at } = entry.message;
      const at = isoTime(entry.at);
      addMessage(state, { role, parts: [...parts], created_at: created_at ?? at, completed_at: completed_at ?? at });
      draft(state, entry.source ?? null);
      break;
    }
    case "close":
      close(state, entry.at);
      break;
    case "generic":
      break;
  }
}

/** Notes that the last message belongs to a step body. It counts only if this attempt is the last one. */
function draft(state: RunState, source: PartSource | null): void {
  const message = state.output.at(-1);
  if (source === null || message === undefined) return;
  state.drafts ??= new Map();
  const before = state.drafts.get(source.key);
  if (before === undefined) state.drafts.set(source.key, { attempt: source.attempt, messages: [message] });
  else before.messages.push(message);
}

/** A later attempt at a step emits: what earlier attempts emitted is left out. */
function takeBackBefore(state: RunState, { key, attempt }: PartSource): void {
  const before = state.drafts?.get(key);
  if (before !== undefined && before.attempt < attempt) takeBack(state, key);
}

/** A step body begins or is tried again: what it emitted before is left out. */
function takeBack(state: RunState, key: string): void {
  const before = state.drafts?.get(key);
  if (before === undefined) return;
  state.drafts?.delete(key);
  for (const message of before.messages) {
    const index = state.output.lastIndexOf(message);
    state.output.splice(index, 1);
    for (const exchange of state.exchanges ?? []) if (exchange.after > index) exchange.after -= 1;
    if (state.shown_after > index) state.shown_after -= 1;
    if (message.completed_at === null) state.source = null;
  }
}

function close(state: RunState, at: number): void {
  const message: OutputMessage | undefined = state.output.at(-1);
  if (message !== undefined) message.completed_at = isoTime(at);
  state.source = null;
}

function end(state: RunState, entry: EndedEntry): void {
  if (entry.closes) close(state, entry.at);
  takeDown(state, entry.at);
  state.status = entry.outcome;
  state.usage = addUsage(state.usage, entry.usage ?? null);
  state.ended = entry;
}
