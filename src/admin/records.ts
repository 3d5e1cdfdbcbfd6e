import type { StepFailure } from "../core/failure.ts";
import type { ForkOrigin, Labels, QuestionKind } from "../core/log.ts";
import { ASIDE_MS } from "../core/pauses.ts";
import type { Backlog, FoundRun, Mismatch, RunPosition } from "../core/ports.ts";
import { originRecord } from "../core/record.ts";
import { isoTime, timeOrNull } from "../core/time.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { RunStatus } from "../protocol/run.ts";

/* What an operator gets. Times are ISO 8601. */

/** A page of a list. */
export interface AdminPage<Item> {
  readonly items: readonly Item[];
  /**
   * The cursor of the next page; null: there are no more items. A page may have fewer items than its limit, or none, and
   * yet be followed by others: a call looks at a bounded number of runs.
   */
  readonly next: string | null;
}

/** A run in a list. */
export interface AdminRun {
  readonly tenant: string;
  readonly run_id: string;
  readonly status: RunStatus;
  /** How many entries its log holds, and how often it changed its worker: what `changes` compares. */
  readonly position: number;
  readonly epoch: number;
  /** The worker that executes it; null for none. */
  readonly worker: string | null;
  /** How often it was taken over from a worker that was gone, since it last made progress. */
  readonly takeovers: number;
  /** From when on a run without a worker needs one; null: from an outside event on. */
  readonly due_at: string | null;
  readonly finished_at: string | null;
  /** Where the code and the log disagree; null for a run that is not blocked. */
  readonly blocked: Mismatch | null;
  /** What its first entry says; null if the store cannot read it. */
  readonly created: {
    readonly at: string;
    readonly agent_name: string;
    readonly version: string | null;
    readonly durable: boolean;
    readonly session_id: string;
    readonly labels: Labels;
    readonly metadata: JsonValue;
    readonly parent_run_id: string | null;
    /** The run that it is a fork of, and who has made the fork; null for no fork. */
    readonly origin: Required<ForkOrigin> | null;
  } | null;
}

/** An open question. */
export interface AdminQuestion {
  readonly tenant: string;
  /** The run that asks. */
  readonly run_id: string;
  /** The run at the top of its tree. */
  readonly root_run_id: string;
  readonly agent_name: string;
  readonly version: string | null;
  readonly labels: Labels;
  readonly await_id: string;
  /** The name that the agent gave it; null for none. */
  readonly name: string | null;
  readonly kind: QuestionKind;
  readonly parts: readonly MessagePart[];
  /** The JSON Schema of the answer; null for none. */
  readonly schema: JsonValue;
  readonly since: string;
  /** Null: never. */
  readonly expires_at: string | null;
}

/** A run that failed. */
export interface AdminFailure extends AdminRun {
  /** What its client sees; null if its log cannot be read. */
  readonly error: ProtocolError | null;
  /** The operation whose error the agent did not handle; null for none. */
  readonly key: string | null;
  /** The error that the agent threw, or of that operation, in full; null if `error` says it all. */
  readonly cause: StepFailure | null;
}

/** A blocked run. */
export interface AdminBlocked extends AdminRun {
  readonly needs: string;
  /** What to change in the code, so that it matches. */
  readonly help: string;
}

/** The live runs of an agent and version. */
export interface AdminVersion {
  readonly agent_name: string;
  readonly version: string | null;
  /** Whether this process executes it, only declares it, or has not registered it. Without a runtime it is unknown. */
  readonly code: "executed" | "declared" | "unregistered" | "unknown";
  readonly live: Readonly<Record<"created" | "in-progress" | "awaiting" | "cancelling", number>>;
  /** The sum of `live`, of which each is at most 1,001: that stands for more than 1,000. At 0 no run needs the code any more. */
  readonly total: number;
}

/** What waits for a worker or a slot, and what waits for a time or an event. Each count is at most 1,001: more than 1,000. */
export interface AdminBacklog extends Omit<Backlog, "since"> {
  /** Since when the first due run waits; null if there is none, or it is unknown. */
  readonly since: string | null;
  /** Whether a pause of the agent or the version covers them. A pause of a tenant does not count. */
  readonly paused: boolean;
}

/** Runs whose code this process does not know. */
export interface AdminUnregistered extends AdminBacklog {
  readonly needs: string;
}

/** A process that executes runs, or has left some. */
export interface AdminWorker {
  readonly worker: string;
  /** Whether its lease lasts. Other workers take the runs of one whose lease has ended. */
  readonly is_alive: boolean;
  /** When its lease ends or ended; null for none. */
  readonly until: string | null;
  readonly runs: number;
}

/** A run with the runs below it. */
export interface AdminTree extends AdminRun {
  readonly children: readonly AdminTree[];
}

/** How far a run is. Of one that has changed, both figures are 0 if it was deleted. */
export interface AdminChange extends Omit<RunPosition, "key"> {
  readonly tenant: string;
  readonly run_id: string;
}

export function adminRun({ key, created, head, position }: FoundRun): AdminRun {
  const { status, epoch, owner, takeovers, due_at, finished_at, blocked } = head;
  return {
    ...{ tenant: key.tenant, run_id: key.run_id, status, position, epoch, worker: owner, takeovers },
    // What a pause of its tenant has set aside is due when it is back.
    due_at: timeOrNull(due_at !== null && due_at >= ASIDE_MS ? due_at - ASIDE_MS : due_at),
    finished_at: timeOrNull(finished_at),
    blocked,
    created: created === null ? null : originOf(created),
  };
}

function originOf(created: NonNullable<FoundRun["created"]>): NonNullable<AdminRun["created"]> {
  const { at, agent_name, session_id, version = null, durable = false, labels = {}, metadata = null } = created;
  const parent_run_id = created.parent?.run_id ?? null;
  const origin = originRecord(created);
  return { at: isoTime(at), agent_name, version, durable, session_id, labels, metadata, parent_run_id, origin };
}
