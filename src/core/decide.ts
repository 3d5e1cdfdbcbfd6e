import type { ProtocolError } from "../protocol/error.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { CadenzaErrorCode } from "./errors.ts";
import { sameJson } from "./json.ts";
import type {
  AwaitedEntry,
  CreatedEntry,
  EmittedEntry,
  EmittedMessage,
  EmittedPart,
  EndedEntry,
  Entry,
  Growing,
  IntentEntry,
  Outcome,
  PartSource,
  StepEntry,
} from "./log.ts";
import { overdueFailure } from "./overdue.ts";
import { agentRole } from "./role.ts";
import type { Exchange, RunState } from "./state.ts";
import { createdEntry, isOpen } from "./state.ts";
import { verdict } from "./transitions.ts";
import type { Usage } from "./usage.ts";

/** What is asked of a run, and when. */
export type Command =
  | { readonly type: "create"; readonly entry: CreatedEntry }
  | { readonly type: "start"; readonly at: number }
  | { readonly type: "emit"; readonly at: number; readonly item: Emission }
  | { readonly type: "intend"; readonly entry: IntentEntry }
  | { readonly type: "record"; readonly entry: StepEntry }
  | AskCommand
  | ResumeCommand
  | { readonly type: "withdraw"; readonly at: number; readonly await_id: string }
  | { readonly type: "expire"; readonly at: number; readonly await_id: string; readonly defaulted: boolean }
  | { readonly type: "overrun"; readonly at: number }
  | { readonly type: "cancel"; readonly at: number }
  | EndCommand;

export interface AskCommand extends Omit<AwaitedEntry, "type" | "closes"> {
  readonly type: "ask";
}

export interface ResumeCommand {
  readonly type: "resume";
  readonly at: number;
  /** Which question it answers; null for the one that is shown. */
  readonly await_id: string | null;
  readonly answer: AwaitResume;
  readonly idempotency_key: string | null;
}

export interface EndCommand {
  readonly type: "end";
  readonly at: number;
  /** Why the run failed; null for success. Ignored for a run that is cancelling or past a deadline: it ends as such. */
  readonly failure: ProtocolError | null;
  readonly usage: Usage | null;
}

/** What an agent emits. */
export type Emission =
  | { readonly kind: "part"; readonly part: MessagePart; readonly source?: PartSource }
  | { readonly kind: "message"; readonly message: Message; readonly source?: PartSource }
  | { readonly kind: "generic"; readonly generic: { readonly [key: string]: JsonValue }; readonly source?: PartSource }
  | { readonly kind: "close"; readonly source?: PartSource };

/** The entries that carry out the command, or why it is refused. No entries: the command changes nothing. */
export type Decision = readonly Entry[] | Refusal;

export interface Refusal {
  readonly refused: Extract<
    CadenzaErrorCode,
    "not_awaiting" | "run_cancelling" | "run_finished" | "answer_conflict" | "idempotency_conflict"
  >;
}

/** Whether a decision is a refusal. */
export function isRefusal(decision: Decision): decision is Refusal {
  return !Array.isArray(decision);
}

const nothing: readonly Entry[] = [];

/** Decides a command. Pure: the state is read, never written. */
export function decide(state: RunState, command: Command): Decision {
  if (command.type === "create") return state.created === null ? [command.entry] : nothing;
  if (command.type === "resume") return decideResume(state, command);
  const said = verdict(command.type, state.status);
  if (said === "drop") return nothing;
  if (said !== "accept") return { refused: said };
  switch (command.type) {
    case "start":
      return [{ type: "started", at: command.at }];
    case "emit":
      return decideEmit(state, command.at, command.item);
    case "intend":
    case "record":
      return [command.entry];
    case "ask":
      return decideAsk(state, command);
    case "withdraw":
      if (state.shown?.await_id !== command.await_id) return nothing;
      return [{ type: "withdrawn", at: command.at, await_id: command.await_id }];
    case "expire":
      if (state.shown?.await_id !== command.await_id) return nothing;
      return [{ type: "timed-out", at: command.at, await_id: command.await_id, defaulted: command.defaulted }];
    case "overrun":
      if (state.overdue !== null) return nothing;
      return [{ type: "timed-out", at: command.at, await_id: null, defaulted: false }];
    case "cancel":
      return [{ type: "cancel-requested", at: command.at }];
    case "end":
      return decideEnd(state, command);
  }
}

/**
 * The command that an entry carries out. After a conflict of positions the pending entries are decided again from their
 * commands. Every entry has a command, also those that `decide` adds.
 */
export function commandOf(entry: Entry): Command {
  const { at } = entry;
  switch (entry.type) {
    case "created":
      return { type: "create", entry };
    case "started":
      return { type: "start", at };
    case "emitted":
      return { type: "emit", at, item: emissionOf(entry) };
    case "intent":
      return { type: "intend", entry };
    case "step":
      return { type: "record", entry };
    case "awaited": {
      // `decide` sets `closes` again.
      const { closes: _, ...asked } = entry;
      return { ...asked, type: "ask" };
    }
    case "resumed":
      return { ...entry, type: "resume" };
    case "withdrawn":
      return { type: "withdraw", at, await_id: entry.await_id };
    case "timed-out":
      if (entry.await_id === null) return { type: "overrun", at };
      return { type: "expire", at, await_id: entry.await_id, defaulted: entry.defaulted };
    case "cancel-requested":
      return { type: "cancel", at };
    case "ended":
      return { type: "end", at, failure: entry.error ?? null, usage: entry.usage ?? null };
  }
}

function emissionOf(entry: EmittedEntry): Emission {
  switch (entry.kind) {
    case "part":
      return withSource({ kind: "part", part: entry.part }, entry.source);
    case "message":
      return withSource({ kind: "message", message: entry.message }, entry.source);
    case "generic":
      return withSource({ kind: "generic", generic: entry.generic }, entry.source);
    case "close":
      return withSource({ kind: "close" }, entry.source);
  }
}

function decideEmit(state: RunState, at: number, item: Emission): readonly EmittedEntry[] {
  const { source } = item;
  if (source !== undefined && isOutdated(state, source)) return [];
  switch (item.kind) {
    case "part": {
      const { part } = item;
      const open = isOpen(state);
      const continues = open && sameSource(state.source, source);
      const entry: Growing<EmittedPart> = continues
        ? { type: "emitted", kind: "part", at, part }
        : { type: "emitted", kind: "part", at, part, opens: true };
      if (!continues && open && !isTorn(state, source)) entry.closes = true;
      return [withSource(entry, source)];
    }
    case "message": {
      const message: Message = { ...item.message, role: agentRole(createdEntry(state).agent_name) };
      const entry: Growing<EmittedMessage> = { type: "emitted", kind: "message", at, message };
      if (isOpen(state) && !isTorn(state, source)) entry.closes = true;
      return [withSource(entry, source)];
    }
    case "generic":
      return [withSource({ type: "emitted", kind: "generic", at, generic: item.generic }, source)];
    case "close":
      if (!isOpen(state) || isTorn(state, source)) return [];
      return [withSource({ type: "emitted", kind: "close", at }, source)];
  }
}

/** Whether a later attempt at the step has emitted already. What an earlier attempt emits after that is dropped. */
function isOutdated({ drafts }: RunState, { key, attempt }: PartSource): boolean {
  return attempt < (drafts?.get(key)?.attempt ?? 0);
}

/**
 * Whether the open message belongs to an earlier attempt at the same step. Such a message is left out, not completed.
 */
function isTorn({ source, drafts }: RunState, by: PartSource | undefined): boolean {
  if (by === undefined || source?.key !== by.key) return false;
  return (drafts?.get(by.key)?.attempt ?? by.attempt) < by.attempt;
}

function withSource<T extends EmittedEntry | Emission>(emitted: Growing<T>, source: PartSource | undefined): T {
  if (source !== undefined) emitted.source = source;
  return emitted;
}

function sameSource(a: PartSource | null, b: PartSource | undefined): boolean {
  return a?.key === b?.key && a?.attempt === b?.attempt;
}

/** A question completes the open message: what the agent emits after the answer belongs to a new message. */
function decideAsk(state: RunState, command: AskCommand): readonly Entry[] {
  // A run past its deadline is being stopped and asks no more questions.
  if (state.overdue !== null) return nothing;
  const entry: Growing<AwaitedEntry> = { ...command, type: "awaited" };
  if (isOpen(state)) entry.closes = true;
  return [entry];
}

/**
 * An answer belongs to one question. A repeated answer changes nothing. It is recognised by its `await_id`, by its
 * idempotency key or as equal to the last answer. A different answer to an answered question is a conflict.
 */
function decideResume(state: RunState, command: ResumeCommand): Decision {
  const { at, answer, idempotency_key } = command;
  const exchanges = state.exchanges ?? [];
  const byKey =
    idempotency_key === null ? undefined : exchanges.findLast((one) => one.idempotency_key === idempotency_key);
  if (byKey !== undefined) return isRepeat(byKey, command) ? nothing : { refused: "idempotency_conflict" };
  const shown = state.shown?.await_id;
  if (command.await_id !== null && command.await_id !== shown) {
    const answered = exchanges.findLast((one) => one.asked.await_id === command.await_id && one.answer !== null);
    if (answered !== undefined) return isRepeat(answered, command) ? nothing : { refused: "answer_conflict" };
  }
  if (shown === undefined && command.await_id === null) {
    const last = exchanges.findLast((one) => one.answer !== null);
    if (last !== undefined && isRepeat(last, command)) return nothing;
  }
  const said = verdict("resume", state.status);
  if (said === "not_awaiting" || said === "run_cancelling") return { refused: said };
  if (shown === undefined || (command.await_id !== null && command.await_id !== shown))
    return { refused: "not_awaiting" };
  return [{ type: "resumed", at, await_id: shown, answer, idempotency_key }];
}

function isRepeat(exchange: Exchange, command: ResumeCommand): boolean {
  if (command.await_id !== null && command.await_id !== exchange.asked.await_id) return false;
  return sameJson(exchange.answer, command.answer);
}

function decideEnd(state: RunState, command: EndCommand): readonly Entry[] {
  const { at, usage } = command;
  const [outcome, error] = ending(state, command.failure);
  const closes = outcome === "completed" && isOpen(state);
  const ended: Growing<EndedEntry> = closes
    ? { type: "ended", at, outcome, closes: true }
    : { type: "ended", at, outcome };
  if (error !== null) ended.error = error;
  if (usage !== null) ended.usage = usage;
  if (state.shown === null) return [ended];
  return [{ type: "withdrawn", at, await_id: state.shown.await_id }, ended];
}

function ending(state: RunState, failure: ProtocolError | null): [Outcome, ProtocolError | null] {
  if (state.status === "cancelling") return ["cancelled", null];
  if (state.overdue !== null) return ["failed", overdueFailure(state.overdue.await_id)];
  return failure === null ? ["completed", null] : ["failed", failure];
}
