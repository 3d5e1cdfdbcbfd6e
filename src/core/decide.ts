import type { ProtocolError } from "../protocol/error.ts";
import type { Message } from "../protocol/message.ts";
import type {
  AskCommand,
  Command,
  ContinueCommand,
  EmissionFrom,
  EndCommand,
  ReplyCommand,
  StartCommand,
} from "./commands.ts";
import { commandOf, withSource } from "./commands.ts";
import type { EmissionSource, PartSource } from "./emission-source.ts";
import { isCopy, stepOf } from "./emission-source.ts";
import type { CadenzaErrorCode } from "./errors.ts";
import { sameJson } from "./json.ts";
import type {
  AwaitedEntry,
  ContinuedEntry,
  DeclinedEntry,
  EmittedEntry,
  EmittedMessage,
  EmittedPart,
  EndedEntry,
  Entry,
  Growing,
  MeasuredEntry,
  ReceivedEntry,
  Reply,
  ResumedEntry,
  SettledEntry,
  StartedEntry,
  TornEntry,
} from "./log.ts";
import { subRunIn } from "./operation-keys.ts";
import { overdueFailure } from "./overdue.ts";
import { agentRole } from "./role.ts";
import type { Question, Replied, RunState } from "./state.ts";
import {
  createdEntry,
  generationNumber,
  hasSeen,
  hasSettled,
  isOfAnother,
  isOpen,
  latestTime,
  openQuestion,
  repliedWithKey,
  replyTo,
} from "./state.ts";
import { verdict } from "./transitions.ts";
import { addUsage } from "./usage.ts";

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

/** How many keys of messages, and replies, a generation knows of those before it. */
const KEPT_KEYS = 100;
const KEPT_REPLIES = 10;

/**
 * Decides a command. Pure: the state is read, never written. No entry has an earlier time than those before it: the
 * clocks of the processes that write to a run may differ a little. `active_ms`: how long the run was active so far, where
 * that is measured. `queued_ms`: how long it stood in line for its slot, as far as its log does not say so yet.
 */
export function decide(state: RunState, command: Command, active_ms = 0, queued_ms = 0): Decision {
  const decision = decideNow(state, command);
  if (isRefusal(decision)) return decision;
  const latest = latestTime(state);
  const inOrder = isBefore(decision, latest) ? notBefore(decision, latest) : decision;
  return active_ms + queued_ms === 0 ? inOrder : inOrder.map((entry) => withTimes(entry, active_ms, queued_ms));
}

/** Whether any entry has an earlier time. A loop: a closure would be allocated for each command. */
function isBefore(entries: readonly Entry[], at: number): boolean {
  for (const entry of entries) if (entry.at < at) return true;
  return false;
}

function notBefore(entries: readonly Entry[], at: number): readonly Entry[] {
  return entries.map((entry) => (entry.at < at ? { ...entry, at } : entry));
}

/** The entries of the agent's operations, and the last one, record these times. A stream of parts would repeat them. */
function withTimes(entry: Entry, active_ms: number, queued_ms: number): Entry {
  if (!isMeasured(entry)) return entry;
  const timed: Growing<MeasuredEntry & Entry> = { ...entry };
  if (active_ms > 0) timed.active_ms ??= active_ms;
  if (queued_ms > 0) timed.queued_ms = (timed.queued_ms ?? 0) + queued_ms;
  return timed;
}

function isMeasured(entry: Entry): entry is MeasuredEntry & Entry {
  return (
    "key" in entry ||
    entry.type === "ended" ||
    entry.type === "continued" ||
    (entry.type === "awaited" && entry.of === undefined)
  );
}

function decideNow(state: RunState, command: Command): Decision {
  if (command.type === "create") return state.created === null ? [command.entry] : nothing;
  if (command.type === "reply") return decideReply(state, command);
  const repeated = command.type === "receive" ? decideRepeated(state, command.entry) : undefined;
  if (repeated !== undefined) return repeated;
  const said = verdict(command.type, state.status);
  if (said === "drop" || isOfEarlier(state, command)) return nothing;
  if (said !== "accept") return { refused: said };
  switch (command.type) {
    case "start":
      return [decideStart(state, command)];
    case "emit":
      return decideEmit(state, command.at, command.item);
    case "tear":
      return hasTorn(state, command.entry) ? [command.entry] : nothing;
    case "fork":
    case "intend":
    case "retry":
    case "record":
      return [command.entry];
    case "ask":
      return decideAsk(state, command);
    case "settle":
      return decideSettle(state, command.entry);
    case "offer":
    case "refuse":
    case "receive":
    case "take":
    case "patch":
    case "move":
      return [command.entry];
    case "withdraw":
      if (openQuestion(state, command.await_id) === undefined && state.waits?.has(command.await_id) !== true)
        return nothing;
      return [{ type: "withdrawn", at: command.at, await_id: command.await_id }];
    case "expire":
      // A run past a deadline is being stopped already.
      if (state.overdue !== null || openQuestion(state, command.await_id) === undefined) return nothing;
      return [{ type: "timed-out", at: command.at, await_id: command.await_id, defaulted: command.defaulted }];
    case "overrun":
      if (state.overdue !== null) return nothing;
      return [{ type: "timed-out", at: command.at, await_id: null, defaulted: false }];
    case "exceed": {
      const { at, usage } = command;
      // What was reported is kept, also if the run is being stopped already.
      if (usage !== null) return [{ type: "exceeded", at, usage }];
      return state.overdue === null ? [{ type: "exceeded", at }] : nothing;
    }
    case "cancel":
      return [{ ...command, type: "cancel-requested" }];
    case "continue":
      return decideContinue(state, command);
    case "end":
      return decideEnd(state, command);
  }
}

/** Whether a command comes from an operation of an earlier generation. It changes nothing any more. */
function isOfEarlier(state: RunState, command: Command): boolean {
  if (state.generation === null) return false;
  switch (command.type) {
    case "intend":
    case "retry":
    case "record":
    case "take":
      return isOfAnother(state, command.entry.key);
    case "emit": {
      const step = isCopy(command.item.source) ? undefined : command.item.source;
      return step !== undefined && isOfAnother(state, step.key);
    }
    case "ask":
      return command.of === undefined && isOfAnother(state, command.await_id);
    default:
      return false;
  }
}

function decideStart(state: RunState, { at, now }: StartCommand): StartedEntry {
  return now !== undefined && now < latestTime(state) ? { type: "started", at, now } : { type: "started", at };
}

function decideEmit(state: RunState, at: number, item: EmissionFrom<EmissionSource>): readonly EmittedEntry[] {
  const { source } = item;
  const step = stepOf(source);
  if (step !== undefined && isOutdated(state, step)) return [];
  if (isCopy(source) && source.event <= (state.emitters?.copied.get(source.run_id) ?? 0)) return [];
  switch (item.kind) {
    case "part": {
      const { part } = item;
      const open = isOpen(state);
      const continues = open && item.opens !== true && sameSource(openedBy(state), source);
      const entry: Growing<EmittedPart> = continues
        ? { type: "emitted", kind: "part", at, part }
        : { type: "emitted", kind: "part", at, part, opens: true };
      if (!continues && open && !isTorn(state, source)) entry.closes = true;
      return [withSource(entry, source)];
    }
    case "message": {
      const role = isCopy(source) ? source.role : agentRole(createdEntry(state).agent_name);
      const message: Message = { ...item.message, role };
      const entry: Growing<EmittedMessage> = { type: "emitted", kind: "message", at, message };
      if (isOpen(state) && !isTorn(state, source)) entry.closes = true;
      return [withSource(entry, source)];
    }
    case "generic":
      return [withSource({ type: "emitted", kind: "generic", at, generic: item.generic }, source)];
    case "close":
      // A sub-run completes its own message, and no other run does.
      if (!isOpen(state) || isTorn(state, source) || subRunOf(openedBy(state)) !== subRunOf(source)) return [];
      return [withSource({ type: "emitted", kind: "close", at }, source)];
  }
}

/** Whether a later attempt at the step has emitted already. What an earlier attempt emits after that is dropped. */
function isOutdated({ emitters }: RunState, { key, attempt }: PartSource): boolean {
  return attempt < (emitters?.drafts.get(key)?.attempt ?? 0);
}

/** The step body or sub-run that opened the message that is open; null: the agent itself did. */
function openedBy({ emitters }: RunState): EmissionSource | null {
  return emitters === null ? null : emitters.source;
}

/**
 * Whether the open message belongs to an earlier attempt at the same step. Such a message is left out, not completed.
 */
function isTorn(state: RunState, by: EmissionSource | undefined): boolean {
  const step = stepOf(by);
  if (step === undefined || stepOf(openedBy(state))?.key !== step.key) return false;
  return (state.emitters?.drafts.get(step.key)?.attempt ?? step.attempt) < step.attempt;
}

/** Whether earlier attempts at the step have emitted something. */
function hasTorn({ emitters }: RunState, { source }: TornEntry): boolean {
  const step = stepOf(source);
  return step !== undefined && (emitters?.drafts.get(step.key)?.attempt ?? step.attempt) < step.attempt;
}

/** Whether what is emitted joins the open message. What a sub-run emits does, unless it opens a message there. */
function sameSource(a: EmissionSource | null, b: EmissionSource | undefined): boolean {
  if (isCopy(a) || isCopy(b)) return subRunOf(a) === subRunOf(b);
  return a?.key === b?.key && a?.attempt === b?.attempt;
}

function subRunOf(source: EmissionSource | null | undefined): string | undefined {
  return isCopy(source) ? source.run_id : undefined;
}

/**
 * A question completes the open message: what the agent emits after the answer belongs to a new message. The question
 * of a sub-run is shown once.
 */
function decideAsk(state: RunState, command: AskCommand): readonly Entry[] {
  // A run past its deadline is being stopped and asks no more questions.
  if (state.overdue !== null) return nothing;
  const { await_id, of } = command;
  if (of !== undefined && (hasSeen(state, await_id) || isOfAnother(state, subRunIn(await_id)))) return nothing;
  const entry: Growing<AwaitedEntry> = { ...command, type: "awaited" };
  if (of === undefined && isOpen(state)) entry.closes = true;
  return [entry];
}

function decideSettle(state: RunState, entry: SettledEntry): readonly Entry[] {
  const { await_id } = entry;
  return hasSettled(state, await_id) || isOfAnother(state, subRunIn(await_id)) ? nothing : [entry];
}

/**
 * A reply belongs to one question. A repeated reply changes nothing. It is recognised by its `await_id`, by its
 * idempotency key or as equal to the last reply. A different reply to a settled question is a conflict. The question of
 * a sub-run gets its reply in the log of the sub-run.
 */
function decideReply(state: RunState, command: ReplyCommand): Decision {
  const { reply } = command;
  const byKey = repliedWithKey(state, command.idempotency_key);
  if (byKey !== undefined) return isRepeat(byKey, command) ? nothing : { refused: "idempotency_conflict" };
  const open = openQuestion(state, command.await_id);
  if (open === undefined) {
    const before = state.exchanges === null ? undefined : repliedBefore(state.exchanges, command);
    if (before !== undefined && isRepeat(before, command)) return nothing;
    if (before !== undefined && command.await_id !== null) return { refused: "answer_conflict" };
  }
  const said = verdict("reply", state.status);
  if (said === "not_awaiting" || said === "run_cancelling") return { refused: said };
  if (open === undefined || open.asked.of !== undefined) return { refused: "not_awaiting" };
  return [replyEntry(command, open.asked.await_id, reply)];
}

/** The question for which the reply is, or the last one, if it has a reply. */
function repliedBefore(exchanges: readonly Question[], { await_id }: ReplyCommand): Question | undefined {
  return exchanges.findLast(
    (one) => replyTo(one) !== undefined && (await_id === null || one.asked.await_id === await_id),
  );
}

function replyEntry(command: ReplyCommand, await_id: string, reply: Replied): Entry {
  const { at, idempotency_key, by, offer_id } = command;
  const entry: Growing<Extract<Entry, Reply>> =
    "answer" in reply
      ? { type: "resumed", at, await_id, idempotency_key, answer: reply.answer }
      : { type: "declined", at, await_id, idempotency_key, decline: reply.decline };
  if (by !== undefined) entry.by = by;
  if (offer_id !== undefined) entry.offer_id = offer_id;
  return entry;
}

function isRepeat(question: Question, command: ReplyCommand): boolean {
  if (command.await_id !== null && command.await_id !== question.asked.await_id) return false;
  return sameJson(replyTo(question), command.reply);
}

/**
 * What becomes of an entry that was written to the inbox of a run, whose state was not known. A message was accepted when
 * the run could still receive it.
 */
export function decideArrived(state: RunState, entry: Entry): readonly Entry[] {
  const decision =
    entry.type === "received" ? (decideRepeated(state, entry) ?? [entry]) : decide(state, commandOf(entry));
  return isRefusal(decision) ? nothing : decision;
}

/** Whether a cancel is among the entries of a post. */
export function hasCancel(entries: readonly Entry[]): boolean {
  return entries.some(({ type }) => type === "cancel-requested");
}

/**
 * A message that was sent before with the same idempotency key changes nothing, also if the run has ended meanwhile.
 * Undefined: it is new.
 */
function decideRepeated(state: RunState, entry: ReceivedEntry): Decision | undefined {
  const before = state.mail?.keys.get(entry.idempotency_key);
  if (before === undefined) return undefined;
  if (before === "earlier") return nothing;
  const isSame = before.name === entry.name && sameJson(before.data, entry.data);
  return isSame ? nothing : { refused: "idempotency_conflict" };
}

/** A run past a deadline is being stopped. */
function decideContinue(state: RunState, command: ContinueCommand): readonly Entry[] {
  if (state.overdue !== null) return nothing;
  const { carry, usage, active_ms, queued_ms, left = [] } = command;
  const at = Math.max(command.at, latestTime(state));
  const started_at = state.started?.at ?? at;
  const entry: Growing<ContinuedEntry> = {
    ...{ type: "continued", at, generation: generationNumber(state) + 1 },
    ...{ position: state.position, events: state.events, started_at },
  };
  if (state.generation !== null) entry.previous = state.generation.position;
  if (isOpen(state)) entry.closes = true;
  if (carry !== undefined) entry.carry = carry;
  const { moved, version = null } = createdEntry(state);
  if (moved === true) entry.version = version;
  const waited = (state.waiting_ms ?? 0) + (state.waiting_from === null ? 0 : at - state.waiting_from.at);
  if (waited > 0) entry.waiting_ms = waited;
  if (active_ms !== undefined) entry.active_ms = active_ms;
  if (queued_ms !== undefined) entry.queued_ms = queued_ms;
  if (usage !== null) entry.usage = usage;
  const total = addUsage(state.usage, usage);
  if (total !== null) entry.total = total;
  if (state.mail !== null) {
    const { inbox, keys } = state.mail;
    const message_keys = keys.last(KEPT_KEYS);
    const messages = new Map([...left, ...inbox].map((message) => [message.position, message]));
    if (messages.size > 0) entry.messages = [...messages.values()].toSorted((a, b) => a.position - b.position);
    if (message_keys.length > 0) entry.message_keys = message_keys;
  }
  const replies = (state.exchanges ?? [])
    .slice(-KEPT_REPLIES)
    .flatMap(({ settled, event, settled_position: position }) =>
      isReply(settled) ? { entry: settled, event, position } : [],
    );
  if (replies.length > 0) entry.replies = replies;
  return [entry];
}

function isReply(settled: Entry | null): settled is ResumedEntry | DeclinedEntry | SettledEntry {
  return settled?.type === "resumed" || settled?.type === "declined" || settled?.type === "settled";
}

function decideEnd(state: RunState, command: EndCommand): readonly Entry[] {
  const { at, usage } = command;
  const error = failureAtEnd(state, command.failure);
  const outcome = state.status === "cancelling" ? "cancelled" : error === null ? "completed" : "failed";
  const closes = outcome === "completed" && isOpen(state);
  const ended: Growing<EndedEntry> = closes
    ? { type: "ended", at, outcome, closes: true }
    : { type: "ended", at, outcome };
  if (error !== null) ended.error = error;
  if (error !== null && error === command.failure) {
    if (command.key !== undefined) ended.key = command.key;
    if (command.cause !== undefined) ended.cause = command.cause;
  }
  if (state.generation !== null) ended.generation_at = state.generation.position;
  if (usage !== null) ended.usage = usage;
  if (command.active_ms !== undefined) ended.active_ms = command.active_ms;
  if (command.queued_ms !== undefined) ended.queued_ms = command.queued_ms;
  return [ended];
}

/** A run that is being cancelled does not fail. One that has taken too long fails for that, whatever its agent does. */
function failureAtEnd({ status, overdue }: RunState, failure: ProtocolError | null): ProtocolError | null {
  if (status === "cancelling") return null;
  return overdue === null ? failure : overdueFailure(overdue);
}
