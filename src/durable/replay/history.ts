import type {
  AttemptEntry,
  AwaitedEntry,
  ContinuedEntry,
  EmittedEntry,
  Entry,
  ReceivedEntry,
  ResultEntry,
  TakenEntry,
} from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import type { InboxMessage } from "../../core/state.ts";
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
  readonly results: RecordedResult[] = [];
  /** The time that the agent saw when it was first called, in milliseconds since 1970; undefined if it was not called. */
  startedAt: number | undefined;
  /** Whether the agent was stopped by a cancel, a time-out or its budget. */
  isStopped = false;
  /** The patches that the agent has. */
  readonly patches = new Set<string>();
  /** The messages, by their position. */
  readonly received = new Map<number, ReceivedEntry>();
  /** The ids of the sub-runs that have no result, by their operations. */
  readonly subRuns = new Map<string, string>();
  /** The position of the next entry. */
  #position = 0;
  readonly #operations = new Map<string, RecordedOperation>();
  /** The operations that the agent has begun, in log order. */
  readonly #begun: RecordedOperation[] = [];
  /** The first of these that the replayed agent may not have begun again. */
  #nextBegun = 0;
  readonly #emissions: RecordedEmission[] = [];
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
        this.#begin(entry.await_id, position).asked = entry;
        if (entry.usage !== undefined) this.#usages.push({ position, usage: entry.usage });
        break;
      case "intent":
      case "attempt-failed":
        this.#begin(entry.key, position).attempt = entry;
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
        this.#take(entry);
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

  /** What an agent begins after it was stopped is not missing if it does not begin it again. */
  #begin(key: string, position: number): RecordedOperation {
    const operation = this.#operationOf(key);
    if (this.isStopped || operation.position !== undefined) return operation;
    operation.position = position;
    this.#begun.push(operation);
    return operation;
  }

  #operationOf(key: string): RecordedOperation {
    const known = this.#operations.get(key);
    if (known !== undefined) return known;
    const made = new RecordedOperation(key);
    this.#operations.set(key, made);
    return made;
  }

  #end(key: string, entry: ResultEntry, position: number): void {
    if (this.isStopped) return;
    const operation = this.#operationOf(key);
    operation.endedAt = position;
    operation.attempt = undefined;
    this.results.push({ key, entry, live: undefined, position });
  }

  #take({ key, position }: TakenEntry): void {
    const entry = position === null || this.isStopped ? undefined : this.received.get(position);
    if (entry !== undefined && position !== null) this.#operationOf(key).taken = { entry, position };
  }

  /** The operation with this key, in the last generation. Undefined: the history does not have it. */
  find(key: string): Readonly<RecordedOperation> | undefined {
    return this.#operations.get(key);
  }

  /** The replayed agent begins an operation. Gives what the history has of it. */
  beginAgain(key: string): Readonly<RecordedOperation> | undefined {
    const operation = this.#operations.get(key);
    if (operation !== undefined) operation.isBegunAgain = true;
    return operation;
  }

  /** The first operation in the history that the replayed agent has not begun again. */
  get missing(): Readonly<RecordedOperation> | undefined {
    while (this.#begun[this.#nextBegun]?.isBegunAgain === true) this.#nextBegun += 1;
    return this.#begun[this.#nextBegun];
  }

  /** The sub-runs that earlier generations have left are cancelled. */
  #beginAgain({ position, at, messages = [] }: ContinuedEntry): void {
    this.#position = position + 1;
    this.startedAt = at;
    for (const part of [this.#operations, this.received, this.subRuns, this.patches]) part.clear();
    for (const list of [this.results, this.#begun, this.#emissions, this.#usages]) list.length = 0;
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

  /** The replayed agent has received the result at this position. It has reported the usage before it. */
  passUsage(passed: number): void {
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

/** A result in the history. */
export interface RecordedResult extends Delivery {
  readonly position: number;
}

/** What the history has of an operation. */
class RecordedOperation {
  readonly key: string;
  /** The position of its first entry. Undefined: the agent had not begun it before it was stopped. */
  position: number | undefined;
  /** The last attempt at it, or that it has failed. Undefined where it has its result. */
  attempt: AttemptEntry | undefined;
  /** Of a question that was shown. */
  asked: AwaitedEntry | undefined;
  /** The position of its result. Undefined: it has none. */
  endedAt: number | undefined;
  /** Of a receive: the message that it has taken. */
  taken: InboxMessage | undefined;
  isBegunAgain = false;

  constructor(key: string) {
    this.key = key;
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
export function subRunsBegun({ tenant }: RunKey, { subRuns }: History): readonly RunKey[] {
  return Array.from(subRuns.values(), (run_id) => ({ tenant, run_id }));
}
