import type { PostgresPool } from "cadenza/postgres";
import type pg from "pg";
import type { PostgresClient, PostgresResult } from "./internals.ts";

/** Decides what becomes of a statement. `run` sends it to the server. */
export type Hook = (run: () => Promise<PostgresResult>, sql: string, parameter: unknown) => Promise<PostgresResult>;

/** A pool that notes each statement, and can change what becomes of it. */
export class HookedPool implements PostgresPool {
  readonly #pool: pg.Pool;
  readonly statements: string[] = [];
  hook: Hook = (run) => run();

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  get options(): { readonly max: number } {
    return this.#pool.options;
  }

  query(text: string, values: unknown[]): Promise<PostgresResult> {
    return this.#send(() => this.#pool.query(text, values), text, values);
  }

  async connect(): Promise<PostgresClient> {
    const client = await this.#pool.connect();
    return {
      query: (text, values) => this.#send(() => client.query(text, values), text, values),
      on: (event, listener) => client.on(event, listener),
      off: (event, listener) => client.off(event, listener),
      release: (destroy) => client.release(destroy),
    };
  }

  #send(run: () => Promise<PostgresResult>, text: string, values: readonly unknown[]): Promise<PostgresResult> {
    this.statements.push(text);
    return this.hook(run, text, values[0]);
  }
}
