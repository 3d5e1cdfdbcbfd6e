import type { Emitter } from "../../core/background.ts";
import { endOf, inBackground, listen } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { ignore } from "../../core/promises.ts";
import { machineClock, silentLogger, systemChance, systemIds } from "../../runtime/log/system.ts";
import type { StoredRow } from "../stored-rows.ts";
import { DeadlineError, outcomeOf, storeFailed } from "./errors.ts";
import type { PostgresClient, PostgresPool, PostgresResult } from "./options.ts";

/** What the store passes for a `$1`. */
export type PostgresValue = string | number | null;

/** How often a statement that met another transaction is tried in all. */
const ATTEMPTS = 8;
/** The longest pause after the first attempt, in milliseconds. It doubles each time. */
const FIRST_PAUSE_MS = 2;

/**
 * The clock of this machine, by which calls and places are measured. A statement that fails rejects the call that has sent
 * it: nothing is left to report.
 */
export const clock = machineClock(silentLogger);

/** The time of a statement: the beginning of its transaction, or the time that a parameter gives. */
export const timeBy = (given: string): string =>
  `coalesce(${given}::float8, (extract(epoch FROM now()) * 1000)::float8)`;

/** Sends statements to the server, each with a deadline. Statements are unnamed: named ones fail behind poolers. */
export class Connection {
  readonly #pool: PostgresPool;
  /** How long a call may take, in milliseconds. */
  readonly timeoutMs: number;
  readonly #unwatch: () => void;
  readonly #kept: KeptClient | undefined;
  /** Marks the statements of this connection at the server. */
  readonly #name = systemIds.token();
  #statements = 0;
  /** The marks of the statements that were given up and are to be cancelled. */
  #givenUp: string[] = [];
  #cancelling: Promise<void> | undefined;
  #isClosed = false;

  /** `lane`: its statements share one connection, which is kept for them if the pool has enough. */
  constructor(pool: PostgresPool, timeoutMs: number, lane?: "lane") {
    this.#pool = pool;
    this.timeoutMs = timeoutMs;
    this.#unwatch = watchErrors(pool);
    if (lane !== undefined && pool.connect !== undefined) this.#kept = new KeptClient(pool);
  }

  /** The rows of a statement. A statement that met another transaction is tried again. */
  async query(sql: string, values: readonly PostgresValue[]): Promise<readonly StoredRow[]> {
    try {
      return await this.attempt(sql, values);
    } catch (error) {
      throw storeFailed(error);
    }
  }

  /** As `query`, but throws what the driver threw. It takes `timeoutMs` at most. */
  attempt(sql: string, values: readonly PostgresValue[], timeoutMs = this.timeoutMs): Promise<readonly StoredRow[]> {
    const mark = `/* cadenza ${this.#name} ${++this.#statements} */`;
    const call: Call = { isLate: false, isSent: false, abandon: ignore };
    return this.inTime(
      this.#tryAgain(call, `${mark} ${sql}`, values),
      () => {
        call.isLate = true;
        call.abandon();
        if (call.isSent) this.#cancel(mark);
        return undefined;
      },
      timeoutMs,
    );
  }

  /**
   * The outcome of work, or an error when the deadline of a call comes first. `late`: called then, and may tell another
   * error.
   */
  inTime<T>(work: Promise<T>, late: () => unknown = () => undefined, timeoutMs = this.timeoutMs): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = Number.isFinite(timeoutMs)
        ? clock.setTimeout(() => reject(late() ?? new DeadlineError(timeoutMs)), timeoutMs)
        : ignore;
      inBackground(silentLogger, work.then(resolve, reject).finally(cancel));
    });
  }

  /**
   * Cancels a statement at the server, which may hold locks and would go on. It is found by its text: behind a pooler no
   * connection belongs to one client.
   */
  #cancel(mark: string): void {
    this.#givenUp.push(mark);
    this.#cancelling ??= endOf(silentLogger, this.#cancelAll()).finally(() => {
      this.#cancelling = undefined;
    });
  }

  async #cancelAll(): Promise<void> {
    while (this.#givenUp.length > 0 && !this.#isClosed) {
      const marks = this.#givenUp;
      this.#givenUp = [];
      const call: Call = { isLate: false, isSent: false, abandon: ignore };
      const sql = `SELECT pg_cancel_backend(a.pid) FROM pg_stat_activity a, jsonb_array_elements_text(($1::text)::jsonb) m
        WHERE a.state = 'active' AND a.pid <> pg_backend_pid() AND starts_with(a.query, m)`;
      const abandon = (): void => {
        call.isLate = true;
        call.abandon();
      };
      // Without an answer the server does not get this one either.
      await this.inTime(this.#once(call, sql, [JSON.stringify(marks)]), abandon).catch(ignore);
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#kept?.close();
    this.#unwatch();
  }

  async #tryAgain(call: Call, sql: string, values: readonly PostgresValue[]): Promise<readonly StoredRow[]> {
    for (let attempt = 1; ; attempt++) {
      if (this.#isClosed) throw new CadenzaError("store_failed", "The store is closed.");
      // The caller has its error.
      if (call.isLate) throw new DeadlineError(this.timeoutMs);
      try {
        return (await this.#once(call, sql, [...values])).rows as readonly StoredRow[];
      } catch (error) {
        if (outcomeOf(error) !== "retry" || attempt === ATTEMPTS) throw error;
        await pause(systemChance() * FIRST_PAUSE_MS * 2 ** (attempt - 1));
      }
    }
  }

  async #once(call: Call, sql: string, values: PostgresValue[]): Promise<PostgresResult> {
    if (this.#pool.connect === undefined) {
      call.isSent = true;
      return this.#pool.query(sql, values);
    }
    const client = await (this.#kept?.lend() ?? lend(this.#pool));
    client.on("error", ignore);
    const giveBack = (destroy: boolean): void => {
      call.abandon = ignore;
      client.off("error", ignore);
      if (this.#kept === undefined) client.release(destroy);
      else this.#kept.giveBack(client, destroy);
    };
    if (call.isLate) {
      giveBack(false);
      throw new DeadlineError(this.timeoutMs);
    }
    // A connection that does not answer may never answer again.
    call.abandon = () => giveBack(true);
    call.isSent = true;
    try {
      const result = await client.query(sql, values);
      if (!call.isLate) giveBack(false);
      return result;
    } catch (error) {
      if (!call.isLate) giveBack(outcomeOf(error) === "unknown");
      throw error;
    }
  }
}

/** A statement, with all its attempts. */
interface Call {
  /** Its deadline has passed. */
  isLate: boolean;
  /** The server may have it. */
  isSent: boolean;
  /** Closes the connection that it uses. */
  abandon: () => void;
}

/** How many connections of a pool are kept for one purpose, as for listening. */
const keptOf = new WeakMap<PostgresPool, number>();
/** How many connections of a pool are left for statements of all kinds. */
const LEFT = 2;

/** Takes note that a connection of the pool is kept, until the returned function is called. */
export function keep(pool: PostgresPool): () => void {
  keptOf.set(pool, (keptOf.get(pool) ?? 0) + 1);
  return () => {
    keptOf.set(pool, (keptOf.get(pool) ?? 1) - 1);
  };
}

/** A connection that is lent to one statement at a time, and kept between them if the pool has enough others. */
class KeptClient {
  readonly #pool: PostgresPool;
  #client: PostgresClient | undefined;
  #letGo: () => void = ignore;
  /** Resolves when the connection is free. */
  #free: Promise<void> = Promise.resolve();
  #onFree: () => void = ignore;
  #isClosed = false;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  async lend(): Promise<PostgresClient> {
    const before = this.#free;
    let onFree: () => void = ignore;
    this.#free = new Promise((resolve) => {
      onFree = resolve;
    });
    await before;
    this.#onFree = onFree;
    try {
      this.#client ??= await lend(this.#pool);
      return this.#client;
    } catch (error) {
      onFree();
      throw error;
    }
  }

  giveBack(client: PostgresClient, destroy: boolean): void {
    if (destroy || this.#isClosed || !this.#isKept()) this.#drop(client, destroy);
    this.#onFree();
  }

  close(): void {
    this.#isClosed = true;
    inBackground(
      silentLogger,
      this.#free.then(() => this.#client && this.#drop(this.#client, false)),
    );
  }

  /** Whether the connection stays here. From now on it is dropped when it is lost. */
  #isKept(): boolean {
    if (this.#letGo !== ignore) return true;
    const most = (this.#pool.options?.max ?? 0) - LEFT;
    const client = this.#client;
    if (client === undefined || (keptOf.get(this.#pool) ?? 0) >= most) return false;
    const onLost = (): void => this.#drop(client, true);
    const unlisten = [listen(silentLogger, client, "error", onLost), listen(silentLogger, client, "end", onLost)];
    const letGo = keep(this.#pool);
    this.#letGo = () => {
      for (const end of unlisten) end();
      letGo();
    };
    return true;
  }

  #drop(client: PostgresClient, destroy: boolean): void {
    if (this.#client !== client) return;
    this.#client = undefined;
    this.#letGo();
    this.#letGo = ignore;
    // A connection that was lost may report it more than once.
    if (destroy) client.on("error", ignore);
    client.release(destroy);
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.setTimeout(resolve, ms);
  });
}

/** How many open stores use a pool, and how they cease to listen to it. */
const used = new WeakMap<PostgresPool, { stores: number; readonly unlisten: () => void }>();

/**
 * Listens to the errors of a pool, until the returned function is called: without a listener, a connection that is lost while
 * it is idle would end the process. Several stores on a pool listen once: event emitters warn of many listeners.
 */
function watchErrors(pool: PostgresPool): () => void {
  const use = used.get(pool) ?? { stores: 0, unlisten: listenTo(pool) };
  used.set(pool, use);
  use.stores += 1;
  return () => {
    use.stores -= 1;
    if (use.stores > 0) return;
    used.delete(pool);
    use.unlisten();
  };
}

function listenTo(pool: PostgresPool): () => void {
  if (!isEmitter(pool)) return ignore;
  const unlisten = [listen(silentLogger, pool, "error", ignore), listen(silentLogger, pool, "connect", watchNew)];
  return () => {
    for (const end of unlisten) end();
  };
}

/**
 * A pool lends a new connection from within the read that tells it of it. The server may end the connection in the same read,
 * before the one who borrows it can listen.
 */
function watchNew(connection: unknown): void {
  const client = connection as Partial<PostgresClient>;
  client.on?.("error", ignore);
  const offered = clock.turn().then(() => client.off?.("error", ignore));
  inBackground(silentLogger, offered);
}

/** A connection of the pool. Throws `invalid_argument` where the pool has another `connect`, as a single client has. */
export async function lend(pool: PostgresPool): Promise<PostgresClient> {
  const lent: unknown = await pool.connect?.();
  if (isClient(lent)) return lent;
  throw new CadenzaError(
    "invalid_argument",
    "pool: expected a pool whose `connect()` lends connections, as `new Pool()` of `pg`, received an object with another " +
      "`connect()`. For a single connection pass `{ query: (text, values) => client.query(text, values) }`.",
  );
}

function isEmitter(pool: PostgresPool): pool is PostgresPool & Emitter {
  return pool.on !== undefined;
}

function isClient(lent: unknown): lent is PostgresClient {
  return typeof lent === "object" && lent !== null && "query" in lent && "release" in lent;
}
