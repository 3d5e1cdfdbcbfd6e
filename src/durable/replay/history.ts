import type {
  AttemptEntry,
  AwaitedEntry,
  ContinuedEntry,
  EmittedEntry,
  Entry,
  ReceivedEntry,
  ResultEntry,
} from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import { subtractUsage } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { Delivery } from "../../runtime/execution/operations.ts";

/**
 * What the log holds of an agent's operations and output, in the order in which a replay needs it: the results of the
 * operations, and what the agent itself emitted. What step bodies emitted is left out, because a replay does not run
 * the bodies. An agent that has continued as new does again what its last generation has done. It is made entry by entry,
 * so that other work has turns between the entries of a long log, and serves one replay.
 */
export class History {
  /** The results that the agent may have received, in log order. Results after a stop are left out. */
  readonly results: Delivery[] = [];
  /** The operations of these results. */
  readonly ended = new Set<string>();
  /** The operations that the agent has begun, with the positions of their first entries. */
  readonly begun = new Map<string, number>();
  /** The operations in the history that the replayed agent has not begun again. */
  readonly missing = new Map<string, number>();
  /** The time that the agent saw when it was first called, in milliseconds since 1970; undefined if it was not called. */
  startedAt: number | undefined;
  /** Whether the agent was stopped by a cancel, a time-out or its budget. */
  isStopped = false;
  /** The questions that were ever shown. */
  readonly awaited = new Map<string, AwaitedEntry>();
  /** The last attempt at each operation, or that it has failed. */
  readonly attempts = new Map<string, AttemptEntry>();
  /** The patches that the agent has. */
  readonly patches = new Set<string>();
  /** The messages, by their position. */
  readonly received = new Map<number, ReceivedEntry>();
  /** The ids of the sub-runs that have no result, by their operations. */
  readonly subRuns = new Map<string, string>();
  /** The position of the next entry. */
  #position = 0;
  /** The position of the last result. */
  #lastEnd = -1;
  readonly #emissions: RecordedEmission[] = [];
  readonly #positions = new Map<ResultEntry, number>();
  /** The usage in the log, of which the replayed agent has reported the first again. */
  readonly #usages: RecordedUsage[] = [];
  #nextUsage = 0;
  #nextEmission = 0;

  /** Adds the next entry of the log. */
  add(entry: Entry): void {
    const position = this.#position++;
    switch (entry.type) {
      case "started":
        this.startedAt = entry.now ?? entry.at;
        break;
      case "emitted":
        if (entry.source === undefined) this.#emissions.push({ entry, position, wasStopped: this.isStopped });
        break;
      case "awaited":
        if (entry.of !== undefined) break;
        this.#begin(entry.await_id, position);
        this.awaited.set(entry.await_id, entry);
        if (entry.usage !== undefined) this.#usages.push({ position, usage: entry.usage });
        break;
      case "intent":
      case "attempt-failed":
        this.#begin(entry.key, position);
        this.attempts.set(entry.key, entry);
        if (entry.type === "intent" && entry.run_id !== null) this.subRuns.set(entry.key, entry.run_id);
        break;
      case "step":
        this.#begin(entry.key, position);
        this.#end(entry.key, entry, position);
        this.subRuns.delete(entry.key);
        if (entry.usage !== null) this.#usages.push({ position, usage: entry.usage });
        break;
      case "resumed":
      case "declined":
      case "withdrawn":
        this.#end(entry.await_id, entry, position);
        break;
      case "received":
        this.received.set(position, entry);
        break;
      case "taken":
        this.#begin(entry.key, position);
        this.#end(entry.key, entry, position);
        break;
      case "patched":
        this.patches.add(entry.id);
        break;
      case "timed-out":
        if (entry.await_id !== null && entry.defaulted) this.#end(entry.await_id, entry, position);
        if (!entry.defaulted) this.isStopped = true;
        break;
      case "exceeded":
        if (entry.usage !== undefined) this.#usages.push({ position, usage: entry.usage });
        this.isStopped = true;
        break;
      case "cancel-requested":
        this.isStopped = true;
        break;
      case "continued":
        this.#beginAgain(entry);
        break;
      default:
        break;
    }
  }

  #begin(key: string, position: number): void {
    if (this.isStopped || this.begun.has(key)) return;
    this.begun.set(key, position);
    this.missing.set(key, position);
  }

  #end(key: string, entry: ResultEntry, position: number): void {
    if (this.isStopped) return;
    this.#positions.set(entry, position);
    const isAfterLast = Number(this.begun.get(key)) > this.#lastEnd;
    this.ended.add(key);
    this.results.push({ key, entry, live: undefined, wasAlone: isAfterLast && this.begun.size === this.ended.size });
    this.#lastEnd = position;
  }

  /** The sub-runs that earlier generations have left are cancelled. */
  #beginAgain({ position, at, messages = [] }: ContinuedEntry): void {
    this.#position = position + 1;
    this.startedAt = at;
    const parts = [this.awaited, this.attempts, this.received, this.subRuns, this.#positions];
    for (const part of [...parts, this.ended, this.begun, this.missing, this.patches]) part.clear();
    for (const list of [this.results, this.#emissions, this.#usages]) list.length = 0;
    for (const message of messages) this.received.set(message.position, message.entry);
  }

  /** The next emission in the history. */
  get nextEmission(): RecordedEmission | undefined {
    return this.#emissions[this.#nextEmission];
  }

  /** The replayed agent has emitted it again. */
  skipEmission(): void {
    this.#nextEmission += 1;
  }

  /** The replayed agent has received a result. It has reported the usage before that entry. */
  passUsage(result: ResultEntry): void {
    const passed = this.#positions.get(result) ?? -1;
    while (Number(this.#usages[this.#nextUsage]?.position) <= passed) this.#nextUsage += 1;
  }

  /** Whether the log holds this report of usage. Each report in the log counts once. */
  takeUsage(report: Usage): boolean {
    for (let index = this.#nextUsage; index < this.#usages.length; index++) {
      const { position, usage } = this.#usages[index] as RecordedUsage;
      const rest = subtractUsage(usage, report);
      if (rest === undefined) continue;
      this.#usages[index] = { position, usage: rest };
      return true;
    }
    return false;
  }
}

/** The history in a log that is short, or may hold up other work. */
export function historyOf(entries: readonly Entry[]): History {
  const history = new History();
  for (const entry of entries) history.add(entry);
  return history;
}

/** Something that the agent emitted. */
export interface RecordedEmission {
  readonly entry: EmittedEntry;
  readonly position: number;
  /** Whether the entry follows a stop. The agent emitted it before it noticed the stop, or in its `finally` blocks. */
  readonly wasStopped: boolean;
}

interface RecordedUsage {
  readonly position: number;
  readonly usage: Usage;
}

/** The sub-runs of a run that have no result in its log. */
export function subRunsBegun({ tenant }: RunKey, { subRuns }: History): readonly RunKey[] {
  return Array.from(subRuns.values(), (run_id) => ({ tenant, run_id }));
}
