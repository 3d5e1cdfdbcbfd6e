import type { Entry } from "../../core/log.ts";
import type { Pause } from "../../core/pauses.ts";
import type {
  Backlog,
  BlockedQuery,
  FoundRun,
  MessageRange,
  RunKey,
  RunPosition,
  SessionHead,
  SessionKey,
  StoredRun,
  StoredSession,
  TakeRequest,
} from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { Counters } from "../../core/statistics.ts";
import { counterNames } from "../../core/statistics.ts";
import type { Message } from "../../protocol/message.ts";
import { distinctAgents } from "../choice.ts";
import { isDamage } from "../damage.ts";
import { attemptsOf, tooManyExamined } from "../examined.ts";
import type { StoredRow } from "../stored-rows.ts";
import {
  countable,
  entriesIn,
  fromJson,
  fromText,
  inboxIn,
  MAX_READ,
  marksIn,
  runColumns,
  toFoundRun,
  toJson,
  toKey,
  toNumber,
  toText,
  undamaged,
} from "../stored-rows.ts";
import type { Connection, PostgresValue } from "./connection.ts";
import { clock, timeBy } from "./connection.ts";
import type { DuePlace } from "./due-places.ts";
import { DuePlaces, FRONT } from "./due-places.ts";
import { firstOf, inboxOf } from "./inbox-sql.ts";
import { selectPage, sourcesOf } from "./list.ts";
import { pausesIn, selectPauses } from "./pauses.ts";
import { markedText } from "./writes.ts";

const END = Number.MAX_SAFE_INTEGER;
const isRun = "r.tenant = $1::text AND r.run_id = $2::text";

/** What is read from the database, each answer with one statement, and so from one moment. */
export class Reads {
  readonly #connection: Connection;
  readonly #schema: string;
  readonly #now: () => number | null;
  #duePlaces = new DuePlaces();
  /** The pauses at the last `take`, as they were read. */
  #pauses: string | undefined;
  /** The last gate at which a call has looked for runs behind it. Empty: the next one begins at the first. */
  #gate = "";
  /** By how much the server's time is ahead of the monotonic one, or a little more. Undefined: it was not asked for. */
  #ahead: number | undefined;

  constructor(connection: Connection, schema: string, now: () => number | null) {
    this.#connection = connection;
    this.#schema = schema;
    this.#now = now;
  }

  /** The time by which the writes measure leases: that of the beginning of a transaction. */
  async time(connection: Connection): Promise<number> {
    const asked = clock.monotonic();
    const [row] = await connection.query(`SELECT ${timeBy("$1")} AS time`, [this.#now()]);
    return this.onTime(Number(row?.["time"]), asked);
  }

  /** A statement that was sent at `asked`, by the monotonic clock, has told the time. Returns the time. */
  onTime(time: number, asked: number): number {
    if (this.#now() === null) this.#ahead = time - asked;
    return time;
  }

  /**
   * Those of the ended runs of a tenant beyond a number that may be deleted, at most `limit`, the ones that ended first.
   * Reads all runs of the tenant.
   */
  async runsBeyond(tenant: string, maxRuns: number, limit: number): Promise<readonly RunKey[]> {
    if (!Number.isFinite(maxRuns)) return [];
    const runs = `${this.#schema}.runs`;
    const rows = await this.#query(
      `SELECT r.run_id FROM ${runs} r, (
         SELECT r.finished_at, r.id FROM ${runs} r WHERE r.tenant = $1::text AND r.finished_at IS NOT NULL
         ORDER BY r.finished_at DESC, r.id DESC LIMIT 1 OFFSET $2::bigint
       ) newest
       WHERE r.tenant = $1::text AND r.finished_at IS NOT NULL
       AND (r.finished_at, r.id) <= (newest.finished_at, newest.id) AND NOT EXISTS (
         SELECT 1 FROM ${runs} p WHERE p.tenant = r.tenant AND p.run_id = r.parent AND p.finished_at IS NULL)
       ORDER BY r.finished_at, r.id LIMIT $3::integer`,
      [toText(tenant), maxRuns, limit],
    );
    return rows.map((row) => ({ tenant, run_id: fromText(String(row["run_id"])) }));
  }

  async find({ tenant, run_id }: RunKey): Promise<StoredRun | undefined> {
    const [found] = await this.#runs(isRun, [toText(tenant), toText(run_id)]);
    return found && undamaged(found);
  }

  async findWithInbox(key: RunKey): Promise<StoredRun | undefined> {
    const rows = await this.#query(
      `SELECT ${runColumns}, ${createdColumn}, ${inboxOf(this.#schema, "r", "ALL")}::text AS inbox
       FROM ${this.#schema}.runs r ${this.#joinFirst} WHERE ${isRun}`,
      [toText(key.tenant), toText(key.run_id)],
    );
    const [row] = rows;
    return row && { ...undamaged(foundIn(row)), ...inboxIn(key, row["inbox"]) };
  }

  async findByIdempotencyKey(tenant: string, key: string): Promise<StoredRun | undefined> {
    const where = "r.tenant = $1::text AND r.idempotency_key = $2::text";
    const [found] = await this.#runs(where, [toText(tenant), toText(key)]);
    return found && undamaged(found);
  }

  async read(key: RunKey, from: number, limit: number): Promise<readonly Entry[] | undefined> {
    const rows = await this.#query(
      `SELECT r.position AS length, e.position, e.lines, e.until >= ${MAX_READ} AS is_cut FROM ${this.#schema}.runs r
       CROSS JOIN LATERAL (SELECT max(b.position) AS position FROM ${this.#schema}.entries b
         WHERE b.run = r.id AND b.position <= $3::bigint) first
       LEFT JOIN LATERAL (SELECT b.position, b.lines, octet_length(b.lines) AS bytes,
           sum(octet_length(b.lines)) OVER (ORDER BY b.position) AS until
         FROM ${this.#schema}.entries b
         WHERE b.run = r.id AND b.position >= first.position AND b.position < $4::bigint) e ON e.until - e.bytes < ${MAX_READ}
       WHERE r.tenant = $1::text AND r.run_id = $2::text ORDER BY e.position`,
      [toText(key.tenant), toText(key.run_id), countable(from), countable(from + limit)],
    );
    try {
      return entriesIn(rows, key, from, limit);
    } catch (error) {
      // The log may go on behind generations that are deleted.
      const next = isDamage(error) ? await this.#nextBatch(key, Number(rows.at(-1)?.["position"])) : undefined;
      if (next === undefined) throw error;
      return entriesIn([...rows, next], key, from, limit);
    }
  }

  async #nextBatch(key: RunKey, position: number): Promise<StoredRow | undefined> {
    const [row] = await this.#query(
      `SELECT e.position, e.lines, true AS is_cut FROM ${this.#schema}.runs r CROSS JOIN LATERAL (
         SELECT b.position, b.lines FROM ${this.#schema}.entries b WHERE b.run = r.id AND b.position > $3::bigint
         ORDER BY b.position LIMIT 1) e
       WHERE r.tenant = $1::text AND r.run_id = $2::text`,
      [toText(key.tenant), toText(key.run_id), countable(position)],
    );
    return row;
  }

  async list(query: RunQuery): Promise<readonly FoundRun[]> {
    if (query.statuses?.length === 0 || query.parents?.length === 0) return [];
    for (const attempt of attemptsOf(sourcesOf(this.#schema, query), query)) {
      const { sql, values } = selectPage(this.#schema, query, attempt);
      const found = await this.#query(
        `SELECT ${runColumns}, ${createdColumn}, r.beyond FROM (SELECT p.*, row_number() OVER () AS place FROM (${sql}) p) r
         ${this.#joinFirst} ORDER BY r.place`,
        values,
      );
      if (!found.some(({ beyond }) => beyond === true)) return found.slice(query.offset).map(foundIn);
    }
    throw tooManyExamined(query);
  }

  async moved(known: readonly RunPosition[]): Promise<readonly RunPosition[]> {
    const asked = known.map(({ key, epoch, position }) => [toText(key.tenant), toText(key.run_id), epoch, position]);
    const rows = await this.#query(
      `SELECT * FROM (
         SELECT k.n, k.run, coalesce(r.epoch, 0) AS epoch, coalesce(r.position, 0) AS position,
           CASE WHEN r.arrived > 0 AND r.finished_at IS NULL THEN ${firstOf(this.#schema, "r")} END::text AS inbox
         FROM jsonb_array_elements(($1::text)::jsonb) WITH ORDINALITY k (run, n)
         LEFT JOIN ${this.#schema}.runs r ON r.tenant = k.run ->> 0 AND r.run_id = k.run ->> 1 OFFSET 0
       ) m
       WHERE m.epoch <> (m.run ->> 2)::float8 OR m.position <> (m.run ->> 3)::float8 OR m.inbox IS NOT NULL`,
      [toJson(asked)],
    );
    return rows.flatMap((row) => {
      const key = known[Number(row["n"]) - 1]?.key;
      if (key === undefined) return [];
      const [epoch, position] = [Number(row["epoch"]), Number(row["position"])];
      return [{ key, epoch, position, ...inboxIn(key, row["inbox"]) }];
    });
  }

  async owned(owner: string, limit: number): Promise<readonly RunKey[]> {
    const rows = await this.#query(
      `SELECT r.tenant, r.run_id FROM ${this.#schema}.runs r
       WHERE r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = $1::text ORDER BY r.id LIMIT $2::bigint`,
      [toText(owner), countable(limit)],
    );
    return rows.map(toKey);
  }

  blocked({ agents, limit, after }: BlockedQuery): Promise<readonly FoundRun[]> {
    const { tenant, run_id } = after ?? { tenant: "", run_id: "" };
    const before = `SELECT a.id FROM ${this.#schema}.runs a WHERE a.tenant = $2::text AND a.run_id = $3::text`;
    const values: PostgresValue[] = [countable(limit), toText(tenant), toText(run_id)];
    if (agents !== undefined) values.push(agentsOf(agents));
    const which =
      agents === undefined
        ? ""
        : `AND (r.agent_name, r.version) IN (SELECT x ->> 0, x ->> 1 FROM jsonb_array_elements(($4::text)::jsonb) x)`;
    return this.#runs(
      `r.finished_at IS NULL AND r.owner IS NULL AND r.blocked IS NOT NULL ${which}
         AND r.id > coalesce((${before}), 0) ORDER BY r.id LIMIT $1::bigint`,
      values,
    );
  }

  async backlog(): Promise<readonly Backlog[]> {
    const rows = await this.#query(`SELECT * FROM ${this.#schema}.backlog_v1($1::float8)`, [this.#now()]);
    return rows.map((row) => ({
      agent_name: fromText(String(row["agent_name"])),
      version: fromMarked(String(row["version"])),
      due: Number(row["due"]),
      since: toNumber(row["since"]),
      waiting: Number(row["waiting"]),
      blocked: Number(row["blocked"]),
    }));
  }

  async session({ tenant, session_id }: SessionKey, range?: MessageRange): Promise<StoredSession | undefined> {
    const { from = 0, to = Number.POSITIVE_INFINITY } = range ?? {};
    const rows = await this.#query(
      `SELECT s.state, s.generation, s.creator, m.message FROM ${this.#schema}.sessions s
       LEFT JOIN ${this.#schema}.messages m ON m.session = s.id AND m.position >= $3::bigint AND m.position < $4::bigint
       WHERE s.tenant = $1::text AND s.session_id = $2::text ORDER BY m.position`,
      [toText(tenant), toText(session_id), countable(from), countable(to)],
    );
    const [first] = rows;
    if (first === undefined) return undefined;
    const messages = rows.filter((row) => row["message"] !== null);
    const history = messages.map((row) => fromJson(row["message"]) as unknown as Message);
    return { history, state: fromJson(first["state"]), ...marksIn(first) };
  }

  async sessionHead({ tenant, session_id }: SessionKey): Promise<SessionHead | undefined> {
    const [row] = await this.#query(
      `SELECT s.length, s.state, s.generation, s.creator FROM ${this.#schema}.sessions s WHERE s.tenant = $1::text AND s.session_id = $2::text`,
      [toText(tenant), toText(session_id)],
    );
    return row && { length: Number(row["length"]), state: fromJson(row["state"]), ...marksIn(row) };
  }

  async counters(agentName: string): Promise<Counters | undefined> {
    const sums = counterNames.map((name) => `sum(c.${name}) AS ${name}`).join(", ");
    const [row] = await this.#query(
      `SELECT ${sums} FROM ${this.#schema}.counters c WHERE c.agent_name = $1::text GROUP BY c.agent_name`,
      [toText(agentName)],
    );
    return row && (Object.fromEntries(counterNames.map((name) => [name, Number(row[name])])) as unknown as Counters);
  }

  /**
   * Takes runs that need work. Nothing is written if there is none. A statement that arrives after an outage of the network
   * takes nothing: it was given up, and the leases of living processes have expired meanwhile.
   */
  async take(request: TakeRequest): Promise<readonly FoundRun[]> {
    const { owner, agents, limit, suspects, cancelledForMs, unusedForMs } = request;
    const wanted = distinctAgents(agents).map(({ agent_name, version }) => [toText(agent_name), markedText(version)]);
    const given = this.#now();
    const names = [...wanted.map((agent) => toJson(agent)), CANCELLED];
    const places = names.map((name) => (given === null ? this.#duePlaces.of(name) : FRONT));
    const bands = given === null ? names.map((name) => this.#duePlaces.bandsOf(name)) : [];
    // It frees permits first: `freed` is an empty text, and an argument of the other function.
    const first =
      unusedForMs === undefined
        ? "(SELECT '' AS freed)"
        : `${this.#schema}.free_unused_v1(($2::text)::jsonb, $11::float8, $8::float8, $9::float8)`;
    const rows = await this.#query(
      `SELECT t.run FROM ${first} f (freed) CROSS JOIN LATERAL ${this.#schema}.take_v2($1::text || f.freed::text, ($2::text)::jsonb,
         $3::integer, $4::float8, $5::float8,
         $6::float8, $7::float8, $8::float8, $9::float8, true, ($10::text)::jsonb) t (run)
       UNION ALL SELECT '${PAUSES}' || (${selectPauses(this.#schema)})`,
      [
        toText(owner),
        toJson(wanted.map((agent, n) => [...agent, places[n]?.from])),
        Math.min(limit, MAX_TAKEN),
        suspects?.takeovers ?? END,
        suspects?.limit ?? 0,
        cancelledForMs ?? null,
        places.at(-1)?.from ?? null,
        this.#notAfter,
        given,
        moreOf(bands, places, this.#gate),
        ...(unusedForMs === undefined ? [] : [unusedForMs]),
      ],
    );
    const texts = rows.map(({ run }) => String(run));
    const pauses = texts.find((text) => text.startsWith(PAUSES));
    if (pauses !== undefined) request.onPauses?.(pausesIn(pauses.slice(PAUSES.length)));
    const answers = texts.filter((text) => text !== pauses).map((text) => JSON.parse(text) as unknown);
    const seen = (answers.pop() ?? []) as Seen;
    this.#gate = String(seen.find((one) => typeof one === "string") ?? "");
    for (const [n, place] of places.entries()) place.onSeen(toNumber(seen[n]));
    if (given === null)
      for (const [n, priority, place] of seen.filter((one) => Array.isArray(one)) as readonly SeenBand[]) {
        const [name = CANCELLED, known] = n === 0 ? [CANCELLED, bands.at(-1)] : [names[n - 1], bands[n - 1]];
        (known?.get(priority) ?? this.#duePlaces.of(name, priority)).onSeen(place);
      }
    // What was resumed may have been passed over before it was set aside.
    if (this.#pauses !== undefined && this.#pauses !== pauses) this.#duePlaces = new DuePlaces();
    this.#pauses = pauses;
    return answers.map((row) => foundIn(row as StoredRow));
  }

  async pauses(): Promise<readonly Pause[]> {
    const [row] = await this.#query(`SELECT (${selectPauses(this.#schema)}) AS pauses`, []);
    return pausesIn(row?.["pauses"]);
  }

  /** By when, by the server's time, a statement must have arrived that is sent now. Null: the time is not known. */
  get #notAfter(): number | null {
    return this.#ahead === undefined ? null : this.#ahead + clock.monotonic() + this.#connection.timeoutMs;
  }

  /** The runs `r` that a condition selects. */
  async #runs(where: string, values: readonly PostgresValue[]): Promise<readonly FoundRun[]> {
    const select = `SELECT ${runColumns}, ${createdColumn} FROM ${this.#schema}.runs r ${this.#joinFirst} WHERE ${where}`;
    return (await this.#query(select, values)).map(foundIn);
  }

  get #joinFirst(): string {
    return `LEFT JOIN ${this.#schema}.entries e ON e.run = r.id AND e.position = 0`;
  }

  #query(sql: string, values: readonly PostgresValue[]) {
    return this.#connection.query(sql, values);
  }
}

/** How far a call has come: among the runs of each agent, among the cancelled ones of others, of priorities other than 0, and at gates. */
type Seen = readonly (number | null | SeenBand | string)[];
/** The number of an agent, beginning at 1, or 0 for cancelled runs of others; a priority, and how far the call has come. */
type SeenBand = readonly [agent: number, priority: number, place: number | null];

/** What `take_v2` reads besides: the places of priorities, the gate behind which it looks, and whether it sweeps. Null: nothing. */
function moreOf(bands: readonly ReadonlyMap<number, DuePlace>[], at: readonly DuePlace[], gate: string): string | null {
  const places = bands.flatMap((known, index) =>
    [...known].map(([priority, { from }]) => [(index + 1) % bands.length, priority, from]),
  );
  const sweeps = bands.length > 0 && at.some((place) => place.sweeps);
  if (places.length === 0 && gate === "" && !sweeps) return null;
  return toJson({ ...(places.length > 0 && { places }), ...(gate !== "" && { gate }), ...(sweeps && { sweeps }) });
}

/** How many runs one call takes at most. */
const MAX_TAKEN = 10_000;
/** Marks the row of the pauses among the rows of runs. */
const PAUSES = "pauses ";
/** The name of the place among the cancelled runs of other agents. */
const CANCELLED = "cancelled";

/** The first entry, from the first batches `e`. */
export const createdColumn = "split_part(e.lines, E'\\n', 1) AS created";

/** Agents as a list of names and versions, as they are stored. */
function agentsOf(agents: TakeRequest["agents"]): string {
  return toJson(distinctAgents(agents).map(({ agent_name, version }) => [toText(agent_name), markedText(version)]));
}

/** The run of a row of `runColumns` and `createdColumn`. */
export function foundIn(row: StoredRow): FoundRun {
  return toFoundRun(row, fromMarked(String(row["version"])));
}

/** The opposite of `markedText`. */
export function fromMarked(text: string): string | null {
  return text === "" ? null : fromText(text.slice(1));
}
