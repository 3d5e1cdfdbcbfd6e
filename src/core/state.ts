import type { ProtocolError } from "../protocol/error.ts";
import type { Message, MessagePart } from "../protocol/message.ts";
import type { AwaitRequest, AwaitResume, RunStatus } from "../protocol/run.ts";
import type { CreatedEntry, PartSource, TimedOutEntry } from "./log.ts";
import type { Usage } from "./usage.ts";

/**
 * What a log says about its run. The object has one fixed shape, and `evolve` alone writes it: a copy for each
 * entry would make a stream quadratic.
 */
export interface RunState {
  readonly run_id: string;
  /** The first entry; null before there is one. */
  created: CreatedEntry | null;
  status: RunStatus;
  /** How many entries have been folded in. */
  position: number;
  /** How many events these entries stand for. */
  events: number;
  /** Every message so far; while `open`, the last one still grows. */
  output: OutputMessage[];
  open: boolean;
  /** Which step body opened the message that is open; null for the agent itself. */
  source: PartSource | null;
  /** The messages of step bodies that may have to say them again; null before the first. */
  drafts: Draft[] | null;
  await_request: AwaitRequest | null;
  /** When the question that is shown expires, in milliseconds since the epoch; null for never. */
  deadline: number | null;
  /** The questions so far, in order; null before the first. */
  exchanges: Exchange[] | null;
  /** The deadline whose passing makes the run fail. */
  overdue: TimedOutEntry | null;
  error: ProtocolError | null;
  usage: Usage | null;
  /** When the present stretch of working or waiting began. */
  since: number;
  /** How long the agent has worked, in milliseconds: waiting for answers does not count. */
  active_ms: number;
  /** How long the run has waited for answers, in milliseconds. */
  waiting_ms: number;
  finished_at: number | null;
}

/** A message of the output. Its parts are never changed, only added to, and only while it is open. */
export interface OutputMessage {
  readonly role: Message["role"];
  readonly parts: MessagePart[];
  readonly created_at: string;
  completed_at: string | null;
}

/** A message that a step body has shown: only the one of the last attempt counts. */
export interface Draft {
  readonly key: string;
  readonly message: OutputMessage;
}

/** A question and what became of it. */
export interface Exchange {
  readonly request: AwaitRequest;
  /** Null while it is shown, and for a question that expired or was withdrawn. */
  answer: AwaitResume | null;
  idempotency_key: string | null;
  /** How many messages of the output had begun when it was asked. */
  after: number;
  /** The number of the event that showed it. */
  readonly event: number;
}

/** The state before the first entry. */
export function initialState(runId: string): RunState {
  return {
    run_id: runId,
    created: null,
    status: "created",
    position: 0,
    events: 0,
    output: [],
    open: false,
    source: null,
    drafts: null,
    await_request: null,
    deadline: null,
    exchanges: null,
    overdue: null,
    error: null,
    usage: null,
    since: 0,
    active_ms: 0,
    waiting_ms: 0,
    finished_at: null,
  };
}

/** The first entry of a run that has one. */
export function createdEntry(state: RunState): CreatedEntry {
  if (state.created === null) throw new TypeError(`Run ${state.run_id} has no entries yet.`);
  return state.created;
}

/** Whether the run has ended. */
export function isFinal(status: RunStatus): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** Whether the run rests: nothing happens until somebody answers, or ever again. */
export function isAtRest(status: RunStatus): boolean {
  return status === "awaiting" || isFinal(status);
}
