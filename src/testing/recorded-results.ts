import type { StepEntry } from "../core/log.ts";
import { waitKeys } from "../core/operation-keys.ts";
import { ignore } from "../core/promises.ts";
import type { Cassette } from "../durable/replay/cassette.ts";

/**
 * The results of a cassette. The agent gets each at its place in the log, so that a result and a message come in the
 * same order as in the recorded run.
 */
export class RecordedResults {
  /** The results that no operation has taken. */
  readonly #results: Map<string, StepEntry>;
  readonly #unfinished: ReadonlySet<string>;
  /** The results whose place in the log is not reached. */
  readonly #later: Set<string>;
  /** The operations that wait for that, in the order in which they began. */
  readonly #held = new Map<string, () => void>();

  constructor({ entries, results, unfinished = [] }: Cassette) {
    const waits = waitKeys(entries);
    this.#results = new Map(results.filter(({ key }) => !waits.has(key)).map((result) => [result.key, result]));
    this.#unfinished = new Set(unfinished);
    this.#later = new Set(entries.flatMap((entry) => (entry.type === "step" ? [entry.key] : [])));
  }

  /** The result of an operation. Undefined: the cassette does not hold the operation. */
  take(key: string): Promise<StepEntry> | undefined {
    const result = this.#results.get(key);
    if (result === undefined) return this.#unfinished.has(key) ? new Promise(ignore) : undefined;
    this.#results.delete(key);
    if (!this.#later.has(key)) return Promise.resolve(result);
    return new Promise((resolve) => this.#held.set(key, () => resolve(result)));
  }

  /** The place of a result in the log is reached. */
  release(key: string): void {
    this.#later.delete(key);
    this.#held.get(key)?.();
    this.#held.delete(key);
  }

  /** Hands over the first result that an operation waits for. False: there is none. */
  releaseNext(): boolean {
    const [key] = this.#held.keys();
    if (key !== undefined) this.release(key);
    return key !== undefined;
  }

  /** An operation of the cassette that the agent has not begun. The session's reads are no operations of the agent. */
  get unused(): string | undefined {
    return [...this.#results.keys()].find((key) => !key.startsWith("session."));
  }
}
