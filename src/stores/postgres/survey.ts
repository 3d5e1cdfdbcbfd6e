import type { FoundRun, LinesQuery, RunKey, SlotLine } from "../../core/ports.ts";
import { COUNTED } from "../../core/ports.ts";
import { isFinal } from "../../core/state.ts";
import type { LiveCount, LogTail, SurveyPage, SurveyQuery, WorkerLease } from "../../core/survey.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { isDamage } from "../damage.ts";
import type { StoredRow } from "../stored-rows.ts";
import {
  afterPrefix,
  countable,
  entriesIn,
  fromText,
  lastPart,
  runColumns,
  toJson,
  toNumber,
  toSlotLine,
  toText,
} from "../stored-rows.ts";
import type { Connection } from "./connection.ts";
import { BY_INDEX, bandOf, bandsOf, limitOf, nextOf } from "./line-sql.ts";
import { Parameters } from "./list.ts";
import { createdColumn, foundIn, fromMarked } from "./reads.ts";
import { markedText } from "./writes.ts";

/** What a run needs of a slot, as it is stored. */
interface StoredLimit {
  readonly max?: number;
  readonly count?: number;
  readonly per?: number;
}

/** How many runs are looked at for a page. */
const MAX_EXAMINED = 1_000;
/** How many characters a run's id has. */
const WHOLE_ID = 36;
/** The condition of the index `runs_by_state`. */
const BY_STATE = "r.status <> 'completed' AND (r.owner IS NULL OR r.finished_at IS NOT NULL)";

/**
 * The keys are found by jumps in the index of the runs in line. The rank of no run is below the `first` of its slot, so that
 * what is left in the index of former runs is not read.
 */
export function linesFunction(schema: string): string {
  const from = `FROM ${schema}.runs r WHERE r.line IS NOT NULL`;
  const next = (key: string): string =>
    `(SELECT r.line ${from} AND r.line > ${key} AND r.line < '~' ORDER BY r.line LIMIT 1)`;
  const ofLine = (columns: string): string => `FROM ${bandsOf("s")} b CROSS JOIN LATERAL (
    SELECT ${columns} ${from} AND r.line = k.key AND r.rank >= b.first AND r.rank < b.until ORDER BY r.rank, r.id`;
  return `
DROP FUNCTION IF EXISTS ${schema}.lines_v1(text, bigint);
DROP FUNCTION IF EXISTS ${schema}.lines_v1(text, bigint, float8);
CREATE OR REPLACE FUNCTION ${schema}.lines_v1(after_key text, most bigint, given_time float8 DEFAULT NULL) RETURNS TABLE (
  key text, held integer, slot_max float8, tenant text, run_id text, agent_name text, version text, due_at float8, waiting bigint,
  its_limit jsonb, next_at float8
) LANGUAGE sql STABLE ${BY_INDEX} AS $function$
  WITH RECURSIVE keys (key, n) AS (
    SELECT ${next("after_key")}, 1::bigint
    UNION ALL
    SELECT ${next("k.key")}, k.n + 1 FROM keys k WHERE k.key IS NOT NULL AND k.n < most
  )
  SELECT k.key, s.held, f.slot_max, f.tenant, f.run_id, f.agent_name, f.version, f.due_at,
    (SELECT least(count(*), ${COUNTED}) ${ofLine("1")} LIMIT ${COUNTED}) counted),
    f.its_limit, CASE WHEN ${nextOf(schema, "s", "f.its_limit")} > coalesce(given_time, floor(extract(epoch FROM now()) * 1000))
      THEN ${nextOf(schema, "s", "f.its_limit")} END
  FROM keys k
  CROSS JOIN LATERAL (SELECT s.key, s.given, s.held, s.first, s.bands FROM ${schema}.slots s WHERE s.key = k.key ORDER BY s.gen DESC LIMIT 1) s
  CROSS JOIN LATERAL (
    SELECT x.* ${ofLine(`r.slot_max, r.tenant, r.run_id, r.agent_name, r.version, coalesce(r.due_at, r.rank + ${bandOf("r")}) AS due_at,
      ${limitOf("r", "k.key")} AS its_limit, r.rank, r.id`)} LIMIT 1) x
    ORDER BY x.rank, x.id LIMIT 1
  ) f
  ORDER BY k.n;
$function$;`;
}

/**
 * What operators ask, each answer with one statement, or two for the beginning of an id. A page is chosen among at most
 * `MAX_EXAMINED` runs, which the index gives that selects the fewest.
 */
export class SurveyReads {
  readonly #connection: Connection;
  readonly #schema: string;
  readonly #now: () => number | null;

  constructor(connection: Connection, schema: string, now: () => number | null) {
    this.#connection = connection;
    this.#schema = schema;
    this.#now = now;
  }

  async runs(query: SurveyQuery): Promise<SurveyPage<FoundRun>> {
    if (query.statuses?.length === 0) return { runs: [], next: null };
    const parameters = new Parameters();
    const isNamed = await this.#isNamed(query);
    const candidates = this.#candidates(query, isNamed, parameters);
    const where = this.#conditions(query, parameters);
    const limit = parameters.count(query.limit);
    const rows = await this.#connection.query(
      `WITH seen AS MATERIALIZED (${candidates} ORDER BY id DESC LIMIT ${MAX_EXAMINED}),
         bounds AS (SELECT min(id) AS last, count(*) AS examined FROM seen),
         page AS (SELECT r.* FROM seen s JOIN ${this.#schema}.runs r ON r.id = s.id ${where} ORDER BY r.id DESC LIMIT ${limit})
       SELECT b.last, b.examined, ${runColumns}, ${createdColumn} FROM bounds b LEFT JOIN page r ON true
       LEFT JOIN ${this.#schema}.entries e ON e.run = r.id AND e.position = 0 ORDER BY r.id DESC`,
      parameters.values,
    );
    const examined = Number(rows[0]?.["examined"]);
    const last = toNumber(rows[0]?.["last"]);
    const found = rows.filter(({ id }) => id !== null);
    const runs = found.map(foundIn);
    if (found.length < query.limit) return { runs, next: examined < MAX_EXAMINED ? null : last };
    const place = Number(found.at(-1)?.["id"]);
    return { runs, next: examined < MAX_EXAMINED && place === last ? null : place };
  }

  /** Whether few enough runs have ids that begin so. The index has them in the order of their ids. */
  async #isNamed({ idPrefix = "" }: SurveyQuery): Promise<boolean> {
    if (idPrefix === "") return false;
    // A whole id, which at most one run of each tenant has.
    if (idPrefix.length === WHOLE_ID) return true;
    const [row] = await this.#connection.query(
      `SELECT count(*) AS runs FROM (SELECT 1 FROM ${this.#schema}.runs r
         WHERE r.run_id >= $1::text AND r.run_id < $2::text LIMIT ${MAX_EXAMINED + 1}) r`,
      [idPrefix, afterPrefix(idPrefix)],
    );
    return Number(row?.["runs"]) <= MAX_EXAMINED;
  }

  /** The ids of runs among which are all of the query, up to the place where the page begins. */
  #candidates(query: SurveyQuery, isNamed: boolean, parameters: Parameters): string {
    const { tenant, statuses, idPrefix, labels = {}, after } = query;
    const before = (column: string): string =>
      after === undefined ? "" : ` AND ${column} < ${parameters.count(after)}`;
    const runs = `SELECT r.id FROM ${this.#schema}.runs r WHERE`;
    if (isNamed && idPrefix !== undefined) {
      const from = parameters.text(idPrefix);
      return `${runs} r.run_id >= ${from} AND r.run_id < ${parameters.text(afterPrefix(idPrefix))}${before("r.id")}`;
    }
    const [label] = Object.entries(labels);
    if (tenant !== undefined && label !== undefined) {
      const [name, value] = label.map((text) => parameters.text(toText(text)));
      return `SELECT l.run AS id FROM ${this.#schema}.labels l
        WHERE l.tenant = ${parameters.text(toText(tenant))} AND l.name = ${name} AND l.value = ${value}${before("l.run")}`;
    }
    if (statuses !== undefined && !statuses.includes("completed")) {
      const parts = [...new Set(statuses)].map(
        (status) =>
          `(${runs} ${BY_STATE} AND r.status = ${parameters.text(status)}${before("r.id")} ORDER BY r.id DESC LIMIT ${MAX_EXAMINED})`,
      );
      if (statuses.some((status) => !isFinal(status)))
        parts.push(
          `(${runs} r.finished_at IS NULL AND r.owner IS NOT NULL AND ${hasStatus(statuses, parameters)}${before("r.id")})`,
        );
      return `SELECT id FROM (${parts.join(" UNION ALL ")}) r`;
    }
    if (tenant === undefined || tenant === "") return `${runs} true${before("r.id")}`;
    return `${runs} r.tenant = ${parameters.text(toText(tenant))} AND r.tenant <> ''${before("r.id")}`;
  }

  #conditions(query: SurveyQuery, parameters: Parameters): string {
    const { tenant, agent_name, version, statuses, labels = {}, idPrefix, roots, createdAfter, createdBefore } = query;
    const found: string[] = [];
    if (tenant !== undefined) found.push(`r.tenant = ${parameters.text(toText(tenant))}`);
    if (agent_name !== undefined) found.push(`r.agent_name = ${parameters.text(toText(agent_name))}`);
    if (version !== undefined) found.push(`r.version = ${parameters.text(markedText(version))}`);
    if (statuses !== undefined) found.push(hasStatus(statuses, parameters));
    if (idPrefix !== undefined) found.push(`starts_with(r.run_id, ${parameters.text(idPrefix)})`);
    if (roots === true) found.push("r.parent IS NULL");
    if (createdAfter !== undefined) found.push(`r.created_at >= ${parameters.number(createdAfter)}`);
    if (createdBefore !== undefined) found.push(`r.created_at < ${parameters.number(createdBefore)}`);
    for (const label of Object.entries(labels)) {
      const [name, value] = label.map((text) => parameters.text(toText(text)));
      found.push(
        `EXISTS (SELECT 1 FROM ${this.#schema}.labels l WHERE l.run = r.id AND l.name = ${name} AND l.value = ${value})`,
      );
    }
    return found.length === 0 ? "" : `WHERE ${found.join(" AND ")}`;
  }

  async tails(runs: readonly RunKey[], count: number): Promise<readonly (LogTail | undefined)[]> {
    const keys = runs.map(({ tenant, run_id }) => [toText(tenant), toText(run_id)]);
    const rows = await this.#connection.query(
      `SELECT k.n, r.position AS length, e.position, e.lines
       FROM jsonb_array_elements(($1::text)::jsonb) WITH ORDINALITY k (run, n)
       JOIN ${this.#schema}.runs r ON r.tenant = k.run ->> 0 AND r.run_id = k.run ->> 1
       CROSS JOIN LATERAL (SELECT max(b.position) AS position FROM ${this.#schema}.entries b
         WHERE b.run = r.id AND b.position <= greatest(r.position - $2::bigint, 0)) first
       LEFT JOIN LATERAL (SELECT b.position, b.lines FROM ${this.#schema}.entries b
         WHERE b.run = r.id AND b.position >= first.position) e ON true
       ORDER BY k.n, e.position`,
      [toJson(keys), countable(count)],
    );
    const batches = runs.map((): StoredRow[] => []);
    for (const row of rows) batches[Number(row["n"]) - 1]?.push(row);
    return runs.map((key, index) => tailOf(batches[index] ?? [], key, count));
  }

  async census(): Promise<readonly LiveCount[]> {
    const rows = await this.#connection.query(`SELECT * FROM ${this.#schema}.census_v1()`, []);
    return rows.map((row) => ({
      agent_name: fromText(String(row["agent_name"])),
      version: fromMarked(String(row["version"])),
      status: row["status"] as RunStatus,
      runs: Number(row["runs"]),
    }));
  }

  async lines({ after = "", limit }: LinesQuery): Promise<readonly SlotLine[]> {
    const rows = await this.#connection.query(
      `SELECT * FROM ${this.#schema}.lines_v1($1::text, $2::bigint, $3::float8)`,
      [markedText(after), countable(limit), this.#now()],
    );
    return rows.map((row) => {
      const line = toSlotLine(row, fromMarked(String(row["key"])) ?? "", fromMarked(String(row["version"])));
      const { max, count, per } = (row["its_limit"] ?? { max: line.max }) as StoredLimit;
      const next_at = toNumber(row["next_at"]);
      const { max: _max, ...rest } = line;
      return {
        ...rest,
        ...(max !== undefined && { max }),
        ...(count !== undefined && per !== undefined && { rate: { count, perMs: per } }),
        ...(next_at !== null && { next_at }),
      };
    });
  }

  async living(): Promise<readonly string[]> {
    const rows = await this.#connection.query(
      `SELECT l.owner FROM ${this.#schema}.leases l,
         coalesce($1::float8, floor(extract(epoch FROM now()) * 1000)::float8) clock
       WHERE least(l.until, clock + l.for_ms) > clock`,
      [this.#now()],
    );
    return rows.map(({ owner }) => fromText(String(owner)));
  }

  async workers(): Promise<readonly WorkerLease[]> {
    const owners = `SELECT r.owner FROM ${this.#schema}.runs r WHERE r.finished_at IS NULL AND r.owner IS NOT NULL`;
    const rows = await this.#connection.query(
      `WITH RECURSIVE clock (now) AS (
          SELECT coalesce($1::float8, floor(extract(epoch FROM now()) * 1000)::float8)
        ),
        owners (owner) AS (
          (${owners} ORDER BY r.owner LIMIT 1)
          UNION ALL
          SELECT (${owners} AND r.owner > o.owner ORDER BY r.owner LIMIT 1) FROM owners o WHERE o.owner IS NOT NULL
        ),
        found (owner, until) AS (
          SELECT l.owner, least(l.until, c.now + l.for_ms) FROM ${this.#schema}.leases l CROSS JOIN clock c
          UNION ALL
          SELECT o.owner, NULL FROM owners o
          WHERE o.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ${this.#schema}.leases l WHERE l.owner = o.owner)
        )
        SELECT f.owner, f.until, coalesce(f.until > c.now, false) AS is_alive, (
          SELECT count(*) FROM ${this.#schema}.runs r
          WHERE r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = f.owner
        ) AS runs FROM found f CROSS JOIN clock c`,
      [this.#now()],
    );
    return rows.map((row) => ({
      owner: fromText(String(row["owner"])),
      until: toNumber(row["until"]),
      is_alive: row["is_alive"] === true,
      runs: Number(row["runs"]),
    }));
  }
}

function hasStatus(statuses: readonly RunStatus[], parameters: Parameters): string {
  return `r.status IN (${statuses.map((status) => parameters.text(status)).join(", ")})`;
}

/** The last entries of a run, of which the batches are given. Undefined: there are none, or one is damaged. */
function tailOf(batches: readonly StoredRow[], key: RunKey, count: number): LogTail | undefined {
  const from = Math.max(0, Number(batches[0]?.["length"]) - count);
  try {
    const entries = entriesIn(batches, key, from, count);
    return entries && lastPart(from, entries);
  } catch (error) {
    if (isDamage(error)) return undefined;
    throw error;
  }
}
