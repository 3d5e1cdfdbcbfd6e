import type { RunsOfRule } from "../../core/ports.ts";
import { labelsOf } from "../../core/retention.ts";
import type { EndedPlace, Kept, Passed, Passing } from "../kept-runs.ts";
import type { Counted, EndedRuns, Rules, Stretch, Walk } from "../rule-walks.ts";
import type { StoredRow } from "../stored-rows.ts";
import { toText } from "../stored-rows.ts";
import type { Connection } from "./connection.ts";
import { clock } from "./connection.ts";
import { LONG_LOG } from "./delete-sql.ts";
import { Parameters } from "./list.ts";

/** How many runs are looked at in one statement: at first, at least, and at most. */
const FIRST_CHUNK = 100;
const LEAST_CHUNK = 25;
const LAST_CHUNK = 600;
/** How many entries are deleted in one statement, but for those of the last run. */
const MOST_ENTRIES = 1_500;
/** How many entries of a long log are deleted in one statement. */
const PIECE = 1_000;
/** How many runs below others are deleted in one statement. */
const MOST_BELOW = 100;
/** After this time progress that no process has made since is forgotten, in milliseconds: 60 days. */
const FORGOTTEN_MS = 60 * 86_400_000;
/** A chunk that takes longer is followed by a smaller one, and a chunk that takes less than half of it by a larger one. In milliseconds. */
const LONG_MS = 20;

type Place = EndedPlace<string>;

/** Before and behind all runs. */
export const START: Place = { at: Number.NEGATIVE_INFINITY, id: "0" };
const END: Place = { at: Number.POSITIVE_INFINITY, id: "9223372036854775807" };

/** How many runs statements look at, by the time that the last one took. */
class Chunk {
  size = FIRST_CHUNK;

  async timed<T>(work: () => Promise<T>): Promise<T> {
    const since = clock.monotonic();
    const result = await work();
    const tookMs = clock.monotonic() - since;
    if (tookMs > LONG_MS) this.size = Math.max(LEAST_CHUNK, Math.floor(this.size / 2));
    else if (tookMs < LONG_MS / 2) this.size = Math.min(2 * this.size, LAST_CHUNK);
    return result;
  }
}

/** Whether the parent of the run `n` has not ended. */
const isNeeded = (schema: string): string =>
  `(SELECT p.id FROM ${schema}.runs p WHERE p.tenant = n.tenant AND p.run_id = n.parent AND p.finished_at IS NULL) IS NOT NULL`;

/** Of the runs `n`: how many entries are deleted with those in front of each, if those with a condition are deleted. */
const entriesBefore = (condition: string): string =>
  `coalesce(sum(least(n.position, ${LONG_LOG})) FILTER (WHERE ${condition})
     OVER (ORDER BY n.finished_at, n.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS entries`;

/**
 * Deletes the ended runs up to a place, in small transactions. Answers how many. Runs whose parent has not ended stay: a parent that is executed again reads them. So do those that another transaction locks.
 */
export async function pruneRuns(connection: Connection, schema: string, last: Place): Promise<number> {
  const chunk = new Chunk();
  let deleted = 0;
  for (let place: Place | undefined = START; place !== undefined; ) {
    const from: Place = place;
    const [row] = await chunk.timed(() =>
      connection.query(
        `WITH next AS MATERIALIZED (
           SELECT r.id, r.tenant, r.parent, r.finished_at, r.position FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL
             AND (r.finished_at, r.id) > ($1::float8, $2::bigint) AND (r.finished_at, r.id) <= ($3::float8, $4::bigint)
           ORDER BY r.finished_at, r.id LIMIT $5::integer
         ), near AS MATERIALIZED (
           SELECT n.* FROM (SELECT n.*, ${entriesBefore("true")} FROM next n) n WHERE n.entries < ${MOST_ENTRIES}
         ), doomed AS MATERIALIZED (
           SELECT r.id FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL
             AND r.id = ANY (ARRAY(SELECT n.id FROM near n WHERE NOT ${isNeeded(schema)})) FOR UPDATE SKIP LOCKED
         )
         SELECT ${schema}.remove_runs_v1(ARRAY(SELECT d.id FROM doomed d)), (SELECT count(*) FROM doomed) AS deleted,
           l.finished_at AS at, l.id::text
         FROM (SELECT n.finished_at, n.id FROM near n ORDER BY n.finished_at DESC, n.id DESC LIMIT 1) l`,
        [from.at, from.id, last.at, last.id, chunk.size],
      ),
    );
    deleted += Number(row?.["deleted"] ?? 0);
    place = row && placeIn(row);
  }
  return deleted;
}

/** Deletes the entries that deleted runs have left, also those of a process that was killed meanwhile. */
export async function clearRemoved(connection: Connection, schema: string): Promise<void> {
  for (let isMore = true; isMore; ) {
    const [row] = await connection.query(`SELECT ${schema}.clear_removed_v1(${PIECE}) AS more`, []);
    isMore = row?.["more"] === true;
  }
}

/** What the walks of retention rules and the count of kept runs do in the database. `now`: the time by a clock of the store, or null for the server's. */
export function endedRuns(connection: Connection, schema: string, now: () => number | null): EndedRuns<string> {
  const chunk = new Chunk();
  const time = "coalesce($2::float8, floor(extract(epoch FROM now()) * 1000))";
  return {
    ends: [START, END],
    pass: (passing) => passOver(connection, schema, passing),
    before: (kept) => placeBefore(connection, schema, kept),
    count: (rules, stretch) => chunk.timed(() => countByRule(connection, schema, rules, stretch, chunk.size)),
    prune: (rules, walk) => chunk.timed(() => pruneByRule(connection, schema, rules, walk, chunk.size)),
    async load(key) {
      const [row] = await connection.query(
        `SELECT ${time} AS now, (SELECT p.progress FROM ${schema}.retention p WHERE p.key = $1::text) AS text`,
        [key, now()],
      );
      return { text: (row?.["text"] ?? null) as string | null, now: Number(row?.["now"]) };
    },
    async save(key, before, after) {
      const [row] = await connection.query(
        `WITH forgotten AS (
           DELETE FROM ${schema}.retention p WHERE p.key <> $1::text AND p.at < ${time} - ${FORGOTTEN_MS}
         ), saved AS (
           INSERT INTO ${schema}.retention AS p (key, progress, at) SELECT $1::text, $4::text, ${time}
           WHERE $3::text IS NULL OR EXISTS (SELECT 1 FROM ${schema}.retention p WHERE p.key = $1::text)
           ON CONFLICT (key) DO UPDATE SET progress = excluded.progress, at = excluded.at WHERE p.progress = $3::text
           RETURNING 1
         ) SELECT count(*) AS saved FROM saved`,
        [key, now(), before, after],
      );
      return Number(row?.["saved"]) === 1;
    },
  };
}

/** The number of the rule that counts for a run, or another value for each rule. */
function caseOf(
  schema: string,
  parameters: Parameters,
  rules: Rules,
  run: string,
  value: (rule: number) => number = (rule) => rule,
): string {
  const cases = rules.map((rule, index) => {
    const conditions = conditionsOf(schema, parameters, rule, run);
    return `WHEN ${["true", ...conditions].join(" AND ")} THEN ${parameters.number(value(index))}`;
  });
  return `CASE ${cases.join(" ")} END`;
}

function conditionsOf(schema: string, parameters: Parameters, rule: RunsOfRule, run: string): readonly string[] {
  const text = (value: string): string => parameters.text(toText(value));
  const found: string[] = [];
  if (rule.agent_name !== undefined) found.push(`${run}.agent_name = ${text(rule.agent_name)}`);
  if (rule.tenant !== undefined) found.push(`${run}.tenant = ${text(rule.tenant)}`);
  // Without the offset each statement might read all runs of the label, to look up the few of its chunk among them.
  for (const [name, value] of labelsOf(rule))
    found.push(
      `EXISTS (SELECT 1 FROM ${schema}.labels l WHERE l.run = ${run}.id AND l.name = ${text(name)} AND l.value = ${text(value)} OFFSET 0)`,
    );
  return found;
}

function inStretch(parameters: Parameters, { from, to }: Stretch<string>): string {
  const place = ({ at, id }: Place): string => `(${parameters.number(at)}, ${parameters.text(id)}::bigint)`;
  return `r.finished_at IS NOT NULL AND (r.finished_at, r.id) > ${place(from)} AND (r.finished_at, r.id) <= ${place(to)}`;
}

async function countByRule(
  connection: Connection,
  schema: string,
  rules: Rules,
  stretch: Stretch<string>,
  chunk: number,
): Promise<Counted<string> | undefined> {
  const parameters = new Parameters();
  const rows = await connection.query(
    `SELECT r.id::text, r.finished_at AS at, ${caseOf(schema, parameters, rules, "r")} AS rule FROM ${schema}.runs r
     WHERE ${inStretch(parameters, stretch)} ORDER BY r.finished_at, r.id LIMIT ${parameters.count(chunk)}`,
    parameters.values,
  );
  const last = rows.at(-1);
  const found = rows.map((row) => ({ ...placeIn(row), rule: Number(row["rule"]) }));
  const isCounted = (rule: number): boolean => Number.isFinite(rules[rule]?.maxRuns);
  return last && { last: placeIn(last), found: found.filter(({ rule }) => isCounted(rule)) };
}

async function pruneByRule(
  connection: Connection,
  schema: string,
  rules: Rules,
  walk: Walk<string>,
  chunk: number,
): Promise<{ readonly deleted: number; readonly last: Place | undefined; readonly hasSkipped: boolean }> {
  const parameters = new Parameters();
  const isDoomed = `n.rule = ANY ('{${walk.of.join(",")}}'::float8[])`;
  const before = (rule: number): number => walk.passed[rule] ?? START.at;
  const [row] = await connection.query(
    `WITH next AS MATERIALIZED (
       SELECT r.id, r.tenant, r.run_id, r.parent, r.finished_at, r.position, ${caseOf(schema, parameters, rules, "r")} AS rule
       FROM ${schema}.runs r WHERE ${inStretch(parameters, walk)}
       ORDER BY r.finished_at, r.id LIMIT ${parameters.count(chunk)}
     ), near AS MATERIALIZED (
       SELECT n.* FROM (SELECT n.*, ${entriesBefore(isDoomed)} FROM next n) n WHERE n.entries < ${MOST_ENTRIES}
     ), below AS MATERIALIZED (
       SELECT c.id FROM near n CROSS JOIN LATERAL (
         SELECT c.* FROM ${schema}.runs c WHERE c.tenant = n.tenant AND c.parent = n.run_id AND c.parent IS NOT NULL OFFSET 0
       ) c WHERE c.finished_at < ${caseOf(schema, parameters, rules, "c", before)} LIMIT ${MOST_BELOW}
     ), wanted AS MATERIALIZED (
       SELECT b.id FROM below b
       UNION ALL SELECT n.id FROM near n WHERE ${isDoomed} AND NOT ${isNeeded(schema)} AND NOT EXISTS (SELECT 1 FROM below)
     ), doomed AS MATERIALIZED (
       SELECT r.id FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL AND r.id = ANY (ARRAY(SELECT w.id FROM wanted w))
       FOR UPDATE SKIP LOCKED
     )
     SELECT ${schema}.remove_runs_v1(ARRAY(SELECT d.id FROM doomed d)), (SELECT count(*) FROM doomed) AS deleted,
       (SELECT count(*) FROM wanted) AS wanted, EXISTS (SELECT 1 FROM below) AS stays, l.finished_at AS at, l.id::text
     FROM (SELECT n.finished_at, n.id FROM near n ORDER BY n.finished_at DESC, n.id DESC LIMIT 1) l`,
    parameters.values,
  );
  if (row === undefined) return { deleted: 0, last: undefined, hasSkipped: false };
  const deleted = Number(row["deleted"]);
  const hasSkipped = deleted < Number(row["wanted"]);
  // The parents are looked at again, unless what is below them is locked.
  return { deleted, last: row["stays"] === true && !hasSkipped ? walk.from : placeIn(row), hasSkipped };
}

/** Passes over ended runs: see `PassedRuns`. */
async function passOver(
  connection: Connection,
  schema: string,
  { from, to, most }: Passing<string>,
): Promise<Passed<string> | undefined> {
  const [row] = await connection.query(
    `SELECT p.at, p.id::text, p.runs FROM (
       SELECT r.finished_at AS at, r.id, row_number() OVER (ORDER BY r.finished_at, r.id) AS runs
       FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL
       AND (r.finished_at, r.id) > ($1::float8, $2::bigint) AND (r.finished_at, r.id) <= ($3::float8, $4::bigint)
       ORDER BY r.finished_at, r.id LIMIT $5::bigint
     ) p ORDER BY p.runs DESC LIMIT 1`,
    [from.at, from.id, to.at, to.id, most],
  );
  return row && { runs: Number(row["runs"]), last: placeIn(row) };
}

/** The newest run before the kept ones: see `PassedRuns`. */
async function placeBefore(
  connection: Connection,
  schema: string,
  { from, to, count }: Kept<string>,
): Promise<Place | undefined> {
  const [row] = await connection.query(
    `SELECT r.finished_at AS at, r.id::text FROM ${schema}.runs r WHERE r.finished_at IS NOT NULL
       AND (r.finished_at, r.id) > ($1::float8, $2::bigint) AND (r.finished_at, r.id) <= ($3::float8, $4::bigint)
     ORDER BY r.finished_at DESC, r.id DESC LIMIT 1 OFFSET $5::bigint`,
    [from.at, from.id, to.at, to.id, count],
  );
  return row && placeIn(row);
}

function placeIn(row: StoredRow): Place {
  return { at: Number(row["at"]), id: String(row["id"]) };
}
