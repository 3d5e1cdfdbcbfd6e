import type { RunMode, StreamedEvent } from "cadenza";
import type { QuestionText } from "./agents.ts";
import type { Plan } from "./plans.ts";

/* What the harness, as a client, has asked for, and what it was told. */

/** A run that was asked for. */
export interface RunRecord {
  readonly plan: Plan;
  readonly agent: string;
  readonly session_id: string | null;
  /** Without a key, a run whose creation was not acknowledged may be there or not. */
  readonly key: string | null;
  readonly mode: RunMode;
  run_id: string | undefined;
  /** The events that a reader was shown, in the order of their numbers. */
  readonly seen: StreamedEvent[];
  /** The question that is shown and not answered yet. */
  question: OpenQuestion | undefined;
  readonly answers: AnswerRecord[];
  readonly cancels: CancelRecord[];
  /** What else was refused, in the order in which it came. */
  readonly refusals: string[];
  ended: boolean;
  /** When a reader was last shown something of it. */
  newsAt: number;
  /** Which process tells of its events. */
  reader: string | undefined;
}

export interface OpenQuestion {
  readonly await_id: string;
  readonly text: QuestionText;
  readonly expires_at: number | undefined;
}

/** An answer that was given, to which question, and what was said to it: as often as it was sent. */
export interface AnswerRecord {
  readonly nonce: string;
  readonly fits: boolean;
  readonly question: OpenQuestion;
  readonly outcomes: string[];
}

export interface CancelRecord {
  /** The process that it was sent to, and when. */
  readonly to: string;
  readonly at: number;
  outcome: string;
}

/** What an outcome says of an order that was acknowledged, and of one of which nothing is known. */
export const ACKNOWLEDGED = "acknowledged";
export const UNKNOWN = "unknown";

/** Everything that was asked for. */
export class Acknowledged {
  readonly runs: RunRecord[] = [];
  /** What was wrong already when it came. */
  readonly wrong: { readonly run: RunRecord; readonly what: string }[] = [];
  readonly #byId = new Map<string, RunRecord>();

  add(run: Pick<RunRecord, "plan" | "agent" | "session_id" | "key" | "mode">): RunRecord {
    const record: RunRecord = {
      ...run,
      run_id: undefined,
      seen: [],
      question: undefined,
      answers: [],
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

  /** Takes an event that a reader was shown. Gives whether it is news. */
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
