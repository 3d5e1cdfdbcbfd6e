import type { Emitter } from "../../core/background.ts";
import { inBackground, listen } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { ignore } from "../../core/promises.ts";
import { machineClock, silentLogger, systemChance } from "../../runtime/log/system.ts";
import type { StoredRow } from "../stored-rows.ts";
import { DeadlineError, outcomeOf, storeFailed } from "./errors.ts";
import type { PostgresClient, PostgresPool, PostgresResult } from "./options.ts";

/** What the store passes for a `$1`. */
export type PostgresValue = string | number | null;

/** How often a statement that met another transaction is tried in all. */
const ATTEMPTS = 8;
/** The longest pause after the first attempt, in milliseconds. It doubles each time. */
const FIRST_PAUSE_MS = 2;

/** A statement that fails rejects the call that has sent it: nothing is left to report. */
const clock = machineClock(silentLogger);

/** Sends statements to the server, each with a deadline. Statements are unnamed: named ones fail behind poolers. */
export class Connection {
  readonly #pool: PostgresPool;
  readonly #timeoutMs: number;
  readonly #unwatch: () => void;
  readonly #kept: KeptClient | undefined;
  #isClosed = false;

  /** `lane`: its statements share one connection, which is kept for them if the pool has enough. */
  constructor(pool: PostgresPool, timeoutMs: number, lane?: "lane") {
    this.#pool = pool;
    this.#timeoutMs = timeoutMs;
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

  /** As `query`, but throws what the driver threw. */
  attempt(sql: string, values: readonly PostgresValue[]): Promise<readonly StoredRow[]> {
    const call: Call = { isLate: false, abandon: ignore };
    return this.inTime(this.#tryAgain(call, sql, values), () => {
      call.isLate = true;
      call.abandon();
    });
  }

  /** The outcome of work, or an error when the deadline of a call comes first. `late`: called then. */
  inTime<T>(work: Promise<T>, late: () => void = ignore): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = clock.setTimeout(() => {
        reject(this.#deadlineError);
        late();
      }, this.#timeoutMs);
      inBackground(silentLogger, work.then(resolve, reject).finally(cancel));
    });
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
      if (call.isLate) throw this.#deadlineError;
      try {
        return (await this.#once(call, sql, [...values])).rows as readonly StoredRow[];
      } catch (error) {
        if (outcomeOf(error) !== "retry" || attempt === ATTEMPTS) throw error;
        await pause(systemChance() * FIRST_PAUSE_MS * 2 ** (attempt - 1));
      }
    }
  }

  async #once(call: Call, sql: string, values: PostgresValue[]): Promise<PostgresResult> {
    if (this.#pool.connect === undefined) return this.#pool.query(sql, values);
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
      throw this.#deadlineError;
    }
    // A connection that does not answer may never answer again.
    call.abandon = () => giveBack(true);
    try {
      const result = await client.query(sql, values);
      if (!call.isLate) giveBack(false);
      return result;
    } catch (error) {
      if (!call.isLate) giveBack(outcomeOf(error) === "unknown");
      throw error;
    }
  }

  get #deadlineError(): DeadlineError {
    return new DeadlineError(this.#timeoutMs);
  }
}

/** A statement, with all its attempts. */
interface Call {
  /** Its deadline has passed. */
  isLate: boolean;
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
  return () => void keptOf.set(pool, (keptOf.get(pool) ?? 1) - 1);
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

function pause(ms: number): Promise<void> {
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
