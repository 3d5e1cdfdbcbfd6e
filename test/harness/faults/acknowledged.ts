import type { CreateRunRequest, StreamedEvent } from "cadenza";
import type { QuestionText } from "./agents.ts";
import type { ShownQuestion } from "./messages.ts";
import type { MessageName, Plan } from "./plans.ts";

/* The requests of the harness, as a client, and the outcomes. */

/** A run that the client has created. */
export interface RunRecord {
  readonly plan: Plan;
  readonly agent: string;
  readonly session_id: string | null;
  /** Without a key, a run whose creation was not acknowledged may exist or not. */
  readonly key: string | null;
  readonly mode: NonNullable<CreateRunRequest["mode"]>;
  run_id: string | undefined;
  /** The events that readers have got, in the order of their numbers. */
  readonly seen: StreamedEvent[];
  /** The questions of the run and its sub-runs that have been shown, by the run that asks and the key. */
  readonly questions: Map<string, OpenQuestion>;
  readonly answers: AnswerRecord[];
  readonly mails: MailRecord[];
  readonly cancels: CancelRecord[];
  /** The other refusals, in the order in which they came. */
  readonly refusals: string[];
  ended: boolean;
  /** When a reader last got an event of it. */
  newsAt: number;
  /** The process that reads its events. */
  reader: string | undefined;
}

export interface OpenQuestion {
  readonly text: QuestionText;
  readonly expires_at: number | undefined;
  /** The runs that show it: the one that asks, and those above it. */
  readonly shown: ShownQuestion[];
}

/** A reply, its question, and the outcome of each time that it was sent. */
export interface AnswerRecord {
  readonly nonce: string;
  readonly is: "valid" | "invalid" | "decline";
  readonly question: OpenQuestion;
  readonly outcomes: string[];
}

/** A message, the run that it was sent to, and the outcome of each time that it was sent. */
export interface MailRecord {
  readonly nonce: string;
  readonly name: MessageName;
  readonly run_id: string;
  /** Without a key it was sent once. */
  readonly key: string | null;
  /** When it was first sent, and when it was first acknowledged; all messages are counted. */
  readonly sentAt: number;
  acknowledgedAt: number | undefined;
  readonly outcomes: string[];
}

export interface CancelRecord {
  /** The process that it was sent to, and when. */
  readonly to: string;
  readonly at: number;
  outcome: string;
}

/** The outcomes of an order that was acknowledged, and of one without an answer. */
export const ACKNOWLEDGED = "acknowledged";
export const UNKNOWN = "unknown";

/** All requests. */
export class Acknowledged {
  readonly runs: RunRecord[] = [];
  /** What was wrong with the outcomes themselves. */
  readonly wrong: { readonly run: RunRecord; readonly what: string }[] = [];
  readonly #byId = new Map<string, RunRecord>();

  add(run: Pick<RunRecord, "plan" | "agent" | "session_id" | "key" | "mode">): RunRecord {
    const record: RunRecord = {
      ...run,
      run_id: undefined,
      seen: [],
      questions: new Map(),
      answers: [],
      mails: [],
      cancels: [],
      refusals: [],
      ended: false,
      newsAt: Date.now(),
      reader: undefined,
    };
    this.runs.push(record);
    return record;
  }

  find(run_id: string): RunRecord | undefined {
    return this.#byId.get(run_id);
  }

  created(run: RunRecord, run_id: string): void {
    if (run.run_id !== undefined && run.run_id !== run_id)
      this.wrong.push({ run, what: `was created twice: as ${run.run_id} and as ${run_id}` });
    run.run_id = run_id;
    this.#byId.set(run_id, run);
  }

  /** Takes an event that a reader has got. Answers whether it is a new one. */
  take(run: RunRecord, event: StreamedEvent): boolean {
    const last = run.seen.at(-1)?.id ?? 0;
    if (event.type === "error") {
      this.wrong.push({ run, what: `a reader was given an error: ${event.error.message}` });
      return false;
    }
    if (event.id > last + 1) this.wrong.push({ run, what: `a reader was given event ${event.id} after ${last}` });
    const before = run.seen[event.id - 1];
    if (before !== undefined && JSON.stringify(before) !== JSON.stringify(event))
      this.wrong.push({ run, what: `readers were given two events ${event.id}: ${JSON.stringify([before, event])}` });
    // Another reader may be ahead of this one.
    if (event.id !== last + 1) return false;
    run.seen.push(event);
    run.newsAt = Date.now();
    return true;
  }

  get open(): RunRecord[] {
    return this.runs.filter(({ ended }) => !ended);
  }
}
