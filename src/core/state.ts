import type { Usage } from "../protocol/extensions.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitResume, RunStatus } from "../protocol/run.ts";
import type { EmissionSource } from "./emission-source.ts";
import type {
  AwaitedEntry,
  CancelRequestedEntry,
  CreatedEntry,
  Decline,
  DeclinedEntry,
  EndedEntry,
  Entry,
  IntentEntry,
  OfferedEntry,
  ReceivedEntry,
  RefusedEntry,
  ResumedEntry,
  SettledEntry,
  StartedEntry,
} from "./log.ts";
import { generationOf } from "./operation-keys.ts";
import type { Overdue } from "./overdue.ts";

/**
 * What a log says about its run. The object has one fixed shape, and `evolve` alone writes it: a copy for each
 * entry would make a stream quadratic.
 */
export interface RunState {
  readonly run_id: string;
  /** The first entry; null before there is one. */
  created: CreatedEntry | null;
  /** The entry with which the agent function began; null before. */
  started: StartedEntry | null;
  status: RunStatus;
  /** How many entries have been folded in. */
  position: number;
  /** The entry with the latest time so far; null before there is one. */
  latest: Entry | null;
  /** How many events these entries stand for. */
  events: number;
  /** How many of them are those of the last entry. */
  last_events: number;
  /** Whether the last entry counts. See `counts`. */
  last_counts: boolean;
  /** Every message so far; the last one may still grow. */
  output: OutputMessage[];
  /** What others than the agent itself have emitted: step bodies and sub-runs. Null before the first. */
  emitters: Emitters | null;
  /** The first open question: the protocol's await request. Null while no question is open. */
  question: Question | null;
  /** The other open questions, in the order in which they were asked; null while there is none. */
  more_questions: Question[] | null;
  /** The questions that are not open any more, in the order in which they were settled; null before the first. */
  exchanges: Question[] | null;
  /** The sleeps and receives without a result, by key; null before the first. */
  waits: Map<string, IntentEntry> | null;
  /** What other processes have posted, and what became of it; null before the first post. */
  mail: Mail | null;
  /** The deadline, or the limit, whose passing makes the run fail. */
  overdue: Overdue | null;
  /** The entry that asks for the run to be cancelled; null before. */
  cancelled: CancelRequestedEntry | null;
  usage: Usage | null;
  /** The entry since whose time the run waits for answers, time or messages; null while it does not. */
  waiting_from: Entry | null;
  /** How long the run has waited before, and stood in line for its slot after that, in milliseconds; null if it has not. */
  waiting_ms: number | null;
  /** How long the run was active, as far as the log records it, in milliseconds. 0 where that has no limit. */
  active_ms: number;
  /** The generation that is at work; null in the first one. */
  generation: Generation | null;
  /** The last entry; null before the run is over. */
  ended: EndedEntry | null;
}

/** A generation of a run after the first. */
export interface Generation {
  readonly number: number;
  /** What the one before has given it. Undefined: nothing. */
  readonly carry: JsonValue | undefined;
  /** How many entries come before its own. */
  readonly position: number;
  /** When it began, in milliseconds since the epoch. */
  readonly at: number;
  /** What the ones before have used. */
  readonly used: Usage | null;
  /** The message that was completed when it began; null for none, and where the log was read from there on. */
  readonly closed: OutputMessage | null;
  /** The questions that were not open any more when it began, and those that it has withdrawn; null for none. */
  readonly left: readonly Question[] | null;
}

/** A message of the output. Its parts are never changed, only added to, and only while it is open. */
export interface OutputMessage {
  readonly role: Message["role"];
  readonly parts: MessagePart[];
  readonly created_at: string;
  completed_at: string | null;
}

/** What step bodies and sub-runs have emitted. */
export interface Emitters {
  /** Which of them opened the message that is open; null: the agent itself did. */
  source: EmissionSource | null;
  /** How far the output of each sub-run that is shown has been copied: the number of its last event. */
  readonly copied: Map<string, number>;
  /** What step bodies without a result have emitted, by step. */
  readonly drafts: Map<string, Draft>;
}

/** The messages of one attempt at a step: only those of the last attempt count. */
export interface Draft {
  readonly attempt: number;
  readonly messages: OutputMessage[];
}

/** A question, and what became of it. */
export interface Question {
  readonly asked: AwaitedEntry;
  /** The length of the log after the question, up to which it is committed or not. */
  readonly position: number;
  /** How many messages of the output had begun when it was asked. {@link EARLIER}: it belongs to an earlier generation. */
  after: number;
  /**
   * While it is the first open question: the number of the event that shows it. Once it is settled: the number of the
   * event that showed the first open question until then, after which the events of its reply begin.
   */
  event: number;
  /** The entry that has settled it; null while it is open. */
  settled: Entry | null;
  /** The length of the log after that entry; 0 while it is open. */
  settled_position: number;
}

/** The place in the output of a question that an earlier generation has asked. */
export const EARLIER = -1;

/** What other processes have posted to a run. */
export interface Mail {
  /** The messages that no receive has taken, in order of arrival. */
  readonly inbox: Inbox;
  /** How many bytes the data of these has, as JSON in UTF-8. */
  bytes: number;
  /** All messages that have arrived, by their idempotency keys. */
  readonly keys: MessageKeys;
  /** The offers without a verdict, by question: one for each. */
  readonly offers: Map<string, OfferedEntry>;
  /** The last refusals, by offer. */
  readonly refusals: Map<string, RefusedEntry>;
  /** The questions of sub-runs that were settled before they were shown, by their ids in this run. */
  readonly settled: Set<string>;
}

/** A message that has arrived. `earlier`: in an earlier generation, of whose messages only the last keys are known. */
export type Arrival = ReceivedEntry | "earlier";

/** So many messages at most are in one map: as it grows, a map is copied, and nothing else has a turn meanwhile. */
const MAX_MAP = 65_536;

/** Messages by their keys. A copy of a state shares those of the state that it copies, which may be many. */
export class MessageKeys {
  readonly #shared: MessageKeys | undefined;
  /** The newest last. */
  readonly #own: Map<string, Arrival>[] = [];

  constructor(shared?: MessageKeys, own: Iterable<readonly [key: string, message: Arrival]> = []) {
    this.#shared = shared;
    for (const [key, message] of own) this.set(key, message);
  }

  get size(): number {
    return this.#own.reduce((sum, { size }) => sum + size, this.#shared?.size ?? 0);
  }

  /** All of them, the newest last. */
  *[Symbol.iterator](): IterableIterator<readonly [key: string, message: Arrival]> {
    if (this.#shared !== undefined) yield* this.#shared;
    for (const messages of this.#own) yield* messages;
  }

  get(key: string): Arrival | undefined {
    return this.#own.findLast((messages) => messages.has(key))?.get(key) ?? this.#shared?.get(key);
  }

  /** The last keys, the newest last. */
  last(most: number): readonly string[] {
    if (most === 0) return [];
    const own = this.#own.flatMap((messages) => [...messages.keys()]).slice(-most);
    return this.#shared === undefined ? own : [...this.#shared.last(most - own.length), ...own];
  }

  set(key: string, message: Arrival): void {
    let newest = this.#own.at(-1);
    if (newest === undefined || newest.size >= MAX_MAP) {
      newest = new Map();
      this.#own.push(newest);
    }
    newest.set(key, message);
  }
}

/** So many taken messages at least are let go of together. */
const MIN_TAKEN = 1_024;

/**
 * The messages that no receive has taken, in order of arrival. They are mostly taken from the front, of which there may be
 * hundreds of thousands: what is taken there stays in the list until it is half of it.
 */
export class Inbox {
  #messages: InboxMessage[];
  /** How many at the front are taken. */
  #taken = 0;

  constructor(messages: Iterable<InboxMessage> = []) {
    this.#messages = [...messages];
  }

  get size(): number {
    return this.#messages.length - this.#taken;
  }

  *[Symbol.iterator](): IterableIterator<InboxMessage> {
    for (let index = this.#taken; index < this.#messages.length; index++) {
      const message = this.#messages[index];
      if (message !== undefined) yield message;
    }
  }

  /** The first one that is wanted. */
  find(isWanted: (message: InboxMessage) => boolean): InboxMessage | undefined {
    for (const message of this) if (isWanted(message)) return message;
    return undefined;
  }

  add(message: InboxMessage): void {
    this.#messages.push(message);
  }

  /** Takes the message at a position of the log. Undefined: it is not there. */
  take(position: number): InboxMessage | undefined {
    let index = this.#taken;
    while (index < this.#messages.length && this.#messages[index]?.position !== position) index += 1;
    const message = this.#messages[index];
    if (message === undefined) return undefined;
    if (index > this.#taken) this.#messages.splice(index, 1);
    else this.#taken += 1;
    if (this.#taken >= MIN_TAKEN && 2 * this.#taken >= this.#messages.length) {
      this.#messages = this.#messages.slice(this.#taken);
      this.#taken = 0;
    }
    return message;
  }
}

/** A message that waits to be taken. */
export interface InboxMessage {
  readonly entry: ReceivedEntry;
  /** Its position in the log. */
  readonly position: number;
}

/** What no receive has taken yet: how many messages, and how many bytes their data has as JSON in UTF-8. */
export interface WaitingMessages {
  readonly messages: number;
  readonly bytes: number;
}

/** The messages of a run that no receive has taken yet. */
export function waitingMessages({ mail }: RunState): WaitingMessages {
  return mail === null ? none : { messages: mail.inbox.size, bytes: mail.bytes };
}

const none: WaitingMessages = { messages: 0, bytes: 0 };

/** An empty list that is never added to: the first message replaces it. */
const noOutput: OutputMessage[] = [];

/** The state before the first entry. */
export function initialState(runId: string): RunState {
  return {
    run_id: runId,
    created: null,
    started: null,
    status: "created",
    position: 0,
    latest: null,
    events: 0,
    last_events: 0,
    last_counts: true,
    output: noOutput,
    emitters: null,
    question: null,
    more_questions: null,
    exchanges: null,
    waits: null,
    mail: null,
    overdue: null,
    cancelled: null,
    usage: null,
    waiting_from: null,
    waiting_ms: null,
    active_ms: 0,
    generation: null,
    ended: null,
  };
}

/** The first entry of a run that has one. */
export function createdEntry(state: RunState): CreatedEntry {
  if (state.created === null) throw new TypeError(`Run ${state.run_id} has no entries yet.`);
  return state.created;
}

/** The latest time of an entry so far. */
export function latestTime({ latest }: RunState): number {
  return latest?.at ?? Number.NEGATIVE_INFINITY;
}

/**
 * How long the agent has worked until now, or until its end, by the times of the entries, in milliseconds. Waiting does
 * not count. The statistics say it of every run. What limits a run is measured: `active_ms`.
 */
export function activeMs({ started, ended, waiting_from, waiting_ms }: RunState, now: number): number {
  if (started === null) return 0;
  return (ended?.at ?? waiting_from?.at ?? now) - started.at - (waiting_ms ?? 0);
}

/** The number of the generation that is at work, from 1 on. */
export function generationNumber({ generation }: RunState): number {
  return generation === null ? 1 : generation.number;
}

/** How many entries the generation that is at work has in the log. Limits on the log count these. */
export function generationLength({ generation, position }: RunState): number {
  return generation === null ? position : position - generation.position;
}

/** All open questions, in the order in which they were asked. */
export function openQuestions({ question, more_questions }: RunState): readonly Question[] {
  if (question === null) return noQuestions;
  return more_questions === null ? [question] : [question, ...more_questions];
}

const noQuestions: readonly Question[] = [];

/** The open question with this id; with null the first open one. Undefined: there is no such question. */
export function openQuestion({ question, more_questions }: RunState, awaitId: string | null): Question | undefined {
  if (awaitId === null) return question ?? undefined;
  if (question?.asked.await_id === awaitId) return question;
  return more_questions === null ? undefined : questionIn(more_questions, awaitId);
}

/** The question with this id that is not open any more. Undefined: there is none. */
export function settledQuestion({ exchanges }: RunState, awaitId: string): Question | undefined {
  return exchanges === null ? undefined : questionIn(exchanges, awaitId);
}

/** The settled question to which a reply with this idempotency key was given. Undefined: there is none. */
export function repliedWithKey({ exchanges }: RunState, key: string | null): Question | undefined {
  return exchanges === null || key === null ? undefined : exchanges.findLast((one) => replyKey(one) === key);
}

/** A function of its own: what its closure captures is allocated with each call, and most runs ask one question. */
function questionIn(questions: readonly Question[], awaitId: string): Question | undefined {
  return questions.findLast(({ asked }) => asked.await_id === awaitId);
}

/** Whether an operation belongs to another generation than the one that is at work. */
export function isOfAnother(state: RunState, key: string): boolean {
  return generationOf(key) !== generationNumber(state);
}

/**
 * Whether a question of a sub-run has been shown, or settled before it was shown. Its posts may come again, and in
 * another order.
 */
export function hasSeen(state: RunState, awaitId: string): boolean {
  return openQuestion(state, awaitId) !== undefined || hasSettled(state, awaitId);
}

/** Whether a question of a sub-run was settled, shown or not. */
export function hasSettled(state: RunState, awaitId: string): boolean {
  return state.mail?.settled.has(awaitId) === true || settledQuestion(state, awaitId) !== undefined;
}

/** Whether the run is about to end, or has ended. Such a run shows no more questions. */
export function isStopped({ status, overdue }: RunState): boolean {
  return overdue !== null || status === "cancelling" || isFinal(status);
}

/** What was replied to a question. Undefined: it has no reply. */
export function replyTo({ settled }: Question): Replied | undefined {
  switch (settled?.type) {
    case "resumed":
      return { answer: settled.answer };
    case "declined":
      return { decline: settled.decline };
    case "settled":
      if (settled.answer !== undefined) return { answer: settled.answer };
      return settled.decline && { decline: settled.decline };
    default:
      return undefined;
  }
}

/** A reply to a question: an answer, or a refusal to answer. */
export type Replied = { readonly answer: AwaitResume } | { readonly decline: Decline };

/** How a question is settled. */
export type HowSettled = "answer" | "default" | "declined" | "expired" | "withdrawn";

/** How a reply, or the end of a sub-run's question, settles a question. */
export function howSettled(entry: ResumedEntry | DeclinedEntry | SettledEntry): HowSettled {
  if (entry.type === "resumed") return "answer";
  if (entry.type === "declined") return "declined";
  if (entry.answer !== undefined) return "answer";
  return entry.decline === undefined ? "withdrawn" : "declined";
}

/** The idempotency key of the reply to a question; null if there is none. */
export function replyKey({ settled }: Question): string | null {
  switch (settled?.type) {
    case "resumed":
    case "declined":
    case "settled":
      return settled.idempotency_key ?? null;
    default:
      return null;
  }
}

/** Whether the run waits for an answer, for time or for a message, whatever else its agent does. */
export function isWaiting({ question, waits }: RunState): boolean {
  return question !== null || (waits !== null && waits.size > 0);
}

/** Whether the agent may be called for the first time. A fork is in progress before that. */
export function mayBegin({ status, created }: RunState): boolean {
  return status === "created" || (status === "in-progress" && created?.origin !== undefined);
}

/** When the run is to begin, if it has not begun; 0 for a run that begins at once. */
export function startTime({ created, started }: RunState): number {
  return started === null ? (created?.start_at ?? 0) : 0;
}

/** When the run has something to do again if nothing happens, in milliseconds since the epoch. Null: never. */
export function nextDeadline(state: RunState): number | null {
  let next = Number.POSITIVE_INFINITY;
  for (const { asked } of openQuestions(state))
    if (asked.of === undefined) next = Math.min(next, asked.deadline ?? Number.POSITIVE_INFINITY);
  for (const { until } of state.waits?.values() ?? []) next = Math.min(next, until ?? Number.POSITIVE_INFINITY);
  return next === Number.POSITIVE_INFINITY ? null : next;
}

/** Whether a message is open: the last one, and it grows. */
export function isOpen({ output }: RunState): boolean {
  return output.length > 0 && output[output.length - 1]?.completed_at === null;
}

/** Whether the run has ended. */
export function isFinal(status: RunStatus): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** Whether the run rests: it has ended, or it waits for an answer. */
export function isAtRest(status: RunStatus): boolean {
  return status === "awaiting" || isFinal(status);
}
