import type { AttemptEntry, AwaitedEntry, EmittedEntry, Entry, ReceivedEntry, ResultEntry } from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import { subtractUsage } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";

/**
 * What the log holds of an agent's operations and output, in the order in which a replay needs it: the results of the
 * operations, and what the agent itself emitted. What step bodies emitted is left out, because a replay does not run
 * the bodies. An agent that has continued as new does again what its last generation has done.
 */
export class History {
  /** The results that the agent may have received, in log order. Results after a stop are left out. */
  readonly results: readonly ResultEntry[];
  /** The operations that the agent has begun, with the positions of their first entries. */
  readonly begun: ReadonlyMap<string, number>;
  /** The time that the agent saw when it was first called, in milliseconds since 1970; undefined if it was not called. */
  readonly startedAt: number | undefined;
  /** Whether the agent was stopped by a cancel, a time-out or its budget. */
  readonly isStopped: boolean;
  readonly #emissions: readonly RecordedEmission[];
  /** The questions that were ever shown. */
  readonly awaited = new Map<string, AwaitedEntry>();
  /** The last attempt at each operation, or that it has failed. */
  readonly attempts = new Map<string, AttemptEntry>();
  /** The messages, by their position. */
  readonly received = new Map<number, ReceivedEntry>();
  readonly #positions = new Map<ResultEntry, number>();
  /** The usage in the log that the replayed agent has not reported again. */
  #usages: RecordedUsage[] = [];
  #nextEmission = 0;

  constructor(entries: Iterable<Entry>) {
    let results: ResultEntry[] = [];
    let emissions: RecordedEmission[] = [];
    const begun = new Map<string, number>();
    let position = -1;
    let startedAt: number | undefined;
    let isStopped = false;
    const begin = (key: string): void => {
      if (!isStopped && !begun.has(key)) begun.set(key, position);
    };
    const addResult = (entry: ResultEntry): void => {
      if (isStopped) return;
      this.#positions.set(entry, position);
      results.push(entry);
    };
    for (const entry of entries) {
      position += 1;
      switch (entry.type) {
        case "started":
          startedAt = entry.now ?? entry.at;
          break;
        case "emitted":
          if (entry.source === undefined) emissions.push({ entry, position, wasStopped: isStopped });
          break;
        case "awaited":
          if (entry.of !== undefined) break;
          begin(entry.await_id);
          this.awaited.set(entry.await_id, entry);
          if (entry.usage !== undefined) this.#usages.push({ position, usage: entry.usage });
          break;
        case "intent":
        case "attempt-failed":
          begin(entry.key);
          this.attempts.set(entry.key, entry);
          break;
        case "step":
          begin(entry.key);
          addResult(entry);
          if (entry.usage !== null) this.#usages.push({ position, usage: entry.usage });
          break;
        case "resumed":
        case "declined":
        case "withdrawn":
          addResult(entry);
          break;
        case "received":
          this.received.set(position, entry);
          break;
        case "taken":
          begin(entry.key);
          addResult(entry);
          break;
        case "timed-out":
          if (entry.await_id !== null && entry.defaulted) addResult(entry);
          if (!entry.defaulted) isStopped = true;
          break;
        case "exceeded":
          if (entry.usage !== undefined) this.#usages.push({ position, usage: entry.usage });
          isStopped = true;
          break;
        case "cancel-requested":
          isStopped = true;
          break;
        case "continued":
          position = entry.position;
          startedAt = entry.at;
          results = [];
          emissions = [];
          begun.clear();
          this.#forget();
          for (const message of entry.messages ?? []) this.received.set(message.position, message.entry);
          break;
        default:
          break;
      }
    }
    this.results = results;
    this.begun = begun;
    this.startedAt = startedAt;
    this.isStopped = isStopped;
    this.#emissions = emissions;
  }

  #forget(): void {
    this.awaited.clear();
    this.attempts.clear();
    this.received.clear();
    this.#positions.clear();
    this.#usages = [];
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
    const passed = this.#positions.get(result);
    if (passed !== undefined && this.#usages.length > 0)
      this.#usages = this.#usages.filter(({ position }) => position > passed);
  }

  /** Whether the log holds this report of usage. Each report in the log counts once. */
  takeUsage(report: Usage): boolean {
    for (const [index, { position, usage }] of this.#usages.entries()) {
      const rest = subtractUsage(usage, report);
      if (rest === undefined) continue;
      this.#usages[index] = { position, usage: rest };
      return true;
    }
    return false;
  }
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
export function subRunsBegun({ tenant }: RunKey, entries: readonly Entry[]): readonly RunKey[] {
  const begun = new Map<string, string>();
  for (const entry of entries) {
    if (entry.type === "intent" && entry.run_id !== null) begun.set(entry.key, entry.run_id);
    else if (entry.type === "step") begun.delete(entry.key);
    // Those that its earlier generations have left are cancelled.
    else if (entry.type === "continued") begun.clear();
  }
  return Array.from(begun.values(), (run_id) => ({ tenant, run_id }));
}
