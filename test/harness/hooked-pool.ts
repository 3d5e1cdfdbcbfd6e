import type { PostgresPool } from "cadenza/postgres";
import pg from "pg";
import type { PostgresClient, PostgresResult } from "./internals.ts";

/** Decides what becomes of a statement. `run` sends it to the server. `parameter`: the first of `values`. */
export type Hook = (
  run: () => Promise<PostgresResult>,
  sql: string,
  parameter: unknown,
  values: readonly unknown[],
) => Promise<PostgresResult>;

/** After so many turns of the event loop with nothing under way a pool is settled. */
const TURNS = 20;

/** A pool that notes each statement, and can change what becomes of it. */
export class HookedPool implements PostgresPool {
  readonly #pool: pg.Pool;
  readonly statements: string[] = [];
  hook: Hook = (run) => run();
  #asked = 0;
  #sent = 0;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  get options(): { readonly max: number } {
    return this.#pool.options;
  }

  /**
   * So many statements are at the server, and connections being made or handed over. A call that waits for a free
   * connection does not count.
   */
  get underWay(): number {
    return this.#sent + this.#asked - this.#pool.waitingCount;
  }

  /** Resolves when nothing is under way for some turns of the event loop: who uses the pool waits for the time alone. */
  async settled(): Promise<void> {
    for (let turns = 0; turns < TURNS; turns = this.underWay > 0 ? 0 : turns + 1) await new Promise(setImmediate);
  }

  query(text: string, values: unknown[]): Promise<PostgresResult> {
    return this.#send(() => this.#pool.query(text, values), text, values);
  }

  async connect(): Promise<PostgresClient> {
    this.#asked += 1;
    const client = await this.#pool.connect().finally(() => {
      this.#asked -= 1;
    });
    return {
      query: (text, values) => this.#send(() => client.query(text, values), text, values),
      on: (event, listener) => client.on(event, listener),
      off: (event, listener) => client.off(event, listener),
      release: (destroy) => client.release(destroy),
    };
  }

  #send(run: () => Promise<PostgresResult>, text: string, values: readonly unknown[]): Promise<PostgresResult> {
    this.statements.push(text);
    const counted = (): Promise<PostgresResult> => {
      this.#sent += 1;
      return run().finally(() => {
        this.#sent -= 1;
      });
    };
    return this.hook(counted, text, values[0], values);
  }
}

/** With these options of a connection the server reports a deadlock long before a write of a store gives up a lock. */
export const TELLS_DEADLOCKS = "-c deadlock_timeout=10ms";

/**
 * Notes in `refused` what the server refuses. A lock that is held for longer than a write waits is not noted: such a write is
 * tried again, and how long others hold a lock depends on the machine.
 */
export function noteRefused(refused: unknown[]): Hook {
  return (run) =>
    run().catch((error: unknown) => {
      const code = error instanceof pg.DatabaseError ? error.code : error;
      if (code !== "55P03") refused.push(code);
      throw error;
    });
}

/** A pool that notes in `refused` what the server refuses, as {@link noteRefused} does. */
export function noting(pool: pg.Pool, refused: unknown[]): HookedPool {
  const hooked = new HookedPool(pool);
  hooked.hook = noteRefused(refused);
  return hooked;
}
