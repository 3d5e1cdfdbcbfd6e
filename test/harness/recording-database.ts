import type { SqliteDatabase } from "cadenza/sqlite";
import type { SqliteStatement } from "./internals.ts";

/** A handle that notes each statement that is run, counts the rows that are read, and can fail a statement. */
export class RecordingDatabase implements SqliteDatabase {
  readonly #db: SqliteDatabase;
  readonly #fails: (sql: string, values: readonly unknown[]) => unknown;
  readonly statements: string[] = [];
  rows = 0;

  /** `fails` gives the error that a statement throws instead of being run. */
  constructor(db: SqliteDatabase, fails: (sql: string, values: readonly unknown[]) => unknown = () => undefined) {
    this.#db = db;
    this.#fails = fails;
  }

  /** How often a statement was run. */
  count(sql: string): number {
    return this.statements.filter((statement) => statement === sql).length;
  }

  exec(sql: string): unknown {
    this.#note(sql, []);
    return this.#db.exec(sql);
  }

  prepare(sql: string): SqliteStatement {
    const statement = this.#db.prepare(sql);
    return {
      run: (...values) => {
        this.#note(sql, values);
        return statement.run(...values);
      },
      get: (...values) => {
        this.#note(sql, values);
        const row = statement.get(...values);
        if (row !== undefined) this.rows += 1;
        return row;
      },
      all: (...values) => {
        this.#note(sql, values);
        const rows = statement.all(...values);
        this.rows += rows.length;
        return rows;
      },
    };
  }

  close(): unknown {
    return this.#db.close();
  }

  #note(sql: string, values: readonly unknown[]): void {
    const error = this.#fails(sql, values);
    if (error !== undefined) throw error;
    this.statements.push(sql);
  }
}
