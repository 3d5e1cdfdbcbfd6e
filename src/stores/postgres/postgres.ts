import { unwritableError } from "../../core/errors.ts";
import type { Entry, MovedEntry } from "../../core/log.ts";
import type { NewPause, Pause, PausedRuns } from "../../core/pauses.ts";
import type {
  Backlog,
  BlockedQuery,
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
  StoreHint,
  TakeRequest,
  TenantRetention,
  WrittenWithInbox,
} from "../../core/ports.ts";
import { engineKey } from "../../core/ports.ts";
import { roughLengthOf } from "../../core/rough-length.ts";
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
import type { StoredInbox } from "../stored-rows.ts";
import { fromText, toInbox, toJson, toLines, toText } from "../stored-rows.ts";
import { Connection, clock } from "./connection.ts";
import { unwritableReason } from "./errors.ts";
import { PostgresFeed } from "./feed.ts";
import { Hints } from "./hints.ts";
import type { PostgresSettings, PostgresStoreOptions } from "./options.ts";
import { readOptions } from "./options.ts";
import { pauseValues } from "./pauses.ts";
import { clearRemoved, endedRuns, pruneRuns, START } from "./prune.ts";
import { fromMarked, Reads } from "./reads.ts";
import { checkIsolation, prepareSchema, quoteName } from "./schema.ts";
import { keepSnapshot, readSnapshot } from "./snapshots.ts";
import { grantCall, permitCall } from "./step-limits.ts";
import { SurveyReads } from "./survey.ts";
import { trimEntries } from "./trim.ts";
import { Writer } from "./writer.ts";
import * as writes from "./writes.ts";

/** How many runs or sessions are deleted in one statement. */
const PRUNE_CHUNK = 100;
/** How many runs that were set aside come back in one statement. */
const MAX_BACK = 1_000;
/** How many keys of slots are looked at in one statement. Each that is deleted is locked. */
const SLOTS_CHUNK = 500;
/** How many runs of a tenant are looked for at once, to be deleted. */
const MAX_FOUND = 1_000;
/** About how many characters of JSON the entries of one write may have. */
const MAX_WRITE = 64 * 1_048_576;
/** A run that is due within this time is told of, in milliseconds. */
const SOON_MS = 1_000;

/** The answer to a write of an owner that was made, with what has arrived for it, or to a post that lies in an inbox. */
interface Told {
  readonly conflict?: undefined;
  readonly inbox: StoredInbox | null;
}

/**
 * Keeps runs in a PostgreSQL database, which processes on any number of machines may share. The writes of one turn of
 * the event loop are one statement, and acknowledged after its commit. Opened with {@link openPostgresStore}.
 */
export class PostgresStore implements DurableStore {
  readonly persistent = true;
  readonly [engineKey]: Engine;
  /** Left out where hints are switched off or do not arrive. */
  readonly watch?: (callback: (hint: StoreHint) => void) => () => void;
  /** Left out where the schema has no feed. */
  readonly readFeed?: (query: FeedQuery) => Promise<FeedPage | undefined>;
  readonly #connection: Connection;
  /** For the leases and the time alone. */
  readonly #leases: Connection;
  readonly #schema: string;
  readonly #isReadOnly: boolean;
  readonly #now: () => number | null;
  readonly #writer: Writer;
  readonly #reads: Reads;
  readonly #ended: EndedRuns<string>;
  readonly #survey: SurveyReads;
  readonly #hints: Hints | undefined;
  readonly #feed: PostgresFeed | undefined;
  /** The owners whose lease is in the database. */
  readonly #owners = new Set<string>();
  readonly #renewals = new Set<Promise<unknown>>();

  /** For `openPostgresStore`: the schema is there. */
  constructor(
    connection: Connection,
    settings: PostgresSettings,
    engine: Engine,
    hints: Hints | undefined,
    feed: PostgresFeed | undefined,
  ) {
    const { readOnly } = settings;
    this.#isReadOnly = readOnly;
    const now = nowOf(settings);
    this.#now = now;
    this.#connection = connection;
    this.#leases = new Connection(settings.pool, settings.renewalMs, "lane");
    this.#schema = quoteName(settings.schema);
    this.#writer = new Writer(connection, this.#schema, feed !== undefined, now);
    this.#reads = new Reads(connection, this.#schema, now);
    this.#ended = endedRuns(connection, this.#schema, now);
    this.#survey = new SurveyReads(connection, this.#schema, now);
    this.#hints = hints;
    this[engineKey] = readOnly ? noEngine : engine;
    if (hints !== undefined) this.watch = (callback) => hints.watch(callback);
    this.#feed = feed;
    if (feed !== undefined) this.readFeed = (query) => feed.read(query);
  }

  async create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Promise<StoreConflict | undefined> {
    return this.#conflict(() => writes.createOf(key, write, idempotencyKey), key, isDueSoon(write.head), write);
  }

  append(key: RunKey, expected: Expected, write: RunWrite): Promise<StoreConflict | WrittenWithInbox | undefined> {
    return this.#answer(() => writes.appendOf(key, expected, write), key, isDueSoon(write.head), write);
  }

  async post(key: RunKey, post: RunPost): Promise<StoreConflict | undefined> {
    const answer = await this.#conflict(() => writes.postOf(key, post), key, post.due !== undefined, post);
    if (answer?.conflict === "unwritable") throw unwritableError(answer.reason);
    return answer;
  }

  async claim(key: RunKey, expected: Expected, head: RunHead): Promise<StoreConflict | undefined> {
    return this.#conflict(() => writes.claimOf(key, expected, head), key, false);
  }

  async take(request: TakeRequest): Promise<readonly FoundRun[]> {
    this.#checkWritable();
    const taken = await this.#reads.take(request);
    for (const { key } of taken) this.#hints?.note(key, false);
    // There may be more of a dead process, for others too.
    const isFull = request.limit > 1 && taken.length === request.limit;
    if (isFull && taken.some(({ head }) => head.takeovers > 0)) this.#hints?.note(undefined, true);
    return taken;
  }

  /** The first lease of an owner goes with the other writes: it is there before the runs that the owner creates after it. */
  async renew(owner: string, forMs: number): Promise<number | undefined> {
    const write = writes.renewOf(owner, forMs);
    if (!this.#owners.has(owner)) {
      await this.#write(write);
      this.#owners.add(owner);
      return undefined;
    }
    this.#checkWritable();
    const asked = clock.monotonic();
    const renewal = this.#writer.writeAlone(write, this.#leases);
    this.#renewals.add(renewal);
    return this.#reads.onTime(await renewal.finally(() => this.#renewals.delete(renewal)), asked);
  }

  /** A renewal that is under way would give the owner a lease again. */
  async release(owner: string): Promise<void> {
    await Promise.allSettled(this.#renewals);
    this.#owners.delete(owner);
    await this.#write(writes.releaseOf(owner));
    this.#hints?.note(undefined, true);
  }

  time(): Promise<number> {
    return this.#reads.time(this.#leases);
  }

  find(key: RunKey, how?: "with inbox"): Promise<StoredRun | undefined> {
    return how === undefined ? this.#reads.find(key) : this.#reads.findWithInbox(key);
  }

  read(key: RunKey, from: number, limit: number): Promise<readonly Entry[] | undefined> {
    return this.#reads.read(key, from, limit);
  }

  snapshot(key: RunKey): Promise<Snapshot | undefined> {
    return readSnapshot(this.#connection, this.#schema, key);
  }

  keepSnapshot(key: RunKey, snapshot: Snapshot): Promise<void> {
    this.#checkWritable();
    return keepSnapshot(this.#connection, this.#schema, key, snapshot);
  }

  trim(key: RunKey, before: number): Promise<boolean> {
    this.#checkWritable();
    return trimEntries(this.#connection, this.#schema, key, before);
  }

  findByIdempotencyKey(tenant: string, idempotencyKey: string): Promise<StoredRun | undefined> {
    return this.#reads.findByIdempotencyKey(tenant, idempotencyKey);
  }

  list(query: RunQuery): Promise<readonly FoundRun[]> {
    return this.#reads.list(query);
  }

  moved(known: readonly RunPosition[]): Promise<readonly RunPosition[]> {
    return this.#reads.moved(known);
  }

  owned(owner: string, limit: number): Promise<readonly RunKey[]> {
    return this.#reads.owned(owner, limit);
  }

  blocked(query: BlockedQuery): Promise<readonly FoundRun[]> {
    return this.#reads.blocked(query);
  }

  backlog(): Promise<readonly Backlog[]> {
    return this.#reads.backlog();
  }

  lines(query: LinesQuery): Promise<readonly SlotLine[]> {
    return this.#survey.lines(query);
  }

  /** One statement: a run that another process changes meanwhile has another epoch or length, or an owner. */
  async changeVersion(
    key: RunKey,
    expected: Pick<Expected, "epoch" | "position">,
    moved: MovedEntry,
  ): Promise<StoreConflict | undefined> {
    this.#checkWritable();
    const { epoch, position } = expected;
    const runs = `${this.#schema}.runs`;
    const [row] = await this.#connection.query(
      `WITH moved AS (
         UPDATE ${runs} r SET version = $5::text, epoch = r.epoch + 1, position = r.position + 1, blocked = NULL,
           due_at = CASE WHEN r.blocked IS NULL THEN r.due_at
             ELSE least(r.due_at, coalesce($7::float8, floor(extract(epoch FROM now()) * 1000))) END
         WHERE r.tenant = $1::text AND r.run_id = $2::text AND r.epoch = $3::integer AND r.position = $4::integer
           AND r.owner IS NULL AND r.finished_at IS NULL
         RETURNING r.id, r.agent_name, r.priority
       ), written AS (
         INSERT INTO ${this.#schema}.entries (run, position, lines) SELECT m.id, $4::integer, $6::text FROM moved m
       ), known AS (
         INSERT INTO ${this.#schema}.priorities (agent_name, version, priority)
         SELECT m.agent_name, $5::text, m.priority FROM moved m WHERE m.priority <> 0 ON CONFLICT DO NOTHING
       )
       SELECT r.epoch, r.position, r.owner IS NOT NULL AS is_owned, r.finished_at IS NOT NULL AS has_ended,
         EXISTS (SELECT 1 FROM moved) AS is_moved
       FROM ${runs} r WHERE r.tenant = $1::text AND r.run_id = $2::text`,
      [
        ...[toText(key.tenant), toText(key.run_id), epoch, position],
        ...[writes.markedText(moved.version), toLines([moved]), this.#now()],
      ],
    );
    if (row === undefined) return { conflict: "missing" };
    if (row["is_moved"] === true) {
      this.#hints?.note(key, true);
      return undefined;
    }
    if (row["has_ended"] === true) return { conflict: "ended" };
    const [itsEpoch, itsPosition] = [Number(row["epoch"]), Number(row["position"])];
    const isSame = itsEpoch === epoch && itsPosition === position;
    if (isSame && row["is_owned"] === true) return { conflict: "owned" };
    return { conflict: "changed", epoch: itsEpoch, position: itsPosition };
  }

  pauses(): Promise<readonly Pause[]> {
    return this.#reads.pauses();
  }

  /** Tells the other processes, which then read the pauses together with the runs that are due. */
  async pause(pause: NewPause, by: JsonValue): Promise<boolean> {
    this.#checkWritable();
    const changed = await this.#connection.query(
      `INSERT INTO ${this.#schema}.pauses AS p (key, runs, agent_name, version, tenant, at, by)
       VALUES ($1::text, $2::text, $3::text, $4::text, $5::text,
         coalesce($6::float8, floor(extract(epoch FROM now()) * 1000)), $7::text)
       ON CONFLICT (key) DO UPDATE SET runs = excluded.runs WHERE ${pause.now === true} AND p.runs <> excluded.runs
       RETURNING id`,
      [...pauseValues(pause), this.#now(), toJson(by)],
    );
    if (changed.length > 0) this.#hints?.note(undefined, true);
    return changed.length > 0;
  }

  /** As {@link pause}. */
  async resume(runs: PausedRuns): Promise<boolean> {
    this.#checkWritable();
    const [key = null] = pauseValues(runs);
    const removed = await this.#connection.query(
      `DELETE FROM ${this.#schema}.pauses WHERE key = $1::text RETURNING id`,
      [key],
    );
    if (removed.length > 0) this.#hints?.note(undefined, true);
    return removed.length > 0;
  }

  async comeBack(limit: number): Promise<number> {
    const back = Number(
      await this.#call("come_back_v1($1::integer, $2::float8)", [Math.min(limit, MAX_BACK), this.#now()]),
    );
    if (back > 0) this.#hints?.note(undefined, true);
    return back;
  }

  async grantSteps(key: string, rate: Rate, wanted: number): Promise<readonly number[]> {
    return JSON.parse(String(await this.#call(...grantCall(key, rate, wanted, this.#now())))) as number[];
  }

  /** Tells the other processes if one of them was given a permit. */
  async permitSteps(owner: string, key: string, max: number, use: StepUse): Promise<number> {
    const answer = await this.#call(...permitCall(owner, key, max, use, this.#now()));
    const [given, others] = JSON.parse(String(answer)) as [given: number, others: number];
    if (others > 0) this.#hints?.notePermits();
    return given;
  }

  survey(query: SurveyQuery): Promise<SurveyPage<FoundRun>> {
    return this.#survey.runs(query);
  }

  tails(runs: readonly RunKey[], count: number): Promise<readonly (LogTail | undefined)[]> {
    return this.#survey.tails(runs, count);
  }

  census(): Promise<readonly LiveCount[]> {
    return this.#survey.census();
  }

  living(): Promise<readonly string[]> {
    return this.#survey.living();
  }

  workers(): Promise<readonly WorkerLease[]> {
    return this.#survey.workers();
  }

  session(key: SessionKey, range?: MessageRange): Promise<StoredSession | undefined> {
    return this.#reads.session(key, range);
  }

  sessionHead(key: SessionKey): Promise<SessionHead | undefined> {
    return this.#reads.sessionHead(key);
  }

  async makeSession(key: SessionKey, session: StoredSession, at: number): Promise<boolean> {
    return (await this.#write(writes.sessionOf(key, session, at, true))) === null;
  }

  async putSession(key: SessionKey, session: StoredSession, at: number): Promise<void> {
    await this.#write(writes.sessionOf(key, session, at, false));
  }

  counters(agentName: string): Promise<Counters | undefined> {
    return this.#reads.counters(agentName);
  }

  /** Deletes in small transactions. */
  async prune(given: Retention): Promise<number> {
    this.#checkWritable();
    const { sessionsBefore, perTenant, rules } = given;
    let deleted = perTenant === undefined ? 0 : await this.#pruneTenants(perTenant);
    if (rules !== undefined) deleted += await new RuleWalks(this.#ended).prune(given);
    const retention = rules === undefined ? given : { ...given, endedBefore: START.at };
    deleted += await pruneRuns(this.#connection, this.#schema, await new KeptRuns(this.#ended).lastToDelete(retention));
    await clearRemoved(this.#connection, this.#schema);
    let place: readonly [changedAt: number, id: string] | null = [Number.NEGATIVE_INFINITY, "0"];
    while (place !== null) {
      const next = await this.#call("prune_sessions_v1($1::float8, $2::float8, $3::bigint, $4::integer)", [
        sessionsBefore,
        ...place,
        PRUNE_CHUNK,
      ]);
      place = next === null ? null : (JSON.parse(String(next)) as [number, string]);
    }
    let key: string | null = "";
    while (key !== null) {
      const next = await this.#call("prune_slots_v1($1::text, $2::integer, $3::float8)", [
        key,
        SLOTS_CHUNK,
        this.#now(),
      ]);
      key = next === null ? null : String(next);
    }
    await this.#feed?.trim();
    return deleted;
  }

  async #pruneTenants({ tenants, maxRuns, maxSessions }: TenantRetention): Promise<number> {
    this.#checkWritable();
    let deleted = 0;
    for (const tenant of tenants) {
      for (let count = MAX_FOUND; count === MAX_FOUND; ) {
        const found = await this.#reads.runsBeyond(tenant, maxRuns, MAX_FOUND);
        count = found.length;
        deleted += await this.#deleteRuns(found);
      }
      await this.#pruneSessionsOf(tenant, maxSessions);
    }
    return deleted;
  }

  /**
   * Deletes the unused sessions of a tenant beyond a number. A session is locked before it is looked at, and one that was
   * changed meanwhile stays.
   */
  async #pruneSessionsOf(tenant: string, maxSessions: number): Promise<void> {
    if (!Number.isFinite(maxSessions)) return;
    const sessions = `${this.#schema}.sessions s`;
    const sql = `
      SELECT d.changed_at, d.id::text, ${this.#schema}.delete_session_v1(d.tenant, d.session_id) FROM (
        SELECT s.* FROM ${sessions}, (
          SELECT s.changed_at, s.id FROM ${sessions} WHERE s.tenant = $1::text
          ORDER BY s.changed_at DESC, s.id DESC LIMIT 1 OFFSET $2::bigint
        ) newest
        WHERE s.tenant = $1::text AND (s.changed_at, s.id) <= (newest.changed_at, newest.id)
        AND (s.changed_at, s.id) > ($3::float8, $4::bigint)
        ORDER BY s.changed_at, s.id LIMIT ${PRUNE_CHUNK} FOR UPDATE OF s SKIP LOCKED
      ) d ORDER BY d.changed_at, d.id`;
    let place: readonly [changedAt: number, id: string] | undefined = [Number.NEGATIVE_INFINITY, "0"];
    while (place !== undefined) {
      const rows = await this.#connection.query(sql, [toText(tenant), maxSessions, ...place]);
      const last = rows.at(-1);
      place = last && [Number(last["changed_at"]), String(last["id"])];
    }
  }

  /** Deletes in small transactions, as `prune` does. */
  async delete(runs: readonly RunKey[]): Promise<number> {
    const deleted = await this.#deleteRuns(runs);
    await clearRemoved(this.#connection, this.#schema);
    return deleted;
  }

  async #deleteRuns(runs: readonly RunKey[]): Promise<number> {
    let deleted = 0;
    for (let from = 0; from < runs.length; from += PRUNE_CHUNK) {
      const keys = runs.slice(from, from + PRUNE_CHUNK).map(({ tenant, run_id }) => [toText(tenant), toText(run_id)]);
      deleted += Number(await this.#call("delete_runs_v1(($1::text)::jsonb)", [toJson(keys)]));
    }
    return deleted;
  }

  async deleteSession({ tenant, session_id }: SessionKey): Promise<boolean> {
    return (await this.#call("delete_session_v1($1::text, $2::text)", [toText(tenant), toText(session_id)])) === true;
  }

  /**
   * Commits pending writes, and lets go of the pool. The application closes the pool after that. A second call does
   * nothing.
   */
  async close(): Promise<void> {
    await this.#writer.close();
    this.#hints?.close();
    this.#leases.close();
    this.#connection.close();
  }

  async #conflict(
    prepare: () => writes.PreparedWrite,
    key: RunKey,
    isDue: boolean,
    write?: Partial<Pick<RunWrite, "entries" | "wake" | "feed">>,
  ): Promise<StoreConflict | undefined> {
    const answer = await this.#answer(prepare, key, isDue, write);
    return answer?.conflict === undefined ? undefined : answer;
  }

  async #answer(
    prepare: () => writes.PreparedWrite,
    key: RunKey,
    isDue: boolean,
    { entries = [], wake, feed }: Partial<Pick<RunWrite, "entries" | "wake" | "feed">> = {},
  ): Promise<StoreConflict | WrittenWithInbox | undefined> {
    const length = roughLengthOf(entries);
    if (length > MAX_WRITE) return unwritable(`it has about ${length} characters, and ${MAX_WRITE} is the most.`);
    let answer: StoreConflict | Told | null;
    try {
      answer = (await this.#write(prepare())) as StoreConflict | Told | null;
    } catch (error) {
      const reason = unwritableReason(error);
      if (reason === undefined) throw error;
      return unwritable(reason);
    }
    if (answer?.conflict === "key_used") return { ...answer, run_id: fromText(answer.run_id) };
    if (answer?.conflict === "full" && answer.key !== undefined)
      return { ...answer, key: fromMarked(answer.key) ?? "" };
    if (answer?.conflict !== undefined) return answer;
    this.#hints?.note(key, isDue && answer === null, feed !== undefined);
    if (wake !== undefined) this.#hints?.note(wake, true);
    return answer === null ? undefined : toInbox(key, answer.inbox);
  }

  async #write(write: writes.PreparedWrite): Promise<unknown> {
    this.#checkWritable();
    return this.#writer.write(write);
  }

  async #call(call: string, values: readonly (string | number | null)[]): Promise<unknown> {
    this.#checkWritable();
    const [row] = await this.#connection.query(`SELECT ${this.#schema}.${call} AS answer`, values);
    return row?.["answer"];
  }

  #checkWritable(): void {
    if (this.#isReadOnly) throw readOnlyError();
  }
}

/**
 * Opens a store in a PostgreSQL database (15 and newer), and creates or upgrades its schema, unless `readOnly` is set. The
 * store is durable already. Throws `invalid_argument` for an invalid option, and `store_failed` if the server does not
 * answer, the role lacks a right, or a newer version has written the schema; with `readOnly` also if the schema is missing
 * or older.
 *
 * @example
 * ```ts no-run — it needs a server
 * import { AgentRuntime } from "cadenza";
 * import { openPostgresStore } from "cadenza/postgres";
 * import { Pool } from "pg";
 *
 * const pool = new Pool({ connectionString: "postgres://app@db/app", max: 5 });
 * const store = await openPostgresStore({ pool });
 * const runtime = new AgentRuntime({ store });
 * await runtime.close();
 * await pool.end();
 * ```
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<PostgresStore> {
  const engine = durableEngine(options.durability);
  const settings = readOptions(options);
  const { pool, schema, logger } = settings;
  const connection = new Connection(pool, settings.timeoutMs);
  try {
    await checkIsolation(connection);
    await prepareSchema(connection, settings);
    const hints = settings.hints ? new Hints(connection, pool, `cadenza ${schema}`.slice(0, 60), logger) : undefined;
    const arrive = (await hints?.arrive()) ?? false;
    if (hints !== undefined && !arrive)
      logger?.warn("Hints of other processes do not arrive here. The store is polled instead.", { schema });
    const feed = new PostgresFeed(connection, quoteName(schema), nowOf(settings));
    const isFed = await feed.open(settings.feed);
    return new PostgresStore(connection, settings, engine, arrive ? hints : undefined, isFed ? feed : undefined);
  } catch (error) {
    connection.close();
    throw error;
  }
}

function unwritable(reason: string): StoreConflict {
  return { conflict: "unwritable", reason };
}

/** The time for statements. Null: that of the server. */
function nowOf({ clock }: PostgresSettings): () => number | null {
  return () => clock?.now() ?? null;
}

/** Whether the head lets other processes take the run at once. */
function isDueSoon({ owner, due_at }: RunHead): boolean {
  return owner === null && due_at !== null && due_at <= systemClock.now() + SOON_MS;
}
