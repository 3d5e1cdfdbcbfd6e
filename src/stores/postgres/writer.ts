import { endOf } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { machineClock, silentLogger, systemChance } from "../../runtime/log/system.ts";
import type { Connection } from "./connection.ts";
import { outcomeOf, storeFailed } from "./errors.ts";
import type { PreparedWrite } from "./writes.ts";
import { withMessages } from "./writes.ts";

/** How many writes share a statement at most, and about how many characters. A write that is larger goes alone. */
const MAX_WRITES = 256;
const MAX_CHARACTERS = 1_048_576;
/** How many rows the counters of an agent have. */
const SHARDS = 16;

/** What the database answers to a write: null if it was made. */
export type Answer = unknown;

interface Job {
  readonly write: PreparedWrite;
  readonly text: string;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Sends the writes of one turn of the event loop together, in the order of the calls. One batch is under way at a time,
 * and what is handed in meanwhile goes with the next one. A batch is one statement, and so one transaction.
 */
export class Writer {
  readonly #connection: Connection;
  readonly #sql: string;
  readonly #now: () => number | null;
  /** Writes of different processes seldom meet in one row of counters. */
  readonly #shard = Math.floor(systemChance() * SHARDS);
  readonly #queue: Job[] = [];
  #sending: Promise<void> | undefined;
  #isClosed = false;

  /** `write` is the function of the schema. `now` gives the time for the statement; null: that of the server. */
  constructor(connection: Connection, write: string, now: () => number | null) {
    this.#connection = connection;
    this.#sql = `SELECT ${write}(($1::text)::jsonb, $2::float8, $3::integer)::text AS answers`;
    this.#now = now;
  }

  /** Resolves with the answer when the transaction has been committed. The deadline counts from this call. */
  write(write: PreparedWrite): Promise<Answer> {
    if (this.#isClosed) return Promise.reject(new CadenzaError("store_failed", "The store is closed."));
    const text = JSON.stringify(write.json);
    const answer = new Promise<Answer>((resolve, reject) => {
      this.#queue.push({ write, text, resolve, reject });
      this.#sending ??= endOf(silentLogger, this.#sendAll());
    });
    return this.#connection.inTime(answer);
  }

  /** Makes a write in a statement of its own, over a connection that carries nothing else. */
  async writeAlone({ json }: PreparedWrite, connection: Connection): Promise<void> {
    await connection.query(this.#sql, [JSON.stringify([json]), this.#now(), this.#shard]);
  }

  /** Sends what is waiting, and accepts no more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#sending;
  }

  async #sendAll(): Promise<void> {
    try {
      await machineClock(silentLogger).turn();
      while (this.#queue.length > 0) await this.#send(this.#nextBatch());
    } finally {
      this.#sending = undefined;
    }
  }

  #nextBatch(): readonly Job[] {
    let characters = 0;
    const tooMany = this.#queue.findIndex(({ text }, index) => {
      characters += text.length;
      return index > 0 && (index >= MAX_WRITES || characters > MAX_CHARACTERS);
    });
    return this.#queue.splice(0, tooMany === -1 ? this.#queue.length : tooMany);
  }

  /** Sends a batch, and settles its writes. Answers whether the server can be reached. */
  async #send(batch: readonly Job[]): Promise<boolean> {
    try {
      const answers = await this.#call(batch);
      if (Array.isArray(answers)) for (const [index, { resolve }] of batch.entries()) resolve(answers[index]);
      // Nothing was written: some of the writes have to bring their messages with them.
      else return await this.#send(bringMessages(batch, (answers as { readonly wanted: readonly number[] }).wanted));
      return true;
    } catch (error) {
      return this.#failed(batch, error);
    }
  }

  async #failed(batch: readonly Job[], error: unknown): Promise<boolean> {
    const outcome = outcomeOf(error);
    if (batch.length > 1 && (outcome === "statement" || outcome === "retry")) {
      // One write made the statement fail. Each is tried alone, so that the others succeed.
      for (const [index, job] of batch.entries()) {
        if (await this.#send([job])) continue;
        reject(batch.slice(index + 1), error);
        return false;
      }
      return true;
    }
    reject(batch, error);
    // While the server does not answer, no call waits for longer than its own deadline.
    if (outcome === "unknown") reject(this.#queue.splice(0), error);
    return outcome !== "unknown";
  }

  async #call(batch: readonly Job[]): Promise<unknown> {
    const writes = `[${batch.map(({ text }) => text).join(",")}]`;
    const [row] = await this.#connection.attempt(this.#sql, [writes, this.#now(), this.#shard]);
    return JSON.parse(String(row?.["answers"]));
  }
}

function reject(jobs: readonly Job[], error: unknown): void {
  const failure = storeFailed(error);
  for (const job of jobs) job.reject(failure);
}

/** The batch, in which the wanted writes bring their messages. Those whose messages cannot be had fail. */
function bringMessages(batch: readonly Job[], wanted: readonly number[]): readonly Job[] {
  const wantedOnes = new Set(wanted);
  return batch.flatMap((job, index) => {
    if (!wantedOnes.has(index)) return [job];
    try {
      const write = withMessages(job.write);
      return [{ ...job, write, text: JSON.stringify(write.json) }];
    } catch (error) {
      job.reject(error);
      return [];
    }
  });
}
