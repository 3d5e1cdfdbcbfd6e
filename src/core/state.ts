import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitResume, RunStatus } from "../protocol/run.ts";
import type { AwaitedEntry, CreatedEntry, EndedEntry, PartSource, StartedEntry, TimedOutEntry } from "./log.ts";
import type { Usage } from "./usage.ts";

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
  /** How many events these entries stand for. */
  events: number;
  /** Every message so far; the last one may still grow. */
  output: OutputMessage[];
  /** Which step body opened the message that is open; null for the agent itself. */
  source: PartSource | null;
  /** What step bodies without a result have emitted, by step; null before the first. */
  drafts: Map<string, Draft> | null;
  /** The question that is shown; null while there is none. */
  shown: AwaitedEntry | null;
  /** How many messages of the output had begun when it was asked. */
  shown_after: number;
  /** The number of the event that showed it. */
  shown_event: number;
  /** The questions that were shown before, in order; null before the first. */
  exchanges: Exchange[] | null;
  /** The deadline whose passing makes the run fail. */
  overdue: TimedOutEntry | null;
  usage: Usage | null;
  /** How long the run waited for the answers to `exchanges`, in milliseconds; null before the first. */
  waiting_ms: number | null;
  /** The last entry; null before the run is over. */
  ended: EndedEntry | null;
}

/** A message of the output. Its parts are never changed, only added to, and only while it is open. */
export interface OutputMessage {
  readonly role: Message["role"];
  readonly parts: MessagePart[];
  readonly created_at: string;
  completed_at: string | null;
}

/** The messages of one attempt at a step: only those of the last attempt count. */
export interface Draft {
  readonly attempt: number;
  readonly messages: OutputMessage[];
}

/** A question that is not shown any more, and what became of it. */
export interface Exchange {
  readonly asked: AwaitedEntry;
  /** Null for a question that expired or was withdrawn. */
  readonly answer: AwaitResume | null;
  /** When it was answered, expired or was withdrawn. */
  readonly at: number;
  readonly idempotency_key: string | null;
  /** How many messages of the output had begun when it was asked. */
  after: number;
  /** The number of the event that showed it. */
  readonly event: number;
}

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
    events: 0,
    output: noOutput,
    source: null,
    drafts: null,
    shown: null,
    shown_after: 0,
    shown_event: 0,
    exchanges: null,
    overdue: null,
    usage: null,
    waiting_ms: null,
    ended: null,
  };
}

/** The first entry of a run that has one. */
export function createdEntry(state: RunState): CreatedEntry {
  if (state.created === null) throw new TypeError(`Run ${state.run_id} has no entries yet.`);
  return state.created;
}

/** How long the agent has worked until now, or until its end, in milliseconds. Waiting for answers does not count. */
export function activeMs({ started, ended, shown, waiting_ms }: RunState, now: number): number {
  if (started === null) return 0;
  return (ended ?? shown ?? { at: now }).at - started.at - (waiting_ms ?? 0);
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
