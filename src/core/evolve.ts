import { counts } from "./counting.ts";
import type { CopySource, EmissionSource, PartSource } from "./emission-source.ts";
import { isCopy, stepOf } from "./emission-source.ts";
import type {
  AwaitedEntry,
  ContinuedEntry,
  EmittedEntry,
  EndedEntry,
  Entry,
  Growing,
  MeasuredEntry,
  ReceivedEntry,
  RefusedEntry,
} from "./log.ts";
import { isWait } from "./operation-keys.ts";
import type { Overdue } from "./overdue.ts";
import { agentRole } from "./role.ts";
import type { Emitters, Mail, OutputMessage, Question, RunState } from "./state.ts";
import {
  createdEntry,
  EARLIER,
  hasSeen,
  Inbox,
  initialState,
  isWaiting,
  latestTime,
  MessageKeys,
  openQuestion,
  openQuestions,
} from "./state.ts";
import { isoTime } from "./time.ts";
import { addUsage } from "./usage.ts";
import { movedTo } from "./versions.ts";

/** How many refusals of offered replies a run remembers. */
const MAX_REFUSALS = 100;

/**
 * Folds one entry into the state and returns the same object. No entry is refused: the log is the truth. The work per
 * entry does not grow with the log.
 */
export function evolve(state: RunState, entry: Entry): RunState {
  state.last_counts = counts(state, entry);
  state.position += 1;
  // A post of another process may have an earlier time than the entry before it. A fork begins with older entries.
  if (entry.at >= latestTime(state) && (entry.type !== "created" || entry.origin === undefined)) state.latest = entry;
  state.last_events = state.last_counts ? apply(state, entry) : 0;
  state.events += state.last_events;
  return state;
}

/** Folds the entry in, and returns how many events it stands for. */
function apply(state: RunState, entry: Entry): number {
  switch (entry.type) {
    case "created":
      state.created = entry;
      return 1;
    case "forked":
      // The fork itself has used nothing yet, and its active time begins now. It takes over no operation that waits.
      state.usage = null;
      state.waiting_ms = null;
      state.active_ms = 0;
      if (state.started !== null) state.started = { type: "started", at: entry.at };
      if (state.generation !== null) state.generation = { ...state.generation, used: null };
      return 0;
    case "started":
      state.started = entry;
      state.status = "in-progress";
      return 1;
    case "emitted":
      return emit(state, entry);
    case "torn":
      takeBack(state, stepOf(entry.source)?.key ?? "");
      return 0;
    case "intent":
      noteTimes(state, entry);
      takeBack(state, entry.key);
      if (isWait(entry)) {
        beginWaiting(state);
        state.waits ??= new Map();
        state.waits.set(entry.key, entry);
      }
      return 0;
    case "attempt-failed":
      noteTimes(state, entry);
      return 0;
    case "step":
      noteTimes(state, entry);
      state.usage = addUsage(state.usage, entry.usage);
      state.emitters?.drafts.delete(entry.key);
      endWait(state, entry.key);
      return 0;
    case "awaited":
      return ask(state, entry);
    case "resumed":
    case "declined":
      if (entry.offer_id !== undefined) state.mail?.offers.delete(entry.await_id);
      return settle(state, entry.await_id, entry);
    case "withdrawn":
      endWait(state, entry.await_id);
      return settle(state, entry.await_id, entry);
    case "settled":
      if (!hasSeen(state, entry.await_id)) mailOf(state).settled.add(entry.await_id);
      return settle(state, entry.await_id, entry);
    case "timed-out":
      if (entry.defaulted && entry.await_id !== null) return settle(state, entry.await_id, entry);
      stop(state, entry);
      return 0;
    case "exceeded":
      state.usage = addUsage(state.usage, entry.usage ?? null);
      stop(state, entry);
      return 0;
    case "offered":
      mailOf(state).offers.set(entry.await_id, entry);
      return 0;
    case "refused":
      refuse(state, entry);
      return 0;
    case "received":
      receive(state, entry);
      return 0;
    case "taken":
      noteTimes(state, entry);
      endWait(state, entry.key);
      take(state, entry.position);
      return 0;
    case "patched":
      return 0;
    case "moved":
      state.created = movedTo(createdEntry(state), entry.version);
      return 0;
    case "cancel-requested":
      settleAll(state, entry);
      state.cancelled = entry;
      state.status = "cancelling";
      return 0;
    case "continued":
      continueAsNew(state, entry);
      return entry.closes ? 2 : 1;
    case "ended":
      return end(state, entry);
  }
}

/**
 * A new generation. All but `created` is what the entry says, so that a fold that begins with these two comes to the same
 * state.
 */
function continueAsNew(state: RunState, entry: ContinuedEntry): void {
  const { at, generation: number, carry, position, total = null, waiting_ms = null, replies } = entry;
  if (entry.version !== undefined) state.created = movedTo(createdEntry(state), entry.version);
  if (entry.closes) close(state, at);
  const closed = entry.closes ? (state.output.at(-1) ?? null) : null;
  state.position = position + 1;
  settleAll(state, entry);
  state.generation = { number, carry, position, at, used: total, closed, left: state.exchanges };
  state.events = entry.events;
  state.started ??= { type: "started", at: entry.started_at };
  state.status = "in-progress";
  state.output = [];
  state.emitters = null;
  state.exchanges = replies?.map(settledEarlier) ?? null;
  state.mail = mailAfter(entry);
  state.usage = total;
  state.waiting_ms = waiting_ms;
  // What limits a sub-run is above it, and knows no generations.
  state.active_ms = 0;
  if (createdEntry(state).parent !== undefined) noteTimes(state, entry);
  else if (entry.queued_ms !== undefined) noteTimes(state, { queued_ms: entry.queued_ms });
}

type Replies = NonNullable<ContinuedEntry["replies"]>;

/** A question of an earlier generation, as far as a repeated reply needs it. */
function settledEarlier({ entry: settled, event, position }: Replies[number]): Question {
  const { at, await_id } = settled;
  const asked: Growing<AwaitedEntry> = { type: "awaited", at, await_id, parts: [], emitted: 0 };
  if (settled.type === "settled") asked.of = settled.of;
  return { asked, position: 0, after: EARLIER, event, settled, settled_position: position };
}

function mailAfter({ messages = [], message_keys = [] }: ContinuedEntry): Mail | null {
  if (messages.length + message_keys.length === 0) return null;
  const mail = newMail();
  const kept = new Set(message_keys);
  const waiting = new Map<string, ReceivedEntry>();
  for (const { entry, position } of messages) {
    const key = entry.idempotency_key;
    mail.inbox.add({ entry, position });
    mail.bytes += entry.bytes ?? 0;
    waiting.set(key, entry);
    // The keys stay in the order in which they have arrived: a message that is not among the last ones is older.
    if (!kept.has(key)) mail.keys.set(key, entry);
  }
  for (const key of kept) mail.keys.set(key, waiting.get(key) ?? "earlier");
  return mail;
}

/** The run is about to fail, and waits for nothing any more. Its clients see that it fails, and nothing before. */
function stop(state: RunState, entry: Overdue): void {
  state.overdue ??= entry;
  settleAll(state, entry);
  if (state.status === "awaiting") state.status = "in-progress";
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

function ask(state: RunState, entry: Entry & { readonly type: "awaited" }): number {
  let events = 0;
  if (entry.closes) {
    close(state, latestTime(state));
    events = 1;
  }
  state.usage = addUsage(state.usage, entry.usage ?? null);
  noteTimes(state, entry);
  beginWaiting(state);
  // The protocol shows one question at a time: the first.
  if (state.question === null) events += 1;
  const question: Question = {
    asked: inOrder(state, entry),
    position: state.position,
    after: state.output.length,
    event: state.events + events,
    settled: null,
    settled_position: 0,
  };
  if (state.question === null) state.question = question;
  else if (state.more_questions === null) state.more_questions = [question];
  else state.more_questions.push(question);
  state.status = "awaiting";
  return events;
}

/** Settles a question. The run goes on, or shows the next open question. */
function settle(state: RunState, awaitId: string, entry: Entry): number {
  const question = openQuestion(state, awaitId);
  if (question === undefined) return 0;
  const { more_questions } = state;
  question.event = state.question?.event ?? question.event;
  if (question === state.question) {
    state.question = more_questions?.shift() ?? null;
  } else if (more_questions !== null) more_questions.splice(more_questions.indexOf(question), 1);
  if (more_questions?.length === 0) state.more_questions = null;
  addExchange(state, question, entry);
  endWaiting(state);
  state.mail?.offers.delete(awaitId);
  if (state.question !== null) {
    state.question.event = state.events + 2;
    return 2;
  }
  state.status = "in-progress";
  return 1;
}

function addExchange(state: RunState, question: Question, entry: Entry): void {
  question.settled = inOrder(state, entry);
  question.settled_position = state.position;
  if (state.exchanges === null) state.exchanges = [question];
  else state.exchanges.push(question);
}

/** The entry as readers see it: a post of another process may have an earlier time than the entry before it. */
function inOrder<T extends Entry>(state: RunState, entry: T): T {
  const at = latestTime(state);
  return entry.at < at ? { ...entry, at } : entry;
}

/** The run waits for nothing any more. */
function settleAll(state: RunState, entry: Entry): void {
  for (const question of openQuestions(state)) addExchange(state, question, entry);
  state.question = null;
  state.more_questions = null;
  state.waits = null;
  state.mail?.offers.clear();
  endWaiting(state);
}

function noteTimes(state: RunState, { active_ms, queued_ms }: MeasuredEntry): void {
  if (active_ms !== undefined) state.active_ms = Math.max(state.active_ms, active_ms);
  if (queued_ms !== undefined) state.waiting_ms = (state.waiting_ms ?? 0) + queued_ms;
}

function beginWaiting(state: RunState): void {
  state.waiting_from ??= state.latest;
}

function endWaiting(state: RunState): void {
  if (state.waiting_from === null || isWaiting(state)) return;
  state.waiting_ms = (state.waiting_ms ?? 0) + latestTime(state) - state.waiting_from.at;
  state.waiting_from = null;
}

function endWait(state: RunState, key: string): void {
  if (state.waits?.delete(key) === true) endWaiting(state);
}

function mailOf(state: RunState): Mail {
  state.mail ??= newMail();
  return state.mail;
}

function newMail(): Mail {
  return {
    inbox: new Inbox(),
    bytes: 0,
    keys: new MessageKeys(),
    offers: new Map(),
    refusals: new Map(),
    settled: new Set(),
  };
}

function refuse(state: RunState, entry: RefusedEntry): void {
  const { offers, refusals } = mailOf(state);
  for (const [awaitId, { offer_id }] of offers) if (offer_id === entry.offer_id) offers.delete(awaitId);
  refusals.set(entry.offer_id, entry);
  for (const first of refusals.keys()) {
    if (refusals.size <= MAX_REFUSALS) break;
    refusals.delete(first);
  }
}

function receive(state: RunState, entry: ReceivedEntry): void {
  const mail = mailOf(state);
  mail.keys.set(entry.idempotency_key, entry);
  mail.inbox.add({ entry, position: state.position - 1 });
  mail.bytes += entry.bytes ?? 0;
}

function take(state: RunState, position: number | null): void {
  const { mail } = state;
  if (position === null || mail === null) return;
  mail.bytes -= mail.inbox.take(position)?.entry.bytes ?? 0;
}

function emit(state: RunState, entry: EmittedEntry): number {
  const { source } = entry;
  const step = stepOf(source);
  if (step !== undefined) takeBackBefore(state, step);
  if (isCopy(source)) noteCopy(state, source);
  switch (entry.kind) {
    case "part": {
      if (entry.closes) close(state, entry.at);
      if (entry.opens) {
        const created_at = isoTime(entry.at);
        const role = isCopy(source) ? source.role : agentRole(createdEntry(state).agent_name);
        addMessage(state, { role, parts: [entry.part], created_at, completed_at: null });
        opened(state, source ?? null);
        draft(state, source);
      } else state.output.at(-1)?.parts.push(entry.part);
      return 1 + Number(entry.opens === true) + Number(entry.closes === true);
    }
    case "message": {
      if (entry.closes) close(state, entry.at);
      const { role, parts, created_at, completed_at } = entry.message;
      const at = isoTime(entry.at);
      addMessage(state, { role, parts: [...parts], created_at: created_at ?? at, completed_at: completed_at ?? at });
      draft(state, source);
      return 2 + parts.length + Number(entry.closes === true);
    }
    case "close":
      close(state, entry.at);
      return 1;
    case "generic":
      return 1;
  }
}

/** Notes what has opened the message that is open; null: the agent itself, or none is open. */
function opened(state: RunState, source: EmissionSource | null): void {
  if (source !== null) emittersOf(state).source = source;
  else if (state.emitters !== null) state.emitters.source = null;
}

function emittersOf(state: RunState): Emitters {
  state.emitters ??= { source: null, copied: new Map(), drafts: new Map() };
  return state.emitters;
}

/** Notes how far the output of a sub-run has been copied. */
function noteCopy(state: RunState, { run_id, event }: CopySource): void {
  emittersOf(state).copied.set(run_id, event);
}

/** Notes that the last message belongs to a step body. It counts only if this attempt is the last one. */
function draft(state: RunState, source: EmissionSource | undefined): void {
  const message = state.output.at(-1);
  const step = stepOf(source);
  if (step === undefined || message === undefined) return;
  const { drafts } = emittersOf(state);
  const before = drafts.get(step.key);
  if (before === undefined) drafts.set(step.key, { attempt: step.attempt, messages: [message] });
  else before.messages.push(message);
}

/** A later attempt at a step emits: what earlier attempts emitted is left out. */
function takeBackBefore(state: RunState, { key, attempt }: PartSource): void {
  const before = state.emitters?.drafts.get(key);
  if (before !== undefined && before.attempt < attempt) takeBack(state, key);
}

/** A step body begins or is tried again: what it emitted before is left out. */
function takeBack(state: RunState, key: string): void {
  const before = state.emitters?.drafts.get(key);
  if (before === undefined) return;
  state.emitters?.drafts.delete(key);
  for (const message of before.messages) {
    const index = state.output.lastIndexOf(message);
    state.output.splice(index, 1);
    for (const exchange of state.exchanges ?? []) if (exchange.after > index) exchange.after -= 1;
    for (const question of openQuestions(state)) if (question.after > index) question.after -= 1;
    if (message.completed_at === null) opened(state, null);
  }
}

function close(state: RunState, at: number): void {
  const message: OutputMessage | undefined = state.output.at(-1);
  if (message !== undefined) message.completed_at = isoTime(at);
  opened(state, null);
}

function end(state: RunState, entry: EndedEntry): number {
  if (entry.closes) close(state, entry.at);
  settleAll(state, entry);
  noteTimes(state, entry);
  state.status = entry.outcome;
  state.usage = addUsage(state.usage, entry.usage ?? null);
  state.ended = entry;
  return entry.closes ? 2 : 1;
}
