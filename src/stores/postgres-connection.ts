import { CadenzaError } from "../core/errors.ts";
import { ignore } from "../core/promises.ts";
import { systemChance, systemClock } from "../runtime/system.ts";
import { DeadlineError, outcomeOf, storeFailed } from "./postgres-errors.ts";
import type { PostgresClient, PostgresPool, PostgresResult } from "./postgres-options.ts";
import type { StoredRow } from "./stored-rows.ts";

/** What the store passes for a `$1`. */
export type PostgresValue = string | number | null;

/** How often a statement that met another transaction is tried in all. */
const ATTEMPTS = 8;
/** The longest pause after the first attempt, in milliseconds. It doubles each time. */
const FIRST_PAUSE_MS = 2;

/** Sends statements to the server, each with a deadline. Statements are unnamed: named ones fail behind poolers. */
export class Connection {
  readonly #pool: PostgresPool;
  readonly #timeoutMs: number;
  #isClosed = false;

  constructor(pool: PostgresPool, timeoutMs: number) {
    this.#pool = pool;
    this.#timeoutMs = timeoutMs;
    // Without a listener, a connection that is lost while it is idle would end the process.
    if (pool.listenerCount?.("error") === 0) pool.on?.("error", ignore);
  }

  /** The rows of a statement. A statement that met another transaction is tried again. */
  async query(sql: string, values: readonly PostgresValue[]): Promise<readonly StoredRow[]> {
    try {
      return await this.attempt(sql, values);
    } catch (error) {
      throw storeFailed(error);
    }
  }

  /** As `query`, but throws what the driver threw. */
  async attempt(sql: string, values: readonly PostgresValue[]): Promise<readonly StoredRow[]> {
    for (let attempt = 1; ; attempt++) {
      if (this.#isClosed) throw new CadenzaError("store_failed", "The store is closed.");
      try {
        return (await this.#once(sql, [...values])).rows as readonly StoredRow[];
      } catch (error) {
        if (outcomeOf(error) !== "retry" || attempt === ATTEMPTS) throw error;
        await pause(systemChance() * FIRST_PAUSE_MS * 2 ** (attempt - 1));
      }
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#pool.off?.("error", ignore);
  }

  #once(sql: string, values: PostgresValue[]): Promise<PostgresResult> {
    const { connect } = this.#pool;
    if (connect === undefined) return this.#before(this.#pool.query(sql, values), ignore);
    let client: PostgresClient | undefined;
    let isOver = false;
    const giveBack = (destroy: boolean): void => {
      isOver = true;
      client?.off("error", ignore);
      client?.release(destroy);
      client = undefined;
    };
    const work = async (): Promise<PostgresResult> => {
      const lent = await connect.call(this.#pool);
      client = lent;
      lent.on("error", ignore);
      if (isOver) {
        giveBack(false);
        throw new DeadlineError(this.#timeoutMs);
      }
      try {
        const result = await lent.query(sql, values);
        if (!isOver) giveBack(false);
        return result;
      } catch (error) {
        if (!isOver) giveBack(outcomeOf(error) === "unknown");
        throw error;
      }
    };
    // A connection that does not answer may never answer again.
    return this.#before(work(), () => giveBack(true));
  }

  /** The outcome of work, or an error when the deadline comes first. */
  #before<T>(work: Promise<T>, late: () => void): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = systemClock.setTimeout(() => {
        late();
        reject(new DeadlineError(this.#timeoutMs));
      }, this.#timeoutMs);
      work.then(resolve, reject).finally(cancel).catch(ignore);
    });
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => void systemClock.setTimeout(resolve, ms));
}
