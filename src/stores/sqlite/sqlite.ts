import { getBuiltinModule } from "node:process";
import { CadenzaError } from "../../core/errors.ts";
import type { Entry, MovedEntry } from "../../core/log.ts";
import type { NewPause, Pause, PausedRuns } from "../../core/pauses.ts";
import type {
  Backlog,
  BlockedQuery,
  Clock,
  Expected,
  FeedPage,
  FeedQuery,
  FoundRun,
  LinesQuery,
  MessageRange,
  Retention,
  RunHead,
  RunKey,
  RunPosition,
  RunPost,
  RunWrite,
  SessionHead,
  SessionKey,
  SlotLine,
  StepUse,
  StoreConflict,
  StoredRun,
  StoredSession,
  TakeRequest,
  TenantRetention,
  WrittenWithInbox,
} from "../../core/ports.ts";
import { engineKey } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { Rate } from "../../core/slots.ts";
import type { Snapshot } from "../../core/snapshot.ts";
import type { Counters } from "../../core/statistics.ts";
import type { LiveCount, LogTail, SurveyPage, SurveyQuery, WorkerLease } from "../../core/survey.ts";
import { durableEngine } from "../../durable/engine.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { systemClock } from "../../runtime/log/system.ts";
import type { DurableStore, Engine } from "../../runtime/runs/remote-runs.ts";
import { KeptRuns } from "../kept-runs.ts";
import { noEngine, readOnlyError } from "../read-only.ts";
import type { EndedRuns } from "../rule-walks.ts";
import { RuleWalks } from "../rule-walks.ts";
import { toLines } from "../stored-rows.ts";
import * as counts from "./counts.ts";
import type { SqliteDatabase, SqliteStoreOptions } from "./database.ts";
import { Connection, readable } from "./database.ts";
import { readEntries, trimEntries } from "./entries.ts";
import { openFeed, readFeed, trimFeed } from "./feed.ts";
import type { GateCursor } from "./gates.ts";
import { FIRST_GATE } from "./gates.ts";
import * as pauses from "./pauses.ts";
import type { Place } from "./prune.ts";
import {
  clearRemoved,
  countByRule,
  deleteRuns,
  deleteSession,
  END,
  hasRemoved,
  loadProgress,
  PRUNE_CHUNK,
  passOver,
  placeBefore,
  pruneByRule,
  pruneRuns,
  pruneSessions,
  pruneSessionsOf,
  runsBeyond,
  START,
  saveProgress,
} from "./prune.ts";
import * as reads from "./reads.ts";
import { checkSchema, migrate } from "./schema.ts";
import { addSession, replaceSession } from "./sessions.ts";
import { forgetGrants } from "./slots.ts";
import { keepSnapshot, readSnapshot } from "./snapshots.ts";
import { grantSteps, permitSteps, permitsUnchanged } from "./step-limits.ts";
import * as survey from "./survey.ts";
import * as work from "./work.ts";
import { GroupCommit } from "./writer.ts";
import * as writes from "./writes.ts";

/** How many runs that were set aside come back in one transaction. */
const MAX_BACK = 256;
/** How many runs of a tenant are looked for at once, to be deleted. */
const MAX_FOUND = 1_000;

/**
 * Keeps runs in a SQLite database, which several processes on one machine may share. The writes of one turn of the
 * event loop are committed together, and acknowledged after the commit. Reads answer at once, from committed data. Give
 * the store a handle of its own: it opens transactions, and sets the handle to WAL mode with short waits for locks.
 * Throws `invalid_argument` for an invalid option, and `store_failed` for a file that is no database or that a newer version has written. With
 * `readOnly` it throws `store_failed` for any file without a store of this version, too.
 */
export class SqliteStore implements DurableStore {
  readonly persistent: boolean;
  readonly [engineKey]: Engine;
  /** Left out where the file has no feed. */
  readonly readFeed?: (query: FeedQuery) => FeedPage | undefined;
  readonly #connection: Connection;
  /** Undefined: the store only reads. */
  readonly #writer: GroupCommit | undefined;
  readonly #closeDatabase: boolean;
  readonly #clock: Pick<Clock, "now">;
  readonly #gates: GateCursor = { after: FIRST_GATE };
  readonly #paused = new pauses.PausedInFront();
  readonly #now = (): number => this.#clock.now();
  readonly #ended: EndedRuns<number> = {
    ends: [START, END],
    pass: (passing) => this.#write((connection) => passOver(connection, passing)),
    before: async (kept) => placeBefore(this.#connection, kept),
    count: (rules, stretch) => this.#write((connection) => countByRule(connection, rules, stretch)),
    prune: (rules, walk) => this.#write((connection) => pruneByRule(connection, rules, walk)),
    load: async (key) => ({ text: loadProgress(this.#connection, key), now: this.#now() }),
    save: (key, before, after) =>
      this.#write((connection) => saveProgress(connection, key, [before, after], this.#now())),
  };

  constructor(db: SqliteDatabase, options: SqliteStoreOptions = {}) {
    this.#clock = options.clock ?? systemClock;
    this.#connection = new Connection(db, options);
    const readOnly = options.readOnly ?? false;
    if (readOnly) checkSchema(this.#connection);
    else migrate(this.#connection);
    this.#writer = readOnly ? undefined : new GroupCommit(this.#connection);
    const hasFeed = openFeed(this.#connection, readOnly ? undefined : options.feed);
    if (hasFeed) this.readFeed = (query) => readFeed(this.#connection, query);
    this.#closeDatabase = options.closeDatabase ?? false;
    this.persistent = this.#connection.isFile();
    this[engineKey] = readOnly ? noEngine : durableEngine(options.durability);
  }

  async create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Promise<StoreConflict | undefined> {
    const prepared = writes.prepareWrite(write);
    return this.#write(
      (connection) => writes.createRun(connection, key, prepared, idempotencyKey, this.#now),
      prepared.lines.length,
    );
  }

  async append(
    key: RunKey,
    expected: Expected,
    write: RunWrite,
  ): Promise<StoreConflict | WrittenWithInbox | undefined> {
    const prepared = writes.prepareWrite(write);
    return this.#write(
      (connection) => writes.appendToRun(connection, key, expected, prepared, this.#now),
      prepared.lines.length,
    );
  }

  async post(key: RunKey, post: RunPost): Promise<StoreConflict | undefined> {
    const lines = toLines(post.entries);
    return this.#write((connection) => writes.postToRun(connection, key, post, lines, this.#now), lines.length);
  }

  claim(key: RunKey, expected: Expected, head: RunHead): Promise<StoreConflict | undefined> {
    return this.#write((connection) => writes.claimRun(connection, key, expected, head, this.#now));
  }

  changeVersion(
    key: RunKey,
    expected: Pick<Expected, "epoch" | "position">,
    moved: MovedEntry,
  ): Promise<StoreConflict | undefined> {
    return this.#write((connection) => writes.moveRun(connection, key, expected, moved, this.#now));
  }

  /** Takes no lock while no run needs work. */
  async take(request: TakeRequest): Promise<readonly FoundRun[]> {
    const { agents } = request;
    let isMore = this.#paused.look(this.#connection, agents, this.#now()).length > 0 && request.limit > 0;
    do {
      // Each page of runs is set aside in a turn of its own, and the runs behind them begin meanwhile.
      if (isMore) isMore = await this.#write((connection) => this.#paused.setAside(connection, agents, this.#now()));
      if (
        this.#writer !== undefined &&
        !work.hasWork(this.#connection, request, this.#gates, this.#paused, this.#now())
      )
        continue;
      const rows = await this.#write((connection) =>
        work.takeRuns(connection, request, this.#gates, this.#paused, this.#now),
      );
      if (rows.length > 0) return rows.map((row) => reads.withFirst(this.#connection, row));
    } while (isMore);
    return [];
  }

  renew(owner: string, forMs: number): Promise<void> {
    return this.#write((connection) => work.renewLease(connection, owner, forMs, this.#now()));
  }

  release(owner: string): Promise<void> {
    return this.#write((connection) => work.releaseLease(connection, owner));
  }

  find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
    const find = how === undefined ? reads.findRun : reads.findWithInbox;
    return find(this.#connection, key);
  }

  read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
    return readEntries(this.#connection, key, from, limit);
  }

  snapshot(key: RunKey): Snapshot | undefined {
    return readSnapshot(this.#connection, key);
  }

  keepSnapshot(key: RunKey, snapshot: Snapshot): Promise<void> {
    return this.#write((connection) => keepSnapshot(connection, key, snapshot), snapshot.state.length);
  }

  trim(key: RunKey, before: number): Promise<boolean> {
    return this.#write((connection) => trimEntries(connection, key, before));
  }

  findByIdempotencyKey(tenant: string, idempotencyKey: string): StoredRun | undefined {
    return reads.findRunByIdempotencyKey(this.#connection, tenant, idempotencyKey);
  }

  list(query: RunQuery): readonly FoundRun[] {
    return reads.listRuns(this.#connection, query);
  }

  moved(known: readonly RunPosition[]): readonly RunPosition[] {
    return reads.movedRuns(this.#connection, known);
  }

  owned(owner: string, limit: number): readonly RunKey[] {
    return reads.ownedRuns(this.#connection, owner, limit);
  }

  blocked(query: BlockedQuery): readonly FoundRun[] {
    return reads.blockedRuns(this.#connection, query);
  }

  backlog(): readonly Backlog[] {
    return counts.readBacklog(this.#connection, this.#now());
  }

  lines(query: LinesQuery): readonly SlotLine[] {
    return survey.readLines(this.#connection, query, this.#now());
  }

  pauses(): readonly Pause[] {
    return pauses.readPauses(this.#connection);
  }

  pause(pause: NewPause, by: JsonValue): Promise<boolean> {
    return this.#write((connection) => pauses.addPause(connection, pause, by, this.#now()));
  }

  resume(runs: PausedRuns): Promise<boolean> {
    return this.#write((connection) => pauses.removePause(connection, runs));
  }

  comeBack(limit: number): Promise<number> {
    return this.#write((connection) => pauses.comeBack(connection, Math.min(limit, MAX_BACK), this.#now));
  }

  grantSteps(key: string, rate: Rate, wanted: number): Promise<readonly number[]> {
    return this.#write((connection) => grantSteps(connection, key, rate, wanted, this.#now()));
  }

  /** Takes no lock while nothing changes. */
  async permitSteps(owner: string, key: string, max: number, use: StepUse): Promise<number> {
    const unchanged = this.#writer && permitsUnchanged(this.#connection, owner, key, max, use, this.#now());
    return unchanged ?? this.#write((connection) => permitSteps(connection, owner, key, max, use, this.#now()));
  }

  survey(query: SurveyQuery): SurveyPage<FoundRun> {
    return survey.surveyRuns(this.#connection, query);
  }

  tails(runs: readonly RunKey[], count: number): readonly (LogTail | undefined)[] {
    return survey.readTails(this.#connection, runs, count);
  }

  census(): readonly LiveCount[] {
    return counts.readCensus(this.#connection);
  }

  living(): readonly string[] {
    return survey.readLiving(this.#connection, this.#now());
  }

  workers(): readonly WorkerLease[] {
    return survey.readWorkers(this.#connection, this.#now());
  }

  session(key: SessionKey, range?: MessageRange): StoredSession | undefined {
    return reads.readSession(this.#connection, key, range);
  }

  sessionHead(key: SessionKey): SessionHead | undefined {
    return reads.readSessionHead(this.#connection, key);
  }

  makeSession(key: SessionKey, session: StoredSession, at: number): Promise<boolean> {
    return this.#write((connection) => addSession(connection, key, session, at));
  }

  putSession(key: SessionKey, session: StoredSession, at: number): Promise<void> {
    return this.#write((connection) => replaceSession(connection, key, session, at));
  }

  counters(agentName: string): Counters | undefined {
    return reads.readCounters(this.#connection, agentName);
  }

  /** Deletes in small transactions, with turns of the event loop in between. */
  async prune(given: Retention): Promise<number> {
    let deleted = given.perTenant === undefined ? 0 : await this.#pruneTenants(given.perTenant);
    if (given.rules !== undefined) deleted += await new RuleWalks(this.#ended).prune(given);
    const retention = given.rules === undefined ? given : { ...given, endedBefore: START.at };
    const last = await new KeptRuns(this.#ended).lastToDelete(retention);
    await this.#inChunks((connection, from) => {
      const pruned = pruneRuns(connection, from, last);
      deleted += pruned?.deleted ?? 0;
      return pruned?.place;
    });
    await this.#clearRemoved();
    await this.#inChunks((connection, from) => pruneSessions(connection, retention.sessionsBefore, from));
    await this.#write((connection) => forgetGrants(connection, this.#now()));
    for (let isOver = this.readFeed === undefined; !isOver; )
      isOver = !(await this.#write((connection) => trimFeed(connection, this.#now())));
    return deleted;
  }

  async #pruneTenants({ tenants, maxRuns, maxSessions }: TenantRetention): Promise<number> {
    let deleted = 0;
    for (const tenant of tenants) {
      for (let count = MAX_FOUND; count === MAX_FOUND; ) {
        const found = runsBeyond(this.#connection, tenant, maxRuns, MAX_FOUND);
        count = found.length;
        deleted += await this.#deleteRuns(found);
      }
      await this.#inChunks((connection, from) => pruneSessionsOf(connection, tenant, maxSessions, from));
    }
    return deleted;
  }

  /** Prunes in small transactions. Each transaction gives the place at which the next transaction begins. */
  async #inChunks(prune: (connection: Connection, from: Place) => Place | undefined): Promise<void> {
    let place: Place | undefined = START;
    while (place !== undefined) {
      const from: Place = place;
      place = await this.#write((connection) => prune(connection, from));
    }
  }

  /** Deletes in small transactions, as `prune` does. */
  async delete(runs: readonly RunKey[]): Promise<number> {
    const deleted = await this.#deleteRuns(runs);
    await this.#clearRemoved();
    return deleted;
  }

  async #deleteRuns(runs: readonly RunKey[]): Promise<number> {
    let count = 0;
    for (let from = 0; from < runs.length; ) {
      const chunk = runs.slice(from, from + PRUNE_CHUNK);
      const { deleted, seen } = await this.#write((connection) => deleteRuns(connection, chunk));
      count += deleted;
      from += seen;
    }
    return count;
  }

  /** Deletes the entries that deleted runs have left, also those of a process that was killed meanwhile. */
  async #clearRemoved(): Promise<void> {
    while (hasRemoved(this.#connection)) await this.#write(clearRemoved);
  }

  deleteSession(key: SessionKey): Promise<boolean> {
    return this.#write((connection) => deleteSession(connection, key));
  }

  /** Commits pending writes, and closes the handle if `closeDatabase` is set. A second call does nothing. */
  close(): void {
    this.#writer?.close();
    if (this.#closeDatabase) this.#connection.close();
  }

  /** `size`: about how many characters are written, if these may be many. */
  #write<T>(work: (connection: Connection) => T, size?: number): Promise<T> {
    if (this.#writer === undefined) return Promise.reject(readOnlyError());
    return this.#writer.write(() => work(this.#connection), size);
  }
}

/**
 * Opens a database file with the SQLite that is built into Node (22.13 and newer), and creates a missing file, unless
 * `readOnly` is set. `close()` closes it. Throws `store_failed` if this version of Node has no SQLite. There open the file with `libsql` or
 * `better-sqlite3`, and pass the handle to {@link SqliteStore}. Throws also what `SqliteStore` throws.
 *
 * @example
 * ```ts node 22.13 — SQLite is built in from there on
 * import { AgentRuntime } from "cadenza";
 * import { openSqliteStore } from "cadenza/sqlite";
 *
 * const store = openSqliteStore("runs.db", { durability: { leaseMs: 10_000 } });
 * const runtime = new AgentRuntime({ store });
 * await runtime.close();
 * ```
 */
export function openSqliteStore(path: string, options: SqliteStoreOptions = {}): SqliteStore {
  const sqlite = getBuiltinModule("node:sqlite") as NodeSqlite | undefined;
  if (sqlite === undefined) {
    throw new CadenzaError(
      "store_failed",
      "This version of Node has no SQLite built in (22.13 and newer have). Install `libsql` or `better-sqlite3`, open the " +
        `file with it and pass the handle: new SqliteStore(new Database(${JSON.stringify(path)}), { closeDatabase: true }).`,
    );
  }
  if (typeof path !== "string" || path === "")
    throw new CadenzaError("invalid_argument", `path: expected a string that is not empty, received ${String(path)}.`);
  const db = options.readOnly === true ? openToRead(sqlite, path) : readable(() => new sqlite.DatabaseSync(path));
  try {
    return new SqliteStore(db, { ...options, closeDatabase: true });
  } catch (error) {
    db.close();
    throw error;
  }
}

function openToRead(sqlite: NodeSqlite, path: string): SqliteDatabase {
  try {
    return new sqlite.DatabaseSync(path, { readOnly: true });
  } catch (cause) {
    throw new CadenzaError(
      "store_failed",
      `The file ${JSON.stringify(path)} cannot be opened: there is none, or this process may not read it.`,
      { cause },
    );
  }
}

/** The part of `node:sqlite` that the store uses. */
interface NodeSqlite {
  readonly DatabaseSync: new (path: string, options?: { readonly readOnly: true }) => SqliteDatabase;
}
